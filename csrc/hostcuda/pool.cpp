// Memory pools. A pool hands out plain memory; its attributes are kept to be read back.
#include <map>
#include <memory>
#include <mutex>

#include "hostcuda/api.h"
#include "hostcuda/memory.h"

struct CUmemPoolHandle_st {
  std::map<cudaMemPoolAttr, std::uint64_t> attributes = {
      {cudaMemPoolReuseFollowEventDependencies, 1},
      {cudaMemPoolReuseAllowOpportunistic, 1},
      {cudaMemPoolReuseAllowInternalDependencies, 1},
      {cudaMemPoolAttrReleaseThreshold, 0},
      {cudaMemPoolAttrReservedMemCurrent, 0},
      {cudaMemPoolAttrReservedMemHigh, 0},
      {cudaMemPoolAttrUsedMemCurrent, 0},
      {cudaMemPoolAttrUsedMemHigh, 0},
  };
};

namespace r3::hostcuda {
namespace {

using Pool = CUmemPoolHandle_st;

struct Pools {
  std::mutex mutex;
  Pool standard;
  std::map<Pool*, std::unique_ptr<Pool>> made;
  Pool* current = &standard;

  bool has(Pool* pool) const { return pool == &standard || made.contains(pool); }
};

Pools& pools() {
  static auto& instance = *new Pools;
  return instance;
}

template <class Body>
cudaError_t locked(Body&& body) {
  return call([&] {
    const std::lock_guard lock(pools().mutex);
    return body(pools());
  });
}

template <class Body>
cudaError_t on(Pool* pool, Body&& body) {
  return locked([&](Pools& all) { return all.has(pool) ? body(*pool) : cudaErrorInvalidValue; });
}

bool is_flag(cudaMemPoolAttr attribute) { return attribute < cudaMemPoolAttrReleaseThreshold; }  // an int, else 64 bits

cudaError_t give(Pool** out, Pool* pool, int device) {
  if (!out) return cudaErrorInvalidValue;
  if (device != 0) return cudaErrorInvalidDevice;
  *out = pool;
  return cudaSuccess;
}

cudaError_t set_current(Pools& all, Pool* pool, int device) {
  if (device != 0) return cudaErrorInvalidDevice;
  if (!all.has(pool)) return cudaErrorInvalidValue;
  all.current = pool;
  return cudaSuccess;
}

}  // namespace
}  // namespace r3::hostcuda

using namespace r3::hostcuda;

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* out, int device) {
  return locked([&](Pools& all) { return give(out, &all.standard, device); });
}

cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* out, int device) {
  return locked([&](Pools& all) { return give(out, all.current, device); });
}

cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t pool) {
  return locked([&](Pools& all) { return set_current(all, pool, device); });
}

cudaError_t cudaMemGetDefaultMemPool(cudaMemPool_t* out, cudaMemLocation* location, cudaMemAllocationType) {
  return locked([&](Pools& all) { return location ? give(out, &all.standard, 0) : cudaErrorInvalidValue; });
}

cudaError_t cudaMemGetMemPool(cudaMemPool_t* out, cudaMemLocation* location, cudaMemAllocationType) {
  return locked([&](Pools& all) { return location ? give(out, all.current, 0) : cudaErrorInvalidValue; });
}

cudaError_t cudaMemSetMemPool(cudaMemLocation* location, cudaMemAllocationType, cudaMemPool_t pool) {
  return locked([&](Pools& all) { return location ? set_current(all, pool, 0) : cudaErrorInvalidValue; });
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t* out, const cudaMemPoolProps* wanted) {
  return locked([&](Pools& all) {
    if (!out || !wanted) return cudaErrorInvalidValue;
    if (wanted->handleTypes != cudaMemHandleTypeNone) return cudaErrorNotSupported;
    auto pool = std::make_unique<Pool>();
    *out = pool.get();
    all.made.emplace(*out, std::move(pool));
    return cudaSuccess;
  });
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  return locked([&](Pools& all) {
    if (all.made.erase(pool) == 0) return cudaErrorInvalidValue;
    if (all.current == pool) all.current = &all.standard;
    return cudaSuccess;
  });
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t) {
  return on(pool, [](Pool&) { return cudaSuccess; });
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  return on(pool, [&](Pool& p) {
    const auto found = p.attributes.find(attribute);
    if (!value || found == p.attributes.end()) return cudaErrorInvalidValue;
    if (is_flag(attribute)) {
      *static_cast<int*>(value) = static_cast<int>(found->second);
    } else {
      *static_cast<std::uint64_t*>(value) = found->second;
    }
    return cudaSuccess;
  });
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  return on(pool, [&](Pool& p) {
    const auto found = p.attributes.find(attribute);
    if (!value || found == p.attributes.end()) return cudaErrorInvalidValue;
    found->second = is_flag(attribute) ? static_cast<std::uint64_t>(*static_cast<int*>(value))
                                       : *static_cast<std::uint64_t*>(value);
    return cudaSuccess;
  });
}

cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const cudaMemAccessDesc* descriptions, size_t count) {
  return on(pool, [&](Pool&) { return descriptions || count == 0 ? cudaSuccess : cudaErrorInvalidValue; });
}

cudaError_t cudaMemPoolGetAccess(cudaMemAccessFlags* flags, cudaMemPool_t pool, cudaMemLocation* location) {
  return on(pool, [&](Pool&) {
    if (!flags || !location) return cudaErrorInvalidValue;
    *flags = cudaMemAccessFlagsProtReadWrite;
    return cudaSuccess;
  });
}

cudaError_t cudaMallocFromPoolAsync(void** out, size_t size, cudaMemPool_t pool, cudaStream_t stream) {
  const cudaError_t error = on(pool, [](Pool&) { return cudaSuccess; });
  return error != cudaSuccess ? error : cudaMallocAsync(out, size, stream);
}
R3_PTSZ(cudaMallocFromPoolAsync);
