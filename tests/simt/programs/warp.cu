// Shuffles, votes, matches and reductions of a warp, whole, in part and under divergence.
#include "report.h"

__global__ void shuffles(uint32_t* out) {
  uint32_t lane = threadIdx.x, value = 1000 + lane;
  uint32_t* mine = out + lane * 12;
  mine[0] = __shfl_sync(~0u, value, 5);
  mine[1] = __shfl_sync(~0u, value, lane + 3, 8);
  mine[2] = __shfl_up_sync(~0u, value, 2);
  mine[3] = __shfl_up_sync(~0u, value, 3, 8);
  mine[4] = __shfl_down_sync(~0u, value, 7);
  mine[5] = __shfl_down_sync(~0u, value, 3, 16);
  mine[6] = __shfl_xor_sync(~0u, value, 9);
  mine[7] = __shfl_xor_sync(~0u, value, 12, 8);
  mine[8] = __shfl_sync(~0u, value, 33);
  mine[9] = (uint32_t)__shfl_xor_sync(~0u, 0x100000000ull * lane + 7, 1) +
            (uint32_t)(__shfl_xor_sync(~0u, 0x100000000ull * lane, 1) >> 32);
  mine[10] = __float_as_uint(__shfl_down_sync(~0u, 1.5f * lane, 1));
  mine[11] = (uint32_t)__double2int_rn(__shfl_up_sync(~0u, 2.25 * lane, 1));
}

__global__ void votes(uint32_t* out) {
  uint32_t lane = threadIdx.x;
  uint32_t* mine = out + lane * 10;
  mine[0] = __ballot_sync(~0u, lane % 3 == 0);
  mine[1] = __any_sync(~0u, lane == 31);
  mine[2] = __all_sync(~0u, lane < 32);
  mine[3] = __all_sync(~0u, lane < 31);
  mine[4] = __match_any_sync(~0u, lane / 5);
  int same;
  mine[5] = __match_all_sync(~0u, lane / 32, &same) + 2 * same;
  mine[6] = __match_all_sync(~0u, lane / 31, &same) + 2 * same;
  mine[7] = __match_any_sync(~0u, 0x300000000ull + (lane & 1));
  mine[8] = __uni_sync(~0u, lane < 40);
  mine[9] = __activemask();
}

__global__ void reductions(uint32_t* out) {
  uint32_t lane = threadIdx.x, value = (lane * 2654435761u) >> 7;
  uint32_t* mine = out + lane * 8;
  mine[0] = __reduce_add_sync(~0u, value);
  mine[1] = __reduce_min_sync(~0u, value);
  mine[2] = __reduce_max_sync(~0u, value);
  mine[3] = __reduce_and_sync(~0u, value | 0x11);
  mine[4] = __reduce_or_sync(~0u, value);
  mine[5] = __reduce_xor_sync(~0u, value);
  mine[6] = (uint32_t)__reduce_min_sync(~0u, (int)value - (1 << 24));
  mine[7] = (uint32_t)__reduce_max_sync(~0u, (int)(value % 100) - 200);
}

// Lanes take different branches, each with its own mask.
__global__ void divergent(uint32_t* out) {
  uint32_t lane = threadIdx.x;
  uint32_t odd = __ballot_sync(~0u, lane & 1);
  uint32_t result;
  if (lane & 1) {
    result = __shfl_sync(odd, lane * 10, 31) + __popc(__ballot_sync(odd, lane > 15));
    __syncwarp(odd);
  } else {
    result = __shfl_down_sync(~odd, lane * 100, 2);
    __syncwarp(~odd);
    result += __reduce_add_sync(~odd, 1);
  }
  __syncwarp();
  out[lane] = result;
  uint32_t rounds = 0;
  for (uint32_t left = lane % 4; left > 0; --left) rounds += __popc(__activemask()) > 0;
  out[32 + lane] = rounds + 16 * __shfl_sync(~0u, rounds, 3);
}

// A warp that is not full, and one whose lanes left early.
__global__ void partial(uint32_t* out) {
  uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  uint32_t members = warp == 1 ? (1u << (blockDim.x - 32)) - 1 : ~0u;
  out[threadIdx.x] = __ballot_sync(members, lane % 2) + __shfl_sync(members, lane * 3, 4);
  if (lane >= 7) return;
  out[threadIdx.x] += 1000 * __reduce_add_sync(0x7f, lane);
}

template <typename Kernel>
void run(const char* name, Kernel kernel, unsigned threads, unsigned results) {
  Array<uint32_t> out(results);
  kernel<<<1, threads>>>(out.data);
  finish(name);
  print(name, out.host());
}

int main() {
  run("shuffles", shuffles, 32, 32 * 12);
  run("votes", votes, 32, 32 * 10);
  run("reductions", reductions, 32, 32 * 8);
  run("divergent", divergent, 32, 64);
  run("partial", partial, 45, 45);
}
