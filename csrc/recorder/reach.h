// What a launch can get at.
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "recorder/context.h"
#include "recorder/image.h"
#include "snapshot/arena.h"

namespace r3::recorder {

struct Reached {
  std::vector<Allocation> allocations;  // sorted by base
  std::vector<std::string> warnings;    // what may keep a replay from seeing the same
};

// The live allocations that 8-byte-aligned words of the packed arguments, of the variables and of the memory found so
// far point into (or within device::pointer_reach bytes of); all live ones when `all`. Throws Refusal when the kernel
// could get at memory whose address a replay cannot have, DriverError. Nothing may run on the device meanwhile.
Reached reach(const Context& context, std::span<const std::byte> arguments, std::span<const Variable> variables,
              bool all);

}  // namespace r3::recorder
