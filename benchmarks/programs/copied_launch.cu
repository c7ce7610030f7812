// How long a launch holds the application up, and how long plain copies of the memory that it reaches take.
//
//   copied_launch [MiB] [percent changed]
//
// The copies come first, while nothing else goes on. Then `touch` is launched twice: on a small buffer, so that what is
// paid once is paid, and on the large one. Prints {"bytes", "changed", "first_ms", "launch_ms", "pageable_ms",
// "pinned_ms"}: the copies are of bytes + changed.
#include <chrono>
#include <thread>

#include "../../examples/check.h"

// Words that no compressor makes smaller, and that are no addresses.
__global__ void fill(unsigned long long* words, std::size_t n) {
  for (std::size_t i = blockIdx.x * std::size_t(blockDim.x) + threadIdx.x; i < n;
       i += gridDim.x * std::size_t(blockDim.x)) {
    unsigned long long word = (i + 1) * 0x9e3779b97f4a7c15u;
    word = (word ^ word >> 30) * 0xbf58476d1ce4e5b9u;
    words[i] = (word ^ word >> 31) | 1ull << 62;
  }
}

__global__ void touch(unsigned long long* words, std::size_t n) {
  for (std::size_t i = blockIdx.x * std::size_t(blockDim.x) + threadIdx.x; i < n;
       i += gridDim.x * std::size_t(blockDim.x)) {
    words[i] ^= 0x5555555555;
  }
}

template <typename Work>
double milliseconds(Work work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

int main(int argc, char** argv) {
  const std::size_t bytes = static_cast<std::size_t>(example::argument(argc, argv, 1, 64)) << 20;
  const std::size_t words = bytes / sizeof(unsigned long long);
  const std::size_t changed = words / 100 * example::argument(argc, argv, 2, 10);
  example::DeviceArray<unsigned long long> buffer(words), small(1 << 17);
  fill<<<1024, 256>>>(buffer.data(), words);
  CHECK(cudaGetLastError());
  CHECK(cudaDeviceSynchronize());

  const auto copy = [&](unsigned long long* host) {
    return milliseconds([&] {
      CHECK(cudaMemcpy(host, buffer.data(), bytes, cudaMemcpyDeviceToHost));
      CHECK(cudaMemcpy(host, buffer.data(), changed * sizeof(*host), cudaMemcpyDeviceToHost));
    });
  };
  std::vector<unsigned long long> pageable(words, 1);  // its pages are there
  copy(pageable.data());
  const double pageable_ms = copy(pageable.data());
  unsigned long long* pinned = nullptr;
  CHECK(cudaMallocHost(&pinned, bytes));
  copy(pinned);
  const double pinned_ms = copy(pinned);
  CHECK(cudaFreeHost(pinned));

  const double first = milliseconds([&] {
    touch<<<1024, 256>>>(small.data(), 1 << 17);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const double launch = milliseconds([&] {
    touch<<<1024, 256>>>(buffer.data(), changed);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
  });
  std::printf(
      "{\"bytes\": %zu, \"changed\": %zu, \"first_ms\": %.3f, \"launch_ms\": %.3f, \"pageable_ms\": %.3f, "
      "\"pinned_ms\": %.3f}\n",
      bytes, changed * sizeof(unsigned long long), first, launch, pageable_ms, pinned_ms);
  return 0;
}
