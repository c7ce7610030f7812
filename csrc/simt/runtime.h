// The functions that lowered code calls.
#pragma once
#include <span>

#include "simt/device_math.h"

namespace r3 {

std::span<const RuntimeSymbol> runtime_symbols();

}  // namespace r3
