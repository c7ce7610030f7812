// Real kernels, as clang and nvcc build them. Every expectation was checked against NVIDIA's runtime on an H200.
#include <cooperative_groups.h>

#include <cassert>
#include <numeric>
#include <vector>

#include "check.h"

namespace {

__device__ int hidden = 3;
__global__ void read_hidden(int* out) { *out = hidden; }

template <class T>
T* device_copy(const std::vector<T>& host) {
  T* device = nullptr;
  OK(cudaMalloc(reinterpret_cast<void**>(&device), host.size() * sizeof(T)));
  OK(cudaMemcpy(device, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
  return device;
}

template <class T>
std::vector<T> host_copy(const T* device, std::size_t count) {
  std::vector<T> host(count);
  OK(cudaMemcpy(host.data(), device, count * sizeof(T), cudaMemcpyDeviceToHost));
  return host;
}

}  // namespace

__device__ int counter = 40;
__constant__ float scale[4];
static __device__ double unseen[2] = {1.5, 2.5};

template <class T>
__global__ void add(const T* a, const T* b, T* c, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}

static __global__ void increment() { atomicAdd(&counter, 1); }

__global__ void scaled(float* out) { out[threadIdx.x] = scale[threadIdx.x] * 2; }

__global__ void sum_unseen(double* out) { *out = unseen[0] + unseen[1]; }

struct Matrix {
  float* data;
  int rows, columns;
  char order;
};

__global__ void trace(Matrix m, float* out) {
  float sum = 0;
  for (int i = 0; i < m.rows && i < m.columns; ++i) sum += m.data[i * m.columns + i];
  *out = m.order == 'r' ? sum : -1;
}

__global__ void reverse(int* values) {
  extern __shared__ int shared[];
  shared[threadIdx.x] = values[threadIdx.x];
  __syncthreads();
  values[threadIdx.x] = shared[blockDim.x - 1 - threadIdx.x];
}

__global__ void __launch_bounds__(128) bounded(int* out) {
  __shared__ int shared[4096];
  shared[threadIdx.x] = threadIdx.x;
  __syncthreads();
  if (out) out[threadIdx.x] = shared[threadIdx.x ^ 1];
}

__global__ void say(int value) { printf("block %d says %d\n", blockIdx.x, value); }
__global__ void must_be_one(int value) { assert(value == 1); }
__global__ void trap() { __trap(); }
__global__ void store(int* where) { *where = 3; }

__global__ void two_phases(int* values, int* total) {
  auto grid = cooperative_groups::this_grid();
  values[grid.thread_rank()] = 1;
  grid.sync();
  if (grid.thread_rank() == 0) {
    for (unsigned i = 0; i < grid.size(); ++i) *total += values[i];
  }
}

__global__ void warp_sum(int* out) {
  int value = threadIdx.x;
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_down_sync(0xffffffff, value, offset);
  if (threadIdx.x == 0) *out = value;
}

__global__ void fetch_rows(cudaTextureObject_t texture, const float2* at, float* out) {
  out[threadIdx.x] = tex2D<float>(texture, at[threadIdx.x].x, at[threadIdx.x].y);
}
__global__ void fetch_box(cudaTextureObject_t texture, float* out) { *out = tex3D<float>(texture, 1.0f, 1.5f, 0.5f); }
__global__ void fetch_line(cudaTextureObject_t texture, int* out) {
  out[threadIdx.x] = tex1Dfetch<int>(texture, threadIdx.x);
}
__global__ void fetch_colour(cudaTextureObject_t texture, float4* out) { *out = tex2D<float4>(texture, 1.25f, 0.25f); }

TEST(vector_addition) {
  const int n = 1000;
  std::vector<float> a(n), b(n);
  std::iota(a.begin(), a.end(), 0.f);
  std::iota(b.begin(), b.end(), 1.f);
  float *da = device_copy(a), *db = device_copy(b), *dc = device_copy(std::vector<float>(n));
  add<<<(n + 127) / 128, 128>>>(da, db, dc, n);
  OK(cudaGetLastError());
  OK(cudaDeviceSynchronize());
  const auto c = host_copy(dc, n);
  for (int i = 0; i < n; ++i) CHECK(c[i] == 2 * i + 1);
}

TEST(variables) {
  increment<<<2, 32>>>();
  int value = 0;
  OK(cudaMemcpyFromSymbol(&value, counter, sizeof value));
  CHECK(value == 104);
  value = 7;
  OK(cudaMemcpyToSymbol(counter, &value, sizeof value));
  increment<<<1, 1>>>();
  int* address;
  OK(cudaGetSymbolAddress(reinterpret_cast<void**>(&address), counter));
  CHECK(host_copy(address, 1)[0] == 8);
  std::size_t size = 0;
  OK(cudaGetSymbolSize(&size, scale));
  CHECK(size == 16);
  const float factors[4] = {1, 2, 3, 4};
  OK(cudaMemcpyToSymbolAsync(scale, factors, sizeof factors, 0, cudaMemcpyHostToDevice, 0));
  float* out = device_copy(std::vector<float>(4));
  scaled<<<1, 4>>>(out);
  CHECK(host_copy(out, 4)[3] == 8);
}

TEST(internal_linkage) {
  int* out = device_copy(std::vector<int>(1));
  read_hidden<<<1, 1>>>(out);
  CHECK(host_copy(out, 1)[0] == 3);
  int value = 9;
  OK(cudaMemcpyToSymbol(hidden, &value, sizeof value));
  read_hidden<<<1, 1>>>(out);
  CHECK(host_copy(out, 1)[0] == 9);
  double* sum = device_copy(std::vector<double>(1));
  sum_unseen<<<1, 1>>>(sum);
  CHECK(host_copy(sum, 1)[0] == 4);
  double both[2];
  OK(cudaMemcpyFromSymbol(both, unseen, sizeof both));
  CHECK(both[1] == 2.5);
}

TEST(structures_by_value) {
  const Matrix m{device_copy(std::vector<float>{1, 2, 3, 4, 5, 6}), 2, 3, 'r'};
  float* out = device_copy(std::vector<float>(1));
  trace<<<1, 1>>>(m, out);
  CHECK(host_copy(out, 1)[0] == 6);
}

TEST(dynamic_shared_memory) {
  std::vector<int> values(256);
  std::iota(values.begin(), values.end(), 0);
  int* device = device_copy(values);
  reverse<<<1, 256, 256 * sizeof(int)>>>(device);
  CHECK(host_copy(device, 256)[0] == 255);
  reverse<<<1, 256, 48 * 1024>>>(device);
  OK(cudaGetLastError());
  reverse<<<1, 256, 48 * 1024 + 4>>>(device);
  RETURNS(cudaGetLastError(), cudaErrorInvalidValue);
  OK(cudaFuncSetAttribute(reverse, cudaFuncAttributeMaxDynamicSharedMemorySize, 100 * 1024));
  reverse<<<1, 256, 100 * 1024>>>(device);
  OK(cudaGetLastError());
  OK(cudaDeviceSynchronize());
  CHECK(host_copy(device, 256)[0] == 255);
  RETURNS(cudaFuncSetAttribute(reverse, cudaFuncAttributeMaxDynamicSharedMemorySize, 228 * 1024),
          cudaErrorInvalidValue);
  RETURNS(cudaGetLastError(), cudaErrorInvalidValue);
}

cudaError_t launch(dim3 grid, dim3 block, std::size_t shared = 0) {
  return cudaLaunchKernel(increment, grid, block, nullptr, shared, 0);
}

#ifdef REAL_DEVICE
constexpr cudaError_t bad_geometry = cudaErrorInvalidValue;  // CUDA 13.0's, whatever it documents
#else
constexpr cudaError_t bad_geometry =
    cudaErrorInvalidConfiguration;  // the documented code, and that of earlier releases
#endif

TEST(launch_errors) {
  RETURNS(launch(0, 1), bad_geometry);
  RETURNS(cudaGetLastError(), bad_geometry);
  OK(cudaGetLastError());
  RETURNS(launch(1, 0), bad_geometry);
  RETURNS(launch(1, 1025), bad_geometry);
  RETURNS(launch(dim3(1, 65536), 1), bad_geometry);
  RETURNS(launch(1, dim3(1, 1, 65)), bad_geometry);
  RETURNS(launch(1, dim3(1024, 2)), bad_geometry);
  OK(launch(1, 32, 48 * 1024));
  RETURNS(launch(1, 32, 48 * 1024 + 1), cudaErrorInvalidValue);
  RETURNS(launch(1, 32, 300 * 1024), cudaErrorInvalidValue);
  bounded<<<1, 256>>>(nullptr);
  RETURNS(cudaGetLastError(), cudaErrorInvalidValue);
  bounded<<<1, 32, 40 * 1024>>>(nullptr);
  RETURNS(cudaGetLastError(), cudaErrorInvalidValue);
  bounded<<<1, 128>>>(nullptr);
  OK(cudaGetLastError());
  OK(cudaDeviceSynchronize());
  increment<<<0, 1>>>();
  RETURNS(cudaGetLastError(), bad_geometry);
}

TEST(function_attributes) {
  cudaFuncAttributes a;
  OK(cudaFuncGetAttributes(&a, bounded));
  CHECK(a.maxThreadsPerBlock == 128 && a.sharedSizeBytes == 16384 && a.ptxVersion == 90 && a.binaryVersion == 90);
  CHECK(a.maxDynamicSharedSizeBytes == 32768 && a.preferredShmemCarveout == -1);
  OK(cudaFuncGetAttributes(&a, increment));
  CHECK(a.maxThreadsPerBlock == 1024 && a.sharedSizeBytes == 0 && a.maxDynamicSharedSizeBytes == 49152);
  OK(cudaFuncSetAttribute(bounded, cudaFuncAttributeMaxDynamicSharedMemorySize, 50 * 1024));
  OK(cudaFuncGetAttributes(&a, bounded));
  CHECK(a.maxDynamicSharedSizeBytes == 50 * 1024);
  RETURNS(cudaFuncSetAttribute(bounded, cudaFuncAttributeMaxDynamicSharedMemorySize, 220 * 1024),
          cudaErrorInvalidValue);
  OK(cudaFuncSetAttribute(bounded, cudaFuncAttributeMaxDynamicSharedMemorySize, 232448 - 16384));
  OK(cudaFuncSetCacheConfig(bounded, cudaFuncCachePreferShared));
}

TEST(occupancy) {
  const auto blocks = [](auto kernel, int threads, std::size_t shared) {
    int value = -1;
    OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&value, kernel, threads, shared));
    return value;
  };
  const std::pair<int, int> by_threads[] = {{1, 32},   {32, 32}, {64, 32}, {65, 21}, {96, 21}, {128, 16},
                                            {192, 10}, {256, 8}, {384, 5}, {512, 4}, {768, 2}, {1024, 2}};
  for (const auto& [threads, expected] : by_threads) CHECK(blocks(increment, threads, 0) == expected);
  const std::pair<int, int> by_shared[] = {{1, 32},     {1024, 32}, {4096, 32}, {10000, 20},
                                           {16384, 13}, {32768, 6}, {49152, 4}};
  for (const auto& [shared, expected] : by_shared) CHECK(blocks(reverse, 64, shared) == expected);
  CHECK(blocks(bounded, 128, 0) == 13);
  CHECK(blocks(bounded, 256, 0) == 8);  // whatever its launch bounds
  int grid = 0, block = 0;
  OK(cudaOccupancyMaxPotentialBlockSize(&grid, &block, increment));
  CHECK(grid == 264 && block == 1024);
  std::size_t available = 0;
  OK(cudaOccupancyAvailableDynamicSMemPerBlock(&available, reverse, 4, 64));
  CHECK(available == 49152);
  OK(cudaOccupancyAvailableDynamicSMemPerBlock(&available, reverse, 8, 64));
  CHECK(available == 29184);
  OK(cudaOccupancyAvailableDynamicSMemPerBlock(&available, bounded, 5, 128));
  CHECK(available == 30208);
  RETURNS(cudaOccupancyAvailableDynamicSMemPerBlock(&available, reverse, 33, 64), cudaErrorInvalidValue);
  CHECK(blocks(reverse, 64, 50000) == 0);
  OK(cudaFuncSetAttribute(reverse, cudaFuncAttributeMaxDynamicSharedMemorySize, 102400));
  CHECK(blocks(reverse, 64, 102400) == 2);
  OK(cudaOccupancyAvailableDynamicSMemPerBlock(&available, reverse, 1, 64));
  CHECK(available == 102400);
}

TEST(print) {
  std::printf("before\n");
  say<<<1, 1>>>(42);
  OK(cudaDeviceSynchronize());
  std::printf("after\n");
}

template <class Launch>
void dies_with(cudaError_t error, Launch launch) {
  launch();
  RETURNS(cudaDeviceSynchronize(), error);
  void* p;
  RETURNS(cudaMalloc(&p, 4), error);
  increment<<<1, 1>>>();
  RETURNS(cudaGetLastError(), error);
  RETURNS(cudaDeviceSynchronize(), error);
}

TEST(failed_assertion) {
  dies_with(cudaErrorAssert, [] { must_be_one<<<2, 2>>>(0); });
}
TEST(kept_assertion) {
  must_be_one<<<2, 2>>>(1);
  OK(cudaDeviceSynchronize());
}
TEST(trapped) {
  dies_with(cudaErrorLaunchFailure, [] { trap<<<1, 1>>>(); });
}
TEST(illegal_address) {
  dies_with(cudaErrorIllegalAddress, [] { store<<<1, 1>>>(reinterpret_cast<int*>(0x10)); });
}
TEST(misaligned_address) {
  char* memory;
  OK(cudaMalloc(reinterpret_cast<void**>(&memory), 100));
  dies_with(cudaErrorMisalignedAddress, [&] { store<<<1, 1>>>(reinterpret_cast<int*>(memory + 1)); });
}

TEST(cooperative_launch) {
  int *values = device_copy(std::vector<int>(1024)), *total = device_copy(std::vector<int>(1));
  void* arguments[] = {&values, &total};
  OK(cudaLaunchCooperativeKernel(two_phases, dim3(8), dim3(128), arguments, 0, 0));
  CHECK(host_copy(total, 1)[0] == 1024);
  RETURNS(cudaLaunchCooperativeKernel(two_phases, dim3(100000), dim3(1024), arguments, 0, 0),
          cudaErrorCooperativeLaunchTooLarge);
}

TEST(extended_launch) {
  int* out = device_copy(std::vector<int>(1));
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(1);
  config.blockDim = dim3(32);
  OK(cudaLaunchKernelEx(&config, warp_sum, out));
  CHECK(host_copy(out, 1)[0] == 496);
}

TEST(streams_and_events) {
  cudaStream_t stream;
  cudaEvent_t start, end;
  OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  OK(cudaEventCreate(&start));
  OK(cudaEventCreate(&end));
  int* out = nullptr;
  int host = 0;
  OK(cudaMallocAsync(reinterpret_cast<void**>(&out), sizeof(int), stream));
  OK(cudaEventRecord(start, stream));
  warp_sum<<<1, 32, 0, stream>>>(out);
  OK(cudaEventRecord(end, stream));
  OK(cudaMemcpyAsync(&host, out, sizeof host, cudaMemcpyDeviceToHost, stream));
  OK(cudaFreeAsync(out, stream));
  OK(cudaStreamSynchronize(stream));
  CHECK(host == 496);
  float ms = -1;
  OK(cudaEventElapsedTime(&ms, start, end));
  CHECK(ms > 0);
}

TEST(memory_that_the_host_shares) {
  int *managed, *pinned;
  OK(cudaMallocManaged(&managed, 128));
  OK(cudaMallocHost(&pinned, 128));
  *managed = *pinned = 0;
  store<<<1, 1>>>(managed);
  store<<<1, 1>>>(pinned);
  OK(cudaDeviceSynchronize());
  CHECK(*managed == 3 && *pinned == 3);
  std::vector<int> local(4096);
  OK(cudaHostRegister(local.data(), local.size() * sizeof(int), cudaHostRegisterMapped));
  store<<<1, 1>>>(local.data());
  OK(cudaDeviceSynchronize());
  CHECK(local[0] == 3);
}

cudaTextureObject_t texture_over(cudaArray_t array, const cudaTextureDesc& sampling) {
  cudaResourceDesc resource{};
  resource.resType = cudaResourceTypeArray;
  resource.res.array.array = array;
  cudaTextureObject_t texture = 0;
  OK(cudaCreateTextureObject(&texture, &resource, &sampling, nullptr));
  return texture;
}

TEST(textures_in_two_dimensions) {
  const float host[2][3] = {{0, 10, 20}, {100, 110, 120}};
  const auto format = cudaCreateChannelDesc<float>();
  cudaArray_t array;
  OK(cudaMallocArray(&array, &format, 3, 2));
  OK(cudaMemcpy2DToArray(array, 0, 0, host, sizeof host[0], sizeof host[0], 2, cudaMemcpyHostToDevice));
  float back[2][3] = {};
  OK(cudaMemcpy2DFromArray(back, sizeof back[0], array, 0, 0, sizeof back[0], 2, cudaMemcpyDeviceToHost));
  CHECK(std::memcmp(host, back, sizeof host) == 0);
  cudaTextureDesc sampling{};
  sampling.addressMode[0] = cudaAddressModeClamp;
  sampling.addressMode[1] = cudaAddressModeBorder;
  sampling.filterMode = cudaFilterModeLinear;
  cudaTextureObject_t texture = texture_over(array, sampling);
  const float2* at =
      device_copy(std::vector<float2>{{0.5f, 0.5f}, {1, 0.5f}, {2.5f, 1}, {9, 1.5f}, {1.5f, 0}, {1.5f, 9}});
  float* out = device_copy(std::vector<float>(6));
  fetch_rows<<<1, 6>>>(texture, at, out);
  CHECK((host_copy(out, 6) == std::vector<float>{0, 5, 70, 120, 5, 0}));
  OK(cudaDestroyTextureObject(texture));
  OK(cudaFreeArray(array));
}

TEST(textures_of_colours) {
  const uchar4 host[2] = {{0, 51, 255, 0}, {255, 0, 102, 255}};
  const auto format = cudaCreateChannelDesc<uchar4>();
  cudaArray_t array;
  OK(cudaMallocArray(&array, &format, 2, 1));
  OK(cudaMemcpy2DToArray(array, 0, 0, host, sizeof host, sizeof host, 1, cudaMemcpyHostToDevice));
  cudaTextureDesc sampling{};
  sampling.addressMode[0] = sampling.addressMode[1] = cudaAddressModeWrap;
  sampling.readMode = cudaReadModeNormalizedFloat;
  sampling.normalizedCoords = 1;
  float4* out = device_copy(std::vector<float4>(1));
  fetch_colour<<<1, 1>>>(texture_over(array, sampling), out);
  const float4 colour = host_copy(out, 1)[0];
  CHECK(colour.x == 0 && colour.y == 0.2f && colour.z == 1 && colour.w == 0);
}

TEST(textures_in_three_dimensions) {
  std::vector<float> host(24);
  std::iota(host.begin(), host.end(), 0.f);
  const auto format = cudaCreateChannelDesc<float>();
  cudaArray_t array;
  OK(cudaMalloc3DArray(&array, &format, make_cudaExtent(4, 3, 2)));
  cudaMemcpy3DParms copy{};
  copy.srcPtr = make_cudaPitchedPtr(host.data(), 4 * sizeof(float), 4, 3);
  copy.dstArray = array;
  copy.extent = make_cudaExtent(4, 3, 2);
  copy.kind = cudaMemcpyHostToDevice;
  OK(cudaMemcpy3D(&copy));
  cudaTextureDesc sampling{};
  sampling.filterMode = cudaFilterModeLinear;
  float* out = device_copy(std::vector<float>(1));
  fetch_box<<<1, 1>>>(texture_over(array, sampling), out);
  CHECK(host_copy(out, 1)[0] == 4.5f);
}

TEST(textures_over_linear_memory) {
  cudaResourceDesc resource{};
  resource.resType = cudaResourceTypeLinear;
  resource.res.linear.devPtr = device_copy(std::vector<int>{3, -4, 5, 6});
  resource.res.linear.desc = cudaCreateChannelDesc<int>();
  resource.res.linear.sizeInBytes = 4 * sizeof(int);
  cudaTextureObject_t texture = 0;
  const cudaTextureDesc sampling{};
  OK(cudaCreateTextureObject(&texture, &resource, &sampling, nullptr));
  int* out = device_copy(std::vector<int>(4));
  fetch_line<<<1, 4>>>(texture, out);
  CHECK((host_copy(out, 4) == std::vector<int>{3, -4, 5, 6}));
}

#if defined(__NVCC__)
__managed__ int shared_variable = 11;
__global__ void bump() { ++shared_variable; }

TEST(managed_variable) {
  CHECK(shared_variable == 11);
  bump<<<1, 1>>>();
  OK(cudaDeviceSynchronize());
  CHECK(shared_variable == 12);
}
#endif
