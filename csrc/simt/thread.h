// The running state of a block: its threads, warps and barriers.
#pragma once
#include <boost/context/detail/fcontext.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "simt/abi.h"

namespace r3 {

class Block;
class Worker;

void fibre_main(boost::context::detail::transfer_t from);

enum class ThreadState : std::uint8_t { fresh, ready, at_barrier, at_warp_op, converging, spinning, done };

struct Thread {
  ThreadContext context{};
  ThreadState state = ThreadState::fresh;
  boost::context::detail::fcontext_t fibre = nullptr;
  void* stack = nullptr;
  Block* block = nullptr;
  std::uint32_t index = 0;  // in the block
  std::uint32_t spins = 0;
  // What it waits for, and what it gets.
  WarpOp op = WarpOp::sync;
  std::uint32_t mask = 0, b = 0, c = 0, site = 0, barrier = 0;
  std::uint64_t value = 0, result = 0;

  unsigned warp() const { return index / warp_size; }
  unsigned lane() const { return index % warp_size; }
};

struct PendingWarpOp {
  WarpOp op;
  std::uint32_t mask;
  std::uint32_t arrived;
};

struct Warp {
  std::uint32_t live = 0;  // lanes that exist and have not exited
  std::vector<PendingWarpOp> pending;
};

struct Barrier {
  std::uint32_t arrived = 0, expected = 0;  // expected 0: every live thread
  std::uint32_t set = 0;                    // how many predicates were true
  std::uint32_t predicates = 0;
  std::uint32_t site = 0;
  BarrierOp op = BarrierOp::sync;
  std::vector<Thread*> waiting;
};

enum class Progress { done, moved, spinning, failed };

// One block in flight.
class Block {
 public:
  Block(Worker& worker, std::uint64_t number);
  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  Progress step();

  // Called by the running thread, through the runtime functions.
  std::uint32_t arrive_barrier(Thread& thread, BarrierOp op, std::uint32_t id, std::uint32_t count, bool predicate,
                               std::uint32_t site);
  std::uint64_t arrive_warp_op(Thread& thread);
  std::uint32_t converge(Thread& thread, std::uint32_t site);
  void spin(Thread& thread);
  void exited(Thread& thread);

  std::uint64_t number() const { return number_; }
  std::uint64_t shared() const { return shared_; }

 private:
  friend void fibre_main(boost::context::detail::transfer_t);
  static constexpr unsigned barriers = 17;  // 16 of PTX, and one that stands for a cluster's

  void run_straight();
  bool resolve_converging(unsigned warp);
  void complete(unsigned first, const PendingWarpOp& op);
  void complete_pending(unsigned warp);
  void release(Barrier& barrier);
  bool is_complete(const Barrier& barrier) const;
  void report_deadlock();
  void count();

  Worker& worker_;
  std::uint64_t number_;
  std::uint64_t shared_ = 0;
  std::uint32_t live_ = 0;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::vector<Barrier> barriers_;
  std::vector<std::uint32_t> counters_;
};

}  // namespace r3
