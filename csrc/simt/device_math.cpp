#include "simt/device_math.h"

#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace r3 {
namespace {

// ---- Directed roundings: the host's own instructions under another MXCSR
// -------------------------------------------------

class RoundingScope {
 public:
  explicit RoundingScope(unsigned mode) : saved_(_mm_getcsr()) { _mm_setcsr((saved_ & ~_MM_ROUND_MASK) | mode); }
  ~RoundingScope() { _mm_setcsr(saved_); }
  RoundingScope(const RoundingScope&) = delete;
  RoundingScope& operator=(const RoundingScope&) = delete;

 private:
  unsigned saved_;
};

// Keeps the compiler from moving arithmetic across a change of MXCSR: operands are "changed" after it, results "used"
// before.
template <typename T>
void pin(T& value) {
  asm volatile("" : "+x"(value));
}

template <unsigned mode, typename T, typename Operation, typename... Ts>
T rounded(Operation operation, T first, Ts... rest) {
  RoundingScope scope(mode);
  pin(first);
  (pin(rest), ...);
  T result = operation(first, rest...);
  pin(result);
  return result;
}

template <typename T>
T square_root(T x) {
  if constexpr (sizeof(T) == 4) {
    return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x)));
  } else {
    return _mm_cvtsd_f64(_mm_sqrt_sd(_mm_set_sd(x), _mm_set_sd(x)));
  }
}

// ---- Small formats
// -----------------------------------------------------------------------------------------------------

struct FormatTraits {
  int exponent_bits;
  int mantissa_bits;
  int bias;
  bool has_infinity;
  uint32_t nan;         // canonical NaN, without sign; 0 when the format has none
  uint32_t max_finite;  // largest finite magnitude
};

constexpr FormatTraits kFormats[] = {
    {8, 23, 127, true, 0x7fffffff, 0x7f7fffff},  // f32
    {5, 10, 15, true, 0x7fff, 0x7bff},           // f16
    {8, 7, 127, true, 0x7fff, 0x7f7f},           // bf16
    {8, 10, 127, true, 0x3ffff, 0x3fbff},        // tf32, as the 19 bits it has
    {4, 3, 7, false, 0x7f, 0x7e},                // e4m3
    {5, 2, 15, true, 0x7f, 0x7b},                // e5m2
    {2, 3, 1, false, 0, 0x1f},                   // e2m3
    {3, 2, 3, false, 0, 0x1f},                   // e3m2
    {2, 1, 1, false, 0, 0x7},                    // e2m1
    {8, 0, 127, false, 0xff, 0xfe},              // ue8m0: an exponent, no sign
};

bool rounds_up(Rounding rounding, bool negative, bool odd, bool above_half, bool half, bool inexact) {
  switch (rounding) {
    case Rounding::kNearest:
      return above_half || (half && odd);
    case Rounding::kNearestAway:
      return above_half || half;
    case Rounding::kTowardZero:
      return false;
    case Rounding::kDown:
      return negative && inexact;
    case Rounding::kUp:
      return !negative && inexact;
  }
  return false;
}

// The top `keep` bits of `mantissa`, which has `width` significant bits, rounded; may be 1 << keep.
uint64_t round_mantissa(uint64_t mantissa, int drop, Rounding rounding, bool negative) {
  if (drop <= 0) return mantissa << -drop;
  if (drop > 63) return rounds_up(rounding, negative, false, false, false, mantissa != 0) ? 1 : 0;
  uint64_t kept = mantissa >> drop;
  uint64_t rest = mantissa & ((uint64_t{1} << drop) - 1);
  uint64_t half = uint64_t{1} << (drop - 1);
  return kept + rounds_up(rounding, negative, kept & 1, rest > half, rest == half, rest != 0);
}

uint32_t narrow_ue8m0(double value, Rounding rounding, bool finite) {
  // Powers of two from 2^-127 on: no zero, no sign. 0xff is NaN, and infinity too unless `finite`.
  if (std::isnan(value)) return 0xff;
  if (std::isinf(value)) return finite ? 0xfe : 0xff;
  int exponent;
  double fraction = std::frexp(std::fabs(value), &exponent);  // in [0.5, 1), or 0
  int code = exponent - 1 + 127 + (rounding == Rounding::kUp && fraction != 0.5);
  if (value == 0 || code < 0) return 0;
  return static_cast<uint32_t>(std::min(code, finite ? 0xfe : 0xff));
}

// Exact for every binary32 and binary64 input: one rounding, done on integers.
uint32_t narrow(double value, FloatFormat format, Rounding rounding, bool finite) {
  if (format == FloatFormat::kUe8m0) return narrow_ue8m0(value, rounding, finite);
  const FormatTraits& traits = kFormats[static_cast<uint32_t>(format)];
  uint64_t bits = std::bit_cast<uint64_t>(value);
  bool negative = bits >> 63;
  uint32_t sign = negative ? 1u << (traits.exponent_bits + traits.mantissa_bits) : 0;
  if (std::isnan(value)) return traits.nan != 0 ? traits.nan : traits.max_finite;
  uint32_t overflow = traits.has_infinity ? traits.max_finite + 1 : traits.nan;
  if (finite || overflow == 0) overflow = traits.max_finite;
  if (std::isinf(value)) return sign | overflow;
  if (value == 0) return sign;

  int exponent = static_cast<int>(bits >> 52 & 0x7ff);
  uint64_t mantissa = bits & ((uint64_t{1} << 52) - 1);
  if (exponent == 0) {
    int shift = std::countl_zero(mantissa) - 11;
    mantissa <<= shift;
    exponent = 1 - shift;
  } else {
    mantissa |= uint64_t{1} << 52;
  }
  int biased = exponent - 1023 + traits.bias;
  int drop = 52 - traits.mantissa_bits + (biased < 1 ? 1 - biased : 0);
  uint64_t rounded = round_mantissa(mantissa, drop, rounding, negative);
  // The implicit bit carries into the exponent field, which makes subnormal, normal and overflow one case.
  uint64_t magnitude = rounded + (biased < 1 ? 0 : static_cast<uint64_t>(biased - 1) << traits.mantissa_bits);
  if (magnitude > traits.max_finite) {
    bool away = rounding == Rounding::kNearest || rounding == Rounding::kNearestAway ||
                (rounding == Rounding::kUp && !negative) || (rounding == Rounding::kDown && negative);
    magnitude = away ? overflow : traits.max_finite;
  }
  return sign | static_cast<uint32_t>(magnitude);
}

float widen(uint32_t bits, FloatFormat format) {
  const FormatTraits& traits = kFormats[static_cast<uint32_t>(format)];
  if (format == FloatFormat::kUe8m0) {
    return bits == 0xff ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.0f, static_cast<int>(bits) - 127);
  }
  int width = traits.exponent_bits + traits.mantissa_bits;
  bool negative = bits >> width & 1;
  uint32_t magnitude = bits & ((1u << width) - 1);
  float result;
  if (traits.nan != 0 && magnitude > traits.max_finite + (traits.has_infinity ? 1 : 0)) {
    result = std::bit_cast<float>(0x7fffffff);
    return result;
  }
  if (magnitude > traits.max_finite) {
    result = std::numeric_limits<float>::infinity();
  } else {
    int exponent = static_cast<int>(magnitude >> traits.mantissa_bits);
    uint32_t mantissa = magnitude & ((1u << traits.mantissa_bits) - 1);
    if (exponent != 0) mantissa |= 1u << traits.mantissa_bits;
    result =
        std::ldexp(static_cast<float>(mantissa), (exponent == 0 ? 1 : exponent) - traits.bias - traits.mantissa_bits);
  }
  return negative ? -result : result;
}

template <typename Float>
Float integer_to_float(uint64_t magnitude, bool negative, Rounding rounding) {
  constexpr int kPrecision = std::numeric_limits<Float>::digits;
  int drop = 64 - std::countl_zero(magnitude) - kPrecision;
  Float result = drop <= 0 ? static_cast<Float>(magnitude)
                           : std::ldexp(static_cast<Float>(round_mantissa(magnitude, drop, rounding, negative)), drop);
  return negative ? -result : result;
}

// ---- 16-bit conversions of the compiler's runtime
// --------------------------------------------------------------------

// _Float16 and __bf16 travel in the low half of an SSE register, as these floats do.
float in_low_half(uint32_t bits) { return std::bit_cast<float>(bits); }

}  // namespace
}  // namespace r3

using r3::FloatFormat;
using r3::Rounding;

extern "C" {

#define R3M_ROUNDED(mode, suffix)                                                                      \
  static float r3m_add_f32_##suffix(float a, float b) {                                                \
    return r3::rounded<mode>([](float x, float y) { return x + y; }, a, b);                            \
  }                                                                                                    \
  static double r3m_add_f64_##suffix(double a, double b) {                                             \
    return r3::rounded<mode>([](double x, double y) { return x + y; }, a, b);                          \
  }                                                                                                    \
  static float r3m_mul_f32_##suffix(float a, float b) {                                                \
    return r3::rounded<mode>([](float x, float y) { return x * y; }, a, b);                            \
  }                                                                                                    \
  static double r3m_mul_f64_##suffix(double a, double b) {                                             \
    return r3::rounded<mode>([](double x, double y) { return x * y; }, a, b);                          \
  }                                                                                                    \
  static float r3m_div_f32_##suffix(float a, float b) {                                                \
    return r3::rounded<mode>([](float x, float y) { return x / y; }, a, b);                            \
  }                                                                                                    \
  static double r3m_div_f64_##suffix(double a, double b) {                                             \
    return r3::rounded<mode>([](double x, double y) { return x / y; }, a, b);                          \
  }                                                                                                    \
  static float r3m_fma_f32_##suffix(float a, float b, float c) {                                       \
    return r3::rounded<mode>([](float x, float y, float z) { return std::fma(x, y, z); }, a, b, c);    \
  }                                                                                                    \
  static double r3m_fma_f64_##suffix(double a, double b, double c) {                                   \
    return r3::rounded<mode>([](double x, double y, double z) { return std::fma(x, y, z); }, a, b, c); \
  }                                                                                                    \
  static float r3m_sqrt_f32_##suffix(float a) { return r3::rounded<mode>(r3::square_root<float>, a); } \
  static double r3m_sqrt_f64_##suffix(double a) { return r3::rounded<mode>(r3::square_root<double>, a); }

R3M_ROUNDED(_MM_ROUND_TOWARD_ZERO, rz)
R3M_ROUNDED(_MM_ROUND_DOWN, rm)
R3M_ROUNDED(_MM_ROUND_UP, rp)
#undef R3M_ROUNDED

static uint32_t r3m_narrow(double value, uint32_t format, uint32_t rounding, uint32_t finite) {
  return r3::narrow(value, static_cast<FloatFormat>(format), static_cast<Rounding>(rounding), finite != 0);
}

static float r3m_widen(uint32_t bits, uint32_t format) { return r3::widen(bits, static_cast<FloatFormat>(format)); }

static float r3m_integer_to_f32(uint64_t magnitude, uint32_t negative, uint32_t rounding) {
  return r3::integer_to_float<float>(magnitude, negative != 0, static_cast<Rounding>(rounding));
}

static double r3m_integer_to_f64(uint64_t magnitude, uint32_t negative, uint32_t rounding) {
  return r3::integer_to_float<double>(magnitude, negative != 0, static_cast<Rounding>(rounding));
}

// a * b + c for operands of a 16-bit format, rounded once. The product is exact in binary64 (at most 22 bits); the sum
// is rounded to odd (its exact error, by Knuth's two-sum, decides the last bit), after which rounding to at most 11
// bits is as if done from the exact sum, because 53 >= 11 + 2 (Boldo and Melquiond).
static uint32_t r3m_fma_narrow(double a, double b, double c, uint32_t format) {
  double product = a * b;
  double sum = product + c;
  if (std::isfinite(sum)) {
    double from_c = sum - product;
    double error = (product - (sum - from_c)) + (c - from_c);
    uint64_t bits = std::bit_cast<uint64_t>(sum);
    if (error != 0 && (bits & 1) == 0) {
      bool away_from_zero = (error > 0) == (sum > 0);
      sum = std::bit_cast<double>(away_from_zero ? bits + 1 : bits - 1);
    }
  }
  return r3::narrow(sum, static_cast<FloatFormat>(format), Rounding::kNearest, false);
}

// fns: the position of the |offset|-th set bit of `mask`, counted from `base` upwards, or downwards for a negative
// offset.
static uint32_t r3m_find_nth_set(uint32_t mask, uint32_t base, int32_t offset) {
  if (offset == 0) return base < 32 && (mask >> base & 1) ? base : 0xffffffff;
  uint32_t count = offset > 0 ? static_cast<uint32_t>(offset) : 0u - static_cast<uint32_t>(offset);
  for (uint32_t position = base; position < 32; position += offset > 0 ? 1u : ~0u) {
    if ((mask >> position & 1) && --count == 0) return position;
  }
  return 0xffffffff;
}

// The approximations of the PTX ISA, through libm: all within the error that the ISA allows.
static float r3m_ex2_f32(float x) { return std::exp2(x); }
static double r3m_ex2_f64(double x) { return std::exp2(x); }
static float r3m_lg2_f32(float x) { return std::log2(x); }
static double r3m_lg2_f64(double x) { return std::log2(x); }
static float r3m_sin_f32(float x) { return std::sin(x); }
static float r3m_cos_f32(float x) { return std::cos(x); }
static float r3m_tanh_f32(float x) { return std::tanh(x); }
static float r3m_rsqrt_f32(float x) { return static_cast<float>(1.0 / r3::square_root(static_cast<double>(x))); }
static double r3m_rsqrt_f64(double x) { return 1.0 / r3::square_root(x); }

static float r3m_truncsfhf2(float x) {
  return r3::in_low_half(r3::narrow(x, FloatFormat::kF16, Rounding::kNearest, false));
}
static float r3m_truncdfhf2(double x) {
  return r3::in_low_half(r3::narrow(x, FloatFormat::kF16, Rounding::kNearest, false));
}
static float r3m_truncsfbf2(float x) {
  return r3::in_low_half(r3::narrow(x, FloatFormat::kBf16, Rounding::kNearest, false));
}
static float r3m_truncdfbf2(double x) {
  return r3::in_low_half(r3::narrow(x, FloatFormat::kBf16, Rounding::kNearest, false));
}
static float r3m_extendhfsf2(float x) { return r3::widen(std::bit_cast<uint32_t>(x) & 0xffff, FloatFormat::kF16); }

__extension__ typedef __int128 r3m_int128;
__extension__ typedef unsigned __int128 r3m_uint128;
static r3m_int128 r3m_divti3(r3m_int128 a, r3m_int128 b) { return a / b; }
static r3m_int128 r3m_modti3(r3m_int128 a, r3m_int128 b) { return a % b; }
static r3m_uint128 r3m_udivti3(r3m_uint128 a, r3m_uint128 b) { return a / b; }
static r3m_uint128 r3m_umodti3(r3m_uint128 a, r3m_uint128 b) { return a % b; }

}  // extern "C"

std::span<const r3::RuntimeSymbol> r3::device_math_symbols() {
#define R3M(name) {#name, reinterpret_cast<void*>(&name)}
#define R3M_DIRECTED(suffix)                                                                                      \
  R3M(r3m_add_f32_##suffix), R3M(r3m_add_f64_##suffix), R3M(r3m_mul_f32_##suffix), R3M(r3m_mul_f64_##suffix),     \
      R3M(r3m_div_f32_##suffix), R3M(r3m_div_f64_##suffix), R3M(r3m_fma_f32_##suffix), R3M(r3m_fma_f64_##suffix), \
      R3M(r3m_sqrt_f32_##suffix), R3M(r3m_sqrt_f64_##suffix)
#define R3M_AS(name, function)               \
  {                                          \
    name, reinterpret_cast<void*>(&function) \
  }
  static const RuntimeSymbol symbols[] = {
      R3M_DIRECTED(rz),
      R3M_DIRECTED(rm),
      R3M_DIRECTED(rp),
      R3M(r3m_narrow),
      R3M(r3m_widen),
      R3M(r3m_integer_to_f32),
      R3M(r3m_integer_to_f64),
      R3M(r3m_fma_narrow),
      R3M(r3m_find_nth_set),
      R3M(r3m_ex2_f32),
      R3M(r3m_ex2_f64),
      R3M(r3m_lg2_f32),
      R3M(r3m_lg2_f64),
      R3M(r3m_sin_f32),
      R3M(r3m_cos_f32),
      R3M(r3m_tanh_f32),
      R3M(r3m_rsqrt_f32),
      R3M(r3m_rsqrt_f64),
      R3M_AS("__truncsfhf2", r3m_truncsfhf2),
      R3M_AS("__truncdfhf2", r3m_truncdfhf2),
      R3M_AS("__truncsfbf2", r3m_truncsfbf2),
      R3M_AS("__truncdfbf2", r3m_truncdfbf2),
      R3M_AS("__extendhfsf2", r3m_extendhfsf2),
      R3M_AS("__divti3", r3m_divti3),
      R3M_AS("__modti3", r3m_modti3),
      R3M_AS("__udivti3", r3m_udivti3),
      R3M_AS("__umodti3", r3m_umodti3),
  };
#undef R3M_AS
#undef R3M_DIRECTED
#undef R3M
  return symbols;
}
