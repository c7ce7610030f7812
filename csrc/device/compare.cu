// Device code that compares memory with what it should be.
#include "device/tile.h"

// At most 1 << (shift + 4) bytes of one region: where they are, where the expected ones are, and the tile's place in
// the region.
struct CompareTile {
  u64 actual, expected, bytes, region, offset;
};

// How far an element may be from what is expected. element: 0 bytes, 1 f16, 2 bf16, 3 f32, 4 f64. The bounds that are
// no integers are the bits of doubles. None of the three: bit for bit.
struct RegionTolerance {
  u64 element, ulps, absolute, relative;
};

// One region's: differing bytes (elements, where there is a tolerance), the offset of the first, and how far the finite
// elements are off at most (the last two are bits of doubles, which are ordered as they are since none is negative).
// The caller sets it to {0, all ones, 0, 0, 0}.
struct RegionResult {
  u64 differing, first, ulps, absolute, relative;
};

R3_DEVICE u64 differing_bytes(u64 difference) {
  const u64 low = 0x7f7f7f7f7f7f7f7full;
  return static_cast<u64>(__builtin_popcountll((((difference & low) + low) | difference) & ~low));
}

R3_DEVICE u64 element_bytes(u64 element) { return element == 4 ? 8 : element == 3 ? 4 : element ? 2 : 1; }
R3_DEVICE u64 mantissa_bits(u64 element) { return element == 4 ? 52 : element == 3 ? 23 : element == 2 ? 7 : 10; }

// A finite element's value: sign, exponent and mantissa widened to those of a double.
R3_DEVICE double element_value(u64 bits, u64 element) {
  if (element == 4) return __builtin_bit_cast(double, bits);
  if (element == 3) return static_cast<double>(__builtin_bit_cast(float, static_cast<u32>(bits)));
  if (element == 2) return static_cast<double>(__builtin_bit_cast(float, static_cast<u32>(bits << 16)));
  const u64 exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const double magnitude = exponent ? __builtin_bit_cast(double, (exponent + 1008) << 52 | mantissa << 42)
                                    : static_cast<double>(mantissa) * 0x1p-24;
  return bits >> 15 ? -magnitude : magnitude;
}

R3_DEVICE u64 bits_of(double value) { return __builtin_bit_cast(u64, value); }
R3_DEVICE double double_of(u64 bits) { return __builtin_bit_cast(double, bits); }

// Elements a and e have different bits. Takes what is finite into the result; true when `a` is within the tolerance.
R3_DEVICE bool compare_elements(u64 a, u64 e, const RegionTolerance& tolerance, RegionResult& result) {
  const u64 width = 8 * element_bytes(tolerance.element), mantissa = mantissa_bits(tolerance.element);
  const u64 sign = 1ull << (width - 1), infinity = (sign - 1) >> mantissa << mantissa;
  const u64 magnitude_a = a & (sign - 1), magnitude_e = e & (sign - 1);
  const bool exact = !(tolerance.ulps | tolerance.absolute | tolerance.relative);
  if (magnitude_a > infinity || magnitude_e > infinity)  // a NaN
    return !exact && magnitude_a > infinity && magnitude_e > infinity;
  if (magnitude_a == infinity || magnitude_e == infinity) return false;
  const bool same_sign = (a & sign) == (e & sign);
  const u64 ulps = !same_sign                  ? magnitude_a + magnitude_e
                   : magnitude_a > magnitude_e ? magnitude_a - magnitude_e
                                               : magnitude_e - magnitude_a;
  const double expected = element_value(e, tolerance.element);
  const double absolute = __builtin_fabs(element_value(a, tolerance.element) - expected);
  const double scale = __builtin_fabs(expected);
  result.ulps = ulps > result.ulps ? ulps : result.ulps;
  if (absolute > double_of(result.absolute)) result.absolute = bits_of(absolute);
  // Infinite where 0 was expected.
  if (absolute > 0 && absolute / scale > double_of(result.relative)) result.relative = bits_of(absolute / scale);
  return !exact && (ulps <= tolerance.ulps || absolute <= double_of(tolerance.absolute) ||
                    absolute <= double_of(tolerance.relative) * scale);
}

R3_DEVICE void compare_units(Unit a, Unit e, u64 bytes, u64 offset, const RegionTolerance& tolerance,
                             RegionResult& result) {
  const bool exact = !(tolerance.ulps | tolerance.absolute | tolerance.relative);
  const u64 step = element_bytes(tolerance.element);
  for (u64 at = 0; at < bytes; at += step) {
    const bool whole = at + step <= bytes;  // a region may end with a piece of an element
    const u64 mask = step == 8 ? ~0ull : (1ull << 8 * step) - 1;
    const u64 value_a = (at < 8 ? a.low : a.high) >> at % 8 * 8 & mask;
    const u64 value_e = (at < 8 ? e.low : e.high) >> at % 8 * 8 & mask;
    if (value_a == value_e) continue;
    if (tolerance.element && whole && compare_elements(value_a, value_e, tolerance, result)) continue;
    result.differing += exact || !whole ? differing_bytes(value_a ^ value_e) : 1;
    const u64 first = offset + at + (exact ? static_cast<u64>(__builtin_ctzll(value_a ^ value_e)) / 8 : 0);
    result.first = first < result.first ? first : result.first;
  }
}

R3_DEVICE void add_result(RegionResult* to, const RegionResult& result) {
  if (result.first != ~0ull) {
    atomic_add(&to->differing, result.differing);
    atomic_min(&to->first, result.first);
  }
  if (result.ulps) atomic_max(&to->ulps, result.ulps);
  if (result.absolute) atomic_max(&to->absolute, result.absolute);
  if (result.relative) atomic_max(&to->relative, result.relative);
}

// What finds a difference takes many registers; the loads of what is equal need many threads.
R3_RESIDENT(4) r3_compare_tiles(const CompareTile*, u64, u64, const RegionTolerance*, RegionResult*);

R3_KERNEL r3_compare_tiles(const CompareTile* tiles, u64 n_tiles, u64 shift, const RegionTolerance* tolerances,
                           RegionResult* results) {
  const RegionResult nothing = {0, ~0ull, 0, 0, 0};
  RegionResult result = nothing;
  u64 region = 0;
  for (u64 i = thread_index(); i < n_tiles << shift; i += thread_count()) {
    const CompareTile& tile = tiles[i >> shift];
    const u64 at = (i & ((1ull << shift) - 1)) * 16;
    if (at >= tile.bytes) continue;
    const u64 bytes = tile.bytes - at < 16 ? tile.bytes - at : 16;
    const Unit a = load_unit(tile.actual + at, bytes), e = load_unit(tile.expected + at, bytes);
    if (a.low == e.low && a.high == e.high) continue;
    if (tile.region != region) {  // results are gathered by thread: one atomic for each difference would take too long
      add_result(&results[region], result);
      result = nothing;
      region = tile.region;
    }
    compare_units(a, e, bytes, tile.offset + at, tolerances[region], result);
  }
  add_result(&results[region], result);
}

// Adds to `count` the bytes of the tiles (Tile::to) that are not `pattern`.
R3_KERNEL r3_check_tiles(const Tile* tiles, u64 n_tiles, u64 shift, u64 pattern, u64* count) {
  u64 differing = 0;
  for (u64 i = thread_index(); i < n_tiles << shift; i += thread_count()) {
    const Tile& tile = tiles[i >> shift];
    const u64 at = (i & ((1ull << shift) - 1)) * 16;
    if (at >= tile.bytes) continue;
    const u64 bytes = tile.bytes - at < 16 ? tile.bytes - at : 16;
    const Unit found = load_unit(tile.to + at, bytes), expected = pattern_unit(pattern, bytes);
    differing += differing_bytes(found.low ^ expected.low) + differing_bytes(found.high ^ expected.high);
  }
  if (differing) atomic_add(count, differing);
}
