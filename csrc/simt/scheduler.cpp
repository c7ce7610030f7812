#include "simt/scheduler.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <thread>

#include "simt/worker.h"

namespace r3 {
namespace {

constexpr std::uint32_t max_shared = 227 * 1024;  // of a block, sm_90
constexpr std::uint32_t max_threads = 1024;

void write_all(int fd, const std::string& text) {
  std::size_t at = 0;
  while (at < text.size()) {
    ssize_t n = write(fd, text.data() + at, text.size() - at);
    if (n <= 0) return;
    at += static_cast<std::size_t>(n);
  }
}

const char* why_invalid(const LaunchState& state) {
  const r3simt_launch& launch = state.launch;
  for (unsigned d = 0; d < 3; ++d)
    if (!launch.grid[d] || !launch.block[d]) return "has an empty grid or block";
  std::uint64_t threads = 1ull * launch.block[0] * launch.block[1] * launch.block[2];
  if (threads > max_threads || launch.block[2] > 64) return "has more than 1024 threads a block";
  if (launch.grid[0] > 0x7fffffffu || launch.grid[1] > 65535 || launch.grid[2] > 65535)
    return "has a grid beyond the device's limits";
  if (1ull * state.kernel.static_shared + launch.dynamic_shared > max_shared)
    return "needs more shared memory than a block can have (227 KiB)";
  return nullptr;
}

void add(r3simt_counts& total, const r3simt_counts& part) {
  for (unsigned k = 0; k < R3SIMT_CLASSES; ++k) total.issues[k] += part.issues[k];
  total.threads += part.threads;
  total.warps += part.warps;
  total.lane_instructions += part.lane_instructions;
  total.global_requests += part.global_requests;
  total.global_sectors += part.global_sectors;
  total.shared_requests += part.shared_requests;
  total.shared_wavefronts += part.shared_wavefronts;
  total.atomic_conflicts += part.atomic_conflicts;
}

}  // namespace

void run_launch(const KernelProperties& kernel, EntryPoint entry, const r3simt_launch& launch, unsigned flags,
                const std::string& name, r3simt_result& result) {
  LaunchState state(kernel, entry, launch, flags, name, result);
  if (const char* why = why_invalid(state)) {
    result.status = R3SIMT_INVALID_LAUNCH;
    std::snprintf(result.message, sizeof result.message, "kernel %s: %s", name.c_str(), why);
    return;
  }
  state.blocks = 1ull * launch.grid[0] * launch.grid[1] * launch.grid[2];
  state.block_threads = launch.block[0] * launch.block[1] * launch.block[2];
  state.shared_bytes = kernel.static_shared + launch.dynamic_shared;
  install_fault_handler();

  unsigned count = launch.workers ? launch.workers : std::max(1u, std::thread::hardware_concurrency());
  if (kernel.order_sensitive || launch.cooperative) count = 1;
  count = static_cast<unsigned>(std::min<std::uint64_t>(count, state.blocks));
  std::vector<std::unique_ptr<Worker>> workers;
  try {
    for (unsigned i = 0; i < count; ++i) workers.push_back(std::make_unique<Worker>(state));
    std::vector<std::jthread> threads;
    auto run = [&state](Worker& worker) {
      try {
        worker.run();
      } catch (const std::bad_alloc&) {
        worker.report(R3SIMT_INVALID_LAUNCH, nullptr, "needs more memory for its threads' stacks than there is");
      }
    };
    for (unsigned i = 1; i < count; ++i) threads.emplace_back([&, i] { run(*workers[i]); });
    run(*workers[0]);
  } catch (const std::exception& error) {
    result.status = R3SIMT_INVALID_LAUNCH;
    std::snprintf(result.message, sizeof result.message, "kernel %s: %s", name.c_str(), error.what());
    return;
  }

  std::vector<std::pair<std::uint64_t, std::string>> output;
  for (auto& worker : workers) {
    add(result.counts, worker->counts);
    if (worker != workers.front()) workers.front()->trace.merge_sectors(worker->trace);
    output.insert(output.end(), worker->output.begin(), worker->output.end());
  }
  if (flags & R3SIMT_COUNT) result.counts.global_unique_sectors = workers.front()->trace.unique_sectors();
  std::stable_sort(output.begin(), output.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [block, text] : output) write_all(launch.output_fd, text);
}

}  // namespace r3
