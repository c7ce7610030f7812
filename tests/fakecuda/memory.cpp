// Allocations, pools, host memory, and what a pointer points to.
#include <cstring>

#include "fake.h"

namespace fake {
namespace {

bool pool_exists(CUmemoryPool pool) { return pool != nullptr; }

CUmemoryPool default_pool(int device) { return reinterpret_cast<CUmemoryPool>(std::uintptr_t{0x1000} + device); }

}  // namespace
}  // namespace fake

using namespace fake;

CUresult cuMemGetInfo(size_t* free, size_t* total) {
  return in_context([&](Context& context) {
    *total = device_memory();
    *free = *total - state().used[context.device];
  });
}

CUresult cuMemAlloc(CUdeviceptr* result, size_t size) {
  return in_context([&](Context& context) {
    require(result, CUDA_ERROR_INVALID_VALUE);
    forbid_in_capture();
    *result = allocate(context, size, Kind::device);
  });
}

CUresult cuMemAllocPitch(CUdeviceptr* result, size_t* pitch, size_t width, size_t height, unsigned element) {
  return in_context([&](Context& context) {
    require(result && pitch && width && height, CUDA_ERROR_INVALID_VALUE);
    require(element == 4 || element == 8 || element == 16, CUDA_ERROR_INVALID_VALUE);
    forbid_in_capture();
    *pitch = round_up(width, 512);
    *result = allocate(context, *pitch * height, Kind::device);
  });
}

CUresult cuMemFree(CUdeviceptr base) {
  return in_context([&](Context&) {
    if (!base) return;
    forbid_in_capture();
    const Block* block = find_block(base);
    require(block && block->base == base, CUDA_ERROR_INVALID_VALUE);
    require(block->kind == Kind::device || block->kind == Kind::managed || block->kind == Kind::pooled,
            CUDA_ERROR_INVALID_VALUE);
    if (block->kind == Kind::device) synchronize(*block->context, [=] { return idle(*block->context); });
    release(base);
  });
}

CUresult cuMemGetAddressRange(CUdeviceptr* base, size_t* size, CUdeviceptr inside) {
  return in_context([&](Context&) {
    const Block* block = find_block(inside);
    require(block, CUDA_ERROR_NOT_FOUND);
    if (base) *base = block->base;
    if (size) *size = block->size;
  });
}

CUresult cuMemAllocManaged(CUdeviceptr* result, size_t size, unsigned flags) {
  return in_context([&](Context& context) {
    require(flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST, CUDA_ERROR_INVALID_VALUE);
    *result = allocate(context, size, Kind::managed);
  });
}

CUresult cuMemAdvise(CUdeviceptr from, size_t size, CUmem_advise, CUmemLocation) {
  return in_context([&](Context& context) { require_range(context, from, size, readable); });
}

CUresult cuMemPrefetchAsync(CUdeviceptr from, size_t size, CUmemLocation, unsigned, CUstream) {
  return in_context([&](Context& context) { require_range(context, from, size, readable); });
}

CUresult cuStreamAttachMemAsync(CUstream, CUdeviceptr, size_t, unsigned) {
  return in_context([](Context&) {});
}

// Pools and stream order

CUresult cuMemAllocAsync(CUdeviceptr* result, size_t size, CUstream handle) {
  return in_context([&](Context& context) {
    require(!stream_of(handle, context).capture, CUDA_ERROR_NOT_SUPPORTED);  // no memory nodes here
    *result = allocate(context, size, Kind::pooled);
  });
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* result, size_t size, CUmemoryPool pool, CUstream handle) {
  return in_context([&](Context& context) {
    require(pool_exists(pool), CUDA_ERROR_INVALID_VALUE);
    require(!stream_of(handle, context).capture, CUDA_ERROR_NOT_SUPPORTED);
    *result = allocate(context, size, Kind::pooled);
  });
}

CUresult cuMemFreeAsync(CUdeviceptr base, CUstream handle) {
  return in_context([&](Context& context) {
    const Block* block = find_block(base);
    require(block && block->base == base, CUDA_ERROR_INVALID_VALUE);
    require(block->kind == Kind::pooled || block->kind == Kind::device, CUDA_ERROR_INVALID_VALUE);
    enqueue(stream_of(handle, context), [base] {
      release(base);
      return true;
    });
  });
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice device) {
  return in_driver([&] { *pool = default_pool(device); });
}

CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice device) {
  return in_driver([&] { *pool = default_pool(device); });
}

CUresult cuDeviceSetMemPool(CUdevice, CUmemoryPool) {
  return in_driver([] {});
}

CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* properties) {
  return in_driver([&] {
    require(properties && properties->allocType == CU_MEM_ALLOCATION_TYPE_PINNED, CUDA_ERROR_INVALID_VALUE);
    *pool = reinterpret_cast<CUmemoryPool>(0x2000 + next_id());
  });
}

CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  return in_driver([&] { require(pool_exists(pool), CUDA_ERROR_INVALID_VALUE); });
}

CUresult cuMemPoolTrimTo(CUmemoryPool, size_t) {
  return in_driver([] {});
}

CUresult cuMemPoolSetAttribute(CUmemoryPool, CUmemPool_attribute, void*) {
  return in_driver([] {});
}

CUresult cuMemPoolGetAttribute(CUmemoryPool, CUmemPool_attribute which, void* value) {
  return in_driver([&] {
    const bool wide = which >= CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
    std::memset(value, 0, wide ? sizeof(cuuint64_t) : sizeof(int));
  });
}

CUresult cuMemPoolSetAccess(CUmemoryPool, const CUmemAccessDesc*, size_t) {
  return in_driver([] {});
}

// Host memory

CUresult cuMemHostAlloc(void** result, size_t size, unsigned flags) {
  return in_context([&](Context& context) {
    require(result, CUDA_ERROR_INVALID_VALUE);
    const CUdeviceptr base = allocate(context, size, Kind::host);
    find_block(base)->flags = flags;
    *result = pointer(base);
  });
}

CUresult cuMemAllocHost(void** result, size_t size) { return cuMemHostAlloc(result, size, 0); }

CUresult cuMemFreeHost(void* base) {
  return in_context([&](Context&) {
    const Block* block = find_block(address(base));
    require(block && block->base == address(base) && block->kind == Kind::host, CUDA_ERROR_INVALID_VALUE);
    release(address(base));
  });
}

CUresult cuMemHostGetDevicePointer(CUdeviceptr* result, void* host, unsigned flags) {
  return in_context([&](Context&) {
    const Block* block = find_block(address(host));
    require(flags == 0 && block && (block->kind == Kind::host || block->kind == Kind::registered),
            CUDA_ERROR_INVALID_VALUE);
    *result = address(host);
  });
}

CUresult cuMemHostGetFlags(unsigned* flags, void* host) {
  return in_context([&](Context&) {
    const Block* block = find_block(address(host));
    require(block && block->kind == Kind::host, CUDA_ERROR_INVALID_VALUE);
    *flags = block->flags;
  });
}

CUresult cuMemHostRegister(void* host, size_t size, unsigned flags) {
  return in_context([&](Context& context) {
    require(host && size, CUDA_ERROR_INVALID_VALUE);
    require(!occupied(address(host), size), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    state().blocks[address(host)] = {.base = address(host),
                                     .size = size,
                                     .extent = size,
                                     .kind = Kind::registered,
                                     .context = &context,
                                     .device = context.device,
                                     .flags = flags,
                                     .id = next_id()};
  });
}

CUresult cuMemHostUnregister(void* host) {
  return in_context([&](Context&) {
    const Block* block = find_block(address(host));
    require(block && block->base == address(host) && block->kind == Kind::registered,
            CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    release(address(host));
  });
}

// What a pointer points to

namespace {

CUresult pointer_attribute(void* data, CUpointer_attribute which, CUdeviceptr at) {
  const Block* block = find_block(at);
  if (!block) return CUDA_ERROR_INVALID_VALUE;
  const bool host = block->kind == Kind::host || block->kind == Kind::registered;
  const auto put = [&](auto value) { std::memcpy(data, &value, sizeof value); };
  switch (which) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      put(block->context);
      break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      put(unsigned(host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE));
      break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      put(at);
      break;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (!host && block->kind != Kind::managed) return CUDA_ERROR_INVALID_VALUE;
      put(at);
      break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      put(block->id);
      break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      put(unsigned(block->kind == Kind::managed));
      break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      put(block->device);
      break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      put(block->base);
      break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      put(block->size);
      break;
    case CU_POINTER_ATTRIBUTE_MAPPED:
      put(true);
      break;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      put(unsigned(CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE));
      break;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      put(unsigned(0));
      break;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      put(unsigned(0));
      break;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      put(cuuint64_t{0});
      break;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      put(block->kind == Kind::pooled ? default_pool(block->device) : nullptr);
      break;
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute which, CUdeviceptr at) {
  return in_driver([&] {
    require(data, CUDA_ERROR_INVALID_VALUE);
    if (const CUresult code = pointer_attribute(data, which, at)) throw Failure{code};
  });
}

CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* which, void** data, CUdeviceptr at) {
  return in_driver([&] {
    for (unsigned i = 0; i < count; ++i) {
      if (pointer_attribute(data[i], which[i], at) == CUDA_SUCCESS) continue;
      // Unknown memory: zero, and a device of -2.
      const bool word = which[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE || which[i] == CU_POINTER_ATTRIBUTE_IS_MANAGED;
      if (which[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) {
        *static_cast<int*>(data[i]) = -2;
      } else if (which[i] == CU_POINTER_ATTRIBUTE_MAPPED) {
        *static_cast<bool*>(data[i]) = false;
      } else {
        std::memset(data[i], 0, word ? 4 : 8);
      }
    }
  });
}

CUresult cuPointerSetAttribute(const void*, CUpointer_attribute, CUdeviceptr at) {
  return in_driver([&] { require(find_block(at), CUDA_ERROR_INVALID_VALUE); });
}
