// Allocations: from the arena where they can be, noted as foreign where not.
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "recorder/arena.h"
#include "recorder/aside.h"
#include "recorder/capture.h"
#include "recorder/capturing.h"
#include "recorder/foreign.h"
#include "recorder/hooks.h"

namespace r3::recorder {
namespace {

constexpr std::uint64_t alignment = 512;
constexpr std::uint64_t pitch_alignment = 512;  // what cuMemAllocPitch rounds rows to

CUstream per_thread(CUstream stream) { return stream ? stream : CU_STREAM_PER_THREAD; }

// The arena's answer, or CUDA_ERROR_NOT_SUPPORTED when the driver should serve.
CUresult allocate(CUdeviceptr* address, std::uint64_t size, const Placement& where = {}) noexcept {
  CUresult code = CUDA_ERROR_NOT_SUPPORTED;
  aside([&] {
    code = arena().allocate(size, alignment, address, where);
    if (code == CUDA_ERROR_OUT_OF_MEMORY && make_room()) code = arena().allocate(size, alignment, address, where);
  });
  return code;
}

// Foreign memory at *address, if the driver gave it.
CUresult noted(CUresult code, const CUdeviceptr* address, std::uint64_t size, ForeignKind kind) noexcept {
  if (code == CUDA_SUCCESS && address) add_foreign(*address, size, kind);
  return code;
}

CUresult noted(CUresult code, void* const* address, std::uint64_t size, ForeignKind kind) noexcept {
  if (code == CUDA_SUCCESS && address) add_foreign(reinterpret_cast<std::uint64_t>(*address), size, kind);
  return code;
}

CUresult synchronize(CUcontext context) {
  const WithContext there(context);
  return there ? driver().cuCtxSynchronize() : CUDA_ERROR_INVALID_CONTEXT;
}

// cuMemFree of the arena's memory.
CUresult free_now(CUdeviceptr address) {
  const auto block = arena().block(address);
  if (!block || block->base != address || !block->context) return CUDA_ERROR_INVALID_VALUE;
  if (capturing()) {
    arena().release_later(address);
    return CUDA_SUCCESS;
  }
  // As the driver does: work that still uses the memory ends first, and its error is told here.
  const CUresult code = synchronize(block->context);
  if (code == CUDA_SUCCESS) arena().release(address);
  return code;
}

bool captures(CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return driver().cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

// The stream's context; the current one for a default stream.
CUcontext context_of(CUstream stream) {
  CUcontext context = nullptr;
  const bool named = stream && stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD;
  if (!named || driver().cuStreamGetCtx(stream, &context) != CUDA_SUCCESS) driver().cuCtxGetCurrent(&context);
  return context;
}

// Memory pools whose allocations can come from the arena instead: plain device memory of this process alone.
class Pools {
 public:
  void created(CUmemoryPool pool, const CUmemPoolProps& properties) {
    const bool plain = properties.allocType == CU_MEM_ALLOCATION_TYPE_PINNED &&
                       properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
                       properties.handleTypes == CU_MEM_HANDLE_TYPE_NONE;
    const std::lock_guard lock(mutex_);
    devices_[pool] = plain ? std::optional<CUdevice>(properties.location.id) : std::nullopt;
  }

  std::optional<CUdevice> device(CUmemoryPool pool) {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(defaults_known_, true)) add_defaults();
    const auto found = devices_.find(pool);
    return found == devices_.end() ? std::nullopt : found->second;
  }

 private:
  void add_defaults() {
    int count = 0;
    if (!driver().cuDeviceGetDefaultMemPool || driver().cuDeviceGetCount(&count) != CUDA_SUCCESS) return;
    for (int i = 0; i < count; ++i) {
      CUmemoryPool pool = nullptr;
      CUdevice device = 0;
      if (driver().cuDeviceGet(&device, i) == CUDA_SUCCESS &&
          driver().cuDeviceGetDefaultMemPool(&pool, device) == CUDA_SUCCESS) {
        devices_.try_emplace(pool, device);
      }
    }
  }

  std::mutex mutex_;
  bool defaults_known_ = false;
  std::map<CUmemoryPool, std::optional<CUdevice>> devices_;
};

Pools& pools() {
  static auto& instance = *new Pools;
  return instance;
}

// In stream order, from `pool` or, null, from the pool of the stream's device.
template <class F>
CUresult allocate_in_order(CUdeviceptr* address, std::uint64_t size, CUmemoryPool pool, CUstream stream,
                           F&& real) noexcept {
  if (!active() || !address || size == 0) return real();
  CUresult code = CUDA_ERROR_NOT_SUPPORTED;
  aside([&] {
    if (captures(stream)) return;
    const WithContext there(context_of(stream));
    CUdevice device = 0;
    if (!there || driver().cuCtxGetDevice(&device) != CUDA_SUCCESS) return;
    if (!pool && driver().cuDeviceGetMemPool(&pool, device) != CUDA_SUCCESS) return;
    const auto owner = pools().device(pool);
    if (owner) code = allocate(address, size, {.device = owner, .stream = stream, .pool = pool});
  });
  return code == CUDA_ERROR_NOT_SUPPORTED ? noted(real(), address, size, ForeignKind::driver) : code;
}

template <class F>
CUresult free_in_order(CUdeviceptr address, CUstream stream, F&& real) noexcept {
  if (!active()) return real();
  if (!DeviceArena::owns(address)) {
    const bool captured = captures(stream);  // then the memory is the graph's, as long as there is one
    const CUresult code = real();
    if (code == CUDA_SUCCESS && !captured) remove_foreign(address);
    return code;
  }
  bool released = false;
  aside([&] {
    if (!captures(stream)) released = arena().release_after(address, stream);
  });
  return released ? CUDA_SUCCESS : real();
}

// What the driver says of memory that the application mapped, and does not say of a slab that many allocations share.
bool answer(const Served& block, CUpointer_attribute attribute, void* data) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      *static_cast<CUcontext*>(data) = block.context;
      return true;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      *static_cast<unsigned long long*>(data) = block.id;
      return true;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      *static_cast<CUdeviceptr*>(data) = block.base;
      return true;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      *static_cast<size_t*>(data) = block.size;
      return true;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      *static_cast<CUmemoryPool*>(data) = block.pool;
      return true;
    default:
      return false;
  }
}

// The arena's own allocation that contains the address.
std::optional<Served> served(CUdeviceptr address) {
  if (!active() || !DeviceArena::owns(address)) return std::nullopt;
  const auto block = arena().block(address);
  return block && block->context ? block : std::nullopt;
}

// Handles of memory that belongs to another process.
class Imported {
 public:
  void add(CUmemGenericAllocationHandle handle) {
    const std::lock_guard lock(mutex_);
    handles_.insert(handle);
  }
  void remove(CUmemGenericAllocationHandle handle) {
    const std::lock_guard lock(mutex_);
    handles_.erase(handle);
  }
  bool has(CUmemGenericAllocationHandle handle) {
    const std::lock_guard lock(mutex_);
    return handles_.contains(handle);
  }

 private:
  std::mutex mutex_;
  std::set<CUmemGenericAllocationHandle> handles_;
};

Imported& imported() {
  static auto& instance = *new Imported;
  return instance;
}

// What the application mapped with cuMemMap is foreign for this reason. Nothing: it is not.
std::optional<ForeignKind> why_foreign(CUdeviceptr address, CUmemGenericAllocationHandle handle) {
  if (imported().has(handle)) return ForeignKind::imported;
  CUmemAllocationProp properties{};
  if (driver().cuMemGetAllocationPropertiesFromHandle(&properties, handle) != CUDA_SUCCESS) {
    return ForeignKind::imported;  // a multicast object: memory of many devices at once
  }
  if (properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE) return ForeignKind::host;
  if (!DeviceArena::owns(address)) return ForeignKind::driver;
  return std::nullopt;
}

void forget_foreign(CUdeviceptr address, std::uint64_t size) {
  for (const ForeignRange& range : foreign_ranges()) {
    if (range.base - address < size) remove_foreign(range.base);
  }
}

}  // namespace
}  // namespace r3::recorder

using namespace r3;            // NOLINT: this file defines the driver's own names
using namespace r3::recorder;  // NOLINT

R3_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t size) {
  if (!active() || !address) return real().cuMemAlloc_v2(address, size);
  const CUresult code = allocate(address, size);
  if (code != CUDA_ERROR_NOT_SUPPORTED) return code;
  return noted(real().cuMemAlloc_v2(address, size), address, size, ForeignKind::driver);
}

R3_EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr* address, size_t* pitch, size_t width, size_t height,
                                      unsigned element) {
  constexpr std::uint64_t most = 1ull << 31;  // wider rows than a device allows (CU_DEVICE_ATTRIBUTE_MAX_PITCH)
  const std::uint64_t row = (width + pitch_alignment - 1) / pitch_alignment * pitch_alignment;
  const bool sound = address && pitch && width > 0 && row < most && height > 0 && height < arena_size / row &&
                     (element == 4 || element == 8 || element == 16);
  if (active() && sound) {
    const CUresult code = allocate(address, row * height);
    if (code == CUDA_SUCCESS) *pitch = row;
    if (code != CUDA_ERROR_NOT_SUPPORTED) return code;
  }
  const CUresult code = real().cuMemAllocPitch_v2(address, pitch, width, height, element);
  return active() && code == CUDA_SUCCESS ? noted(code, address, *pitch * height, ForeignKind::driver) : code;
}

R3_EXPORT CUresult cuMemFree_v2(CUdeviceptr address) {
  if (!active()) return real().cuMemFree_v2(address);
  if (DeviceArena::owns(address)) {
    CUresult code = CUDA_ERROR_UNKNOWN;
    aside([&] { code = free_now(address); });
    return code;
  }
  const CUresult code = real().cuMemFree_v2(address);
  if (code == CUDA_SUCCESS) remove_foreign(address);
  return code;
}

R3_EXPORT CUresult cuMemAllocAsync(CUdeviceptr* address, size_t size, CUstream stream) {
  return allocate_in_order(address, size, nullptr, stream,
                           [&] { return real().cuMemAllocAsync(address, size, stream); });
}

R3_EXPORT CUresult cuMemAllocAsync_ptsz(CUdeviceptr* address, size_t size, CUstream stream) {
  return allocate_in_order(address, size, nullptr, per_thread(stream),
                           [&] { return real().cuMemAllocAsync_ptsz(address, size, stream); });
}

R3_EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr* address, size_t size, CUmemoryPool pool, CUstream stream) {
  const auto allocate = [&] { return real().cuMemAllocFromPoolAsync(address, size, pool, stream); };
  return pool ? allocate_in_order(address, size, pool, stream, allocate) : allocate();
}

R3_EXPORT CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* address, size_t size, CUmemoryPool pool, CUstream stream) {
  const auto allocate = [&] { return real().cuMemAllocFromPoolAsync_ptsz(address, size, pool, stream); };
  return pool ? allocate_in_order(address, size, pool, per_thread(stream), allocate) : allocate();
}

R3_EXPORT CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
  return free_in_order(address, stream, [&] { return real().cuMemFreeAsync(address, stream); });
}

R3_EXPORT CUresult cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream) {
  return free_in_order(address, per_thread(stream), [&] { return real().cuMemFreeAsync_ptsz(address, stream); });
}

R3_EXPORT CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* properties) {
  const CUresult code = real().cuMemPoolCreate(pool, properties);
  if (code == CUDA_SUCCESS && active()) aside([&] { pools().created(*pool, *properties); });
  return code;
}

R3_EXPORT CUresult cuMemAllocManaged(CUdeviceptr* address, size_t size, unsigned flags) {
  const CUresult code = real().cuMemAllocManaged(address, size, flags);
  return active() ? noted(code, address, size, ForeignKind::managed) : code;
}

R3_EXPORT CUresult cuMemHostAlloc(void** address, size_t size, unsigned flags) {
  const CUresult code = real().cuMemHostAlloc(address, size, flags);
  return active() ? noted(code, address, size, ForeignKind::host) : code;
}

R3_EXPORT CUresult cuMemAllocHost_v2(void** address, size_t size) {
  const CUresult code = real().cuMemAllocHost_v2(address, size);
  return active() ? noted(code, address, size, ForeignKind::host) : code;
}

R3_EXPORT CUresult cuMemFreeHost(void* address) {
  const CUresult code = real().cuMemFreeHost(address);
  if (code == CUDA_SUCCESS && active()) remove_foreign(reinterpret_cast<std::uint64_t>(address));
  return code;
}

R3_EXPORT CUresult cuMemHostRegister_v2(void* address, size_t size, unsigned flags) {
  const CUresult code = real().cuMemHostRegister_v2(address, size, flags);
  return active() ? noted(code, &address, size, ForeignKind::registered) : code;
}

R3_EXPORT CUresult cuMemHostUnregister(void* address) {
  const CUresult code = real().cuMemHostUnregister(address);
  if (code == CUDA_SUCCESS && active()) remove_foreign(reinterpret_cast<std::uint64_t>(address));
  return code;
}

R3_EXPORT CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
  const CUresult code = real().cuIpcGetMemHandle(handle, address);
  if (code != CUDA_SUCCESS) {
    aside([&] {
      if (served(address)) say_once("memory under record cannot be shared with other processes (cuIpcGetMemHandle)");
    });
  }
  return code;
}

R3_EXPORT CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* address, CUipcMemHandle handle, unsigned flags) {
  const CUresult code = real().cuIpcOpenMemHandle_v2(address, handle, flags);
  if (code == CUDA_SUCCESS && active()) {
    aside([&] {
      CUdeviceptr base = 0;
      size_t size = 0;
      check(real().cuMemGetAddressRange_v2(&base, &size, *address), "cuMemGetAddressRange");
      add_foreign(*address, size - (*address - base), ForeignKind::imported);
    });
  }
  return code;
}

R3_EXPORT CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
  const CUresult code = real().cuIpcCloseMemHandle(address);
  if (code == CUDA_SUCCESS && active()) remove_foreign(address);
  return code;
}

R3_EXPORT CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr* address, CUexternalMemory memory,
                                                   const CUDA_EXTERNAL_MEMORY_BUFFER_DESC* description) {
  const CUresult code = real().cuExternalMemoryGetMappedBuffer(address, memory, description);
  return active() && description ? noted(code, address, description->size, ForeignKind::imported) : code;
}

R3_EXPORT CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  const CUresult code = real().cuMemGetInfo_v2(free, total);
  if (code == CUDA_SUCCESS && free && active()) {
    aside([&] {
      CUdevice device = 0;
      if (driver().cuCtxGetDevice(&device) == CUDA_SUCCESS) *free += arena().idle(device);
    });
  }
  return code;
}

R3_EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* size, CUdeviceptr address) {
  std::optional<Served> block;
  aside([&] { block = served(address); });
  if (!block) return real().cuMemGetAddressRange_v2(base, size, address);
  if (base) *base = block->base;
  if (size) *size = block->size;
  return CUDA_SUCCESS;
}

R3_EXPORT CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr address) {
  bool answered = false;
  aside([&] {
    const auto block = data ? served(address) : std::nullopt;
    answered = block && answer(*block, attribute, data);
  });
  return answered ? CUDA_SUCCESS : real().cuPointerGetAttribute(data, attribute, address);
}

R3_EXPORT CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** data,
                                          CUdeviceptr address) {
  const CUresult code = real().cuPointerGetAttributes(count, attributes, data, address);
  if (code != CUDA_SUCCESS) return code;
  aside([&] {
    const auto block = served(address);
    for (unsigned i = 0; block && i < count; ++i) {
      if (data[i]) answer(*block, attributes[i], data[i]);
    }
  });
  return code;
}

R3_EXPORT CUresult cuMemAddressReserve(CUdeviceptr* address, size_t size, size_t alignment, CUdeviceptr hint,
                                       unsigned long long flags) {
  CUresult code = CUDA_ERROR_NOT_SUPPORTED;
  if (active() && address && hint == 0 && flags == 0) {
    aside([&] { code = arena().reserve(size, alignment, address); });
  }
  return code == CUDA_SUCCESS ? code : real().cuMemAddressReserve(address, size, alignment, hint, flags);
}

R3_EXPORT CUresult cuMemAddressFree(CUdeviceptr address, size_t size) {
  if (!active() || !DeviceArena::owns(address)) return real().cuMemAddressFree(address, size);
  bool freed = false;
  aside([&] { freed = arena().unreserve(address, size); });
  return freed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

R3_EXPORT CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                            unsigned long long flags) {
  const CUresult code = real().cuMemMap(address, size, offset, handle, flags);
  if (code == CUDA_SUCCESS && active()) {
    aside([&] {
      if (const auto kind = why_foreign(address, handle)) {
        add_foreign(address, size, *kind);
      } else {
        arena().mapped(address, size);
      }
    });
  }
  return code;
}

R3_EXPORT CUresult cuMemUnmap(CUdeviceptr address, size_t size) {
  // Before, lest another thread is given the memory's address while it still counts as the old one's.
  if (active()) {
    aside([&] {
      if (DeviceArena::owns(address)) arena().unmapped(address, size);
      forget_foreign(address, size);
    });
  }
  return real().cuMemUnmap(address, size);
}

R3_EXPORT CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* shared,
                                                  CUmemAllocationHandleType type) {
  const CUresult code = real().cuMemImportFromShareableHandle(handle, shared, type);
  if (code == CUDA_SUCCESS && active()) aside([&] { imported().add(*handle); });
  return code;
}

R3_EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  if (active()) aside([&] { imported().remove(handle); });
  return real().cuMemRelease(handle);
}
