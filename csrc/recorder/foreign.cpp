#include "recorder/foreign.h"

#include <map>
#include <mutex>

namespace r3::recorder {
namespace {

struct Ranges {
  std::mutex mutex;
  std::map<std::uint64_t, ForeignRange> by_base;
  std::array<std::uint64_t, n_foreign_kinds> bytes{};
};

Ranges& ranges() {
  static auto& instance = *new Ranges;  // exit handlers still free memory
  return instance;
}

}  // namespace

const char* describe(ForeignKind kind) {
  switch (kind) {
    case ForeignKind::managed:
      return "managed memory";
    case ForeignKind::host:
      return "pinned host memory";
    case ForeignKind::registered:
      return "registered host memory";
    case ForeignKind::imported:
      return "memory imported from another process or API";
    case ForeignKind::driver:
      return "memory that the recorder could not place at a fixed address";
  }
  return "foreign memory";
}

void add_foreign(std::uint64_t base, std::uint64_t size, ForeignKind kind) noexcept {
  try {
    auto& [mutex, by_base, bytes] = ranges();
    const std::lock_guard lock(mutex);
    bytes[static_cast<std::size_t>(kind)] += size;
    by_base.insert_or_assign(base, ForeignRange{base, size, kind});
  } catch (...) {  // out of memory: the range stays unknown, as pageable memory does
  }
}

void remove_foreign(std::uint64_t base) noexcept {
  auto& [mutex, by_base, bytes] = ranges();
  const std::lock_guard lock(mutex);
  by_base.erase(base);
}

std::optional<ForeignKind> find_foreign(std::uint64_t address) noexcept {
  auto& [mutex, by_base, bytes] = ranges();
  const std::lock_guard lock(mutex);
  const auto after = by_base.upper_bound(address);
  if (after == by_base.begin()) return std::nullopt;
  const ForeignRange& range = std::prev(after)->second;
  if (address - range.base >= range.size) return std::nullopt;
  return range.kind;
}

std::vector<ForeignRange> foreign_ranges() {
  auto& [mutex, by_base, bytes] = ranges();
  const std::lock_guard lock(mutex);
  std::vector<ForeignRange> all;
  all.reserve(by_base.size());
  for (const auto& [base, range] : by_base) all.push_back(range);
  return all;
}

std::array<std::uint64_t, n_foreign_kinds> foreign_bytes() noexcept {
  const std::lock_guard lock(ranges().mutex);
  return ranges().bytes;
}

}  // namespace r3::recorder
