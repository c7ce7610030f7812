// Thrust: sorts (key, value) pairs, sums the values of equal keys, scans the sums; each result against the CPU.
//
//   thrust_reduce_by_key [pairs] [keys] [rounds]
#include <thrust/device_vector.h>
#include <thrust/reduce.h>
#include <thrust/scan.h>
#include <thrust/sort.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <numeric>
#include <random>
#include <vector>

int main(int argc, char** argv) {
  const std::size_t n = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 20000;
  const int n_keys = argc > 2 ? std::atoi(argv[2]) : 300;
  const int rounds = argc > 3 ? std::atoi(argv[3]) : 1;

  std::mt19937 random(7);
  std::vector<int> keys(n);
  std::vector<std::int64_t> values(n);
  std::map<int, std::int64_t> expected;
  for (std::size_t i = 0; i < n; ++i) {
    keys[i] = static_cast<int>(random() % n_keys);
    values[i] = static_cast<std::int64_t>(random() % 2000) - 1000;
    expected[keys[i]] += values[i];
  }

  thrust::device_vector<int> device_keys(n), unique_keys(n_keys);
  thrust::device_vector<std::int64_t> device_values(n), sums(n_keys), running(n_keys);
  std::size_t n_unique = 0;
  for (int round = 0; round < rounds; ++round) {
    device_keys = keys;
    device_values = values;
    thrust::sort_by_key(device_keys.begin(), device_keys.end(), device_values.begin());
    const auto ends = thrust::reduce_by_key(device_keys.begin(), device_keys.end(), device_values.begin(),
                                            unique_keys.begin(), sums.begin());
    n_unique = ends.first - unique_keys.begin();
    if (n_unique != expected.size()) {
      std::printf("FAIL thrust_reduce_by_key: %zu distinct keys, expected %zu\n", n_unique, expected.size());
      return 1;
    }
    thrust::inclusive_scan(sums.begin(), sums.begin() + n_unique, running.begin());
  }

  const std::vector<int> got_keys(unique_keys.begin(), unique_keys.begin() + n_unique);
  const std::vector<std::int64_t> got_sums(sums.begin(), sums.begin() + n_unique);
  const std::vector<std::int64_t> got_running(running.begin(), running.begin() + n_unique);
  std::size_t i = 0;
  std::int64_t total = 0;
  for (const auto& [key, sum] : expected) {
    total += sum;
    if (got_keys[i] != key || got_sums[i] != sum || got_running[i] != total) {
      std::printf("FAIL thrust_reduce_by_key: at %zu key %d sum %lld scan %lld, expected %d %lld %lld\n", i,
                  got_keys[i], static_cast<long long>(got_sums[i]), static_cast<long long>(got_running[i]), key,
                  static_cast<long long>(sum), static_cast<long long>(total));
      return 1;
    }
    ++i;
  }
  std::printf("PASS thrust_reduce_by_key: %zu pairs, %zu keys\n", n, n_unique);
  return 0;
}
