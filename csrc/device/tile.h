// How the kernels of this folder deal out memory.
#pragma once
#include "device/portable.h"

// A piece of memory, at most 1 << (shift + 4) bytes long: work is dealt out as tiles of 16-byte units, so that many
// small ranges and a few large ones take one launch alike.
struct Tile {
  u64 to, from, bytes;
};

struct Unit {
  u64 low, high;
};
typedef u64 UnitVector __attribute__((vector_size(16)));

// The `bytes` (1 to 16) at an address, zeros behind them.
R3_DEVICE Unit load_unit(u64 address, u64 bytes) {
  if (bytes == 16 && address % 16 == 0) {
    const UnitVector loaded = *reinterpret_cast<const UnitVector*>(address);
    return {loaded[0], loaded[1]};
  }
  Unit unit = {0, 0};
  for (u64 i = 0; i < bytes; ++i) {
    const u64 byte = *reinterpret_cast<const u8*>(address + i);
    (i < 8 ? unit.low : unit.high) |= byte << i % 8 * 8;
  }
  return unit;
}

R3_DEVICE void store_unit(u64 address, u64 bytes, Unit unit) {
  if (bytes == 16 && address % 16 == 0) {
    *reinterpret_cast<UnitVector*>(address) = UnitVector{unit.low, unit.high};
    return;
  }
  for (u64 i = 0; i < bytes; ++i) {
    *reinterpret_cast<u8*>(address + i) = static_cast<u8>((i < 8 ? unit.low : unit.high) >> i % 8 * 8);
  }
}

R3_DEVICE Unit pattern_unit(u64 pattern, u64 bytes) {
  const u64 word = pattern * 0x0101010101010101ull;
  const auto first = [word](u64 n) { return n >= 8 ? word : word & ((1ull << 8 * n) - 1); };
  return {first(bytes), bytes > 8 ? first(bytes - 8) : 0};
}
