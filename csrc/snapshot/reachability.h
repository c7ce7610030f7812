// Which allocations a kernel can get at.
#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "snapshot/arena.h"

namespace r3 {

// The live allocations that 8-byte-aligned words of `arguments` (the packed parameter buffer), of `roots` (module
// variables) and of the memory found so far point into, `roots` included, sorted by base. A pointer within one page of
// an allocation counts as pointing into it: one past the end is a common bound, and one before the start a common base.
// The caller sees to it that nothing is freed meanwhile.
std::vector<Allocation> reachable(const Arena& arena, std::span<const std::byte> arguments,
                                  std::span<const Allocation> roots);

}  // namespace r3
