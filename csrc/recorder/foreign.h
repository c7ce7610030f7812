// Memory that a kernel may get at and that lies in no arena, so that its address cannot be kept.
#pragma once
#include <cstdint>
#include <optional>

namespace r3::recorder {

enum class ForeignKind { managed, host, registered, imported, driver };  // driver: what the arena could not serve

// How a refusal names it: "managed memory", "pinned host memory", …
const char* describe(ForeignKind kind);

void add_foreign(std::uint64_t base, std::uint64_t size, ForeignKind kind) noexcept;
void remove_foreign(std::uint64_t base) noexcept;
std::optional<ForeignKind> find_foreign(std::uint64_t address) noexcept;

}  // namespace r3::recorder
