// Histograms with shared and global atomics, and reductions by warp shuffles, of integers and floats.
//
//   histogram [samples] [blocks] [rounds]
//
// Every round starts anew.
#include <algorithm>
#include <climits>
#include <cstdint>
#include <random>

#include "../check.h"

constexpr int kBlock = 256;
constexpr int kBins = 256;
constexpr int kWarp = 32;

// Counts bytes: each block counts in shared memory, then adds what it found to the whole.
__global__ void count_bytes(const std::uint8_t* samples, int n, unsigned* counts) {
  __shared__ unsigned local[kBins];
  for (int bin = threadIdx.x; bin < kBins; bin += blockDim.x) local[bin] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    atomicAdd(&local[samples[i]], 1u);
  }
  __syncthreads();
  for (int bin = threadIdx.x; bin < kBins; bin += blockDim.x) {
    if (local[bin] != 0) atomicAdd(&counts[bin], local[bin]);
  }
}

// Adds each sample's weight to its bin, straight in global memory.
__global__ void weigh_bytes(const std::uint8_t* samples, const float* weights, int n, float* sums) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    atomicAdd(&sums[samples[i]], weights[i]);
  }
}

template <typename T>
__device__ T warp_sum(T value) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) value += __shfl_down_sync(0xffffffffu, value, offset);
  return value;
}

// Adds up the values: within a warp by shuffles, within a block in shared memory, over all blocks by an atomic.
template <typename In, typename Sum>
__global__ void reduce(const In* values, int n, Sum* total) {
  __shared__ Sum warps[kBlock / kWarp];
  Sum sum = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += values[i];
  sum = warp_sum(sum);
  if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = sum;
  __syncthreads();
  if (threadIdx.x < kWarp) {
    sum = warp_sum(threadIdx.x < kBlock / kWarp ? warps[threadIdx.x] : Sum(0));
    if (threadIdx.x == 0) atomicAdd(total, sum);
  }
}

// The smallest and largest count, and how many bins are empty: one block, one thread a bin.
struct Summary {
  unsigned smallest, largest, empty;
};

__global__ void summarise(const unsigned* counts, Summary* summary) {
  const unsigned count = counts[threadIdx.x];
  const unsigned empty = __ballot_sync(0xffffffffu, count == 0);
  unsigned smallest = count, largest = count;
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    smallest = min(smallest, __shfl_xor_sync(0xffffffffu, smallest, mask));
    largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, mask));
  }
  if (threadIdx.x % kWarp == 0) {
    atomicMin(&summary->smallest, smallest);
    atomicMax(&summary->largest, largest);
    atomicAdd(&summary->empty, __popc(empty));
  }
}

int main(int argc, char** argv) {
  const int n = example::argument(argc, argv, 1, 1 << 20);
  const int blocks = example::argument(argc, argv, 2, 64);
  const int rounds = example::argument(argc, argv, 3, 1);

  // Bytes around a peak, as in a dark image, with weights of either sign.
  std::mt19937 random(3);
  std::vector<std::uint8_t> samples(n);
  std::vector<float> weights(n);
  for (int i = 0; i < n; ++i) {
    samples[i] = static_cast<std::uint8_t>((random() % 120 + random() % 120) * (random() % 64 == 0 ? 2 : 1) / 2);
    weights[i] = static_cast<float>(random() % 4096) / 1024.0f - 1.0f;
  }

  const example::DeviceArray<std::uint8_t> device_samples(samples);
  const example::DeviceArray<float> device_weights(weights);
  example::DeviceArray<unsigned> counts(kBins);
  example::DeviceArray<float> sums(kBins), weight_total(1);
  example::DeviceArray<unsigned long long> sample_total(1);
  example::DeviceArray<Summary> summary(1);

  const Summary nothing{UINT_MAX, 0, 0};
  for (int round = 0; round < rounds; ++round) {
    CHECK(cudaMemset(counts.data(), 0, kBins * sizeof(unsigned)));
    CHECK(cudaMemset(sums.data(), 0, kBins * sizeof(float)));
    CHECK(cudaMemset(weight_total.data(), 0, sizeof(float)));
    CHECK(cudaMemset(sample_total.data(), 0, sizeof(unsigned long long)));
    CHECK(cudaMemcpy(summary.data(), &nothing, sizeof(nothing), cudaMemcpyHostToDevice));
    count_bytes<<<blocks, kBlock>>>(device_samples.data(), n, counts.data());
    CHECK(cudaGetLastError());
    weigh_bytes<<<blocks, kBlock>>>(device_samples.data(), device_weights.data(), n, sums.data());
    CHECK(cudaGetLastError());
    reduce<<<blocks, kBlock>>>(device_samples.data(), n, sample_total.data());
    CHECK(cudaGetLastError());
    reduce<<<blocks, kBlock>>>(device_weights.data(), n, weight_total.data());
    CHECK(cudaGetLastError());
    summarise<<<1, kBins>>>(counts.data(), summary.data());
    CHECK(cudaGetLastError());
  }
  CHECK(cudaDeviceSynchronize());

  std::vector<unsigned> expected_counts(kBins);
  std::vector<double> expected_sums(kBins), magnitudes(1), expected_weight(1);
  unsigned long long expected_total = 0;
  for (int i = 0; i < n; ++i) {
    ++expected_counts[samples[i]];
    expected_sums[samples[i]] += weights[i];
    expected_weight[0] += weights[i];
    expected_total += samples[i];
  }
  const auto [smallest, largest] = std::minmax_element(expected_counts.begin(), expected_counts.end());
  const Summary got = summary.to_host()[0];

  example::Verdict verdict("histogram");
  verdict.expect("counts", example::relative_error(counts.to_host(), expected_counts), 0);
  verdict.expect("weights", example::relative_error(sums.to_host(), expected_sums), 1e-4);
  verdict.expect("sum of bytes", sample_total.to_host()[0] == expected_total ? 0 : 1, 0);
  verdict.expect("sum of weights", example::relative_error(weight_total.to_host(), expected_weight), 1e-4);
  verdict.expect("smallest count", got.smallest == *smallest ? 0 : 1, 0);
  verdict.expect("largest count", got.largest == *largest ? 0 : 1, 0);
  verdict.expect("empty bins", got.empty == std::count(expected_counts.begin(), expected_counts.end(), 0u) ? 0 : 1, 0);
  return verdict.report();
}
