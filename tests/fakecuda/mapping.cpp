// Virtual memory management.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "fake.h"

namespace fake {
namespace {

void require_vmm() { require(!std::getenv("FAKECUDA_NO_VMM"), CUDA_ERROR_NOT_SUPPORTED); }

Physical& physical_of(CUmemGenericAllocationHandle handle) {
  const auto found = state().physical.find(reinterpret_cast<Physical*>(handle));
  require(found != state().physical.end() && !(*found)->released, CUDA_ERROR_INVALID_VALUE);
  return **found;
}

void drop(Physical& physical) {
  if (!physical.released || physical.mappings > 0) return;
  state().used[physical.device] -= physical.size;
  state().physical.erase(&physical);
  close(physical.descriptor);
  delete &physical;
}

bool reserved(CUdeviceptr from, std::size_t size) {
  auto reservation = state().reservations.upper_bound(from);
  if (reservation == state().reservations.begin()) return false;
  --reservation;
  return from - reservation->first < reservation->second && size <= reservation->first + reservation->second - from;
}

void require_granular(std::size_t value) { require(value % page == 0, CUDA_ERROR_INVALID_VALUE); }

}  // namespace
}  // namespace fake

using namespace fake;

CUresult cuMemAddressReserve(CUdeviceptr* result, size_t size, size_t alignment, CUdeviceptr hint,
                             unsigned long long flags) {
  return in_driver([&] {
    require_vmm();
    require(result && size && flags == 0, CUDA_ERROR_INVALID_VALUE);
    require((alignment & (alignment - 1)) == 0, CUDA_ERROR_INVALID_VALUE);
    require_granular(size);
    constexpr int how = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void* base = MAP_FAILED;
    if (hint && hint % page == 0) base = mmap(pointer(hint), size, PROT_NONE, how | MAP_FIXED_NOREPLACE, -1, 0);
    if (base == MAP_FAILED) {  // taken: somewhere else
      const std::size_t unit = std::max<std::size_t>(alignment, page);
      char* raw = static_cast<char*>(mmap(nullptr, size + unit, PROT_NONE, how, -1, 0));
      require(raw != MAP_FAILED, CUDA_ERROR_OUT_OF_MEMORY);
      char* aligned = reinterpret_cast<char*>(round_up(address(raw), unit));
      if (aligned > raw) munmap(raw, aligned - raw);
      if (aligned < raw + unit) munmap(aligned + size, raw + unit - aligned);
      base = aligned;
    }
    state().reservations[address(base)] = size;
    *result = address(base);
  });
}

CUresult cuMemAddressFree(CUdeviceptr base, size_t size) {
  return in_driver([&] {
    require_vmm();
    const auto found = state().reservations.find(base);
    require(found != state().reservations.end() && found->second == size, CUDA_ERROR_INVALID_VALUE);
    require(!occupied(base, size), CUDA_ERROR_INVALID_VALUE);
    munmap(pointer(base), size);
    state().reservations.erase(found);
  });
}

CUresult cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* properties,
                                       CUmemAllocationGranularity_flags) {
  return in_driver([&] {
    require_vmm();
    require(granularity && properties, CUDA_ERROR_INVALID_VALUE);
    *granularity = page;
  });
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size, const CUmemAllocationProp* properties,
                     unsigned long long flags) {
  return in_driver([&] {
    require_vmm();
    require(handle && size && properties && flags == 0, CUDA_ERROR_INVALID_VALUE);
    require(properties->type == CU_MEM_ALLOCATION_TYPE_PINNED, CUDA_ERROR_INVALID_VALUE);
    require(properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE, CUDA_ERROR_INVALID_VALUE);
    const int device = properties->location.id;
    require(device >= 0 && device < device_count(), CUDA_ERROR_INVALID_DEVICE);
    require_granular(size);
    require(size <= device_memory() && state().used[device] + size <= device_memory(), CUDA_ERROR_OUT_OF_MEMORY);
    const int descriptor = memfd_create("fakecuda", MFD_CLOEXEC);
    require(descriptor >= 0 && ftruncate(descriptor, static_cast<off_t>(size)) == 0, CUDA_ERROR_OUT_OF_MEMORY);
    auto* physical = new Physical{.descriptor = descriptor, .size = size, .device = device};
    state().physical.insert(physical);
    state().used[device] += size;
    *handle = reinterpret_cast<CUmemGenericAllocationHandle>(physical);
  });
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  return in_driver([&] {
    require_vmm();
    Physical& physical = physical_of(handle);
    physical.released = true;
    drop(physical);
  });
}

CUresult cuMemMap(CUdeviceptr at, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
  return in_driver([&] {
    require_vmm();
    Physical& physical = physical_of(handle);
    require(size && flags == 0 && offset + size <= physical.size, CUDA_ERROR_INVALID_VALUE);
    require_granular(at | size | offset);
    require(reserved(at, size) && !occupied(at, size), CUDA_ERROR_INVALID_VALUE);
    void* mapped =
        mmap(pointer(at), size, PROT_NONE, MAP_FIXED | MAP_SHARED, physical.descriptor, static_cast<off_t>(offset));
    require(mapped != MAP_FAILED, CUDA_ERROR_OUT_OF_MEMORY);
    ++physical.mappings;
    state().blocks[at] = {.base = at,
                          .size = size,
                          .extent = size,
                          .kind = Kind::mapped,
                          .context = nullptr,
                          .device = physical.device,
                          .id = next_id(),
                          .physical = &physical,
                          .access = std::vector<int>(device_count(), PROT_NONE)};
  });
}

CUresult cuMemUnmap(CUdeviceptr from, size_t size) {
  return in_driver([&] {
    require_vmm();
    std::vector<CUdeviceptr> bases;
    CUdeviceptr at = from;
    for (; at < from + size; at += state().blocks[at].size) {
      const auto found = state().blocks.find(at);
      require(found != state().blocks.end() && found->second.kind == Kind::mapped, CUDA_ERROR_INVALID_VALUE);
      bases.push_back(at);
    }
    require(size && at == from + size, CUDA_ERROR_INVALID_VALUE);
    for (Context* context : state().contexts) synchronize(*context, [=] { return idle(*context); });
    for (const CUdeviceptr base : bases) {
      const Block& block = state().blocks[base];
      mmap(pointer(base), block.size, PROT_NONE, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      --block.physical->mappings;
      drop(*block.physical);
      state().blocks.erase(base);
    }
  });
}

CUresult cuMemSetAccess(CUdeviceptr from, size_t size, const CUmemAccessDesc* descriptions, size_t count) {
  return in_driver([&] {
    require_vmm();
    require(size && descriptions && count, CUDA_ERROR_INVALID_VALUE);
    require_granular(from | size);
    std::vector<Block*> blocks;
    CUdeviceptr at = from;
    while (at < from + size) {
      Block* block = find_block(at);
      require(block && block->kind == Kind::mapped && block->base == at, CUDA_ERROR_INVALID_VALUE);
      blocks.push_back(block);
      at += block->size;
    }
    require(at == from + size, CUDA_ERROR_INVALID_VALUE);
    for (std::size_t i = 0; i < count; ++i) {
      require(descriptions[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE, CUDA_ERROR_NOT_SUPPORTED);
      const int device = descriptions[i].location.id;
      require(device >= 0 && device < device_count(), CUDA_ERROR_INVALID_DEVICE);
      const auto flags = descriptions[i].flags;
      for (Block* block : blocks) {
        block->access[device] = flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? writable
                                : flags == CU_MEM_ACCESS_FLAGS_PROT_READ    ? readable
                                                                            : PROT_NONE;
      }
    }
  });
}

CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr at) {
  return in_driver([&] {
    require_vmm();
    const Block* block = find_block(at);
    require(block && block->kind == Kind::mapped, CUDA_ERROR_INVALID_VALUE);
    const int access = block->access[location->id];
    *flags = access == writable   ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
             : access == readable ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                  : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  });
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* properties, CUmemGenericAllocationHandle handle) {
  return in_driver([&] {
    *properties = {};
    properties->type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties->location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties->location.id = physical_of(handle).device;
  });
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle*, void*) {
  return in_driver([] { throw Failure{CUDA_ERROR_NOT_SUPPORTED}; });
}
