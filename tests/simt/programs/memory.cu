// Memory spaces: constant and device variables, local arrays, structs by value, pointers in memory, vector accesses,
// recursion.
#include "report.h"

struct Params {
  double scale;
  float3 offset;
  char tag;
  const float* table;
};

struct Node {
  uint32_t value;
  Node* next;
};

__constant__ float weights[8] = {0.5f, 1.5f, 2.5f};
__device__ uint32_t counter = 41;
__device__ Node nodes[4];
static __device__ double history[4] = {1, 2, 3};
__device__ const float* where = weights;

__global__ void by_value(double* out, Params params, short bias, bool flip) {
  unsigned i = threadIdx.x;
  float values[3] = {params.offset.x, params.offset.y, params.offset.z};
  double x = params.scale * values[i % 3] + params.table[i] + bias + weights[i % 8];
  out[i] = flip ? -x : x;
  history[i % 4] += i;
}

__global__ void link(uint32_t* out) {
  if (threadIdx.x < 4) {
    nodes[threadIdx.x].value = threadIdx.x * 11;
    nodes[threadIdx.x].next = &nodes[(threadIdx.x + 1) % 4];
  }
  __syncthreads();
  const Node* node = &nodes[threadIdx.x % 4];
  uint32_t sum = 0;
  for (unsigned step = 0; step < threadIdx.x; ++step, node = node->next) sum = sum * 3 + node->value;
  out[threadIdx.x] = sum + counter;
  __syncthreads();
  if (threadIdx.x == 0) counter += 100;
}

__device__ __noinline__ uint32_t ackermann(uint32_t m, uint32_t n) {
  return m == 0 ? n + 1 : ackermann(m - 1, n == 0 ? 1 : ackermann(m, n - 1));
}

__global__ void local(uint32_t* out) {
  unsigned i = threadIdx.x;
  uint32_t sorted[16];
  for (unsigned k = 0; k < 16; ++k) sorted[k] = (i * 37 + k * 101) % 97;
  for (unsigned a = 0; a < 16; ++a)
    for (unsigned b = 0; b + 1 < 16 - a; ++b)
      if (sorted[b] > sorted[b + 1]) {
        uint32_t t = sorted[b];
        sorted[b] = sorted[b + 1];
        sorted[b + 1] = t;
      }
  out[i] = sorted[i % 16] + 1000 * ackermann(2, i % 3);
}

__global__ void vectors(float4* out, const float4* in, uchar4* bytes, const double2* pairs) {
  unsigned i = threadIdx.x;
  float4 v = in[i];
  double2 p = __ldg(&pairs[i]);
  out[i] = make_float4(v.w, v.z + (float)p.x, v.y * (float)p.y, v.x);
  bytes[i] = make_uchar4(i, 255 - i, i * i, bytes[i].x + 1);
}

typedef uint32_t (*Operation)(uint32_t, uint32_t);
__device__ uint32_t add(uint32_t a, uint32_t b) { return a + b; }
__device__ uint32_t multiply(uint32_t a, uint32_t b) { return a * b; }

struct Shape {
  __device__ virtual uint32_t area(uint32_t n) const { return n; }
};
struct Square : Shape {
  __device__ uint32_t area(uint32_t n) const override { return n * n; }
};

__global__ void indirect(uint32_t* out) {
  Operation operations[2] = {add, multiply};
  Shape shape;
  Square square;
  const Shape* shapes[2] = {&shape, &square};
  out[threadIdx.x] =
      operations[threadIdx.x % 2](threadIdx.x, 5) + 1000 * shapes[threadIdx.x / 2 % 2]->area(threadIdx.x);
}

__global__ void geometry(uint32_t* out) {
  unsigned i =
      ((blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x) * (blockDim.x * blockDim.y * blockDim.z) +
      (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  uint32_t lane;
  asm("mov.u32 %0, %%laneid;" : "=r"(lane));
  out[i] = i * 64 + lane + warpSize - 32;
}

__global__ void divisions(uint32_t* out, uint32_t zero, int minus_one, float huge) {
  out[0] = 7u / zero;
  out[1] = (uint32_t)(int)huge;
  out[2] = (uint32_t)(int)-huge;
  out[3] = (uint32_t)huge;
  out[4] = (uint32_t)(int)(huge - huge * 2 + huge);
  out[5] = (uint32_t)(-17 / minus_one) + (uint32_t)(-17 % 5) + (uint32_t)(17u % 5u);
}

int main() {
  Array<double> out(32);
  Array<float> table(32);
  std::vector<float> values(32);
  for (int i = 0; i < 32; ++i) values[i] = 0.25f * i;
  check(cudaMemcpy(table.data, values.data(), 128, cudaMemcpyHostToDevice), "cudaMemcpy");
  Params params{2.5, {1, 2, 3}, 'x', table.data};
  by_value<<<1, 32>>>(out.data, params, -3, true);
  finish("by_value");
  print("by_value", out.host());
  float more = 9;
  check(cudaMemcpyToSymbol(weights, &more, 4, 4), "cudaMemcpyToSymbol");
  by_value<<<1, 32>>>(out.data, params, 3, false);
  finish("by_value");
  print("by_value", out.host());

  Array<uint32_t> words(512);
  auto show = [&](const char* name, std::size_t n) {
    finish(name);
    std::vector<uint32_t> all = words.host();
    all.resize(n);
    print(name, all);
  };
  link<<<1, 16>>>(words.data);
  show("link", 16);
  link<<<1, 16>>>(words.data);
  show("link", 16);
  local<<<1, 32>>>(words.data);
  show("local", 32);
  indirect<<<1, 8>>>(words.data);
  show("indirect", 8);
  geometry<<<dim3(2, 3, 2), dim3(5, 2, 4)>>>(words.data);
  show("geometry", 480);
  divisions<<<1, 1>>>(words.data, 0, -1, 1e20f);
  show("divisions", 6);

  Array<float4> to(8), from(8);
  Array<uchar4> bytes(8);
  Array<double2> pairs(8);
  std::vector<float> fours(32);
  std::vector<double> twos(16);
  for (int i = 0; i < 32; ++i) fours[i] = i + 0.5f;
  for (int i = 0; i < 16; ++i) twos[i] = i - 3.25;
  check(cudaMemcpy(from.data, fours.data(), 128, cudaMemcpyHostToDevice), "cudaMemcpy");
  check(cudaMemcpy(pairs.data, twos.data(), 128, cudaMemcpyHostToDevice), "cudaMemcpy");
  vectors<<<1, 8>>>(to.data, from.data, bytes.data, pairs.data);
  finish("vectors");
  for (float4 v : to.host()) print("vectors", std::vector<float>{v.x, v.y, v.z, v.w});
  for (uchar4 b : bytes.host()) print("bytes", std::vector<uint32_t>{b.x, b.y, b.z, b.w});
  uint32_t counted;
  check(cudaMemcpyFromSymbol(&counted, counter, 4), "cudaMemcpyFromSymbol");
  print("counter", std::vector<uint32_t>{counted});
}
