// Kernels that the host device refuses, and a signal that is not its own: the argument names one.
#include <mma.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

__global__ void multiplies(const half* from, float* to) {
  using namespace nvcuda::wmma;
  fragment<matrix_a, 16, 16, 16, half, row_major> a;
  fragment<matrix_b, 16, 16, 16, half, col_major> b;
  fragment<accumulator, 16, 16, 16, float> c;
  fill_fragment(c, 0.0f);
  load_matrix_sync(a, from, 16);
  load_matrix_sync(b, from, 16);
  mma_sync(c, a, b, c);
  store_matrix_sync(to, c, 16, mem_row_major);
}

__global__ void allocates(void** to) { *to = malloc(8); }

__global__ void runs(int* to) { *to = 1; }

int main(int, char** arguments) {
  const std::string name = arguments[1];
  void* memory = nullptr;
  cudaMalloc(&memory, 4096);
  if (name == "multiplies") multiplies<<<1, 32>>>(static_cast<half*>(memory), static_cast<float*>(memory));
  if (name == "allocates") allocates<<<1, 1>>>(static_cast<void**>(memory));
  if (name == "raise") {
    runs<<<1, 1>>>(static_cast<int*>(memory));
    std::raise(SIGSEGV);
  }
  std::puts(cudaGetErrorName(cudaGetLastError()));
}
