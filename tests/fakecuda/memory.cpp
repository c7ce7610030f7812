// Allocation, virtual memory management, copies, and what may touch device memory when.
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "fake.h"

namespace fake {
namespace {

constexpr int readable = PROT_READ, writable = PROT_READ | PROT_WRITE;

std::size_t round_up(std::size_t size, std::size_t to) { return (size + to - 1) / to * to; }
void* pointer(CUdeviceptr address) { return reinterpret_cast<void*>(address); }
CUdeviceptr address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

unsigned long long next_id() {
  static unsigned long long id = 0;
  return ++id;
}

bool guarded(Kind kind) { return kind <= Kind::mapped; }

// Device mode: a thread that runs device code opens the device memory that it touches by the fault that this gives.

struct Device {
  Context* context;
  sigjmp_buf escape;
  std::vector<Block*> opened;
};

thread_local Device* device = nullptr;
constexpr int ended = 1, hanging = -1;

struct sigaction previous[2];

Block* last_block(CUdeviceptr address) {  // that starts at or before it
  const auto after = state().blocks.upper_bound(address);
  return after == state().blocks.begin() ? nullptr : &std::prev(after)->second;
}

void on_fault(int signal, siginfo_t* info, void*) {
  if (!device) {
    sigaction(signal, &previous[signal == SIGBUS], nullptr);  // not ours: let it happen again
    return;
  }
  const CUdeviceptr at = address(info->si_addr);
  Block* block = last_block(at);
  if (block && at - block->base < block->extent && guarded(block->kind) &&
      std::ranges::find(device->opened, block) == device->opened.end()) {
    const int access = block->kind == Kind::mapped ? block->access[device->context->device] : writable;
    if (access != PROT_NONE && mprotect(pointer(block->base), block->extent, access) == 0) {
      device->opened.push_back(block);
      return;
    }
  }
  siglongjmp(device->escape, CUDA_ERROR_ILLEGAL_ADDRESS + ended);
}

// Blocks that make up [from, from + size), all of them device memory that may be read (written).
void require_range(Context& context, CUdeviceptr from, std::size_t size, int access) {
  if (size == 0) return;
  for (CUdeviceptr at = from; at < from + size;) {
    const Block* block = find_block(at);
    require(block && (at == from || block->kind == Kind::mapped), CUDA_ERROR_INVALID_VALUE);
    if (block->kind == Kind::mapped) {
      require((block->access[context.device] & access) == access, CUDA_ERROR_INVALID_VALUE);
    }
    at = block->base + block->size;
  }
}

// Copies and sets -------------------------------------------------------------------------------------------------

void device_work(Context& context, CUstream handle, bool wait, std::size_t bytes, std::function<void()> body) {
  Stream& stream = stream_of(handle, context);
  if (wait) forbid_in_capture();
  const auto finished = std::make_shared<bool>(false);  // outlives an operation that is dropped
  enqueue(stream, [&context, finished, bytes, body = std::move(body)] {
    if (!context.fault) context.fault = run_on_device(context, body);
    state().clock += 1e-6 + static_cast<double>(bytes) * 1e-12;
    *finished = true;
    return true;
  });
  if (wait) synchronize(context, [=] { return *finished; });
}

struct Side {
  bool device;  // whether it must be device memory; false: host memory, or whatever the address says
  CUdeviceptr base;
  std::size_t pitch, slice;  // bytes between rows, between slices
};

struct Extent {
  std::size_t width, height, depth;
};

void copy(Context& context, CUstream stream, bool wait, const Side& to, const Side& from, const Extent& extent) {
  if (extent.width == 0 || extent.height == 0 || extent.depth == 0) return;
  for (std::size_t z = 0; z < extent.depth; ++z) {
    for (std::size_t y = 0; y < extent.height; ++y) {
      if (to.device) require_range(context, to.base + z * to.slice + y * to.pitch, extent.width, writable);
      if (from.device) require_range(context, from.base + z * from.slice + y * from.pitch, extent.width, readable);
    }
  }
  // What comes from pageable memory is read before the call returns, as the driver does.
  const bool stage = !wait && !from.device && !find_block(from.base);
  std::vector<std::byte> staged;
  if (stage) {
    for (std::size_t z = 0; z < extent.depth; ++z) {
      for (std::size_t y = 0; y < extent.height; ++y) {
        const auto* row = static_cast<const std::byte*>(pointer(from.base + z * from.slice + y * from.pitch));
        staged.insert(staged.end(), row, row + extent.width);
      }
    }
  }
  device_work(context, stream, wait, extent.width * extent.height * extent.depth, [=, staged = std::move(staged)] {
    for (std::size_t z = 0; z < extent.depth; ++z) {
      for (std::size_t y = 0; y < extent.height; ++y) {
        const void* row = stage ? staged.data() + (z * extent.height + y) * extent.width
                                : pointer(from.base + z * from.slice + y * from.pitch);
        std::memmove(pointer(to.base + z * to.slice + y * to.pitch), row, extent.width);
      }
    }
  });
}

CUresult copy_line(CUdeviceptr to, bool to_device, CUdeviceptr from, bool from_device, std::size_t size,
                   CUstream stream, bool wait, const char* name) {
  return in_context(
      [&](Context& context) {
        require(size == 0 || (to && from), CUDA_ERROR_INVALID_VALUE);
        copy(context, stream, wait, {to_device, to, 0, 0}, {from_device, from, 0, 0}, {size, 1, 1});
      },
      name);
}

Side side(CUmemorytype type, const void* host, CUdeviceptr device, std::size_t x, std::size_t y, std::size_t z,
          std::size_t pitch, std::size_t height) {
  require(type == CU_MEMORYTYPE_HOST || type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED,
          CUDA_ERROR_NOT_SUPPORTED);  // arrays
  const CUdeviceptr base = type == CU_MEMORYTYPE_HOST ? address(host) : device;
  const bool on_device = type == CU_MEMORYTYPE_DEVICE || (type == CU_MEMORYTYPE_UNIFIED && find_block(base));
  return {on_device, base + x + y * pitch + z * pitch * height, pitch, pitch * height};
}

CUresult copy_2d(const CUDA_MEMCPY2D* c, CUstream stream, bool wait, const char* name) {
  return in_context(
      [&](Context& context) {
        require(c, CUDA_ERROR_INVALID_VALUE);
        copy(context, stream, wait,
             side(c->dstMemoryType, c->dstHost, c->dstDevice, c->dstXInBytes, c->dstY, 0, c->dstPitch, 0),
             side(c->srcMemoryType, c->srcHost, c->srcDevice, c->srcXInBytes, c->srcY, 0, c->srcPitch, 0),
             {c->WidthInBytes, c->Height, 1});
      },
      name);
}

CUresult copy_3d(const CUDA_MEMCPY3D* c, CUstream stream, bool wait, const char* name) {
  return in_context(
      [&](Context& context) {
        require(c, CUDA_ERROR_INVALID_VALUE);
        copy(context, stream, wait,
             side(c->dstMemoryType, c->dstHost, c->dstDevice, c->dstXInBytes, c->dstY, c->dstZ, c->dstPitch,
                  c->dstHeight),
             side(c->srcMemoryType, c->srcHost, c->srcDevice, c->srcXInBytes, c->srcY, c->srcZ, c->srcPitch,
                  c->srcHeight),
             {c->WidthInBytes, c->Height, c->Depth});
      },
      name);
}

template <typename Value>
CUresult set(CUdeviceptr to, std::size_t pitch, Value value, std::size_t width, std::size_t height, CUstream stream,
             const char* name) {
  return in_context(
      [&](Context& context) {
        require(to % sizeof(Value) == 0, CUDA_ERROR_INVALID_VALUE);
        for (std::size_t y = 0; y < height; ++y)
          require_range(context, to + y * pitch, width * sizeof(Value), writable);
        device_work(context, stream, false, width * height * sizeof(Value), [=] {
          for (std::size_t y = 0; y < height; ++y) {
            std::fill_n(static_cast<Value*>(pointer(to + y * pitch)), width, value);
          }
        });
      },
      name);
}

// Virtual memory management ---------------------------------------------------------------------------------------

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

bool occupied(CUdeviceptr from, std::size_t size) {
  const auto after = state().blocks.lower_bound(from);
  return find_block(from) || (after != state().blocks.end() && after->first < from + size);
}

void require_granular(std::size_t value) { require(value % page == 0, CUDA_ERROR_INVALID_VALUE); }

bool pool_exists(CUmemoryPool pool) { return pool != nullptr; }

CUmemoryPool default_pool(int device) { return reinterpret_cast<CUmemoryPool>(std::uintptr_t{0x1000} + device); }

}  // namespace

bool on_device() { return device; }

void fault(CUresult code) { siglongjmp(device->escape, code + ended); }
void hang() { siglongjmp(device->escape, hanging); }

Block* find_block(CUdeviceptr address) {
  Block* block = last_block(address);
  return block && address - block->base < block->size ? block : nullptr;
}

CUdeviceptr allocate(Context& context, std::size_t size, Kind kind) {
  require(size > 0, CUDA_ERROR_INVALID_VALUE);
  const bool on_device = kind != Kind::host;
  require(size <= device_memory(), CUDA_ERROR_OUT_OF_MEMORY);
  const std::size_t extent = round_up(size, page);
  if (on_device) {
    require(state().used[context.device] + extent <= device_memory(), CUDA_ERROR_OUT_OF_MEMORY);
  }
  char* raw =
      static_cast<char*>(mmap(nullptr, extent + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  require(raw != MAP_FAILED, CUDA_ERROR_OUT_OF_MEMORY);
  char* base = reinterpret_cast<char*>(round_up(address(raw), page));
  if (base > raw) munmap(raw, base - raw);
  if (base < raw + page) munmap(base + extent, raw + page - base);
  if (!guarded(kind)) mprotect(base, extent, writable);
  if (on_device) state().used[context.device] += extent;
  state().blocks[address(base)] = {.base = address(base),
                                   .size = size,
                                   .extent = extent,
                                   .kind = kind,
                                   .context = &context,
                                   .device = context.device,
                                   .id = next_id()};
  return address(base);
}

void release(CUdeviceptr base) {
  const auto found = state().blocks.find(base);
  require(found != state().blocks.end(), CUDA_ERROR_INVALID_VALUE);
  const Block& block = found->second;
  if (block.kind != Kind::registered) munmap(pointer(base), block.extent);
  if (block.kind < Kind::mapped || block.kind == Kind::managed) state().used[block.device] -= block.extent;
  state().blocks.erase(found);
}

void release_all(Context& context) {
  std::vector<CUdeviceptr> bases;
  for (const auto& [base, block] : state().blocks) {
    if (block.context == &context && block.kind != Kind::mapped) bases.push_back(base);
  }
  for (const CUdeviceptr base : bases) release(base);
}

CUresult run_on_device(Context& context, const std::function<void()>& body, bool* hung) {
  struct sigaction action = {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGSEGV, &action, &previous[0]);
  sigaction(SIGBUS, &action, &previous[1]);
  Device mode{.context = &context, .escape = {}, .opened = {}};
  mode.opened.reserve(state().blocks.size());
  device = &mode;
  const int outcome = sigsetjmp(mode.escape, 1);
  if (outcome == 0) body();
  device = nullptr;
  for (const Block* block : mode.opened) mprotect(pointer(block->base), block->extent, PROT_NONE);
  sigaction(SIGSEGV, &previous[0], nullptr);
  sigaction(SIGBUS, &previous[1], nullptr);
  if (outcome == hanging && hung) *hung = true;
  return outcome > 0 ? static_cast<CUresult>(outcome - ended) : CUDA_SUCCESS;
}

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

// Virtual memory management

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

// Copies

CUresult cuMemcpyHtoD(CUdeviceptr to, const void* from, size_t size) {
  return copy_line(to, true, address(from), false, size, nullptr, true, __func__);
}
CUresult cuMemcpyDtoH(void* to, CUdeviceptr from, size_t size) {
  return copy_line(address(to), false, from, true, size, nullptr, true, __func__);
}
CUresult cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, size_t size) {
  return copy_line(to, true, from, true, size, nullptr, false, __func__);
}
CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t size) {
  return copy_line(to, false, from, false, size, nullptr, true, __func__);
}
CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, size_t size, CUstream stream) {
  return copy_line(to, true, address(from), false, size, stream, false, __func__);
}
CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, size_t size, CUstream stream) {
  return copy_line(address(to), false, from, true, size, stream, false, __func__);
}
CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
  return copy_line(to, true, from, true, size, stream, false, __func__);
}
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
  return copy_line(to, false, from, false, size, stream, false, __func__);
}
CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t size) {
  return copy_line(to, true, from, true, size, nullptr, true, __func__);
}
CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t size, CUstream stream) {
  return copy_line(to, true, from, true, size, stream, false, __func__);
}
CUresult cuMemcpy2D(const CUDA_MEMCPY2D* c) { return copy_2d(c, nullptr, true, __func__); }
CUresult cuMemcpy2DUnaligned(const CUDA_MEMCPY2D* c) { return copy_2d(c, nullptr, true, __func__); }
CUresult cuMemcpy2DAsync(const CUDA_MEMCPY2D* c, CUstream stream) { return copy_2d(c, stream, false, __func__); }
CUresult cuMemcpy3D(const CUDA_MEMCPY3D* c) { return copy_3d(c, nullptr, true, __func__); }
CUresult cuMemcpy3DAsync(const CUDA_MEMCPY3D* c, CUstream stream) { return copy_3d(c, stream, false, __func__); }

CUresult cuMemsetD8(CUdeviceptr to, unsigned char value, size_t n) {
  return set(to, 0, value, n, 1, nullptr, __func__);
}
CUresult cuMemsetD16(CUdeviceptr to, unsigned short value, size_t n) {
  return set(to, 0, value, n, 1, nullptr, __func__);
}
CUresult cuMemsetD32(CUdeviceptr to, unsigned value, size_t n) { return set(to, 0, value, n, 1, nullptr, __func__); }
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t n, CUstream stream) {
  return set(to, 0, value, n, 1, stream, __func__);
}
CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t n, CUstream stream) {
  return set(to, 0, value, n, 1, stream, __func__);
}
CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t n, CUstream stream) {
  return set(to, 0, value, n, 1, stream, __func__);
}
CUresult cuMemsetD2D8(CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height) {
  return set(to, pitch, value, width, height, nullptr, __func__);
}
CUresult cuMemsetD2D16(CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height) {
  return set(to, pitch, value, width, height, nullptr, __func__);
}
CUresult cuMemsetD2D32(CUdeviceptr to, size_t pitch, unsigned value, size_t width, size_t height) {
  return set(to, pitch, value, width, height, nullptr, __func__);
}
CUresult cuMemsetD2D8Async(CUdeviceptr to, size_t pitch, unsigned char value, size_t w, size_t h, CUstream stream) {
  return set(to, pitch, value, w, h, stream, __func__);
}
CUresult cuMemsetD2D16Async(CUdeviceptr to, size_t pitch, unsigned short value, size_t w, size_t h, CUstream stream) {
  return set(to, pitch, value, w, h, stream, __func__);
}
CUresult cuMemsetD2D32Async(CUdeviceptr to, size_t pitch, unsigned value, size_t w, size_t h, CUstream stream) {
  return set(to, pitch, value, w, h, stream, __func__);
}
