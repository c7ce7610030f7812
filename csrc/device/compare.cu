// Device code that compares memory with what it should be.
#include "device/portable.h"

// Counts the bytes in which a and b differ, and finds the first: result = {differing bytes, offset of the first}.
// The caller sets result to {0, all ones}.
R3_KERNEL r3_compare_bytes(const u8* a, const u8* b, u64 n, u64* result) {
  u64 differing = 0, first = ~0ull;
  for (u64 i = thread_index(); i < n; i += thread_count()) {
    if (a[i] == b[i]) continue;
    ++differing;
    first = i < first ? i : first;
  }
  if (differing == 0) return;
  atomic_add(&result[0], differing);
  atomic_min(&result[1], first);
}
