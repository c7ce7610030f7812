#include "snapshot/arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <mutex>
#include <system_error>

namespace r3 {
namespace {

constexpr int reserve_flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

std::uint64_t page_bytes() {
  static const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  return page;
}

void* pointer(std::uint64_t address) { return reinterpret_cast<void*>(address); }

}  // namespace

struct Arena::State {
  mutable std::mutex mutex;
  std::map<std::uint64_t, std::uint64_t> live;  // base → size that was asked for
  std::map<std::uint64_t, std::uint64_t> free;  // base → length, in whole pages, never adjacent

  // Pages of an allocation and the guard page behind it.
  static std::uint64_t footprint(std::uint64_t size) {
    const std::uint64_t page = page_bytes();
    return (std::max<std::uint64_t>(size, 1) + page - 1) / page * page + page;
  }

  void give_back(std::uint64_t base, std::uint64_t length) {
    auto next = free.lower_bound(base);
    if (next != free.end() && base + length == next->first) {
      length += next->second;
      next = free.erase(next);
    }
    if (next != free.begin()) {
      auto previous = std::prev(next);
      if (previous->first + previous->second == base) {
        previous->second += length;
        return;
      }
    }
    free.emplace(base, length);
  }
};

Arena::Arena() {
  void* at = mmap(pointer(arena_base), arena_size, PROT_NONE, reserve_flags | MAP_FIXED_NOREPLACE, -1, 0);
  const int error = at == MAP_FAILED ? errno : 0;
  if (at != pointer(arena_base)) {
    if (at != MAP_FAILED) munmap(at, arena_size);  // a kernel that takes the address as a hint only
    throw std::system_error(error ? error : EEXIST, std::generic_category(),
                            "cannot reserve device memory at 0x300000000000 (lift any `ulimit -v`)");
  }
  state_ = new State;
  state_->free.emplace(arena_base, arena_size);
}

Arena::~Arena() {
  munmap(pointer(arena_base), arena_size);
  delete state_;
}

std::uint64_t Arena::allocate(std::uint64_t size) {
  if (size >= arena_size) return 0;
  const std::uint64_t length = State::footprint(size);
  const std::lock_guard lock(state_->mutex);
  for (auto gap = state_->free.begin(); gap != state_->free.end(); ++gap) {
    if (gap->second < length) continue;
    const auto [base, room] = *gap;
    if (mprotect(pointer(base), length - page_bytes(), PROT_READ | PROT_WRITE) != 0) return 0;
    state_->free.erase(gap);
    if (room > length) state_->free.emplace(base + length, room - length);
    state_->live.emplace(base, size);
    return base;
  }
  return 0;
}

bool Arena::release(std::uint64_t base) {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->live.find(base);
  if (found == state_->live.end()) return false;
  const std::uint64_t length = State::footprint(found->second);
  state_->live.erase(found);
  // Mapping afresh drops the pages, so that the next owner finds zeros. If the kernel refuses (too many mappings),
  // the range stays out of use: a leak of addresses, never of another allocation's contents.
  if (mmap(pointer(base), length, PROT_NONE, reserve_flags | MAP_FIXED, -1, 0) != MAP_FAILED) {
    state_->give_back(base, length);
  } else {
    madvise(pointer(base), length, MADV_DONTNEED);
  }
  return true;
}

std::optional<Allocation> Arena::find(std::uint64_t address) const {
  const std::lock_guard lock(state_->mutex);
  auto after = state_->live.upper_bound(address);
  if (after == state_->live.begin()) return std::nullopt;
  const auto [base, size] = *std::prev(after);
  if (address - base >= size) return std::nullopt;
  return Allocation{base, size};
}

std::vector<Allocation> Arena::live() const {
  const std::lock_guard lock(state_->mutex);
  std::vector<Allocation> all;
  all.reserve(state_->live.size());
  for (const auto& [base, size] : state_->live) all.push_back({base, size});
  return all;
}

}  // namespace r3
