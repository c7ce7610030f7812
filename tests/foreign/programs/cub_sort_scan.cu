// CUB: device-wide radix sort, exclusive scan and reduction, a block-wide scan and a warp-wide reduction of our own
// kernel.
//
//   cub_sort_scan [elements] [rounds]
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cub/cub.cuh>
#include <numeric>
#include <random>
#include <vector>

#define CHECK(call)                                                                   \
  do {                                                                                \
    const cudaError_t status = (call);                                                \
    if (status != cudaSuccess) {                                                      \
      std::printf("FAIL cub_sort_scan: %s: %s\n", #call, cudaGetErrorString(status)); \
      std::exit(1);                                                                   \
    }                                                                                 \
  } while (0)

constexpr int kThreads = 128;
constexpr int kItems = 4;

// Each block scans its tile and adds the tile's sum, taken by warps, to a global total.
__global__ void scan_tiles(const int* in, int* out, unsigned long long* total, int n) {
  using BlockLoad = cub::BlockLoad<int, kThreads, kItems, cub::BLOCK_LOAD_TRANSPOSE>;
  using BlockStore = cub::BlockStore<int, kThreads, kItems, cub::BLOCK_STORE_TRANSPOSE>;
  using BlockScan = cub::BlockScan<int, kThreads>;
  using WarpReduce = cub::WarpReduce<int>;
  __shared__ union {
    typename BlockLoad::TempStorage load;
    typename BlockStore::TempStorage store;
    typename BlockScan::TempStorage scan;
    typename WarpReduce::TempStorage reduce[kThreads / 32];
  } shared;

  const int start = blockIdx.x * kThreads * kItems;
  const int valid = min(n - start, kThreads * kItems);
  int items[kItems];
  BlockLoad(shared.load).Load(in + start, items, valid, 0);
  __syncthreads();
  int own = 0;
  for (int i = 0; i < kItems; ++i) own += items[i];
  const int warp_sum = WarpReduce(shared.reduce[threadIdx.x / 32]).Sum(own);
  if (threadIdx.x % 32 == 0) atomicAdd(total, static_cast<unsigned long long>(warp_sum));
  __syncthreads();
  BlockScan(shared.scan).InclusiveSum(items, items);
  __syncthreads();
  BlockStore(shared.store).Store(out + start, items, valid);
}

template <typename T>
struct DeviceArray {
  T* data = nullptr;
  explicit DeviceArray(std::size_t n) { CHECK(cudaMalloc(&data, n * sizeof(T))); }
  explicit DeviceArray(const std::vector<T>& host) : DeviceArray(host.size()) {
    CHECK(cudaMemcpy(data, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
  }
  ~DeviceArray() { cudaFree(data); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  std::vector<T> host(std::size_t n) const {
    std::vector<T> result(n);
    CHECK(cudaMemcpy(result.data(), data, n * sizeof(T), cudaMemcpyDeviceToHost));
    return result;
  }
};

int rounds = 1;  // how often each algorithm runs

template <typename Call>
void with_temporary_storage(Call call) {
  std::size_t bytes = 0;
  CHECK(call(nullptr, bytes));
  DeviceArray<std::uint8_t> storage(bytes);
  for (int round = 0; round < rounds; ++round) CHECK(call(storage.data, bytes));
}

template <typename T>
void expect(const char* what, const std::vector<T>& got, const std::vector<T>& expected) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (got[i] != expected[i]) {
      std::printf("FAIL cub_sort_scan: %s differs at %zu\n", what, i);
      std::exit(1);
    }
  }
}

int main(int argc, char** argv) {
  const int n = argc > 1 ? std::atoi(argv[1]) : 20000;
  rounds = argc > 2 ? std::atoi(argv[2]) : 1;
  std::mt19937 random(11);

  std::vector<float> keys(n);
  std::vector<int> values(n);
  for (float& key : keys) key = static_cast<float>(random() % 100000) / 8.0f - 6000.0f;
  for (int& value : values) value = static_cast<int>(random() % 100);

  DeviceArray<float> keys_in(keys), keys_out(n);
  with_temporary_storage([&](void* storage, std::size_t& bytes) {
    return cub::DeviceRadixSort::SortKeys(storage, bytes, keys_in.data, keys_out.data, n);
  });
  std::vector<float> sorted = keys;
  std::sort(sorted.begin(), sorted.end());
  expect("sort", keys_out.host(n), sorted);

  DeviceArray<int> values_in(values), values_out(n), sum(1);
  with_temporary_storage([&](void* storage, std::size_t& bytes) {
    return cub::DeviceScan::ExclusiveSum(storage, bytes, values_in.data, values_out.data, n);
  });
  std::vector<int> scanned(n);
  std::exclusive_scan(values.begin(), values.end(), scanned.begin(), 0);
  expect("exclusive scan", values_out.host(n), scanned);

  with_temporary_storage([&](void* storage, std::size_t& bytes) {
    return cub::DeviceReduce::Sum(storage, bytes, values_in.data, sum.data, n);
  });
  const int expected_sum = std::accumulate(values.begin(), values.end(), 0);
  expect("reduction", sum.host(1), {expected_sum});

  DeviceArray<unsigned long long> total(std::vector<unsigned long long>{0});
  const int tile = kThreads * kItems;
  scan_tiles<<<(n + tile - 1) / tile, kThreads>>>(values_in.data, values_out.data, total.data, n);
  CHECK(cudaGetLastError());
  CHECK(cudaDeviceSynchronize());
  for (int start = 0; start < n; start += tile) {
    std::inclusive_scan(values.begin() + start, values.begin() + std::min(n, start + tile), scanned.begin() + start);
  }
  expect("tile scan", values_out.host(n), scanned);
  expect("tile total", total.host(1), {static_cast<unsigned long long>(expected_sum)});

  std::printf("PASS cub_sort_scan: %d keys, %d values\n", n, n);
  return 0;
}
