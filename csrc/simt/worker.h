// One operating-system thread that runs blocks of a launch.
#pragma once
#include <setjmp.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "simt/fibre.h"
#include "simt/kernel.h"
#include "simt/thread.h"
#include "simt/trace.h"

namespace r3 {

// What the workers of one launch share.
struct LaunchState {
  LaunchState(const KernelProperties& kernel, EntryPoint entry, const r3simt_launch& launch, unsigned flags,
              const std::string& name, r3simt_result& result)
      : kernel(kernel), entry(entry), launch(launch), flags(flags), name(name), result(result) {}

  const KernelProperties& kernel;
  EntryPoint entry;
  const r3simt_launch& launch;
  unsigned flags;
  const std::string& name;
  r3simt_result& result;
  std::uint64_t blocks = 0;
  std::uint32_t block_threads = 0;
  std::uint32_t shared_bytes = 0;
  // What cooperative groups' grid barrier works on: its size, then the barrier.
  alignas(16) std::uint32_t grid_workspace[4] = {sizeof grid_workspace, 0, 0, 0};
  std::atomic<std::uint64_t> next_block{0};
  std::atomic<bool> failed{false};
  std::mutex mutex;  // guards result
};

class Worker {
 public:
  explicit Worker(LaunchState& launch);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void run();

  // Switching between the scheduler and the threads.
  void resume(Thread& thread);
  void wait();                // leaves the running thread; returns when it is resumed
  [[noreturn]] void leave();  // leaves it for good
  [[noreturn]] void fail(r3simt_status status, const std::string& what, std::uint64_t address = 0);
  void report(r3simt_status status, const Thread* thread, const std::string& what, std::uint64_t address = 0);
  void warn(const std::string& what, const Thread& thread);

  void access(std::uint32_t site, std::uint64_t address, std::uint64_t bytes);
  void enter_warp(std::uint64_t block, unsigned warp);
  bool is_shared(std::uint64_t address, std::uint64_t bytes) const;

  LaunchState& launch;
  Thread* current = nullptr;
  std::unique_ptr<StackPool> stacks;
  r3simt_counts counts{};
  std::vector<std::pair<std::uint64_t, std::string>> output;  // by block
  WarpTrace trace;
  sigjmp_buf fault_jump;
  bool in_kernel = false;
  bool failed = false;
  int fault_signal = 0;
  std::uint64_t fault_address = 0;

 private:
  void run_blocks();
  void report_fault();
  void check(const AccessSite& site, Space space, std::uint64_t address, std::uint64_t bytes);

  boost::context::detail::fcontext_t scheduler_ = nullptr;
  std::uint64_t warp_key_ = ~0ull;
  r3simt_region last_region_{0, 0};
  friend void fibre_main(boost::context::detail::transfer_t);
};

extern thread_local Worker* this_worker;
extern thread_local ThreadContext* this_context __attribute__((tls_model("initial-exec")));

void install_fault_handler();

// Shared memory of a block, below 4 GiB. 0 when there is none left.
std::uint64_t take_shared(std::uint32_t bytes);
void give_shared(std::uint64_t address, std::uint32_t bytes);

std::string place_of(const Thread& thread);  // "block (0,0,0), thread (3,0,0)"

}  // namespace r3
