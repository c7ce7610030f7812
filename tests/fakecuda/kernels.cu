// Kernels for tests: compiled for the GPU, and as C++ into the stand-in, where one thread does it all.
#include "device/portable.h"

using f32 = float;
using f64 = double;

#ifdef __CUDA__
extern "C" {
__attribute__((device)) u32 counter = 5;
__attribute__((constant)) f32 table[4] = {1.0f, 2.5f, -3.0f, 0.25f};
__attribute__((device)) void __assertfail(const char*, const char*, u32, const char*, u64) __attribute__((noreturn));
}
R3_DEVICE u32& the_counter() { return counter; }
R3_DEVICE const f32* the_table() { return table; }
R3_DEVICE void atomic_increment(u32* at) { __nvvm_atom_add_gen_i(reinterpret_cast<int*>(at), 1); }
R3_DEVICE void fail_assertion() { __assertfail("x == 0", "kernels.cu", 1, "fails_assertion", 1); }
R3_DEVICE void trap() { __builtin_trap(); }
R3_DEVICE void touch(const void*) {}
R3_DEVICE void spin() {
  while (true) asm volatile("nanosleep.u32 1000;");
}
#else
R3_DEVICE u32& the_counter() { return *static_cast<u32*>(fake::variable("counter")); }
R3_DEVICE const f32* the_table() { return static_cast<const f32*>(fake::variable("table")); }
R3_DEVICE void atomic_increment(u32* at) { ++*at; }
R3_DEVICE void fail_assertion() {
  std::fputs("kernels.cu:1: fails_assertion: block: [0,0,0], thread: [0,0,0] Assertion `x == 0` failed.\n", stderr);
  fake::fault(CUDA_ERROR_ASSERT);
}
R3_DEVICE void trap() { fake::fault(CUDA_ERROR_LAUNCH_FAILED); }
R3_DEVICE void touch(const u32* at) {
  if (reinterpret_cast<u64>(at) % alignof(u32)) fake::fault(CUDA_ERROR_MISALIGNED_ADDRESS);
}
R3_DEVICE void spin() { fake::hang(); }
#endif

struct Node {
  const Node* next;
  u64 value;
};

struct View {
  f32* data;
  u32 n, stride;
};

R3_KERNEL do_nothing() {}

R3_KERNEL saxpy(f32* y, const f32* x, f32 a, u64 n) {
  for (u64 i = thread_index(); i < n; i += thread_count()) y[i] = a * x[i] + y[i];
}

R3_KERNEL write_only(u32* out, u64 n) {
  for (u64 i = thread_index(); i < n; i += thread_count()) out[i] = static_cast<u32>(i) * 2654435761u + 1;
}

R3_KERNEL sum_list(u64* sum, const Node* head) {
  if (thread_index() != 0) return;
  u64 total = 0;
  for (const Node* node = head; node; node = node->next) total += node->value;
  *sum = total;
}

R3_KERNEL scale_view(View view, f32 factor) {
  for (u64 i = thread_index(); i < view.n; i += thread_count()) view.data[i * view.stride] *= factor;
}

R3_KERNEL scale_through(const View* view, f32 factor) {
  for (u64 i = thread_index(); i < view->n; i += thread_count()) view->data[i * view->stride] *= factor;
}

R3_KERNEL count_calls(u32* out) {
  if (thread_index() == 0) *out = ++the_counter();
}

R3_KERNEL look_up(f32* out, const u32* index, u64 n) {
  for (u64 i = thread_index(); i < n; i += thread_count()) out[i] = the_table()[index[i] % 4];
}

R3_KERNEL histogram(u32* bins, const u8* data, u64 n) {
  for (u64 i = thread_index(); i < n; i += thread_count()) atomic_increment(&bins[data[i]]);
}

R3_KERNEL mixed(f64* out, u8 a, u16 b, u32 c, f64 d, u8 e) {
  if (thread_index() == 0) *out = a + b + c + d + e;
}

R3_KERNEL write_past(u32* out, u64 n) {
  for (u64 i = thread_index(); i <= n; i += thread_count()) out[i] = static_cast<u32>(i);
}

R3_KERNEL illegal_address(u32* out) {
  if (thread_index() == 0) *out = *reinterpret_cast<const volatile u32*>(64);
}

R3_KERNEL misaligned_address(u32* out) {
  u32* const at = reinterpret_cast<u32*>(reinterpret_cast<u8*>(out) + 1);
  touch(at);
  if (thread_index() == 0) *static_cast<volatile u32*>(at) = 1;
}

R3_KERNEL traps() { trap(); }

R3_KERNEL fails_assertion(u32 x) {
  if (x != 0) fail_assertion();
}

R3_KERNEL runs_forever() { spin(); }
