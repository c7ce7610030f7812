#include "hostcuda/memory.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace r3::hostcuda {
namespace {

bool among(Block::Kind kind, std::initializer_list<Block::Kind> kinds) {
  return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
}

std::uint64_t machine_memory() {
  std::uint64_t bytes = static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  std::uint64_t limit = 0;  // a container may have less than the machine; "max" does not parse
  if (std::ifstream("/sys/fs/cgroup/memory.max") >> limit) bytes = std::min(bytes, limit);
  return std::min(bytes, arena_size);
}

}  // namespace

std::uint64_t Memory::allocate(std::uint64_t size, Block::Kind kind, unsigned flags) {
  const std::lock_guard lock(mutex_);
  if (size > total() - std::min(used_, total())) return 0;
  const std::uint64_t base = arena_.allocate(size);
  if (base == 0) return 0;
  blocks_.emplace(base, Block{base, size, kind, flags});
  used_ += size;
  return base;
}

bool Memory::release(std::uint64_t base, std::initializer_list<Block::Kind> kinds) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(base);
  if (found == blocks_.end() || !among(found->second.kind, kinds)) return false;
  if (found->second.in_arena()) {
    used_ -= found->second.size;
    arena_.release(base);
  }
  blocks_.erase(found);
  return true;
}

void Memory::release_all(std::initializer_list<Block::Kind> kinds) {
  for (const Block& block : blocks()) {
    if (among(block.kind, kinds)) release(block.base, kinds);
  }
}

bool Memory::register_host(std::uint64_t base, std::uint64_t size, unsigned flags) {
  const std::lock_guard lock(mutex_);
  const auto after = blocks_.lower_bound(base);
  if (after != blocks_.end() && after->first < base + size) return false;
  if (after != blocks_.begin()) {
    const Block& before = std::prev(after)->second;
    if (base < before.base + before.size) return false;
  }
  blocks_.emplace(base, Block{base, size, Block::Kind::registered, flags});
  return true;
}

std::optional<Block> Memory::find(std::uint64_t address) const {
  const std::lock_guard lock(mutex_);
  const auto after = blocks_.upper_bound(address);
  if (after == blocks_.begin()) return std::nullopt;
  const Block& block = std::prev(after)->second;
  if (address - block.base >= block.size) return std::nullopt;
  return block;
}

std::vector<Block> Memory::blocks() const {
  const std::lock_guard lock(mutex_);
  std::vector<Block> all;
  all.reserve(blocks_.size());
  for (const auto& [base, block] : blocks_) all.push_back(block);
  return all;
}

bool Memory::contains(std::uint64_t address, std::uint64_t size) const {
  const auto block = find(address);
  return block && size <= block->base + block->size - address;
}

std::uint64_t Memory::total() const {
  static const std::uint64_t bytes = machine_memory();
  return bytes;
}

std::uint64_t Memory::used() const {
  const std::lock_guard lock(mutex_);
  return used_;
}

Memory& memory() {
  static Memory& instance = *new Memory;  // never destroyed: kernels and recordings may still run in static destructors
  return instance;
}

}  // namespace r3::hostcuda
