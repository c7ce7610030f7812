// Blocks of memory, and what may touch them when.
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>

#include <algorithm>

#include "fake.h"

namespace fake {
namespace {

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

}  // namespace

unsigned long long next_id() {
  static unsigned long long id = 0;
  return ++id;
}

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

bool occupied(CUdeviceptr from, std::size_t size) {
  const auto after = state().blocks.lower_bound(from);
  return find_block(from) || (after != state().blocks.end() && after->first < from + size);
}

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
