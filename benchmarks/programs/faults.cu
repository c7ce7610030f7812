// A kernel to record, and variants of it that are wrong, each in its own way: VARIANT names one.
//
//   faults [elements]
#include <cassert>

#define GOOD 0
#define GOOD_UNROLLED 1
#define GOOD_BACKWARDS 2
#define WRONG_VALUE 10
#define DOES_NOTHING 11
#define HALF_DONE 12
#define OUT_OF_BOUNDS 13
#define ILLEGAL_ADDRESS 20
#define MISALIGNED 21
#define TRAP 22
#define ASSERT 23
#define ENDLESS 24
#define TOO_LARGE 25
#define INVALID_LAUNCH 26

#ifndef VARIANT
#define VARIANT GOOD
#endif

#if VARIANT == INVALID_LAUNCH
#define BOUNDS __launch_bounds__(64)  // the recorded block is larger
#else
#define BOUNDS
#endif

#if VARIANT == TOO_LARGE
__device__ char too_large[600ull << 30];  // more than a GPU has
#endif

__device__ float step(float value) { return value * 1.5f + 0.25f; }

extern "C" __global__ void BOUNDS target(const float* in, float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
#if VARIANT == GOOD
  if (i < n) out[i] = step(in[i]);
#elif VARIANT == GOOD_UNROLLED
  if (i < n) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if (k == i % 4) out[i] = step(in[i]);
    }
  }
#elif VARIANT == GOOD_BACKWARDS
  const int last = gridDim.x * blockDim.x - 1 - i;
  if (last < n) out[last] = step(in[last]);
#elif VARIANT == WRONG_VALUE
  if (i < n) out[i] = step(in[i]) + (i == n / 2 ? 1.0f : 0.0f);
#elif VARIANT == DOES_NOTHING
  if (i < 0) out[i] = step(in[i]);
#elif VARIANT == HALF_DONE
  if (i < n / 2) out[i] = step(in[i]);
#elif VARIANT == OUT_OF_BOUNDS
  if (i < n) out[i] = step(in[i]);
  if (i == 0) out[n + 1] = 3.0f;
#elif VARIANT == ILLEGAL_ADDRESS
  if (i < n) out[i] = step(in[i]);
  if (i == n / 2) out[1ull << 36] = 1.0f;
#elif VARIANT == MISALIGNED
  if (i < n) out[i] = step(in[i]);
  if (i == n / 2) *reinterpret_cast<volatile float*>(reinterpret_cast<char*>(out) + 1) = 1.0f;
#elif VARIANT == TRAP
  if (i < n) out[i] = step(in[i]);
  if (i == n / 2) __trap();
#elif VARIANT == ASSERT
  if (i < n) out[i] = step(in[i]);
  assert(i != n / 2);
#elif VARIANT == ENDLESS
  if (i < n) out[i] = step(in[i]);
  if (i == n / 2) {
    while (*reinterpret_cast<const volatile int*>(in) != -1) continue;
  }
#elif VARIANT == TOO_LARGE
  if (i < n) out[i] = step(in[i]) + too_large[i];
#elif VARIANT == INVALID_LAUNCH
  if (i < n) out[i] = step(in[i]);
#endif
}

#ifndef __CUDA_ARCH__
#include "../../examples/check.h"

int main(int argc, char** argv) {
  const int n = example::argument(argc, argv, 1, 100000);
  std::vector<float> values(n), expected(n);
  for (int i = 0; i < n; ++i) {
    values[i] = static_cast<float>(i % 1000) / 8.0f;
    expected[i] = values[i] * 1.5f + 0.25f;  // exact
  }
  const example::DeviceArray<float> in(values);
  example::DeviceArray<float> out(n);
  target<<<(n + 255) / 256, 256>>>(in.data(), out.data(), n);
  CHECK(cudaGetLastError());
  CHECK(cudaDeviceSynchronize());
  example::Verdict verdict("faults");
  verdict.expect("values", example::relative_error(out.to_host(), expected), 0);
  return verdict.report();
}
#endif
