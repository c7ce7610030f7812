// Device code for whole ranges of memory. Loops are grid-stride: any geometry does.
#include "device/tile.h"

// Sets flags[i] for each allocation i that an 8-byte-aligned word of [words, words + n) points into or within `reach`
// bytes of. bases (ascending) and sizes describe the n_allocations; all lie in [low, high).
R3_KERNEL r3_scan_words(const u64* words, u64 n, u64 low, u64 high, u64 reach, const u64* bases, const u64* sizes,
                        u64 n_allocations, u8* flags) {
  for (u64 i = thread_index(); i < n; i += thread_count()) {
    const u64 word = words[i];
    if (word + reach < low || word >= high + reach) continue;
    u64 from = 0, to = n_allocations;  // the first allocation that starts after the word
    while (from < to) {
      const u64 middle = (from + to) / 2;
      if (bases[middle] <= word) {
        from = middle + 1;
      } else {
        to = middle;
      }
    }
    if (from < n_allocations && bases[from] - word <= reach) flags[from] = 1;
    if (from > 0 && word - bases[from - 1] < sizes[from - 1] + reach) flags[from - 1] = 1;
  }
}

// Sets flags[i] for each chunk i (chunk_words words long, the last one maybe shorter) in which a and b differ.
R3_KERNEL r3_changed_chunks(const u64* a, const u64* b, u64 n, u64 chunk_words, u8* flags) {
  for (u64 i = thread_index(); i < n; i += thread_count()) {
    if (a[i] != b[i]) flags[i / chunk_words] = 1;
  }
}

R3_KERNEL r3_copy_tiles(const Tile* tiles, u64 n_tiles, u64 shift) {
  for (u64 i = thread_index(); i < n_tiles << shift; i += thread_count()) {
    const Tile& tile = tiles[i >> shift];
    const u64 at = (i & ((1ull << shift) - 1)) * 16;
    if (at >= tile.bytes) continue;
    const u64 bytes = tile.bytes - at < 16 ? tile.bytes - at : 16;
    store_unit(tile.to + at, bytes, load_unit(tile.from + at, bytes));
  }
}

R3_KERNEL r3_fill_tiles(const Tile* tiles, u64 n_tiles, u64 shift, u64 pattern) {
  for (u64 i = thread_index(); i < n_tiles << shift; i += thread_count()) {
    const Tile& tile = tiles[i >> shift];
    const u64 at = (i & ((1ull << shift) - 1)) * 16;
    if (at >= tile.bytes) continue;
    const u64 bytes = tile.bytes - at < 16 ? tile.bytes - at : 16;
    store_unit(tile.to + at, bytes, pattern_unit(pattern, bytes));
  }
}
