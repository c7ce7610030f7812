// Memory that a kernel may get at and that lies in no arena, so that its address cannot be kept.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace r3::recorder {

enum class ForeignKind { managed, host, registered, imported, driver };  // driver: what the arena could not serve
inline constexpr std::size_t n_foreign_kinds = 5;

// How a refusal names it: "managed memory", "pinned host memory", …
const char* describe(ForeignKind kind);

void add_foreign(std::uint64_t base, std::uint64_t size, ForeignKind kind) noexcept;
void remove_foreign(std::uint64_t base) noexcept;
std::optional<ForeignKind> find_foreign(std::uint64_t address) noexcept;

struct ForeignRange {
  std::uint64_t base, size;
  ForeignKind kind;
};
std::vector<ForeignRange> foreign_ranges();                           // what there is now, sorted by base
std::array<std::uint64_t, n_foreign_kinds> foreign_bytes() noexcept;  // all that there ever was, by kind

}  // namespace r3::recorder
