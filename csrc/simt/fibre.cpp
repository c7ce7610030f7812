#include "simt/fibre.h"

#include <sys/mman.h>

#include <new>

namespace r3 {
namespace {

constexpr std::size_t page = 4096;
constexpr std::size_t stacks_per_slab = 64;

}  // namespace

StackPool::StackPool(std::size_t stack_bytes) : stack_bytes_((stack_bytes + page - 1) / page * page) {}

StackPool::~StackPool() {
  for (const Slab& slab : slabs_) munmap(reinterpret_cast<void*>(slab.base), slab.bytes);
}

void* StackPool::take() {
  if (free_.empty()) {
    std::size_t stride = stack_bytes_ + page;
    void* slab = mmap(nullptr, stride * stacks_per_slab, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (slab == MAP_FAILED) throw std::bad_alloc();
    auto base = reinterpret_cast<std::uint64_t>(slab);
    slabs_.push_back({base, stride * stacks_per_slab});
    for (std::size_t i = stacks_per_slab; i-- > 0;) {
      std::uint64_t guard = base + i * stride;
      if (mprotect(reinterpret_cast<void*>(guard), page, PROT_NONE) != 0) throw std::bad_alloc();
      free_.push_back(reinterpret_cast<void*>(guard + stride));
    }
  }
  void* top = free_.back();
  free_.pop_back();
  return top;
}

void StackPool::give(void* top) { free_.push_back(top); }

bool StackPool::contains(std::uint64_t address) const {
  for (const Slab& slab : slabs_)
    if (address >= slab.base && address < slab.base + slab.bytes) return true;
  return false;
}

bool StackPool::is_guard(std::uint64_t address) const {
  for (const Slab& slab : slabs_)
    if (address >= slab.base && address < slab.base + slab.bytes)
      return (address - slab.base) % (stack_bytes_ + page) < page;
  return false;
}

}  // namespace r3
