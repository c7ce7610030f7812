#include "simt/worker.h"

#include <sched.h>
#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>

#include "snapshot/arena.h"

namespace r3 {

namespace detail = boost::context::detail;

thread_local Worker* this_worker = nullptr;
thread_local ThreadContext* this_context = nullptr;

namespace {

constexpr std::size_t signal_stack_bytes = 64 * 1024;
// Steps without any progress but spinning, after which one more block is brought in.
constexpr unsigned patience = 64;

// Stack pools outlive launches: a pool's guard pages cost a system call each.
std::mutex pool_mutex;
std::vector<std::unique_ptr<StackPool>> idle_pools;

std::unique_ptr<StackPool> take_pool(std::size_t stack_bytes) {
  std::lock_guard lock(pool_mutex);
  for (auto& pool : idle_pools) {
    if (pool->stack_bytes() < stack_bytes) continue;
    std::swap(pool, idle_pools.back());
    std::unique_ptr<StackPool> taken = std::move(idle_pools.back());
    idle_pools.pop_back();
    return taken;
  }
  return std::make_unique<StackPool>(stack_bytes);
}

void give_pool(std::unique_ptr<StackPool> pool) {
  std::lock_guard lock(pool_mutex);
  if (idle_pools.size() < 64) idle_pools.push_back(std::move(pool));
}

std::mutex shared_mutex;
std::multimap<std::uint32_t, std::uint64_t> idle_shared;  // by size in pages

std::uint32_t round_to_pages(std::uint32_t bytes) { return (std::max(bytes, 1u) + 4095) / 4096 * 4096; }

struct sigaction previous_actions[NSIG];

void on_fault(int signal, siginfo_t* info, void* context) {
  Worker* worker = this_worker;
  if (worker && worker->in_kernel) {
    worker->in_kernel = false;
    worker->fault_signal = signal;
    worker->fault_address = reinterpret_cast<std::uint64_t>(info->si_addr);
    siglongjmp(worker->fault_jump, 1);
  }
  struct sigaction& previous = previous_actions[signal];
  if (previous.sa_flags & SA_SIGINFO) return previous.sa_sigaction(signal, info, context);
  if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) return previous.sa_handler(signal);
  sigaction(signal, &previous, nullptr);  // the fault repeats and ends the process as it would have
  if (info->si_code <= 0) raise(signal);  // one that was sent, by raise() or kill(), does not
}

std::string dimensions(const std::uint32_t* d) {
  return "(" + std::to_string(d[0]) + "," + std::to_string(d[1]) + "," + std::to_string(d[2]) + ")";
}

std::string hex(std::uint64_t value) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

void copy_text(char (&to)[1024], const std::string& text) {
  std::size_t n = std::min(text.size(), sizeof to - 1);
  std::memcpy(to, text.data(), n);
  to[n] = 0;
}

}  // namespace

std::string place_of(const Thread& thread) {
  return "block " + dimensions(thread.context.ctaid) + ", thread " + dimensions(thread.context.tid);
}

void install_fault_handler() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action{};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigemptyset(&action.sa_mask);
    for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigaction(signal, &action, &previous_actions[signal]);
  });
}

std::uint64_t take_shared(std::uint32_t bytes) {
  std::uint32_t size = round_to_pages(bytes);
  {
    std::lock_guard lock(shared_mutex);
    if (auto found = idle_shared.find(size); found != idle_shared.end()) {
      std::uint64_t address = found->second;
      idle_shared.erase(found);
      std::memset(reinterpret_cast<void*>(address), 0, size);
      return address;
    }
  }
  void* memory = mmap(nullptr, size + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
  if (memory == MAP_FAILED) return 0;
  mprotect(static_cast<char*>(memory) + size, 4096, PROT_NONE);
  return reinterpret_cast<std::uint64_t>(memory);
}

void give_shared(std::uint64_t address, std::uint32_t bytes) {
  if (!address) return;
  std::lock_guard lock(shared_mutex);
  idle_shared.emplace(round_to_pages(bytes), address);
}

Worker::Worker(LaunchState& state)
    : launch(state), stacks(take_pool(state.kernel.stack_bytes)), trace(state.kernel.sites) {}

Worker::~Worker() {
  if (!failed) give_pool(std::move(stacks));  // a failed launch leaves fibres on its stacks
}

void Worker::run() {
  std::unique_ptr<char[]> signal_stack(new char[signal_stack_bytes]);
  stack_t alternate{}, previous{};
  alternate.ss_sp = signal_stack.get();
  alternate.ss_size = signal_stack_bytes;
  sigaltstack(&alternate, &previous);
  Worker* outer = this_worker;
  this_worker = this;
  if (sigsetjmp(fault_jump, 0) == 0) {
    run_blocks();
  } else {
    report_fault();
  }
  in_kernel = false;
  this_worker = outer;
  sigaltstack(&previous, nullptr);
}

void Worker::run_blocks() {
  std::deque<std::unique_ptr<Block>> active;
  auto bring_in = [&] {
    std::uint64_t number = launch.next_block.fetch_add(1);
    if (number >= launch.blocks) return false;
    active.push_back(std::make_unique<Block>(*this, number));
    if (active.back()->shared() || !launch.shared_bytes) return true;
    report(R3SIMT_INVALID_LAUNCH, nullptr, "has no shared memory left below 4 GiB for another resident block");
    return false;
  };
  if (launch.launch.cooperative)
    while (bring_in()) {
    }
  unsigned idle = 0;
  while (!launch.failed) {
    if (active.empty() && !bring_in()) break;
    bool moved = false;
    for (std::size_t i = 0; i < active.size() && !launch.failed;) {
      Progress progress = active[i]->step();
      if (progress == Progress::failed) return;
      moved |= progress != Progress::spinning;
      if (progress == Progress::done) {
        active.erase(active.begin() + static_cast<std::ptrdiff_t>(i));
      } else {
        ++i;
      }
    }
    idle = moved ? 0 : idle + 1;
    if (idle >= patience) {
      // Perhaps a block waits for one that has not begun.
      if (!bring_in()) sched_yield();
      idle = 0;
    }
  }
  trace.flush(counts);
}

void Worker::resume(Thread& thread) {
  current = &thread;
  this_context = &thread.context;
  in_kernel = true;
  void* data = launch.kernel.needs_fibres ? nullptr : thread.block;
  detail::transfer_t back = detail::jump_fcontext(thread.fibre, data);
  in_kernel = false;
  thread.fibre = back.fctx;
}

void Worker::wait() {
  detail::transfer_t back = detail::jump_fcontext(scheduler_, nullptr);
  scheduler_ = back.fctx;
}

void Worker::leave() {
  detail::jump_fcontext(scheduler_, nullptr);
  __builtin_unreachable();
}

void Worker::fail(r3simt_status status, const std::string& what, std::uint64_t address) {
  in_kernel = false;
  report(status, current, what, address);
  leave();
}

void Worker::report(r3simt_status status, const Thread* thread, const std::string& what, std::uint64_t address) {
  failed = true;
  std::lock_guard lock(launch.mutex);
  if (launch.failed.exchange(true)) return;  // the first one counts
  launch.result.status = status;
  launch.result.address = address;
  std::string text = "kernel " + launch.name + ": " + what;
  if (thread) {
    std::copy_n(thread->context.ctaid, 3, launch.result.block);
    std::copy_n(thread->context.tid, 3, launch.result.thread);
    text += " in " + place_of(*thread);
  }
  copy_text(launch.result.message, text);
}

void Worker::warn(const std::string& what, const Thread& thread) {
  std::lock_guard lock(launch.mutex);
  if (launch.result.warning[0]) return;
  copy_text(launch.result.warning, "kernel " + launch.name + ": " + what + " in " + place_of(thread));
}

void Worker::report_fault() {
  failed = true;
  if (stacks->is_guard(fault_address)) {
    report(R3SIMT_STACK_OVERFLOW, current,
           "local memory overflow (" + std::to_string(stacks->stack_bytes()) + " bytes a thread)", fault_address);
  } else if (fault_signal == SIGFPE || fault_signal == SIGILL) {
    report(R3SIMT_TRAP, current, "illegal instruction", fault_address);
  } else {
    report(R3SIMT_ILLEGAL_ADDRESS, current, "out-of-bounds access at " + hex(fault_address), fault_address);
  }
}

void Worker::enter_warp(std::uint64_t block, unsigned warp) {
  if (!(launch.flags & R3SIMT_COUNT)) return;
  std::uint64_t key = block * 64 + warp;
  if (key == warp_key_) return;
  trace.flush(counts);
  warp_key_ = key;
}

bool Worker::is_shared(std::uint64_t address, std::uint64_t bytes) const {
  std::uint64_t base = current->block->shared();
  return base && address >= base && address + bytes <= base + round_to_pages(launch.shared_bytes);
}

void Worker::access(std::uint32_t index, std::uint64_t address, std::uint64_t bytes) {
  const AccessSite& site = launch.kernel.sites[index];
  Space space = site.space;
  if (space == Space::generic) {
    if (is_shared(address, 1)) {
      space = Space::shared;
    } else if (stacks->contains(address)) {
      return;
    } else {
      space = Space::global;
    }
  }
  if (launch.flags & R3SIMT_CHECK) check(site, space, address, bytes);
  if (launch.flags & R3SIMT_COUNT)
    trace.add(index, current->context.lane, address, static_cast<std::uint32_t>(bytes), space);
}

void Worker::check(const AccessSite& site, Space space, std::uint64_t address, std::uint64_t bytes) {
  static constexpr const char* verbs[] = {"load", "store", "atomic"};
  auto describe = [&] {
    return std::string(verbs[static_cast<int>(site.access)]) + " of " + std::to_string(bytes) + " bytes at " +
           hex(address);
  };
  if (site.alignment > 1 && address % site.alignment)
    fail(R3SIMT_MISALIGNED,
         "misaligned " + describe() + ", which needs an alignment of " + std::to_string(site.alignment), address);
  if (space == Space::shared) {
    std::uint64_t base = current->block->shared();
    if (address < base || address + bytes > base + launch.shared_bytes)
      fail(R3SIMT_ILLEGAL_ADDRESS,
           "out-of-bounds shared " + describe() + " (offset " +
               std::to_string(static_cast<std::int64_t>(address - base)) + " of " +
               std::to_string(launch.shared_bytes) + " bytes)",
           address);
    return;
  }
  if (address >= last_region_.base && address + bytes <= last_region_.base + last_region_.size) return;
  const r3simt_region* regions = launch.launch.regions;
  const r3simt_region* end = regions + launch.launch.n_regions;
  const r3simt_region* after = std::upper_bound(
      regions, end, address, [](std::uint64_t a, const r3simt_region& region) { return a < region.base; });
  if (after != regions) {
    const r3simt_region& region = after[-1];
    if (address + bytes <= region.base + region.size) {
      last_region_ = region;
      return;
    }
  }
  for (auto [low, high] : launch.kernel.constant_ranges)
    if (address >= low && address + bytes <= high) return;
  auto workspace = reinterpret_cast<std::uint64_t>(launch.grid_workspace);
  if (address >= workspace && address + bytes <= workspace + sizeof launch.grid_workspace) return;
  bool in_arena = address >= arena_base && address < arena_base + arena_size;
  if (!in_arena && launch.kernel.leftover_data) return;
  std::string nearest;
  if (after != regions && in_arena)
    nearest = " (" + std::to_string(address - after[-1].base) + " bytes into the " + std::to_string(after[-1].size) +
              " bytes at " + hex(after[-1].base) + ")";
  fail(R3SIMT_ILLEGAL_ADDRESS, "out-of-bounds " + describe() + nearest, address);
}

}  // namespace r3
