// What lowered kernels call for arithmetic that the host's instructions do not offer: directed roundings, small
// floating point formats, approximations. All are pure; their names start with r3m_.
#pragma once
#include <cstdint>
#include <span>

namespace r3 {

struct RuntimeSymbol {
  const char* name;
  void* address;
};

// The r3m_* functions, and those compiler runtime functions that code generation may call and no host library need
// export (16-bit floating point conversions, 128-bit division).
std::span<const RuntimeSymbol> device_math_symbols();

enum class Rounding : uint32_t { kNearest, kTowardZero, kDown, kUp, kNearestAway };

// Formats that r3m_narrow produces and r3m_widen reads.
enum class FloatFormat : uint32_t { kF32, kF16, kBf16, kTf32, kE4m3, kE5m2, kE2m3, kE3m2, kE2m1, kUe8m0 };

}  // namespace r3
