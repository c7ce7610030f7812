// Device code that the timing loop runs beside the kernel that it times.
#include "device/tile.h"

// Holds the stream up until *go is set, while the host fills the queue behind it, but for `nanoseconds` at most:
// whatever blocks the host meanwhile, the stream goes on.
R3_KERNEL r3_wait(const volatile u64* go, u64 nanoseconds) {
  if (thread_index() != 0) return;
  const u64 start = device_nanoseconds();
  while (!*go && device_nanoseconds() - start < nanoseconds) {
  }
}

// Reads n units, so that they are what the cache holds. Writing them would leave it full of lines that the kernel which
// is timed next has to write back first. The sum goes to `sink` only so that nothing is optimised away.
R3_KERNEL r3_read(const UnitVector* units, u64 n, u64* sink) {
  u64 sum = 0;
  for (u64 i = thread_index(); i < n; i += thread_count()) {
    const UnitVector unit = units[i];
    sum += unit[0] ^ unit[1];
  }
  if (sum == 1) *sink = sum;
}

// result = {cycles, nanoseconds} of a spin for about `nanoseconds`: their quotient is the multiprocessor's clock.
R3_KERNEL r3_clock(u64* result, u64 nanoseconds) {
  if (thread_index() != 0) return;
  const u64 start = device_nanoseconds(), cycles = device_cycles();
  u64 now = start;
  while (now - start < nanoseconds) now = device_nanoseconds();
  result[0] = device_cycles() - cycles;
  result[1] = now - start;
}
