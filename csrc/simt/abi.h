// What lowered code and the runtime agree on.
#pragma once
#include <cstddef>
#include <cstdint>

namespace r3 {

inline constexpr unsigned warp_size = 32;

// One per running CUDA thread. Lowered code reads it by offset, through r3rt_context().
struct ThreadContext {
  std::uint32_t tid[3];
  std::uint32_t lane;
  std::uint32_t ctaid[3];
  std::uint32_t warp;
  std::uint32_t ntid[3];
  std::uint32_t dynamic_shared;
  std::uint32_t nctaid[3];
  std::uint32_t total_shared;
  std::uint64_t shared;          // address of the block's shared memory, below 4 GiB
  std::uint64_t grid_workspace;  // what %envreg1 (high) and %envreg2 (low) point to in a cooperative launch, else 0
  std::uint64_t clock;           // what %clock64 reads; advances by a fixed step a read
  std::uint32_t* counters;       // one execution count per basic block (R3SIMT_COUNT)
};

// A place in the code that touches memory.
enum class Access : std::uint8_t { load, store, atomic };
enum class Space : std::uint8_t { generic, global, shared, constant, local };

struct AccessSite {
  Access access;
  Space space;
  std::uint32_t bytes;
  std::uint32_t alignment;
};

// Kinds of warp-wide operations, as r3rt_warp takes them.
enum class WarpOp : std::uint32_t {
  sync,
  shuffle_up,
  shuffle_down,
  shuffle_bfly,
  shuffle_idx,
  vote_all,
  vote_any,
  vote_uni,
  ballot,
  match_any,
  match_all,
  reduce_add,
  reduce_min,
  reduce_max,
  reduce_umin,
  reduce_umax,
  reduce_and,
  reduce_or,
  reduce_xor,
  reduce_fmin,
  reduce_fmax,
  reduce_fmin_nan,
  reduce_fmax_nan,
  reduce_fmin_abs,
  reduce_fmax_abs,
  reduce_fmin_abs_nan,
  reduce_fmax_abs_nan,
  elect,
};

enum class BarrierOp : std::uint32_t { sync, arrive, popc, all, any };

}  // namespace r3
