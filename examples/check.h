// What the examples share: checked calls, arrays on the device, arguments, and the verdict line.
#pragma once
#include <cuda_runtime.h>

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

// Ends the program when a call of the CUDA runtime fails. After a launch: CHECK(cudaGetLastError()).
#define CHECK(call) example::check((call), #call, __FILE__, __LINE__)

namespace example {

inline void check(cudaError_t status, const char* call, const char* file, int line) {
  if (status == cudaSuccess) return;
  std::printf("FAIL %s:%d: %s: %s\n", file, line, call, cudaGetErrorString(status));
  std::exit(1);
}

// An array in device memory, freed with its owner.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t size) : size_(size) {
    CHECK(cudaMalloc(&data_, size * sizeof(T)));
    CHECK(cudaMemset(data_, 0, size * sizeof(T)));
  }
  explicit DeviceArray(const std::vector<T>& host) : DeviceArray(host.size()) {
    CHECK(cudaMemcpy(data_, host.data(), size_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  DeviceArray(DeviceArray&& other) noexcept : data_(std::exchange(other.data_, nullptr)), size_(other.size_) {}
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  DeviceArray& operator=(DeviceArray&&) = delete;
  ~DeviceArray() { cudaFree(data_); }

  T* data() { return data_; }
  const T* data() const { return data_; }
  std::vector<T> to_host() const {
    std::vector<T> host(size_);
    CHECK(cudaMemcpy(host.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost));
    return host;
  }
  void swap(DeviceArray& other) {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

// The positive integer at `position` of the command line, else `otherwise`. Exits with 2 on anything else.
inline int argument(int argc, char** argv, int position, int otherwise) {
  if (position >= argc) return otherwise;
  char* end = nullptr;
  const long value = std::strtol(argv[position], &end, 10);
  if (*end != '\0' || value < 1 || value > (1 << 28)) {
    std::fprintf(stderr, "%s: argument %d is \"%s\"; give a positive integer\n", argv[0], position, argv[position]);
    std::exit(2);
  }
  return static_cast<int>(value);
}

// The largest |got - expected| over the largest |expected|; NaN when any element is.
template <typename T, typename U>
double relative_error(const std::vector<T>& got, const std::vector<U>& expected) {
  double worst = 0, scale = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double error = std::fabs(static_cast<double>(got[i]) - static_cast<double>(expected[i]));
    if (!(error <= worst)) worst = error;
    if (std::isnan(worst)) return worst;
    scale = std::fmax(scale, std::fabs(static_cast<double>(expected[i])));
  }
  return scale > 0 ? worst / scale : worst;
}

// Collects the checks of one program and prints one line: PASS with the worst error, or FAIL with the first failure.
class Verdict {
 public:
  explicit Verdict(const char* program) : program_(program) {}

  void expect(const char* what, double error, double tolerance) {
    if (!(error <= tolerance) && failed_ == nullptr) {
      failed_ = what;
      failed_error_ = error;
      failed_tolerance_ = tolerance;
    }
    if (error > worst_) worst_ = error;
  }

  // Returns the exit status of the program.
  int report() const {
    if (failed_ != nullptr) {
      std::printf("FAIL %s: %s: error %.3g, allowed %.3g\n", program_, failed_, failed_error_, failed_tolerance_);
      return 1;
    }
    std::printf("PASS %s: largest relative error %.3g\n", program_, worst_);
    return 0;
  }

 private:
  const char* program_;
  const char* failed_ = nullptr;
  double failed_error_ = 0, failed_tolerance_ = 0, worst_ = 0;
};

}  // namespace example
