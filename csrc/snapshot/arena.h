// Device memory at fixed addresses, so that pointers inside recorded memory mean the same thing in a replay.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace r3 {

inline constexpr std::uint64_t arena_base = 0x300000000000;
inline constexpr std::uint64_t arena_size = 1ull << 40;

struct Allocation {
  std::uint64_t base, size;
};  // `size` is what the application asked for

// A first-fit arena in [arena_base, arena_base + arena_size), reserved in full, committed by the kernel page by page.
// Every allocation starts on a page and is followed by at least one guard page that faults. Thread-safe.
class Arena {
 public:
  Arena();  // throws std::system_error when the range is taken
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::uint64_t allocate(std::uint64_t size);                   // 0 when nothing fits; the memory is zero-filled
  bool release(std::uint64_t base);                             // false: not the start of a live allocation
  std::optional<Allocation> find(std::uint64_t address) const;  // the live allocation that contains it
  std::vector<Allocation> live() const;                         // sorted by base
 private:
  struct State;
  State* state_;
};

}  // namespace r3
