#include "hostcuda/stream.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

// CUDA declares these two and leaves them opaque.
struct CUstream_st {
  unsigned flags = 0;
  int priority = 0;
  unsigned long long id = 0;
  std::map<int, cudaStreamAttrValue> attributes;
};

struct CUevent_st {
  unsigned flags = 0;
  std::optional<std::chrono::steady_clock::time_point> recorded;
};

namespace r3::hostcuda {
namespace {

template <class Object>
class Table {
 public:
  Object* add(Object object) {
    const std::lock_guard lock(mutex_);
    auto* made = new Object(std::move(object));
    objects_.emplace(made, std::unique_ptr<Object>(made));
    return made;
  }
  bool remove(Object* object) {
    const std::lock_guard lock(mutex_);
    return objects_.erase(object) == 1;
  }
  bool has(Object* object) {
    const std::lock_guard lock(mutex_);
    return objects_.contains(object);
  }
  void clear() {
    const std::lock_guard lock(mutex_);
    objects_.clear();
  }

 private:
  std::mutex mutex_;
  std::map<Object*, std::unique_ptr<Object>> objects_;
};

Table<CUstream_st>& streams() {
  static auto& table = *new Table<CUstream_st>;
  return table;
}

Table<CUevent_st>& events() {
  static auto& table = *new Table<CUevent_st>;
  return table;
}

CUstream_st& default_stream(cudaStream_t stream) {
  static auto& legacy = *new CUstream_st{0, 0, 1, {}};
  static auto& per_thread = *new CUstream_st{0, 0, 2, {}};
  return stream == cudaStreamPerThread ? per_thread : legacy;
}

bool is_default(cudaStream_t stream) { return !stream || stream == cudaStreamLegacy || stream == cudaStreamPerThread; }

CUstream_st* find(cudaStream_t stream) {
  if (is_default(stream)) return &default_stream(stream);
  return streams().has(stream) ? stream : nullptr;
}

cudaError_t create(cudaStream_t* out, unsigned flags, int priority) {
  static std::atomic<unsigned long long> next_id{3};
  if (!out || (flags & ~static_cast<unsigned>(cudaStreamNonBlocking))) return cudaErrorInvalidValue;
  *out = streams().add({flags, std::clamp(priority, greatest_stream_priority, 0), next_id++, {}});
  return cudaSuccess;
}

// A call that needs a stream: it gets it, or the call fails.
template <class Body>
cudaError_t on(cudaStream_t stream, Body&& body) {
  return call([&] {
    CUstream_st* found = find(stream);
    return found ? body(*found) : cudaErrorInvalidResourceHandle;
  });
}

cudaError_t record(cudaEvent_t event, cudaStream_t stream) {
  return on(stream, [&](CUstream_st&) {
    if (!events().has(event)) return cudaErrorInvalidResourceHandle;
    event->recorded = std::chrono::steady_clock::now();
    return cudaSuccess;
  });
}

cudaError_t known_event(cudaEvent_t event) {
  return call([&] { return events().has(event) ? cudaSuccess : cudaErrorInvalidResourceHandle; });
}

cudaError_t done(cudaStream_t stream) {
  return on(stream, [](CUstream_st&) { return cudaSuccess; });
}

}  // namespace

bool valid(cudaStream_t stream) { return find(stream) != nullptr; }

void forget_streams_and_events() {
  streams().clear();
  events().clear();
}

}  // namespace r3::hostcuda

using namespace r3::hostcuda;

cudaError_t cudaStreamCreate(cudaStream_t* out) {
  return call([&] { return create(out, cudaStreamDefault, 0); });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* out, unsigned flags) {
  return call([&] { return create(out, flags, 0); });
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* out, unsigned flags, int priority) {
  return call([&] { return create(out, flags, priority); });
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return call([&] { return streams().remove(stream) ? cudaSuccess : cudaErrorInvalidResourceHandle; });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) { return done(stream); }
R3_PTSZ(cudaStreamSynchronize);
cudaError_t cudaStreamQuery(cudaStream_t stream) { return done(stream); }
R3_PTSZ(cudaStreamQuery);

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  return on(stream, [&](CUstream_st& s) {
    if (!priority) return cudaErrorInvalidValue;
    *priority = s.priority;
    return cudaSuccess;
  });
}
R3_PTSZ(cudaStreamGetPriority);

cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned* flags) {
  return on(stream, [&](CUstream_st& s) {
    if (!flags) return cudaErrorInvalidValue;
    *flags = s.flags;
    return cudaSuccess;
  });
}
R3_PTSZ(cudaStreamGetFlags);

cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long* id) {
  return on(stream, [&](CUstream_st& s) {
    if (!id) return cudaErrorInvalidValue;
    *id = s.id;
    return cudaSuccess;
  });
}
R3_PTSZ(cudaStreamGetId);

cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* device) {
  return on(stream, [&](CUstream_st&) {
    if (!device) return cudaErrorInvalidValue;
    *device = 0;
    return cudaSuccess;
  });
}
R3_PTSZ(cudaStreamGetDevice);

cudaError_t cudaStreamGetAttribute(cudaStream_t stream, cudaStreamAttrID attribute, cudaStreamAttrValue* value) {
  return on(stream, [&](CUstream_st& s) {
    if (!value) return cudaErrorInvalidValue;
    const auto found = s.attributes.find(static_cast<int>(attribute));
    *value = found == s.attributes.end() ? cudaStreamAttrValue{} : found->second;
    if (attribute == cudaLaunchAttributePriority) value->priority = s.priority;
    return cudaSuccess;
  });
}
R3_PTSZ(cudaStreamGetAttribute);

cudaError_t cudaStreamSetAttribute(cudaStream_t stream, cudaStreamAttrID attribute, const cudaStreamAttrValue* value) {
  return on(stream, [&](CUstream_st& s) {
    if (!value) return cudaErrorInvalidValue;
    s.attributes[static_cast<int>(attribute)] = *value;
    return cudaSuccess;
  });
}
R3_PTSZ(cudaStreamSetAttribute);

cudaError_t cudaStreamCopyAttributes(cudaStream_t to, cudaStream_t from) {
  return on(to, [&](CUstream_st& target) {
    const CUstream_st* source = find(from);
    if (!source) return cudaErrorInvalidResourceHandle;
    target.attributes = source->attributes;
    return cudaSuccess;
  });
}
R3_PTSZ(cudaStreamCopyAttributes);

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  return on(stream, [&](CUstream_st&) { return events().has(event) ? cudaSuccess : cudaErrorInvalidResourceHandle; });
}
R3_PTSZ(cudaStreamWaitEvent);

// No stream ever captures: see unsupported.def for the calls that would begin it.
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return on(stream, [&](CUstream_st&) {
    if (!status) return cudaErrorInvalidValue;
    *status = cudaStreamCaptureStatusNone;
    return cudaSuccess;
  });
}
R3_PTSZ(cudaStreamIsCapturing);

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id,
                                     cudaGraph_t* graph, const cudaGraphNode_t** dependencies,
                                     const cudaGraphEdgeData** edges, size_t* n_dependencies) {
  return on(stream, [&](CUstream_st&) {
    if (!status) return cudaErrorInvalidValue;
    *status = cudaStreamCaptureStatusNone;
    if (id) *id = 0;
    if (graph) *graph = nullptr;
    if (dependencies) *dependencies = nullptr;
    if (edges) *edges = nullptr;
    if (n_dependencies) *n_dependencies = 0;
    return cudaSuccess;
  });
}
R3_PTSZ(cudaStreamGetCaptureInfo);

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return query([&] {
    thread_local cudaStreamCaptureMode current = cudaStreamCaptureModeGlobal;
    if (!mode) return cudaErrorInvalidValue;
    std::swap(*mode, current);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void* data, unsigned flags) {
  return on(stream, [&](CUstream_st&) {
    if (!callback || flags != 0) return cudaErrorInvalidValue;
    callback(stream, cudaSuccess, data);
    return cudaSuccess;
  });
}
R3_PTSZ(cudaStreamAddCallback);

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return on(stream, [&](CUstream_st&) {
    if (!function) return cudaErrorInvalidValue;
    function(data);
    return cudaSuccess;
  });
}
R3_PTSZ(cudaLaunchHostFunc);

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* out, unsigned flags) {
  return call([&] {
    constexpr unsigned known = cudaEventBlockingSync | cudaEventDisableTiming | cudaEventInterprocess;
    if (!out || (flags & ~known)) return cudaErrorInvalidValue;
    *out = events().add({flags, {}});
    return cudaSuccess;
  });
}

cudaError_t cudaEventCreate(cudaEvent_t* out) { return cudaEventCreateWithFlags(out, cudaEventDefault); }

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return call([&] { return events().remove(event) ? cudaSuccess : cudaErrorInvalidResourceHandle; });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) { return record(event, stream); }
R3_PTSZ(cudaEventRecord);
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) { return record(event, stream); }
R3_PTSZ(cudaEventRecordWithFlags);
cudaError_t cudaEventQuery(cudaEvent_t event) { return known_event(event); }
cudaError_t cudaEventSynchronize(cudaEvent_t event) { return known_event(event); }

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  return call([&] {
    if (!milliseconds) return cudaErrorInvalidValue;
    for (const cudaEvent_t event : {start, end}) {
      if (!events().has(event) || !event->recorded || (event->flags & cudaEventDisableTiming)) {
        return cudaErrorInvalidResourceHandle;
      }
    }
    *milliseconds = std::chrono::duration<float, std::milli>(*end->recorded - *start->recorded).count();
    return cudaSuccess;
  });
}
