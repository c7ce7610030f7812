// One way to go wrong a run: named on the command line. Prints the error code that the runtime gives.
#include <cassert>
#include <cstring>

#include "report.h"

__global__ void past_end(uint32_t* out, unsigned n) { out[n + threadIdx.x] = 1; }
__global__ void past_shared(uint32_t* out, unsigned n) {
  __shared__ uint32_t values[32];
  values[threadIdx.x] = n;
  __syncthreads();
  out[threadIdx.x] = values[n + threadIdx.x];
}
__global__ void misaligned(char* out) {
  if (threadIdx.x == 5) *reinterpret_cast<volatile double*>(out + 12) = 1;
}
__global__ void one_waits(uint32_t* out) {
  if (threadIdx.x == 3 && blockIdx.x == 1) __shfl_sync(~0u, out[0], 1);
  __syncthreads();
  out[threadIdx.x] = 1;
}
__global__ void two_places(uint32_t* out) {
  if (threadIdx.x % 2) {
    out[threadIdx.x] = 5;
    __syncthreads();
  } else {
    __syncthreads();
    out[threadIdx.x] = 7;
  }
}
__global__ void asserts(int n) { assert(n + (int)threadIdx.x < 12); }
__global__ void traps(uint32_t* out) {
  if (threadIdx.x == 9) __trap();
  out[threadIdx.x] = 1;
}
__device__ __noinline__ uint32_t deep(uint32_t n, volatile uint32_t* keep) {
  volatile uint32_t mine[64];
  mine[n % 64] = n;
  return n == 0 ? *keep : deep(n - 1, mine) + mine[n % 64];
}
__global__ void overflows(uint32_t* out, uint32_t depth) { out[0] = deep(depth, out); }
__global__ void null(uint32_t* out) { out[threadIdx.x] = 1; }
__global__ void __launch_bounds__(64) bounded(uint32_t* out) { out[threadIdx.x] = 1; }

int main(int, char** arguments) {
  const char* which = arguments[1];
  Array<uint32_t> out(64);
  auto is = [&](const char* name) { return std::strcmp(which, name) == 0; };
  if (is("past_end")) past_end<<<2, 32>>>(out.data, 48);
  if (is("far_past_end")) past_end<<<2, 32>>>(out.data, 100000);
  if (is("past_shared")) past_shared<<<1, 32>>>(out.data, 8);
  if (is("misaligned")) misaligned<<<1, 32>>>(reinterpret_cast<char*>(out.data));
  if (is("one_waits")) one_waits<<<2, 32>>>(out.data);
  if (is("two_places")) two_places<<<1, 32>>>(out.data);
  if (is("asserts")) asserts<<<1, 32>>>(4);
  if (is("traps")) traps<<<1, 32>>>(out.data);
  if (is("overflows")) overflows<<<1, 1>>>(out.data, 100000);
  if (is("null")) null<<<1, 32>>>(nullptr);
  if (is("bounded")) bounded<<<1, 128>>>(out.data);
  cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) error = cudaDeviceSynchronize();
  std::printf("%s\n", cudaGetErrorName(error));
  cudaError_t sticky = cudaDeviceSynchronize();
  std::printf("%s\n", sticky == error ? "sticky" : "recovered");
}
