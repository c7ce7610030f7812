// Initialisation, devices, contexts.
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "fake.h"

namespace fake {
namespace {

// Never destroyed: exit handlers call us after the thread's own objects are gone.
thread_local std::vector<Context*>& stack = *new std::vector<Context*>;

std::size_t setting(const char* name, std::size_t otherwise) {
  const char* text = std::getenv(name);
  return text && *text ? std::strtoull(text, nullptr, 0) : otherwise;
}

void require_device(CUdevice device) { require(device >= 0 && device < device_count(), CUDA_ERROR_INVALID_DEVICE); }

Context* make_context(int device, bool primary, unsigned flags) {
  auto* context = new Context{.device = device, .primary = primary, .flags = flags};
  context->legacy = new Stream{.context = context};
  context->streams.insert(context->legacy);
  state().contexts.insert(context);
  return context;
}

// What it held is gone; the object stays, for other threads may have it current.
void destroy(Context& context) {
  context.fault = context.sticky = CUDA_SUCCESS;
  for (Stream* stream : context.streams) stream->queue.clear();
  while (!context.modules.empty()) unload(*context.modules.begin());
  for (Stream* stream : context.streams) {
    state().streams.erase(stream);
    if (stream != context.legacy) delete stream;
  }
  context.streams = {context.legacy};
  for (Event* event : context.events) {
    state().events.erase(event);
    delete event;
  }
  context.events.clear();
  for (Library* library : state().libraries) library->modules.erase(&context);
  release_all(context);
}

Context& context_of(CUcontext handle) {
  const auto found = state().contexts.find(reinterpret_cast<Context*>(handle));
  require(found != state().contexts.end(), CUDA_ERROR_INVALID_CONTEXT);
  require(!(*found)->dead, CUDA_ERROR_CONTEXT_IS_DESTROYED);
  return **found;
}

std::pair<int, int> capability() {
  const char* text = std::getenv("FAKECUDA_ARCH");
  if (!text) return {9, 0};
  const char* point = std::strchr(text, '.');
  return {std::atoi(text), point ? std::atoi(point + 1) : 0};
}

int attribute(CUdevice_attribute which) {
  switch (which) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y:
      return 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z:
      return 64;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
      return 0x7fffffff;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z:
      return 65535;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
      return 48 << 10;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      return 227 << 10;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
      return 228 << 10;
    case CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK:
      return 1 << 10;
    case CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY:
      return 64 << 10;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
      return 32;
    case CU_DEVICE_ATTRIBUTE_MAX_PITCH:
      return 0x7fffffff;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR:
      return 65536;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE:
      return 1000000;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH:
      return 6144;
    case CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT:
      return 512;
    case CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT:
      return 32;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      return 4;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
      return 2048;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR:
      return 32;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
      return 1 << 20;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
      return 3;
    case CU_DEVICE_ATTRIBUTE_GPU_OVERLAP:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
    case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
    case CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR:
      return 1;
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
      return !std::getenv("FAKECUDA_NO_VMM");
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      return capability().first;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      return capability().second;
    default:
      return 0;
  }
}

// Exit handlers that run after this library's find the driver gone, as they do with the real one.
__attribute__((destructor)) void deinitialise() { state().deinitialised = true; }

}  // namespace

State& state() {
  static State& state = *new State;  // never destroyed: other libraries' exit handlers call us
  return state;
}

int device_count() {
  static const int count = static_cast<int>(setting("FAKECUDA_DEVICES", 1));
  return count;
}

std::size_t device_memory() {
  static const std::size_t bytes = setting("FAKECUDA_MEMORY", 8ull << 30);
  return bytes;
}

Context* current() { return stack.empty() ? nullptr : stack.back(); }

void require_driver() {
  require(state().initialised, CUDA_ERROR_NOT_INITIALIZED);
  require(state().process == getpid(), CUDA_ERROR_NOT_INITIALIZED);  // CUDA does not survive a fork
}

CUresult injected(const char* call) {
  const char* failures = std::getenv("FAKECUDA_FAIL");
  if (!failures) return CUDA_SUCCESS;
  const std::string text = std::string(",") + failures;
  for (std::size_t at = text.find(std::string(",") + call); at != std::string::npos;
       at = text.find(std::string(",") + call, at + 1)) {
    const char* rest = text.c_str() + at + 1 + std::strlen(call);
    char* end = const_cast<char*>(rest);
    const long from = *rest == ':' ? std::strtol(rest + 1, &end, 10) : 1;
    if (*end != '=') continue;  // a longer name
    if (++state().calls[call] >= from) return static_cast<CUresult>(std::atoi(end + 1));
  }
  return CUDA_SUCCESS;
}

}  // namespace fake

using namespace fake;

CUresult cuInit(unsigned flags) {
  return call(Needs::nothing, [&] {
    require(flags == 0, CUDA_ERROR_INVALID_VALUE);
    require(device_count() > 0, CUDA_ERROR_NO_DEVICE);
    require(!state().initialised || state().process == getpid(), CUDA_ERROR_NOT_INITIALIZED);
    if (state().initialised) return;
    state().initialised = true;
    state().process = getpid();
    state().used.resize(device_count());
    state().primary.resize(device_count());
  });
}

CUresult cuDriverGetVersion(int* version) {
  return call(Needs::nothing, [&] {
    require(version, CUDA_ERROR_INVALID_VALUE);
    *version = CUDA_VERSION;
  });
}

CUresult cuDeviceGetCount(int* count) {
  return in_driver([&] {
    require(count, CUDA_ERROR_INVALID_VALUE);
    *count = device_count();
  });
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  return in_driver([&] {
    require_device(ordinal);
    *device = ordinal;
  });
}

CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
  return in_driver([&] {
    require_device(device);
    require(name && length > 0, CUDA_ERROR_INVALID_VALUE);
    std::strncpy(name, "r3llvm fake GPU", length);
    name[length - 1] = 0;
  });
}

CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  return in_driver([&] {
    require_device(device);
    std::memset(uuid, 0x40 + device, sizeof *uuid);
  });
}

CUresult cuDeviceTotalMem(size_t* bytes, CUdevice device) {
  return in_driver([&] {
    require_device(device);
    *bytes = device_memory();
  });
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute which, CUdevice device) {
  return in_driver([&] {
    require_device(device);
    require(value && which > 0 && which < CU_DEVICE_ATTRIBUTE_MAX, CUDA_ERROR_INVALID_VALUE);
    *value = which == CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID ? device + 1 : attribute(which);
  });
}

CUresult cuDeviceGetPCIBusId(char* text, int length, CUdevice device) {
  return in_driver([&] {
    require_device(device);
    std::snprintf(text, length, "0000:00:%02x.0", device + 1);
  });
}

CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice device) {
  return in_driver([&] {
    require_device(device);
    std::tie(*major, *minor) = capability();
  });
}

CUresult cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  return in_driver([&] {
    require_device(device);
    require_device(peer);
    *can = device != peer;
  });
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* handle, CUdevice device) {
  return in_driver([&] {
    require_device(device);
    Context*& context = state().primary[device];
    if (!context) context = make_context(device, true, 0);
    ++context->references;
    *handle = reinterpret_cast<CUcontext>(context);
  });
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  return in_driver([&] {
    require_device(device);
    Context* context = state().primary[device];
    require(context && context->references > 0, CUDA_ERROR_INVALID_CONTEXT);
    if (--context->references == 0) destroy(*context);
  });
}

CUresult cuDevicePrimaryCtxReset(CUdevice device) {
  return in_driver([&] {
    require_device(device);
    if (Context* context = state().primary[device]) destroy(*context);
  });
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned flags) {
  return in_driver([&] {
    require_device(device);
    if (Context* context = state().primary[device]) context->flags = flags;
  });
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  return in_driver([&] {
    require_device(device);
    Context* context = state().primary[device];
    *flags = context ? context->flags : 0;
    *active = context && context->references > 0;
  });
}

CUresult cuCtxCreate(CUcontext* handle, CUctxCreateParams*, unsigned flags, CUdevice device) {
  return in_driver([&] {
    require_device(device);
    require(handle, CUDA_ERROR_INVALID_VALUE);
    stack.push_back(make_context(device, false, flags));
    *handle = reinterpret_cast<CUcontext>(stack.back());
  });
}

R3_EXPORT CUresult cuCtxCreate_v2(CUcontext* handle, unsigned flags, CUdevice device) {
  return cuCtxCreate(handle, nullptr, flags, device);
}

R3_EXPORT CUresult cuCtxCreate_v3(CUcontext* handle, CUexecAffinityParam*, int, unsigned flags, CUdevice device) {
  return cuCtxCreate(handle, nullptr, flags, device);
}

CUresult cuCtxDestroy(CUcontext handle) {
  return in_driver([&] {
    Context& context = context_of(handle);
    require(!context.primary, CUDA_ERROR_INVALID_CONTEXT);
    destroy(context);
    context.dead = true;
    if (current() == &context) stack.pop_back();
  });
}

CUresult cuCtxPushCurrent(CUcontext handle) {
  return in_driver([&] { stack.push_back(&context_of(handle)); });
}

CUresult cuCtxPopCurrent(CUcontext* handle) {
  return in_driver([&] {
    require(!stack.empty(), CUDA_ERROR_INVALID_CONTEXT);
    if (handle) *handle = reinterpret_cast<CUcontext>(stack.back());
    stack.pop_back();
  });
}

CUresult cuCtxSetCurrent(CUcontext handle) {
  return in_driver([&] {
    Context* context = handle ? &context_of(handle) : nullptr;
    if (!stack.empty()) stack.pop_back();
    if (context) stack.push_back(context);
  });
}

CUresult cuCtxGetCurrent(CUcontext* handle) {
  return in_driver([&] {
    require(handle, CUDA_ERROR_INVALID_VALUE);
    *handle = reinterpret_cast<CUcontext>(current());
  });
}

CUresult cuCtxGetDevice(CUdevice* device) {
  return in_driver([&] {
    require(current(), CUDA_ERROR_INVALID_CONTEXT);
    *device = current()->device;
  });
}

CUresult cuCtxGetDevice_v2(CUdevice* device, CUcontext handle) {
  return in_driver([&] {
    require(handle || current(), CUDA_ERROR_INVALID_CONTEXT);
    *device = (handle ? context_of(handle) : *current()).device;
  });
}

CUresult cuCtxGetFlags(unsigned* flags) {
  return in_context([&](Context& context) { *flags = context.flags; });
}

CUresult cuCtxGetId(CUcontext handle, unsigned long long* id) {
  return in_driver([&] {
    require(handle || current(), CUDA_ERROR_INVALID_CONTEXT);
    *id = reinterpret_cast<std::uintptr_t>(handle ? &context_of(handle) : current());
  });
}

CUresult cuCtxGetApiVersion(CUcontext, unsigned* version) {
  return in_driver([&] { *version = 3020; });
}

CUresult cuCtxSynchronize() {
  return in_context([&](Context& context) {
    forbid_in_capture();
    synchronize(context, [&] { return idle(context); });
  });
}

CUresult cuCtxSynchronize_v2(CUcontext handle) {
  return in_context([&](Context& present) {
    Context& context = handle ? context_of(handle) : present;
    forbid_in_capture();
    synchronize(context, [&] { return idle(context); });
  });
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
  return in_context([&](Context& context) { context.limits[limit] = value; });
}

CUresult cuCtxGetLimit(size_t* value, CUlimit limit) {
  return in_context([&](Context& context) { *value = context.limits[limit]; });
}

CUresult cuCtxGetCacheConfig(CUfunc_cache* config) {
  return in_context([&](Context&) { *config = CU_FUNC_CACHE_PREFER_NONE; });
}

CUresult cuCtxSetCacheConfig(CUfunc_cache) {
  return in_context([](Context&) {});
}

CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  return in_context([&](Context&) {
    if (least) *least = 0;
    if (greatest) *greatest = -5;
  });
}

CUresult cuCtxResetPersistingL2Cache() {
  return in_context([](Context&) {});
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
  return in_context([&](Context& context) {
    require(flags == 0, CUDA_ERROR_INVALID_VALUE);
    require(context_of(peer).device != context.device, CUDA_ERROR_INVALID_DEVICE);
  });
}

CUresult cuCtxDisablePeerAccess(CUcontext peer) {
  return in_context([&](Context&) { context_of(peer); });
}

R3_EXPORT CUresult cuProfilerInitialize(const char*, const char*, int) { return CUDA_ERROR_NOT_SUPPORTED; }

R3_EXPORT CUresult cuProfilerStart() {
  return in_context([](Context&) {});
}

R3_EXPORT CUresult cuProfilerStop() {
  return in_context([](Context&) {});
}
