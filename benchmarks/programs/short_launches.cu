// Many short launches: what a launch costs the application.
//
//   short_launches [launches]
//
// Launches come in bursts that the queue holds, so that no call waits for the GPU. Prints {"launches", "launch_us": the
// mean time of a call, "wall_us": the same with the waiting}.
#include <chrono>

#include "../../examples/check.h"

constexpr int kBurst = 256;

__global__ void count(unsigned* counter) { *counter += 1; }

int main(int argc, char** argv) {
  using Clock = std::chrono::steady_clock;
  const int bursts = (example::argument(argc, argv, 1, 100000) + kBurst - 1) / kBurst;
  example::DeviceArray<unsigned> counter(1);
  count<<<1, 1>>>(counter.data());  // loads the module
  CHECK(cudaDeviceSynchronize());
  Clock::duration calls{}, all{};
  for (int burst = 0; burst < bursts; ++burst) {
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < kBurst; ++i) count<<<1, 1>>>(counter.data());
    calls += Clock::now() - start;
    CHECK(cudaDeviceSynchronize());
    all += Clock::now() - start;
  }
  const int launches = bursts * kBurst;
  const auto each = [=](Clock::duration sum) {
    return std::chrono::duration<double, std::micro>(sum).count() / launches;
  };
  if (counter.to_host()[0] != static_cast<unsigned>(launches) + 1) {
    std::printf("FAIL short_launches: %u launches ran\n", counter.to_host()[0]);
    return 1;
  }
  std::printf("{\"launches\": %d, \"launch_us\": %.4f, \"wall_us\": %.4f}\n", launches, each(calls), each(all));
  return 0;
}
