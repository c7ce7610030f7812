#include "snapshot/reachability.h"

#include <algorithm>
#include <cstring>

namespace r3 {
namespace {

constexpr std::uint64_t reach = 4096;  // how far outside an allocation a pointer may lie and still count

class Search {
 public:
  explicit Search(std::vector<Allocation> live) : live_(std::move(live)), seen_(live_.size(), false) {}

  void scan(const std::byte* data, std::size_t size) {
    for (std::size_t at = 0; at + sizeof(std::uint64_t) <= size; at += sizeof(std::uint64_t)) {
      std::uint64_t word;
      std::memcpy(&word, data + at, sizeof word);
      if (word - (arena_base - reach) < arena_size + 2 * reach) follow(word);
    }
  }

  void follow(std::uint64_t address) {
    const auto after = std::upper_bound(live_.begin(), live_.end(), address,
                                        [](std::uint64_t a, const Allocation& b) { return a < b.base; });
    if (after != live_.end() && after->base - address <= reach) add(after);
    if (after != live_.begin()) {
      const auto at = std::prev(after);
      if (address - at->base < at->size + reach) add(at);
    }
  }

  std::vector<Allocation> run() {
    while (!todo_.empty()) {
      const Allocation next = todo_.back();
      todo_.pop_back();
      scan(reinterpret_cast<const std::byte*>(next.base), next.size);
    }
    std::vector<Allocation> found;
    for (std::size_t i = 0; i < live_.size(); ++i) {
      if (seen_[i]) found.push_back(live_[i]);
    }
    return found;
  }

 private:
  void add(std::vector<Allocation>::const_iterator allocation) {
    const auto index = static_cast<std::size_t>(allocation - live_.begin());
    if (seen_[index]) return;
    seen_[index] = true;
    todo_.push_back(*allocation);
  }

  const std::vector<Allocation> live_;
  std::vector<bool> seen_;
  std::vector<Allocation> todo_;
};

}  // namespace

std::vector<Allocation> reachable(const Arena& arena, std::span<const std::byte> arguments,
                                  std::span<const Allocation> roots) {
  Search search(arena.live());
  for (const Allocation& root : roots) search.follow(root.base);
  search.scan(arguments.data(), arguments.size());
  return search.run();
}

}  // namespace r3
