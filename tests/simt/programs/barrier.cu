// Block barriers: plain, reducing, named, with threads that left, in loops, and code that counts on lockstep.
#include "report.h"

__global__ void reverse(uint32_t* out) {
  __shared__ uint32_t values[256];
  extern __shared__ uint32_t dynamic[];
  unsigned i = threadIdx.x;
  values[i] = i * i;
  dynamic[i] = i + 7;
  __syncthreads();
  out[blockIdx.x * blockDim.x + i] = values[blockDim.x - 1 - i] + 1000 * dynamic[(i + 1) % blockDim.x] + blockIdx.x;
}

__global__ void reducing(uint32_t* out) {
  unsigned i = threadIdx.x;
  out[i] = __syncthreads_count(i % 5 == 0) + 1000 * __syncthreads_and(i < 96) + 10000 * __syncthreads_and(i < 95) +
           100000 * __syncthreads_or(i == 77) + 1000000 * __syncthreads_or(i == 96);
}

__global__ void scan(uint32_t* out) {
  __shared__ uint32_t sums[2][128];
  unsigned i = threadIdx.x;
  sums[0][i] = i % 7;
  unsigned from = 0;
  for (unsigned step = 1; step < 128; step *= 2) {
    __syncthreads();
    sums[1 - from][i] = sums[from][i] + (i >= step ? sums[from][i - step] : 0);
    from = 1 - from;
  }
  __syncthreads();
  out[i] = sums[from][i];
}

__global__ void some_left(uint32_t* out) {
  __shared__ uint32_t values[64];
  unsigned i = threadIdx.x;
  if (i >= 50) return;
  values[i] = i;
  __syncthreads();
  out[i] = values[49 - i];
}

// Producers and consumers on two named barriers.
__global__ void named(uint32_t* out) {
  __shared__ uint32_t box[32];
  unsigned lane = threadIdx.x % 32;
  for (unsigned turn = 0; turn < 3; ++turn) {
    if (threadIdx.x < 32) {
      box[lane] = lane * 10 + turn;
      asm volatile("bar.sync 1, 64;" ::: "memory");
      asm volatile("bar.sync 2, 64;" ::: "memory");
    } else {
      asm volatile("bar.sync 1, 64;" ::: "memory");
      out[turn * 32 + lane] = box[31 - lane];
      asm volatile("bar.sync 2, 64;" ::: "memory");
    }
  }
}

__global__ void arrive_and_wait(uint32_t* out) {
  __shared__ uint32_t box[32];
  unsigned lane = threadIdx.x % 32;
  if (threadIdx.x < 32) {
    box[lane] = 5 * lane;
    __threadfence_block();
    asm volatile("bar.arrive 3, 64;" ::: "memory");
  } else {
    asm volatile("bar.sync 3, 64;" ::: "memory");
    out[lane] = box[lane ^ 1];
  }
}

// A lock taken by one thread of each warp; a flag that another warp waits for.
__global__ void spinning(uint32_t* out, uint32_t* lock) {
  __shared__ volatile uint32_t flag;
  if (threadIdx.x == 0) flag = 0;
  __syncthreads();
  if (threadIdx.x % 32 == 0) {
    while (atomicCAS(lock, 0, 1) != 0) __nanosleep(20);
    out[0] += threadIdx.x + 1;
    __threadfence();
    atomicExch(lock, 0);
  }
  if (threadIdx.x == 0)
    while (flag == 0) {
    }
  if (threadIdx.x == 64) flag = 9;
  __syncthreads();
  out[1 + threadIdx.x] = flag;
}

__global__ void classic_warp_reduce(uint32_t* out) {
  __shared__ volatile uint32_t sums[64];
  unsigned i = threadIdx.x;
  sums[i] = i + 1;
  __syncthreads();
  if (i < 32) {
    sums[i] += sums[i + 32];
    __syncwarp();
    sums[i] += sums[i + 16];
    __syncwarp();
    sums[i] += sums[i + 8];
    __syncwarp();
    sums[i] += sums[i + 4];
    __syncwarp();
    sums[i] += sums[i + 2];
    __syncwarp();
    sums[i] += sums[i + 1];
  }
  if (i == 0) out[0] = sums[0];
}

int main() {
  Array<uint32_t> out(1024), lock(1);
  auto show = [&](const char* name, std::size_t n) {
    finish(name);
    std::vector<uint32_t> values = out.host();
    values.resize(n);
    print(name, values);
    check(cudaMemset(out.data, 0, 4096), "cudaMemset");
  };
  reverse<<<3, 128, 512>>>(out.data);
  show("reverse", 384);
  reducing<<<1, 96>>>(out.data);
  show("reducing", 96);
  scan<<<1, 128>>>(out.data);
  show("scan", 128);
  some_left<<<1, 64>>>(out.data);
  show("some_left", 50);
  named<<<1, 64>>>(out.data);
  show("named", 96);
  arrive_and_wait<<<1, 64>>>(out.data);
  show("arrive_and_wait", 32);
  spinning<<<1, 96>>>(out.data, lock.data);
  show("spinning", 97);
  classic_warp_reduce<<<1, 64>>>(out.data);
  show("classic_warp_reduce", 1);
}
