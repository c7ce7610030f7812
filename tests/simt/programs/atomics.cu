// Atomics of every width, operation and scope, on global and shared memory.
#include <cuda/atomic>

#include "report.h"

struct Results {
  uint32_t add, sub, exch, min, max, inc, dec, cas, and_, or_, xor_;
  int32_t smin, smax;
  uint64_t add64, min64, max64, exch64, cas64, and64, or64, xor64;
  float fadd;
  double dadd;
};

__device__ Results global;
__device__ uint32_t tickets[256];

template <typename T, typename F>
__device__ void replace(T* at, F f) {
  T old = *reinterpret_cast<volatile T*>(at), assumed;
  do {
    assumed = old;
    old = atomicCAS(at, assumed, f(assumed));
  } while (old != assumed);
}

__global__ void all(Results* r) {
  __shared__ Results shared;
  if (threadIdx.x == 0) {
    memset(&shared, 0, sizeof shared);
    shared.min = shared.and_ = ~0u;
    shared.min64 = shared.and64 = ~0ull;
  }
  __syncthreads();
  uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  for (Results* at : {r, &shared, &global}) {
    atomicAdd(&at->add, i);
    atomicSub(&at->sub, i + 1);
    atomicMin(&at->min, 1000 - i);
    atomicMax(&at->max, i * 3);
    atomicInc(&at->inc, 16);
    atomicDec(&at->dec, 10);
    replace(&at->cas, [](uint32_t v) { return v + 3; });
    atomicAnd(&at->and_, ~(1u << (i % 32) % 20));
    atomicOr(&at->or_, 1u << (i % 29));
    atomicXor(&at->xor_, i);
    atomicMin(&at->smin, -(int)i);
    atomicMax(&at->smax, (int)i - 100);
    atomicAdd((unsigned long long*)&at->add64, 1ull << (i % 40));
    atomicMin((unsigned long long*)&at->min64, 5000000000ull - i);
    atomicMax((unsigned long long*)&at->max64, 5000000000ull + i);
    replace((unsigned long long*)&at->cas64, [](unsigned long long v) { return v + 4; });
    atomicAnd((unsigned long long*)&at->and64, ~(1ull << (i % 50)));
    atomicOr((unsigned long long*)&at->or64, 1ull << (i % 61));
    atomicXor((unsigned long long*)&at->xor64, (unsigned long long)i << 20);
    atomicAdd(&at->fadd, 0.5f);
    atomicAdd(&at->dadd, 0.25);
    atomicAdd_block(&at->add, 1);
    atomicAdd_system(&at->add, 1);
    atomicMax_block(&at->max, 2);
  }
  tickets[atomicAdd(&tickets[255], 1)] = 1;
  __syncthreads();
  if (threadIdx.x == 0 && blockIdx.x == 1) r[1] = shared;
}

__global__ void scoped(uint32_t* out) {
  __shared__ cuda::atomic<uint32_t, cuda::thread_scope_block> local;
  if (threadIdx.x == 0) new (&local) cuda::atomic<uint32_t, cuda::thread_scope_block>(5);
  __syncthreads();
  local.fetch_add(threadIdx.x, cuda::memory_order_relaxed);
  cuda::atomic_ref<uint32_t, cuda::thread_scope_device> device(out[0]);
  device.fetch_max(threadIdx.x * 7, cuda::memory_order_acq_rel);
  cuda::atomic_ref<uint64_t, cuda::thread_scope_system> wide(*reinterpret_cast<uint64_t*>(out + 2));
  wide.fetch_add(threadIdx.x, cuda::memory_order_release);
  __syncthreads();
  if (threadIdx.x == 0) out[1] = local.load(cuda::memory_order_acquire);
}

int main() {
  Array<Results> results(2);
  Results start{};
  start.min = start.and_ = ~0u;
  start.min64 = start.and64 = ~0ull;
  check(cudaMemcpy(results.data, &start, sizeof start, cudaMemcpyHostToDevice), "cudaMemcpy");
  check(cudaMemcpyToSymbol(global, &start, sizeof start), "cudaMemcpyToSymbol");
  all<<<3, 64>>>(results.data);
  finish("all");
  std::vector<Results> sets = results.host();
  check(cudaMemcpyFromSymbol(&start, global, sizeof start), "cudaMemcpyFromSymbol");
  sets.push_back(start);
  for (const Results& r : sets) {
    print("32", std::vector<uint32_t>{r.add, r.sub, r.min, r.max, r.inc, r.dec, r.cas, r.and_, r.or_, r.xor_,
                                      (uint32_t)r.smin, (uint32_t)r.smax});
    print("64", std::vector<uint64_t>{r.add64, r.min64, r.max64, r.cas64, r.and64, r.or64, r.xor64});
    print("float", std::vector<double>{r.fadd, r.dadd});
  }
  std::vector<uint32_t> taken(256);
  check(cudaMemcpyFromSymbol(taken.data(), tickets, 1024), "cudaMemcpyFromSymbol");
  print("tickets", taken);
  Array<uint32_t> out(4);
  scoped<<<1, 96>>>(out.data);
  finish("scoped");
  print("scoped", out.host());
}
