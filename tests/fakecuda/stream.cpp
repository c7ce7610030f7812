// Streams, events, capture and graphs.
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "fake.h"

namespace fake {
namespace {

thread_local std::map<Context*, Stream*>& per_thread = *new std::map<Context*, Stream*>;
thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

Stream* make_stream(Context& context, unsigned flags, int priority) {
  auto* stream = new Stream{.context = &context, .blocking = !(flags & CU_STREAM_NON_BLOCKING), .priority = priority};
  context.streams.insert(stream);
  state().streams.insert(stream);
  return stream;
}

bool may_start(const Stream& stream, std::uint64_t number) {
  const Context& context = *stream.context;
  if (&stream == context.legacy) {
    return std::ranges::none_of(context.streams, [&](const Stream* other) {
      return other->blocking && !other->queue.empty() && other->queue.front().number < number;
    });
  }
  const auto& legacy = context.legacy->queue;
  return !stream.blocking || legacy.empty() || legacy.front().number > number;
}

Event& event_of(CUevent handle) { return *checked(state().events, handle); }

std::shared_ptr<Graph> graph_of(const std::set<std::shared_ptr<Graph>>& graphs, void* handle) {
  const auto found = std::ranges::find_if(graphs, [&](const auto& graph) { return graph.get() == handle; });
  require(found != graphs.end(), CUDA_ERROR_INVALID_VALUE);
  return *found;
}

void forbid_capturing(Stream& stream) {
  if (!stream.capture) return;
  stream.invalidated = true;
  throw Failure{CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED};
}

CUresult write_value(CUstream handle, CUdeviceptr at, std::uint64_t value, std::size_t size, const char* name) {
  return in_context(
      [&](Context& context) {
        enqueue(stream_of(handle, context), [&context, at, value, size] {
          context.fault = run_on_device(context, [&] { std::memcpy(reinterpret_cast<void*>(at), &value, size); });
          return true;
        });
      },
      name);
}

template <typename Value>
CUresult wait_value(CUstream handle, CUdeviceptr at, Value value, unsigned flags, const char* name) {
  return in_context(
      [&](Context& context) {
        require(find_block(at), CUDA_ERROR_INVALID_VALUE);
        enqueue(stream_of(handle, context), [&context, at, value, flags] {
          Value now = 0;
          context.fault = run_on_device(
              context, [&] { now = *static_cast<const volatile Value*>(reinterpret_cast<const void*>(at)); });
          switch (flags & 3) {
            case CU_STREAM_WAIT_VALUE_EQ:
              return now == value;
            case CU_STREAM_WAIT_VALUE_AND:
              return (now & value) != 0;
            case CU_STREAM_WAIT_VALUE_NOR:
              return static_cast<Value>(~(now | value)) != 0;
            default:
              return static_cast<std::make_signed_t<Value>>(now - value) >= 0;
          }
        });
      },
      name);
}

CUresult instantiate(CUgraphExec* instance, CUgraph handle, const char* name) {
  return in_context(
      [&](Context&) {
        const auto copy = std::make_shared<Graph>(*graph_of(state().graphs, handle));
        state().instances.insert(copy);
        *instance = reinterpret_cast<CUgraphExec>(copy.get());
      },
      name);
}

CUresult capture_info(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id, const char* name) {
  return in_context(
      [&](Context& context) {
        const Stream& stream = stream_of(handle, context);
        *status = !stream.capture      ? CU_STREAM_CAPTURE_STATUS_NONE
                  : stream.invalidated ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                       : CU_STREAM_CAPTURE_STATUS_ACTIVE;
        if (id) *id = stream.capture_id;
      },
      name);
}

}  // namespace

Stream& stream_of(CUstream handle, Context& context) {
  if (!handle || handle == CU_STREAM_LEGACY) return *context.legacy;
  if (handle == CU_STREAM_PER_THREAD) {
    Stream*& stream = per_thread[&context];
    if (!stream || !context.streams.contains(stream)) stream = make_stream(context, CU_STREAM_DEFAULT, 0);
    return *stream;
  }
  return *checked(state().streams, handle);
}

void enqueue(Stream& stream, Operation operation) {
  if (stream.capture) {
    require(!stream.invalidated, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    stream.capture->nodes.push_back(std::move(operation));
    return;
  }
  if (&stream == stream.context->legacy) {  // it would have to wait for what is captured
    for (Stream* other : stream.context->streams) {
      if (!other->capture || !other->blocking) continue;
      other->invalidated = true;
      throw Failure{CUDA_ERROR_STREAM_CAPTURE_IMPLICIT};
    }
  }
  stream.queue.push_back({++state().operations, std::move(operation)});
  progress(*stream.context);
}

void progress(Context& context) {
  if (on_device()) return;
  for (bool more = true; more && !context.fault;) {
    more = false;
    for (Stream* stream : context.streams) {
      while (!stream->queue.empty() && may_start(*stream, stream->queue.front().number)) {
        if (!stream->queue.front().operation()) break;
        stream->queue.pop_front();
        more = true;
        if (context.fault) break;
      }
      if (context.fault) break;
    }
  }
  if (context.fault) {
    for (Stream* stream : context.streams) stream->queue.clear();
  }
}

bool idle(const Context& context) {
  return std::ranges::all_of(context.streams, [](const Stream* stream) { return stream->queue.empty(); });
}

void synchronize(Context& context, const std::function<bool()>& done) {
  for (;;) {
    progress(context);
    if (context.fault) {
      context.sticky = context.fault;
      throw Failure{context.sticky};
    }
    if (done()) return;
    // Let others in: one of them may write the value that a stream waits for.
    state().lock.unlock();
    sched_yield();
    state().lock.lock();
  }
}

void forbid_in_capture() {
  if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return;
  for (Stream* stream : current()->streams) {
    if (!stream->capture || stream->mode != CU_STREAM_CAPTURE_MODE_GLOBAL) continue;
    stream->invalidated = true;
    throw Failure{CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED};
  }
}

}  // namespace fake

using namespace fake;

CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority) {
  return in_context([&](Context& context) {
    require(stream && flags <= CU_STREAM_NON_BLOCKING, CUDA_ERROR_INVALID_VALUE);
    *stream = reinterpret_cast<CUstream>(make_stream(context, flags, priority));
  });
}

CUresult cuStreamCreate(CUstream* stream, unsigned flags) { return cuStreamCreateWithPriority(stream, flags, 0); }

CUresult cuStreamDestroy(CUstream handle) {
  return in_context([&](Context&) {
    Stream* stream = checked(state().streams, handle);
    if (stream->queue.empty()) {
      state().streams.erase(stream);
      stream->context->streams.erase(stream);
      delete stream;
    } else {  // what it holds still runs
      state().streams.erase(stream);
    }
  });
}

CUresult cuStreamSynchronize(CUstream handle) {
  return in_context([&](Context& context) {
    Stream& stream = stream_of(handle, context);
    forbid_capturing(stream);
    forbid_in_capture();
    synchronize(*stream.context, [&] { return stream.queue.empty(); });
  });
}

CUresult cuStreamQuery(CUstream handle) {
  return in_context([&](Context& context) {
    Stream& stream = stream_of(handle, context);
    forbid_capturing(stream);
    forbid_in_capture();
    synchronize(*stream.context, [] { return true; });
    require(stream.queue.empty(), CUDA_ERROR_NOT_READY);
  });
}

CUresult cuStreamWaitEvent(CUstream handle, CUevent event, unsigned) {
  return in_context([&](Context& context) {
    Event* awaited = &event_of(event);
    enqueue(stream_of(handle, context), [awaited] { return !state().events.contains(awaited) || awaited->done; });
  });
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext* result) {
  return in_context(
      [&](Context& context) { *result = reinterpret_cast<CUcontext>(stream_of(handle, context).context); });
}

CUresult cuStreamGetDevice(CUstream handle, CUdevice* device) {
  return in_context([&](Context& context) { *device = stream_of(handle, context).context->device; });
}

CUresult cuStreamGetFlags(CUstream handle, unsigned* flags) {
  return in_context([&](Context& context) {
    *flags = stream_of(handle, context).blocking ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING;
  });
}

CUresult cuStreamGetPriority(CUstream handle, int* priority) {
  return in_context([&](Context& context) { *priority = stream_of(handle, context).priority; });
}

CUresult cuStreamGetId(CUstream handle, unsigned long long* id) {
  return in_context([&](Context& context) { *id = reinterpret_cast<std::uintptr_t>(&stream_of(handle, context)); });
}

CUresult cuLaunchHostFunc(CUstream handle, CUhostFn function, void* data) {
  return in_context([&](Context& context) {
    enqueue(stream_of(handle, context), [=] {
      function(data);
      return true;
    });
  });
}

CUresult cuStreamAddCallback(CUstream handle, CUstreamCallback function, void* data, unsigned) {
  return in_context([&](Context& context) {
    enqueue(stream_of(handle, context), [=] {
      function(handle, CUDA_SUCCESS, data);
      return true;
    });
  });
}

CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr at, cuuint32_t value, unsigned) {
  return write_value(stream, at, value, 4, __func__);
}
CUresult cuStreamWriteValue64(CUstream stream, CUdeviceptr at, cuuint64_t value, unsigned) {
  return write_value(stream, at, value, 8, __func__);
}
CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr at, cuuint32_t value, unsigned flags) {
  return wait_value<cuuint32_t>(stream, at, value, flags, __func__);
}
CUresult cuStreamWaitValue64(CUstream stream, CUdeviceptr at, cuuint64_t value, unsigned flags) {
  return wait_value<cuuint64_t>(stream, at, value, flags, __func__);
}

// Events

CUresult cuEventCreate(CUevent* event, unsigned flags) {
  return in_context([&](Context& context) {
    require(event, CUDA_ERROR_INVALID_VALUE);
    auto* created = new Event{.context = &context, .flags = flags};
    context.events.insert(created);
    state().events.insert(created);
    *event = reinterpret_cast<CUevent>(created);
  });
}

CUresult cuEventDestroy(CUevent handle) {
  return in_context([&](Context&) {
    Event* event = &event_of(handle);
    state().events.erase(event);
    event->context->events.erase(event);
    delete event;
  });
}

CUresult cuEventRecord(CUevent handle, CUstream stream) {
  return in_context([&](Context& context) {
    Event* event = &event_of(handle);
    Stream& into = stream_of(stream, context);
    require(into.context == event->context, CUDA_ERROR_INVALID_HANDLE);
    if (!into.capture) {
      event->recorded = true;
      event->done = false;
    }
    enqueue(into, [event] {
      if (!state().events.contains(event)) return true;
      event->time = state().clock;
      event->done = true;
      return true;
    });
  });
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned) { return cuEventRecord(event, stream); }

CUresult cuEventSynchronize(CUevent handle) {
  return in_context([&](Context&) {
    Event& event = event_of(handle);
    forbid_in_capture();
    synchronize(*event.context, [&] { return event.done; });
  });
}

CUresult cuEventQuery(CUevent handle) {
  return in_context([&](Context&) {
    Event& event = event_of(handle);
    forbid_in_capture();
    synchronize(*event.context, [] { return true; });
    require(event.done, CUDA_ERROR_NOT_READY);
  });
}

CUresult cuEventElapsedTime(float* milliseconds, CUevent from, CUevent to) {
  return in_context([&](Context&) {
    const Event &first = event_of(from), &last = event_of(to);
    for (const Event* event : {&first, &last}) {
      require(event->recorded && !(event->flags & CU_EVENT_DISABLE_TIMING), CUDA_ERROR_INVALID_HANDLE);
    }
    require(first.done && last.done, CUDA_ERROR_NOT_READY);
    *milliseconds = static_cast<float>((last.time - first.time) * 1e3);
  });
}

// Capture and graphs

CUresult cuStreamBeginCapture(CUstream handle, CUstreamCaptureMode mode) {
  return in_context([&](Context& context) {
    Stream& stream = stream_of(handle, context);
    require(&stream != context.legacy, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    require(!stream.capture, CUDA_ERROR_ILLEGAL_STATE);
    stream.capture = std::make_shared<Graph>();
    stream.mode = mode;
    stream.invalidated = false;
    stream.capture_id = ++state().operations;
  });
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph* graph) {
  return in_context([&](Context& context) {
    Stream& stream = stream_of(handle, context);
    require(stream.capture != nullptr, CUDA_ERROR_ILLEGAL_STATE);
    const auto captured = std::exchange(stream.capture, nullptr);
    *graph = nullptr;
    require(!stream.invalidated, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    state().graphs.insert(captured);
    *graph = reinterpret_cast<CUgraph>(captured.get());
  });
}

CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
  return capture_info(handle, status, nullptr, __func__);
}

CUresult cuStreamGetCaptureInfo(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph*,
                                const CUgraphNode**, const CUgraphEdgeData**, size_t*) {
  return capture_info(handle, status, id, __func__);
}

R3_EXPORT CUresult cuStreamGetCaptureInfo_v2(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph*,
                                             const CUgraphNode**, size_t*) {
  return capture_info(handle, status, id, __func__);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  return in_driver([&] { std::swap(*mode, thread_mode); });
}

CUresult cuGraphCreate(CUgraph* handle, unsigned) {
  return in_context([&](Context&) {
    const auto graph = std::make_shared<Graph>();
    state().graphs.insert(graph);
    *handle = reinterpret_cast<CUgraph>(graph.get());
  });
}

CUresult cuGraphDestroy(CUgraph handle) {
  return in_context([&](Context&) { state().graphs.erase(graph_of(state().graphs, handle)); });
}

CUresult cuGraphGetNodes(CUgraph handle, CUgraphNode*, size_t* count) {
  return in_context([&](Context&) { *count = graph_of(state().graphs, handle)->nodes.size(); });
}

CUresult cuGraphInstantiate(CUgraphExec* instance, CUgraph graph, unsigned long long) {
  return instantiate(instance, graph, __func__);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec* instance, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS*) {
  return instantiate(instance, graph, __func__);
}

CUresult cuGraphExecDestroy(CUgraphExec handle) {
  return in_context([&](Context&) { state().instances.erase(graph_of(state().instances, handle)); });
}

CUresult cuGraphUpload(CUgraphExec handle, CUstream) {
  return in_context([&](Context&) { graph_of(state().instances, handle); });
}

CUresult cuGraphLaunch(CUgraphExec handle, CUstream stream) {
  return in_context([&](Context& context) {
    const auto graph = graph_of(state().instances, handle);
    for (const Operation& node : graph->nodes) enqueue(stream_of(stream, context), node);
  });
}
