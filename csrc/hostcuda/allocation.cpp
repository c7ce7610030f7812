// The calls that give and take memory, and those that ask about it.
#include <algorithm>

#include "hostcuda/api.h"
#include "hostcuda/memory.h"
#include "hostcuda/stream.h"

using namespace r3::hostcuda;

namespace {

constexpr std::size_t pitch_alignment = 512;

cudaError_t allocate(void** out, std::size_t size, Block::Kind kind, unsigned flags = 0) {
  if (!out) return cudaErrorInvalidValue;
  const std::uint64_t base = size == 0 ? 0 : memory().allocate(size, kind, flags);
  if (base == 0 && size != 0) return cudaErrorMemoryAllocation;
  *out = pointer_to(base);
  return cudaSuccess;
}

cudaError_t release(void* base, std::initializer_list<Block::Kind> kinds) {
  return !base || memory().release(address_of(base), kinds) ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t allocate_rows(void** out, std::size_t* pitch, std::size_t width, std::size_t rows) {
  if (!out || !pitch) return cudaErrorInvalidValue;
  *pitch = (width + pitch_alignment - 1) / pitch_alignment * pitch_alignment;
  std::size_t bytes = 0;
  if (*pitch < width || __builtin_mul_overflow(*pitch, rows, &bytes)) return cudaErrorMemoryAllocation;
  return allocate(out, bytes, Block::Kind::device);
}

}  // namespace

cudaError_t cudaMalloc(void** out, size_t size) {
  return call([&] { return allocate(out, size, Block::Kind::device); });
}

cudaError_t cudaMallocManaged(void** out, size_t size, unsigned flags) {
  return call([&] {
    if (flags != cudaMemAttachGlobal && flags != cudaMemAttachHost) return cudaErrorInvalidValue;
    return allocate(out, size, Block::Kind::managed, flags);
  });
}

cudaError_t cudaMallocHost(void** out, size_t size) {
  return call([&] { return allocate(out, size, Block::Kind::pinned); });
}

cudaError_t cudaHostAlloc(void** out, size_t size, unsigned flags) {
  return call([&] {
    if (flags & ~(cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined))
      return cudaErrorInvalidValue;
    return allocate(out, size, Block::Kind::pinned, flags);
  });
}

cudaError_t cudaMallocPitch(void** out, size_t* pitch, size_t width, size_t height) {
  return call([&] { return allocate_rows(out, pitch, width, height); });
}

cudaError_t cudaMalloc3D(cudaPitchedPtr* out, cudaExtent extent) {
  return call([&] {
    std::size_t rows = 0;
    if (!out) return cudaErrorInvalidValue;
    if (__builtin_mul_overflow(extent.height, extent.depth, &rows)) return cudaErrorMemoryAllocation;
    *out = cudaPitchedPtr{nullptr, 0, extent.width, extent.height};
    return allocate_rows(&out->ptr, &out->pitch, extent.width, rows);
  });
}

cudaError_t cudaFree(void* base) {
  return call([&] { return release(base, {Block::Kind::device, Block::Kind::managed}); });
}

cudaError_t cudaFreeHost(void* base) {
  return call([&] { return release(base, {Block::Kind::pinned}); });
}

// Stream-ordered allocation: streams run in order, so it is plain allocation.

cudaError_t cudaMallocAsync(void** out, size_t size, cudaStream_t stream) {
  return call(
      [&] { return valid(stream) ? allocate(out, size, Block::Kind::device) : cudaErrorInvalidResourceHandle; });
}
R3_PTSZ(cudaMallocAsync);

cudaError_t cudaFreeAsync(void* base, cudaStream_t stream) {
  return call([&] {
    if (!valid(stream)) return cudaErrorInvalidResourceHandle;
    return release(base, {Block::Kind::device, Block::Kind::managed});
  });
}
R3_PTSZ(cudaFreeAsync);

cudaError_t cudaHostRegister(void* base, size_t size, unsigned flags) {
  return call([&] {
    constexpr unsigned known =
        cudaHostRegisterPortable | cudaHostRegisterMapped | cudaHostRegisterIoMemory | cudaHostRegisterReadOnly;
    if (!base || size == 0 || (flags & ~known)) return cudaErrorInvalidValue;
    return memory().register_host(address_of(base), size, flags) ? cudaSuccess : cudaErrorHostMemoryAlreadyRegistered;
  });
}

cudaError_t cudaHostUnregister(void* base) {
  return call([&] {
    if (!base) return cudaErrorInvalidValue;
    return memory().unregister_host(address_of(base)) ? cudaSuccess : cudaErrorHostMemoryNotRegistered;
  });
}

cudaError_t cudaHostGetDevicePointer(void** out, void* host, unsigned flags) {
  return call([&] {
    const auto block = memory().find(address_of(host));
    if (!out || flags != 0 || !block || block->kind == Block::Kind::device) return cudaErrorInvalidValue;
    *out = host;
    return cudaSuccess;
  });
}

cudaError_t cudaHostGetFlags(unsigned* flags, void* host) {
  return call([&] {
    const auto block = memory().find(address_of(host));
    if (!flags || !block || block->kind != Block::Kind::pinned) return cudaErrorInvalidValue;
    *flags = block->flags | cudaHostAllocMapped;
    return cudaSuccess;
  });
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return call([&] {
    if (!free || !total) return cudaErrorInvalidValue;
    *total = memory().total();
    *free = *total - std::min<std::size_t>(*total, memory().used());
    return cudaSuccess;
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  return query([&] {
    if (!attributes) return cudaErrorInvalidValue;
    void* const same = const_cast<void*>(pointer);
    *attributes = {};
    const auto block = memory().find(address_of(pointer));
    if (!block) {
      attributes->type = cudaMemoryTypeUnregistered;
      attributes->device = cudaInvalidDeviceId;
      attributes->hostPointer = same;
      return cudaSuccess;
    }
    attributes->devicePointer = same;
    switch (block->kind) {
      case Block::Kind::device:
      case Block::Kind::variable:
        attributes->type = cudaMemoryTypeDevice;
        break;
      case Block::Kind::managed:
      case Block::Kind::managed_variable:
        attributes->type = cudaMemoryTypeManaged;
        attributes->hostPointer = same;
        break;
      case Block::Kind::pinned:
      case Block::Kind::registered:
        attributes->type = cudaMemoryTypeHost;
        attributes->hostPointer = same;
        break;
    }
    return cudaSuccess;
  });
}

// Hints about managed memory: one memory, so nothing moves.

cudaError_t cudaMemAdvise(const void* base, size_t count, cudaMemoryAdvise, cudaMemLocation) {
  return call([&] { return memory().contains(address_of(base), count) ? cudaSuccess : cudaErrorInvalidValue; });
}

cudaError_t cudaMemPrefetchAsync(const void* base, size_t count, cudaMemLocation, unsigned, cudaStream_t stream) {
  return call([&] {
    if (!valid(stream)) return cudaErrorInvalidResourceHandle;
    return memory().contains(address_of(base), count) ? cudaSuccess : cudaErrorInvalidValue;
  });
}
R3_PTSZ(cudaMemPrefetchAsync);

cudaError_t cudaStreamAttachMemAsync(cudaStream_t stream, void* base, size_t, unsigned) {
  return call([&] {
    if (!valid(stream)) return cudaErrorInvalidResourceHandle;
    return memory().find(address_of(base)) ? cudaSuccess : cudaErrorInvalidValue;
  });
}
R3_PTSZ(cudaStreamAttachMemAsync);
