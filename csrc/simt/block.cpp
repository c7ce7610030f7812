#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "simt/thread.h"
#include "simt/worker.h"

namespace r3 {

namespace detail = boost::context::detail;

Block::Block(Worker& worker, std::uint64_t number)
    : worker_(worker),
      number_(number),
      threads_(worker.launch.block_threads),
      warps_((worker.launch.block_threads + warp_size - 1) / warp_size),
      barriers_(barriers) {
  const r3simt_launch& launch = worker.launch.launch;
  live_ = worker.launch.block_threads;
  shared_ = take_shared(worker.launch.shared_bytes);
  std::size_t counter_count = worker.launch.kernel.blocks.size();
  counters_.assign(counter_count * threads_.size(), 0);
  const std::uint64_t gx = launch.grid[0], gy = launch.grid[1];
  for (std::uint32_t i = 0; i < threads_.size(); ++i) {
    Thread& thread = threads_[i];
    thread.block = this;
    thread.index = i;
    ThreadContext& context = thread.context;
    context.tid[0] = i % launch.block[0];
    context.tid[1] = i / launch.block[0] % launch.block[1];
    context.tid[2] = i / launch.block[0] / launch.block[1];
    context.ctaid[0] = static_cast<std::uint32_t>(number % gx);
    context.ctaid[1] = static_cast<std::uint32_t>(number / gx % gy);
    context.ctaid[2] = static_cast<std::uint32_t>(number / gx / gy);
    for (unsigned d = 0; d < 3; ++d) context.ntid[d] = launch.block[d], context.nctaid[d] = launch.grid[d];
    context.lane = i % warp_size;
    context.warp = i / warp_size;
    if (launch.cooperative) context.grid_workspace = reinterpret_cast<std::uint64_t>(worker.launch.grid_workspace);
    context.shared = shared_;
    context.dynamic_shared = launch.dynamic_shared;
    context.total_shared = worker.launch.shared_bytes;
    context.counters = counters_.data() + i * counter_count;
    warps_[i / warp_size].live |= 1u << (i % warp_size);
  }
}

Block::~Block() {
  for (Thread& thread : threads_)
    if (thread.stack) worker_.stacks->give(thread.stack);
  give_shared(shared_, worker_.launch.shared_bytes);
}

// Without anything to wait for, the threads run one after another on one fibre.
void Block::run_straight() {
  for (Thread& thread : threads_) {
    if (thread.lane() == 0) worker_.enter_warp(number_, thread.warp());
    worker_.current = &thread;
    this_context = &thread.context;
    worker_.launch.entry(worker_.launch.launch.parameters);
    thread.state = ThreadState::done;
  }
  worker_.current = &threads_.front();
}

void fibre_main(detail::transfer_t from) {
  Worker& worker = *this_worker;
  worker.scheduler_ = from.fctx;
  if (from.data) {
    static_cast<Block*>(from.data)->run_straight();
  } else {
    worker.launch.entry(worker.launch.launch.parameters);
    worker.current->block->exited(*worker.current);
  }
  worker.leave();
}

Progress Block::step() {
  if (!worker_.launch.kernel.needs_fibres) {
    Thread& first = threads_.front();
    first.stack = worker_.stacks->take();
    first.fibre = detail::make_fcontext(first.stack, worker_.stacks->stack_bytes(), fibre_main);
    worker_.resume(first);
    if (worker_.failed) return Progress::failed;
    count();
    return Progress::done;
  }
  bool moved = false, ran = false;
  for (unsigned w = 0; w < warps_.size(); ++w) {
    if (!warps_[w].live) continue;
    std::uint32_t begin = w * warp_size, end = std::min<std::uint32_t>(begin + warp_size, threads_.size());
    for (bool again = true; again;) {
      again = false;
      for (std::uint32_t i = begin; i < end; ++i) {
        Thread& thread = threads_[i];
        if (thread.state != ThreadState::ready && thread.state != ThreadState::fresh) continue;
        if (thread.state == ThreadState::fresh) {
          thread.stack = worker_.stacks->take();
          thread.fibre = detail::make_fcontext(thread.stack, worker_.stacks->stack_bytes(), fibre_main);
          thread.state = ThreadState::ready;
        }
        worker_.enter_warp(number_, w);
        worker_.resume(thread);
        if (worker_.failed) return Progress::failed;
        again = ran = true;
        moved |= thread.state != ThreadState::spinning;
        if (thread.state == ThreadState::done) {
          worker_.stacks->give(thread.stack);
          thread.stack = nullptr;
        }
      }
      if (!again) again = resolve_converging(w);
    }
  }
  if (live_ == 0) {
    count();
    return Progress::done;
  }
  bool spinning = false;
  for (Thread& thread : threads_)
    if (thread.state == ThreadState::spinning) thread.state = ThreadState::ready, spinning = true;
  if (moved) return Progress::moved;
  if (spinning) return Progress::spinning;
  if (!ran) {
    report_deadlock();
    return Progress::failed;
  }
  return Progress::moved;
}

void Block::exited(Thread& thread) {
  thread.state = ThreadState::done;
  --live_;
  Warp& warp = warps_[thread.warp()];
  warp.live &= ~(1u << thread.lane());
  complete_pending(thread.warp());
  for (Barrier& barrier : barriers_)
    if (!barrier.waiting.empty() && is_complete(barrier)) release(barrier);
}

void Block::spin(Thread& thread) {
  if (++thread.spins % 32) return;
  thread.state = ThreadState::spinning;
  worker_.wait();
}

// --- barriers ---

bool Block::is_complete(const Barrier& barrier) const {
  return barrier.arrived >= (barrier.expected ? barrier.expected : live_);
}

std::uint32_t Block::arrive_barrier(Thread& thread, BarrierOp op, std::uint32_t id, std::uint32_t count, bool predicate,
                                    std::uint32_t site) {
  if (id >= barriers) worker_.fail(R3SIMT_TRAP, "uses barrier " + std::to_string(id) + "; there are 16");
  Barrier& barrier = barriers_[id];
  if (barrier.arrived == 0) {
    barrier.site = site;
    barrier.op = op;
    barrier.expected = count;
  } else if (barrier.site != site && count == 0 && op != BarrierOp::arrive) {
    worker_.warn("divergent barrier: threads of one block reach barrier " + std::to_string(id) + " at different places",
                 thread);
  }
  if (count) barrier.expected = count;
  if (op != BarrierOp::arrive && op != BarrierOp::sync) barrier.op = op;
  ++barrier.arrived;
  barrier.predicates += op != BarrierOp::sync && op != BarrierOp::arrive;
  barrier.set += predicate;
  if (op == BarrierOp::arrive) {
    if (is_complete(barrier)) release(barrier);
    return 0;
  }
  thread.barrier = id;
  thread.state = ThreadState::at_barrier;
  barrier.waiting.push_back(&thread);
  if (is_complete(barrier)) release(barrier);
  if (thread.state == ThreadState::at_barrier) worker_.wait();
  return static_cast<std::uint32_t>(thread.result);
}

void Block::release(Barrier& barrier) {
  std::uint32_t result = barrier.op == BarrierOp::popc  ? barrier.set
                         : barrier.op == BarrierOp::all ? barrier.set == barrier.predicates
                                                        : barrier.set > 0;
  for (Thread* thread : barrier.waiting) {
    thread->result = result;
    thread->state = ThreadState::ready;
  }
  barrier.waiting.clear();
  barrier.arrived = barrier.expected = barrier.set = barrier.predicates = 0;
}

// --- warp operations ---

std::uint64_t Block::arrive_warp_op(Thread& thread) {
  unsigned index = thread.warp();
  Warp& warp = warps_[index];
  std::uint32_t bit = 1u << thread.lane();
  if (!(thread.mask & bit))
    worker_.fail(R3SIMT_DEADLOCK, "calls a warp operation with a mask that lacks the calling lane");
  auto found = std::find_if(warp.pending.begin(), warp.pending.end(), [&](const PendingWarpOp& pending) {
    return pending.op == thread.op && pending.mask == thread.mask && !(pending.arrived & bit);
  });
  if (found == warp.pending.end()) {
    warp.pending.push_back({thread.op, thread.mask, 0});
    found = std::prev(warp.pending.end());
  }
  found->arrived |= bit;
  thread.state = ThreadState::at_warp_op;
  complete_pending(index);
  if (thread.state == ThreadState::at_warp_op) worker_.wait();
  return thread.result;
}

void Block::complete_pending(unsigned index) {
  Warp& warp = warps_[index];
  for (std::size_t i = 0; i < warp.pending.size();) {
    PendingWarpOp pending = warp.pending[i];
    std::uint32_t needed = pending.mask & warp.live;
    if (!pending.arrived || (pending.arrived & needed) != needed) {
      ++i;
      continue;
    }
    warp.pending.erase(warp.pending.begin() + static_cast<std::ptrdiff_t>(i));
    complete(index * warp_size, pending);
  }
}

void Block::complete(unsigned first, const PendingWarpOp& pending) {
  auto lanes = [&](auto&& each) {
    for (std::uint32_t rest = pending.arrived; rest; rest &= rest - 1) {
      unsigned lane = std::countr_zero(rest);
      each(lane, threads_[first + lane]);
    }
  };
  auto reduce = [&](auto start, auto&& combine) {
    auto total = start;
    bool begun = false;
    lanes([&](unsigned, Thread& thread) {
      decltype(start) value;
      std::memcpy(&value, &thread.value, sizeof value);
      total = begun ? combine(total, value) : value;
      begun = true;
    });
    std::uint64_t bits = 0;
    std::memcpy(&bits, &total, sizeof total);
    lanes([&](unsigned, Thread& thread) { thread.result = bits; });
  };
  auto reduce_float = [&](bool minimum, bool absolute, bool propagate) {
    reduce(0.0f, [=](float x, float y) {
      if (std::isnan(x) || std::isnan(y)) return propagate ? NAN : std::isnan(x) ? y : x;
      float a = absolute ? std::fabs(x) : x, b = absolute ? std::fabs(y) : y;
      return minimum ? std::min(a, b) : std::max(a, b);
    });
  };
  std::uint32_t set = 0;
  lanes([&](unsigned lane, Thread& thread) { set |= thread.value ? 1u << lane : 0u; });
  switch (pending.op) {
    case WarpOp::sync:
      break;
    case WarpOp::shuffle_up:
    case WarpOp::shuffle_down:
    case WarpOp::shuffle_bfly:
    case WarpOp::shuffle_idx:
      // PTX ISA, shfl.sync.
      lanes([&](unsigned lane, Thread& thread) {
        int b = static_cast<int>(thread.b & 31), segment = static_cast<int>(thread.c >> 8 & 31),
            clamp = static_cast<int>(thread.c & 31);
        int own = static_cast<int>(lane);
        int highest = (own & segment) | (clamp & ~segment), lowest = own & segment;
        int source = own;
        bool inside = false;
        if (pending.op == WarpOp::shuffle_up) source = own - b, inside = source >= highest;
        if (pending.op == WarpOp::shuffle_down) source = own + b, inside = source <= highest;
        if (pending.op == WarpOp::shuffle_bfly) source = own ^ b, inside = source <= highest;
        if (pending.op == WarpOp::shuffle_idx) source = lowest | (b & ~segment), inside = source <= highest;
        if (!inside) source = own;
        bool arrived = source >= 0 && source < 32 && (pending.arrived >> source & 1);
        std::uint64_t value = arrived ? threads_[first + static_cast<unsigned>(source)].value : thread.value;
        thread.result = (value & 0xffffffffu) | (inside ? 1ull << 32 : 0);
      });
      break;
    case WarpOp::vote_all:
      lanes([&](unsigned, Thread& thread) { thread.result = set == pending.arrived; });
      break;
    case WarpOp::vote_any:
      lanes([&](unsigned, Thread& thread) { thread.result = set != 0; });
      break;
    case WarpOp::vote_uni:
      lanes([&](unsigned, Thread& thread) { thread.result = set == 0 || set == pending.arrived; });
      break;
    case WarpOp::ballot:
      lanes([&](unsigned, Thread& thread) { thread.result = set; });
      break;
    case WarpOp::match_any:
    case WarpOp::match_all:
      lanes([&](unsigned, Thread& thread) {
        std::uint32_t same = 0;
        lanes([&](unsigned other, Thread& peer) { same |= peer.value == thread.value ? 1u << other : 0u; });
        thread.result = pending.op == WarpOp::match_any || same == pending.arrived ? same : 0;
      });
      break;
    case WarpOp::reduce_add:
      reduce(0u, [](std::uint32_t x, std::uint32_t y) { return x + y; });
      break;
    case WarpOp::reduce_min:
      reduce(0, [](std::int32_t x, std::int32_t y) { return std::min(x, y); });
      break;
    case WarpOp::reduce_max:
      reduce(0, [](std::int32_t x, std::int32_t y) { return std::max(x, y); });
      break;
    case WarpOp::reduce_umin:
      reduce(0u, [](std::uint32_t x, std::uint32_t y) { return std::min(x, y); });
      break;
    case WarpOp::reduce_umax:
      reduce(0u, [](std::uint32_t x, std::uint32_t y) { return std::max(x, y); });
      break;
    case WarpOp::reduce_and:
      reduce(0u, [](std::uint32_t x, std::uint32_t y) { return x & y; });
      break;
    case WarpOp::reduce_or:
      reduce(0u, [](std::uint32_t x, std::uint32_t y) { return x | y; });
      break;
    case WarpOp::reduce_xor:
      reduce(0u, [](std::uint32_t x, std::uint32_t y) { return x ^ y; });
      break;
    case WarpOp::reduce_fmin:
      reduce_float(true, false, false);
      break;
    case WarpOp::reduce_fmax:
      reduce_float(false, false, false);
      break;
    case WarpOp::reduce_fmin_nan:
      reduce_float(true, false, true);
      break;
    case WarpOp::reduce_fmax_nan:
      reduce_float(false, false, true);
      break;
    case WarpOp::reduce_fmin_abs:
      reduce_float(true, true, false);
      break;
    case WarpOp::reduce_fmax_abs:
      reduce_float(false, true, false);
      break;
    case WarpOp::reduce_fmin_abs_nan:
      reduce_float(true, true, true);
      break;
    case WarpOp::reduce_fmax_abs_nan:
      reduce_float(false, true, true);
      break;
    case WarpOp::elect:
      lanes([&](unsigned, Thread& thread) {
        thread.result = static_cast<std::uint64_t>(std::countr_zero(pending.arrived));
      });
      break;
  }
  lanes([&](unsigned, Thread& thread) { thread.state = ThreadState::ready; });
}

// The lanes that reach one place before any of them can go on are converged there.
std::uint32_t Block::converge(Thread& thread, std::uint32_t site) {
  thread.site = site;
  thread.state = ThreadState::converging;
  worker_.wait();
  return static_cast<std::uint32_t>(thread.result);
}

bool Block::resolve_converging(unsigned warp) {
  std::uint32_t begin = warp * warp_size, end = std::min<std::uint32_t>(begin + warp_size, threads_.size());
  std::uint32_t together = 0, site = 0;
  for (std::uint32_t i = begin; i < end; ++i) {
    if (threads_[i].state != ThreadState::converging) continue;
    if (!together) site = threads_[i].site;
    if (threads_[i].site == site) together |= 1u << (i - begin);
  }
  for (std::uint32_t i = begin; i < end; ++i) {
    if (!(together >> (i - begin) & 1)) continue;
    threads_[i].result = together;
    threads_[i].state = ThreadState::ready;
  }
  return together != 0;
}

void Block::report_deadlock() {
  const Thread* at_barrier = nullptr;
  const Thread* at_warp_op = nullptr;
  unsigned barrier_count = 0, warp_count = 0;
  for (const Thread& thread : threads_) {
    if (thread.state == ThreadState::at_barrier && ++barrier_count == 1) at_barrier = &thread;
    if (thread.state == ThreadState::at_warp_op && ++warp_count == 1) at_warp_op = &thread;
  }
  unsigned exited = static_cast<unsigned>(threads_.size()) - live_;
  std::string counts = std::to_string(barrier_count) + " threads wait at a barrier, " + std::to_string(warp_count) +
                       " at a warp operation, " + std::to_string(exited) + " have exited";
  const Thread* first = at_barrier ? at_barrier : at_warp_op;
  worker_.report(R3SIMT_DEADLOCK, first ? first : &threads_.front(),
                 "barrier or warp operation under divergence, which never completes: " + counts);
}

void Block::count() {
  if (!(worker_.launch.flags & R3SIMT_COUNT)) return;
  const std::vector<BlockClasses>& blocks = worker_.launch.kernel.blocks;
  r3simt_counts& counts = worker_.counts;
  counts.threads += threads_.size();
  counts.warps += warps_.size();
  for (std::uint32_t begin = 0; begin < threads_.size(); begin += warp_size) {
    std::uint32_t end = std::min<std::uint32_t>(begin + warp_size, threads_.size());
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      std::uint64_t most = 0, sum = 0;
      for (std::uint32_t i = begin; i < end; ++i) {
        std::uint32_t n = counters_[i * blocks.size() + b];
        most = std::max<std::uint64_t>(most, n);
        sum += n;
      }
      if (!most) continue;
      std::uint64_t length = 0;
      for (unsigned k = 0; k < R3SIMT_CLASSES; ++k) {
        counts.issues[k] += most * blocks[b].issues[k];
        length += blocks[b].issues[k];
      }
      counts.lane_instructions += sum * length;
    }
  }
}

}  // namespace r3
