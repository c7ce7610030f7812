// Prints what a kernel left in memory, so that devices can be compared line by line.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

inline void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::printf("%s: %s\n", what, cudaGetErrorName(error));
  std::exit(1);
}

// Device memory that a test fills and prints.
template <typename T>
struct Array {
  explicit Array(std::size_t n) : size(n) {
    check(cudaMalloc(&data, n * sizeof(T)), "cudaMalloc");
    check(cudaMemset(data, 0, n * sizeof(T)), "cudaMemset");
  }
  ~Array() { cudaFree(data); }
  std::vector<T> host() const {
    std::vector<T> copy(size);
    check(cudaMemcpy(copy.data(), data, size * sizeof(T), cudaMemcpyDeviceToHost), "cudaMemcpy");
    return copy;
  }
  T* data = nullptr;
  std::size_t size;
};

inline void print(const char* name, const std::vector<uint32_t>& values) {
  std::printf("%s:", name);
  for (uint32_t value : values) std::printf(" %x", value);
  std::printf("\n");
}

inline void print(const char* name, const std::vector<uint64_t>& values) {
  std::printf("%s:", name);
  for (uint64_t value : values) std::printf(" %llx", static_cast<unsigned long long>(value));
  std::printf("\n");
}

inline void print(const char* name, const std::vector<float>& values) {
  std::printf("%s:", name);
  for (float value : values) std::printf(" %.9g", value);
  std::printf("\n");
}

inline void print(const char* name, const std::vector<double>& values) {
  std::printf("%s:", name);
  for (double value : values) std::printf(" %.17g", value);
  std::printf("\n");
}

inline void finish(const char* name) {
  check(cudaGetLastError(), name);
  check(cudaDeviceSynchronize(), name);
}
