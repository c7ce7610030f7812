// What can be asked of the runtime without a kernel. Every expectation was checked against NVIDIA's runtime on an H200,
// but for those under `#ifndef REAL_DEVICE`, which are the host device's own.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <vector>

#include "check.h"

TEST(devices) {
  int value = -1;
  OK(cudaGetDeviceCount(&value));
  CHECK(value == 1);
  OK(cudaSetDevice(0));
  OK(cudaGetDevice(&value));
  CHECK(value == 0);
  RETURNS(cudaSetDevice(99), cudaErrorInvalidDevice);
  RETURNS(cudaSetDevice(-1), cudaErrorInvalidDevice);
  RETURNS(cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, 4), cudaErrorInvalidDevice);
  RETURNS(cudaDeviceGetAttribute(&value, static_cast<cudaDeviceAttr>(4000), 0), cudaErrorInvalidValue);
  OK(cudaDriverGetVersion(&value));
  CHECK(value >= 13000);
  OK(cudaRuntimeGetVersion(&value));
  CHECK(value >= 13000 && value < 14000);
  char id[32];
  OK(cudaDeviceGetPCIBusId(id, sizeof id, 0));
  OK(cudaDeviceGetByPCIBusId(&value, id));
  CHECK(value == 0);
}

TEST(properties_agree_with_attributes) {
  cudaDeviceProp p;
  OK(cudaGetDeviceProperties(&p, 0));
  CHECK(p.major == 9 && p.minor == 0);
  const auto attribute = [](cudaDeviceAttr which) {
    int value = -1;
    OK(cudaDeviceGetAttribute(&value, which, 0));
    return value;
  };
  CHECK(attribute(cudaDevAttrComputeCapabilityMajor) == p.major);
  CHECK(attribute(cudaDevAttrWarpSize) == p.warpSize && p.warpSize == 32);
  CHECK(attribute(cudaDevAttrMultiProcessorCount) == p.multiProcessorCount && p.multiProcessorCount == 132);
  CHECK(attribute(cudaDevAttrMaxThreadsPerBlock) == p.maxThreadsPerBlock && p.maxThreadsPerBlock == 1024);
  CHECK(attribute(cudaDevAttrMaxBlockDimZ) == p.maxThreadsDim[2] && p.maxThreadsDim[2] == 64);
  CHECK(attribute(cudaDevAttrMaxGridDimX) == p.maxGridSize[0] && p.maxGridSize[0] == 2147483647);
  CHECK(attribute(cudaDevAttrMaxSharedMemoryPerBlock) == static_cast<int>(p.sharedMemPerBlock));
  CHECK(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin) == static_cast<int>(p.sharedMemPerBlockOptin));
  CHECK(p.sharedMemPerBlockOptin == 232448 && p.sharedMemPerMultiprocessor == 233472);
  CHECK(attribute(cudaDevAttrMaxRegistersPerBlock) == p.regsPerBlock && p.regsPerBlock == 65536);
  CHECK(attribute(cudaDevAttrL2CacheSize) == p.l2CacheSize && p.l2CacheSize == 62914560);
  CHECK(attribute(cudaDevAttrCooperativeLaunch) == p.cooperativeLaunch && p.cooperativeLaunch == 1);
  CHECK(attribute(cudaDevAttrManagedMemory) == 1 && attribute(cudaDevAttrMemoryPoolsSupported) == 1);
  std::size_t free = 0, total = 0;
  OK(cudaMemGetInfo(&free, &total));
  CHECK(free > 0 && free <= total);
  CHECK(std::strlen(p.name) > 0);
}

TEST(limits) {
  std::size_t value = 0;
  OK(cudaDeviceGetLimit(&value, cudaLimitStackSize));
  CHECK(value == 1024);
  OK(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 16 << 20));
  OK(cudaDeviceGetLimit(&value, cudaLimitMallocHeapSize));
  CHECK(value >= 16 << 20);
  RETURNS(cudaDeviceGetLimit(&value, cudaLimitDevRuntimeSyncDepth), cudaErrorUnsupportedLimit);
  cudaFuncCache cache;
  OK(cudaDeviceSetCacheConfig(cudaFuncCachePreferL1));
  OK(cudaDeviceGetCacheConfig(&cache));
  CHECK(cache == cudaFuncCachePreferL1);
  int least = 1, greatest = 1;
  OK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  CHECK(least == 0 && greatest == -5);
}

TEST(peers) {
  int can = 1;
  OK(cudaDeviceCanAccessPeer(&can, 0, 0));
  CHECK(can == 0);
  RETURNS(cudaDeviceEnablePeerAccess(0, 0), cudaErrorPeerAccessUnsupported);
}

TEST(last_error) {
  int value;
  OK(cudaGetLastError());
  RETURNS(cudaSetDevice(99), cudaErrorInvalidDevice);
  OK(cudaGetDevice(&value));  // a success does not clear it
  RETURNS(cudaPeekAtLastError(), cudaErrorInvalidDevice);
  RETURNS(cudaGetLastError(), cudaErrorInvalidDevice);
  OK(cudaGetLastError());
  CHECK(std::string(cudaGetErrorName(cudaErrorMemoryAllocation)) == "cudaErrorMemoryAllocation");
  CHECK(std::string(cudaGetErrorString(cudaErrorMemoryAllocation)) == "out of memory");
  CHECK(std::string(cudaGetErrorString(cudaSuccess)) == "no error");
  CHECK(std::string(cudaGetErrorString(cudaErrorIllegalAddress)) == "an illegal memory access was encountered");
  CHECK(std::string(cudaGetErrorName(static_cast<cudaError_t>(12345))) == "unrecognized error code");
}

TEST(allocation) {
  void* p = reinterpret_cast<void*>(1);
  OK(cudaMalloc(&p, 0));
  CHECK(p == nullptr);
  RETURNS(cudaMalloc(&p, std::size_t{1} << 45), cudaErrorMemoryAllocation);
  RETURNS(cudaMalloc(static_cast<void**>(nullptr), 4), cudaErrorInvalidValue);
  OK(cudaMalloc(&p, 100));
  CHECK(reinterpret_cast<std::uintptr_t>(p) % 256 == 0);
  RETURNS(cudaFree(static_cast<char*>(p) + 4), cudaErrorInvalidValue);
  RETURNS(cudaFreeHost(p), cudaErrorInvalidValue);
  OK(cudaFree(p));
  RETURNS(cudaFree(p), cudaErrorInvalidValue);
  OK(cudaFree(nullptr));
  OK(cudaMallocHost(&p, 100));
  std::memset(p, 7, 100);
  RETURNS(cudaFree(p), cudaErrorInvalidValue);
  OK(cudaFreeHost(p));
  RETURNS(cudaFreeHost(p), cudaErrorInvalidValue);
  OK(cudaFreeHost(nullptr));
  RETURNS(cudaMallocManaged(&p, 10, 7), cudaErrorInvalidValue);
  OK(cudaMallocManaged(&p, 10));
  static_cast<char*>(p)[9] = 1;
  OK(cudaFree(p));
  OK(cudaHostAlloc(&p, 64, cudaHostAllocMapped));
  unsigned flags = 0;
  OK(cudaHostGetFlags(&flags, p));
  CHECK(flags & cudaHostAllocMapped);
  void* device = nullptr;
  OK(cudaHostGetDevicePointer(&device, p, 0));
  CHECK(device == p);
  OK(cudaFreeHost(p));
}

TEST(stream_ordered_allocation) {
  void* p = nullptr;
  cudaStream_t stream;
  OK(cudaStreamCreate(&stream));
  OK(cudaMallocAsync(&p, 64, stream));
  OK(cudaMemsetAsync(p, 3, 64, stream));
  OK(cudaFreeAsync(p, stream));
  RETURNS(cudaFreeAsync(p, stream), cudaErrorInvalidValue);
  OK(cudaFreeAsync(nullptr, stream));
  OK(cudaMallocAsync(&p, 64, stream));
  OK(cudaStreamSynchronize(stream));
  OK(cudaFree(p));

  cudaMemPool_t pool, other;
  OK(cudaDeviceGetDefaultMemPool(&pool, 0));
  OK(cudaDeviceGetMemPool(&other, 0));
  CHECK(pool == other);
  std::uint64_t threshold = 1 << 20;
  OK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
  threshold = 0;
  OK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
  CHECK(threshold == 1 << 20);
  int reuse = 0;
  OK(cudaMemPoolGetAttribute(pool, cudaMemPoolReuseAllowOpportunistic, &reuse));
  CHECK(reuse == 1);
  cudaMemPoolProps props{};
  props.allocType = cudaMemAllocationTypePinned;
  props.location.type = cudaMemLocationTypeDevice;
  OK(cudaMemPoolCreate(&other, &props));
  OK(cudaMallocFromPoolAsync(&p, 128, other, stream));
  OK(cudaFreeAsync(p, stream));
  OK(cudaStreamSynchronize(stream));
  OK(cudaMemPoolTrimTo(other, 0));
  OK(cudaMemPoolDestroy(other));
  OK(cudaStreamDestroy(stream));
}

TEST(copies) {
  char host[4096], back[4096] = {};
  for (int i = 0; i < 4096; ++i) host[i] = static_cast<char>(i * 7);
  void *p, *q;
  OK(cudaMalloc(&p, 1000));
  OK(cudaMalloc(&q, 1000));
  OK(cudaMemcpy(p, host, 1000, cudaMemcpyHostToDevice));
  OK(cudaMemcpy(q, p, 1000, cudaMemcpyDeviceToDevice));
  OK(cudaMemcpy(back, q, 1000, cudaMemcpyDeviceToHost));
  CHECK(std::memcmp(host, back, 1000) == 0);
  OK(cudaMemcpy(back, p, 1000, cudaMemcpyDefault));
  OK(cudaMemcpyAsync(p, host + 5, 100, cudaMemcpyHostToDevice, 0));
  OK(cudaMemcpy(back, p, 100, cudaMemcpyDeviceToHost));
  CHECK(std::memcmp(host + 5, back, 100) == 0);
  OK(cudaMemset(p, 0x5a, 10));
  OK(cudaMemcpy(back, p, 11, cudaMemcpyDeviceToHost));
  CHECK(back[0] == 0x5a && back[9] == 0x5a && back[10] == host[15]);

  RETURNS(cudaMemcpy(p, host, 1000, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  RETURNS(cudaMemcpy(p, host, 1000, static_cast<cudaMemcpyKind>(7)), cudaErrorInvalidMemcpyDirection);
  RETURNS(cudaMemcpy(p, host, 4096, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  RETURNS(cudaMemcpy(nullptr, host, 10, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  RETURNS(cudaMemcpy(p, nullptr, 10, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  OK(cudaMemcpy(p, nullptr, 0, cudaMemcpyHostToDevice));
  RETURNS(cudaMemcpy(p, host, 10, cudaMemcpyDeviceToDevice), cudaErrorInvalidValue);
  RETURNS(cudaMemcpy(host, host + 100, 10, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  OK(cudaMemcpy(host, host + 100, 10, cudaMemcpyDefault));
  RETURNS(cudaMemset(host, 0, 10), cudaErrorInvalidValue);
  RETURNS(cudaMemset(p, 0, 1001), cudaErrorInvalidValue);
  RETURNS(cudaMemset(nullptr, 0, 1), cudaErrorInvalidValue);
  OK(cudaMemset(nullptr, 0, 0));
  OK(cudaFree(p));
  RETURNS(cudaMemcpy(p, host, 10, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
}

TEST(pitched_copies) {
  std::size_t pitch = 0;
  void* p;
  OK(cudaMallocPitch(&p, &pitch, 513, 10));
  CHECK(pitch == 1024);
  OK(cudaFree(p));
  OK(cudaMallocPitch(&p, &pitch, 100, 10));
  CHECK(pitch == 512);
  unsigned char host[10][100], back[10][100] = {};
  for (int i = 0; i < 1000; ++i) host[i / 100][i % 100] = static_cast<unsigned char>(i * 13);
  OK(cudaMemcpy2D(p, pitch, host, 100, 100, 10, cudaMemcpyHostToDevice));
  OK(cudaMemcpy2DAsync(back, 100, p, pitch, 100, 10, cudaMemcpyDeviceToHost, 0));
  OK(cudaDeviceSynchronize());
  CHECK(std::memcmp(host, back, sizeof host) == 0);
  OK(cudaMemset2D(static_cast<char*>(p) + 2, pitch, 9, 3, 2));
  OK(cudaMemcpy2D(back, 100, p, pitch, 100, 10, cudaMemcpyDeviceToHost));
  CHECK(back[0][1] == host[0][1] && back[0][2] == 9 && back[1][4] == 9 && back[1][5] == host[1][5] &&
        back[2][2] == host[2][2]);
  RETURNS(cudaMemcpy2D(p, 50, host, 100, 100, 2, cudaMemcpyHostToDevice), cudaErrorInvalidPitchValue);
  RETURNS(cudaMemcpy2D(p, pitch, host, 50, 100, 2, cudaMemcpyHostToDevice), cudaErrorInvalidPitchValue);
  OK(cudaMemcpy2D(p, pitch, host, 100, 100, 0, cudaMemcpyHostToDevice));
  RETURNS(cudaMemset2D(p, 10, 0, 20, 2), cudaErrorInvalidValue);
  RETURNS(cudaMemcpy2D(p, pitch, host, 100, 100, 11, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
}

TEST(copies_in_three_dimensions) {
  cudaPitchedPtr box;
  OK(cudaMalloc3D(&box, make_cudaExtent(100, 5, 3)));
  CHECK(box.pitch == 512 && box.xsize == 100 && box.ysize == 5);
  OK(cudaMemset3D(box, 1, make_cudaExtent(100, 5, 3)));
  unsigned char host[3][5][100], back[3][5][100] = {};
  for (int i = 0; i < 1500; ++i) (&host[0][0][0])[i] = static_cast<unsigned char>(i * 31);
  cudaMemcpy3DParms in{};
  in.srcPtr = make_cudaPitchedPtr(host, 100, 100, 5);
  in.dstPtr = box;
  in.srcPos = make_cudaPos(10, 1, 1);
  in.dstPos = make_cudaPos(20, 2, 0);
  in.extent = make_cudaExtent(50, 3, 2);
  in.kind = cudaMemcpyHostToDevice;
  OK(cudaMemcpy3D(&in));
  cudaMemcpy3DParms out{};
  out.srcPtr = box;
  out.dstPtr = make_cudaPitchedPtr(back, 100, 100, 5);
  out.extent = make_cudaExtent(100, 5, 3);
  out.kind = cudaMemcpyDeviceToHost;
  OK(cudaMemcpy3DAsync(&out, 0));
  OK(cudaDeviceSynchronize());
  for (int z = 0; z < 3; ++z) {
    for (int y = 0; y < 5; ++y) {
      for (int x = 0; x < 100; ++x) {
        const bool inside = x >= 20 && x < 70 && y >= 2 && z < 2;
        CHECK(back[z][y][x] == (inside ? host[z + 1][y - 1][x - 10] : 1));
      }
    }
  }
}

TEST(pointer_attributes) {
  char local[4096];
  void *device, *pinned, *managed;
  OK(cudaMalloc(&device, 100));
  OK(cudaMallocHost(&pinned, 100));
  OK(cudaMallocManaged(&managed, 100));
  cudaPointerAttributes a;
  OK(cudaPointerGetAttributes(&a, local));
  CHECK(a.type == cudaMemoryTypeUnregistered && a.device == cudaInvalidDeviceId && !a.devicePointer &&
        a.hostPointer == local);
  OK(cudaPointerGetAttributes(&a, static_cast<char*>(device) + 5));
  CHECK(a.type == cudaMemoryTypeDevice && a.device == 0 && a.devicePointer == static_cast<char*>(device) + 5 &&
        !a.hostPointer);
  OK(cudaPointerGetAttributes(&a, pinned));
  CHECK(a.type == cudaMemoryTypeHost && a.devicePointer == pinned && a.hostPointer == pinned);
  OK(cudaPointerGetAttributes(&a, managed));
  CHECK(a.type == cudaMemoryTypeManaged && a.devicePointer == managed && a.hostPointer == managed);
  RETURNS(cudaPointerGetAttributes(nullptr, pinned), cudaErrorInvalidValue);

  OK(cudaHostRegister(local, sizeof local, 0));
  RETURNS(cudaHostRegister(local, sizeof local, 0), cudaErrorHostMemoryAlreadyRegistered);
  void* mapped;
  OK(cudaHostGetDevicePointer(&mapped, local, 0));
  CHECK(mapped == local);
  OK(cudaMemset(mapped, 4, 10));
  OK(cudaDeviceSynchronize());
  CHECK(local[9] == 4);
  RETURNS(cudaHostGetDevicePointer(&mapped, device, 0), cudaErrorInvalidValue);
  OK(cudaHostUnregister(local));
  RETURNS(cudaHostUnregister(local), cudaErrorHostMemoryNotRegistered);
}

TEST(streams) {
  cudaStream_t stream, urgent;
  OK(cudaStreamCreate(&stream));
  OK(cudaStreamCreateWithPriority(&urgent, cudaStreamNonBlocking, -100));
  int priority = 1;
  OK(cudaStreamGetPriority(urgent, &priority));
  CHECK(priority == -5);
  unsigned flags = 9;
  OK(cudaStreamGetFlags(urgent, &flags));
  CHECK(flags == cudaStreamNonBlocking);
  OK(cudaStreamGetFlags(0, &flags));
  CHECK(flags == 0);
  unsigned long long a = 0, b = 0;
  OK(cudaStreamGetId(stream, &a));
  OK(cudaStreamGetId(urgent, &b));
  CHECK(a != b);
  RETURNS(cudaStreamCreateWithFlags(&urgent, 99), cudaErrorInvalidValue);
  OK(cudaStreamQuery(stream));
  OK(cudaStreamSynchronize(cudaStreamPerThread));
  OK(cudaStreamSynchronize(cudaStreamLegacy));
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusActive;
  OK(cudaStreamIsCapturing(stream, &status));
  CHECK(status == cudaStreamCaptureStatusNone);
  static int called = 0;
  OK(cudaLaunchHostFunc(stream, [](void* by) { called += *static_cast<int*>(by); }, &(priority = 5)));
  OK(cudaStreamAddCallback(
      stream, [](cudaStream_t, cudaError_t error, void*) { called += error == cudaSuccess; }, nullptr, 0));
  OK(cudaStreamSynchronize(stream));
  CHECK(called == 6);
  RETURNS(cudaLaunchHostFunc(0, nullptr, nullptr), cudaErrorInvalidValue);
  RETURNS(cudaStreamDestroy(0), cudaErrorInvalidResourceHandle);
  OK(cudaStreamDestroy(stream));
}

TEST(events) {
  cudaStream_t stream;
  cudaEvent_t start, end, untimed;
  float ms = -1;
  OK(cudaStreamCreate(&stream));
  OK(cudaEventCreate(&start));
  OK(cudaEventCreate(&end));
  RETURNS(cudaEventElapsedTime(&ms, start, end), cudaErrorInvalidResourceHandle);
  OK(cudaEventQuery(start));
  OK(cudaEventSynchronize(start));
  OK(cudaStreamWaitEvent(stream, start));
  OK(cudaEventRecord(start, stream));
  OK(cudaEventRecord(end));
  OK(cudaEventSynchronize(end));
  OK(cudaEventElapsedTime(&ms, start, end));
  CHECK(ms >= 0 && ms < 10000);
  OK(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming));
  OK(cudaEventRecord(untimed));
  RETURNS(cudaEventElapsedTime(&ms, start, untimed), cudaErrorInvalidResourceHandle);
  RETURNS(cudaEventCreateWithFlags(&untimed, 99), cudaErrorInvalidValue);
  RETURNS(cudaEventRecord(nullptr), cudaErrorInvalidResourceHandle);
  RETURNS(cudaEventDestroy(nullptr), cudaErrorInvalidResourceHandle);
  OK(cudaEventDestroy(start));
}

TEST(managed_memory_hints) {
  void* p;
  OK(cudaMallocManaged(&p, 1 << 20));
  cudaMemLocation location{};
  location.type = cudaMemLocationTypeDevice;
  OK(cudaMemAdvise(p, 1 << 20, cudaMemAdviseSetReadMostly, location));
  OK(cudaMemPrefetchAsync(p, 1 << 20, location, 0, 0));
  OK(cudaDeviceSynchronize());
  static_cast<int*>(p)[1000] = 4;
  OK(cudaFree(p));
}

TEST(device_reset) {
  void* p;
  OK(cudaMalloc(&p, 100));
  OK(cudaDeviceReset());
  RETURNS(cudaFree(p), cudaErrorInvalidValue);
  OK(cudaMalloc(&p, 100));
  OK(cudaFree(p));
}

TEST(unknown_kernels_and_symbols) {
  static int local;
  void* p;
  std::size_t size;
  RETURNS(cudaGetSymbolAddress(&p, static_cast<const void*>(&local)), cudaErrorInvalidSymbol);
  RETURNS(cudaGetSymbolSize(&size, static_cast<const void*>(&local)), cudaErrorInvalidSymbol);
  RETURNS(cudaMemcpyToSymbol(static_cast<const void*>(&local), &size, 4), cudaErrorInvalidSymbol);
  cudaFuncAttributes attributes;
  RETURNS(cudaFuncGetAttributes(&attributes, static_cast<const void*>(&local)), cudaErrorInvalidResourceHandle);
  RETURNS(cudaLaunchKernel(static_cast<const void*>(&local), dim3(1), dim3(1), nullptr, 0, 0),
          cudaErrorInvalidResourceHandle);
  RETURNS(cudaLaunchKernel(static_cast<const void*>(nullptr), dim3(1), dim3(1), nullptr, 0, 0),
          cudaErrorInvalidDeviceFunction);
  RETURNS(cudaGetLastError(), cudaErrorInvalidDeviceFunction);
}

#ifndef REAL_DEVICE
TEST(memory_lies_in_the_arena_and_comes_back_zeroed) {
  char *p, *q;
  OK(cudaMalloc(reinterpret_cast<void**>(&p), 5000));
  OK(cudaMalloc(reinterpret_cast<void**>(&q), 5000));
  CHECK(reinterpret_cast<std::uintptr_t>(p) == 0x300000000000);
  CHECK(q == p + 3 * 4096);  // two pages and a guard
  OK(cudaMemset(p, 1, 5000));
  OK(cudaFree(p));
  OK(cudaMalloc(reinterpret_cast<void**>(&p), 100));
  CHECK(reinterpret_cast<std::uintptr_t>(p) == 0x300000000000 && p[0] == 0);
}

TEST(a_guard_page_follows_each_allocation) {
  char *p, *q;
  OK(cudaMalloc(reinterpret_cast<void**>(&p), 4096));
  OK(cudaMalloc(reinterpret_cast<void**>(&q), 4096));
  CHECK(q == p + 8192);
  p[4095] = q[0] = 1;
  const pid_t child = fork();
  if (child == 0) {
    static_cast<volatile char*>(p)[4096] = 1;
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

TEST(many_allocations) {
  std::vector<void*> blocks(20000);
  for (void*& block : blocks) OK(cudaMalloc(&block, 100));
  for (std::size_t i = 0; i < blocks.size(); i += 2) OK(cudaFree(blocks[i]));
  void* p;
  OK(cudaMalloc(&p, 100));
  CHECK(p == blocks[0]);  // first fit
  OK(cudaMalloc(&p, 5000));
  CHECK(p > blocks.back());
  for (std::size_t i = 1; i < blocks.size(); i += 2) OK(cudaFree(blocks[i]));
}

TEST(out_of_memory_is_the_machines) {
  std::size_t free = 0, total = 0;
  void* p;
  OK(cudaMalloc(&p, 1 << 20));
  OK(cudaMemGetInfo(&free, &total));
  CHECK(total - free == 1 << 20);
  RETURNS(cudaMalloc(&p, free + 1), cudaErrorMemoryAllocation);
  OK(cudaMalloc(&p, free));
  RETURNS(cudaMalloc(&p, 1), cudaErrorMemoryAllocation);
}

TEST(unsupported_calls_name_themselves_once) {
  cudaGraph_t graph;
  RETURNS(cudaGraphCreate(&graph, 0), cudaErrorNotSupported);
  RETURNS(cudaGraphCreate(&graph, 0), cudaErrorNotSupported);
  RETURNS(cudaStreamBeginCapture(0, cudaStreamCaptureModeGlobal), cudaErrorNotSupported);
  RETURNS(cudaGetLastError(), cudaErrorNotSupported);
}

TEST(dead_streams_and_events_are_noticed) {
  cudaStream_t stream;
  cudaEvent_t event;
  OK(cudaStreamCreate(&stream));
  OK(cudaStreamDestroy(stream));
  RETURNS(cudaStreamSynchronize(stream), cudaErrorInvalidResourceHandle);
  RETURNS(cudaStreamDestroy(stream), cudaErrorInvalidResourceHandle);
  OK(cudaEventCreate(&event));
  OK(cudaEventDestroy(event));
  RETURNS(cudaEventRecord(event), cudaErrorInvalidResourceHandle);
}

TEST(every_error_has_a_text) {
  int known = 0;
  for (int code = 0; code < 1000; ++code) {
    known += std::string(cudaGetErrorName(static_cast<cudaError_t>(code))) != "unrecognized error code";
  }
  CHECK(known >= 129);
}
#endif
