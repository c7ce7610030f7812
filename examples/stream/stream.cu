// Five kernels that do little but move memory: copy, mul, add, triad and dot.
//
//   stream [elements] [rounds]
#include <algorithm>

#include "../check.h"

constexpr int kBlock = 256;
constexpr int kDotBlocks = 512;
constexpr double kScale = 0.4;

__global__ void copy(const double* a, double* c, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i];
}

__global__ void mul(double* b, const double* c, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) b[i] = kScale * c[i];
}

__global__ void add(const double* a, const double* b, double* c, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}

__global__ void triad(double* a, const double* b, const double* c, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) a[i] = b[i] + kScale * c[i];
}

// Each block's part of the sum of a[i] * b[i]: added up in a fixed order, so that every run gives the same bits.
__global__ void dot(const double* a, const double* b, double* parts, int n) {
  __shared__ double sums[kBlock];
  double sum = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += a[i] * b[i];
  sums[threadIdx.x] = sum;
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  if (threadIdx.x == 0) parts[blockIdx.x] = sums[0];
}

int main(int argc, char** argv) {
  const int n = example::argument(argc, argv, 1, 1 << 17);
  const int rounds = example::argument(argc, argv, 2, 3);

  std::vector<double> start(n);
  for (int i = 0; i < n; ++i) start[i] = 0.1 + 0.01 * std::sin(0.37 * i);

  example::DeviceArray<double> a(start), b(n), c(n), parts(kDotBlocks);
  const int blocks = (n + kBlock - 1) / kBlock;
  for (int round = 0; round < rounds; ++round) {
    copy<<<blocks, kBlock>>>(a.data(), c.data(), n);
    CHECK(cudaGetLastError());
    mul<<<blocks, kBlock>>>(b.data(), c.data(), n);
    CHECK(cudaGetLastError());
    add<<<blocks, kBlock>>>(a.data(), b.data(), c.data(), n);
    CHECK(cudaGetLastError());
    triad<<<blocks, kBlock>>>(a.data(), b.data(), c.data(), n);
    CHECK(cudaGetLastError());
    dot<<<kDotBlocks, kBlock>>>(a.data(), b.data(), parts.data(), n);
    CHECK(cudaGetLastError());
  }
  CHECK(cudaDeviceSynchronize());

  // A round leaves b = s a, c = (1 + s) a, and s (2 + s) a in a's place.
  const double shrinks = kScale * (2 + kScale), before_last = std::pow(shrinks, rounds - 1);
  std::vector<double> expected_a(n), expected_b(n), expected_c(n);
  long double sum = 0;
  for (int i = 0; i < n; ++i) {
    const double last = before_last * start[i];
    expected_a[i] = shrinks * last;
    expected_b[i] = kScale * last;
    expected_c[i] = (1 + kScale) * last;
    sum += static_cast<long double>(expected_a[i]) * expected_b[i];
  }
  long double got = 0;
  for (const double part : parts.to_host()) got += part;

  const double tolerance = 1e-15 * (4 + 2 * rounds);
  example::Verdict verdict("stream");
  verdict.expect("a", example::relative_error(a.to_host(), expected_a), tolerance);
  verdict.expect("b", example::relative_error(b.to_host(), expected_b), tolerance);
  verdict.expect("c", example::relative_error(c.to_host(), expected_c), tolerance);
  verdict.expect("dot", static_cast<double>(std::fabs(got - sum) / sum), 1e-12 + 2 * tolerance);
  return verdict.report();
}
