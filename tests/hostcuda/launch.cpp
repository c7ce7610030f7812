// Launches of fake_core.cpp's kernels, registered as both compilers' code does it.
#include <sys/wait.h>
#include <unistd.h>

#include <thread>
#include <utility>
#include <vector>

#include "check.h"

extern "C" {
void** __cudaRegisterFatBinary(void*);
void __cudaRegisterFatBinaryEnd(void**);
void __cudaUnregisterFatBinary(void**);
void __cudaRegisterFunction(void**, const char*, char*, const char*, int, uint3*, uint3*, dim3*, dim3*, int*);
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int);
void __cudaRegisterManagedVar(void**, void**, char*, const char*, int, size_t, int, int);
char __cudaInitModule(void**);
unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, CUstream_st*);
cudaError_t __cudaPopCallConfiguration(dim3*, dim3*, size_t*, void*);
cudaError_t __cudaGetKernel(cudaKernel_t*, const void*);
cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, size_t, cudaStream_t);
}

namespace {

struct FatBinary {
  std::uint32_t magic = 0xba55ed50;
  std::uint16_t version = 1, header_size = 16;
  std::uint64_t size = 16;
  char body[16];
};

struct Wrapper {
  std::uint32_t magic = 0x466243b1, version = 1;
  const void* data;
  const void* more = nullptr;
};

// The hash of the first is in the store, that of the second is not.
const FatBinary captured{.body = "captured image"}, unknown{.body = "unknown image"};
Wrapper captured_wrapper{.data = &captured}, unknown_wrapper{.data = &unknown};

// What a host stub's address is to a kernel.
char fill, walk, last, counting, failing, bounded, refused, paired, quiet, uncaptured, absent, counter, table;
int *managed, *lost;
void **handle, **other;

__attribute__((constructor)) void register_all() {
  const auto kernel = [](void** image, char* stub, const char* name) {
    __cudaRegisterFunction(image, stub, stub, name, -1, nullptr, nullptr, nullptr, nullptr, nullptr);
  };
  handle = __cudaRegisterFatBinary(&captured_wrapper);
  kernel(handle, &fill, "_Z4fillPii");
  kernel(handle, &walk, "_Z4walkP4Node");
  kernel(handle, &last, "_Z4lastPi");
  kernel(handle, &counting, "_Z5countv");
  kernel(handle, &failing, "_Z4failii");
  kernel(handle, &bounded, "_Z7boundedv");
  kernel(handle, &refused, "_Z7refusedv");
  kernel(handle, &paired, "_Z4pairSt4pairIPimE");
  kernel(handle, &quiet, "_Z5quietv");  // nvcc's name for a static kernel
  kernel(handle, &absent, "_Z6absentv");
  __cudaRegisterVar(handle, &counter, &counter, "counter", 0, 4, 0, 0);
  __cudaRegisterVar(handle, &table, &table, "table", 0, 64, 1, 0);
  __cudaRegisterManagedVar(handle, reinterpret_cast<void**>(&managed), nullptr, "managed", 0, 4, 0, 0);
  __cudaRegisterFatBinaryEnd(handle);
  other = __cudaRegisterFatBinary(&unknown_wrapper);
  kernel(other, &uncaptured, "_Z10uncapturedi");
  __cudaRegisterManagedVar(other, reinterpret_cast<void**>(&lost), nullptr, "lost", 0, 4, 0, 0);
  __cudaRegisterFatBinaryEnd(other);
}

__attribute__((destructor)) void unregister_all() { __cudaUnregisterFatBinary(handle); }

template <class... Arguments>
cudaError_t launch(char* kernel, unsigned grid, unsigned block, std::size_t shared, Arguments... arguments) {
  void* pointers[] = {&arguments..., nullptr};
  return cudaLaunchKernel(kernel, dim3(grid), dim3(block), pointers, shared, 0);
}

struct Node {
  Node* next;
  long value;
};

Node* device_nodes(std::initializer_list<long> values) {
  Node* head = nullptr;
  for (const long value : values) {
    Node* node;
    OK(cudaMalloc(reinterpret_cast<void**>(&node), sizeof(Node)));
    const Node host{head, value};
    OK(cudaMemcpy(node, &host, sizeof host, cudaMemcpyHostToDevice));
    head = node;
  }
  return head;
}

}  // namespace

TEST(launch_by_stub) {
  int* out;
  int host[64];
  OK(cudaMalloc(reinterpret_cast<void**>(&out), sizeof host));
  OK(launch(&fill, 2, 32, 0, out, 7));
  OK(cudaMemcpy(host, out, sizeof host, cudaMemcpyDeviceToHost));
  CHECK(host[0] == 7 && host[63] == 7);
}

TEST(launch_as_clang_and_nvcc_do) {
  int* out;
  int host[2] = {}, value = 3;
  OK(cudaMalloc(reinterpret_cast<void**>(&out), sizeof host));
  void* arguments[] = {&out, &value};
  CHECK(__cudaPushCallConfiguration(dim3(1), dim3(2), 0, nullptr) == 0);
  dim3 grid(0), block(0);
  std::size_t shared = 1;
  cudaStream_t stream = cudaStreamPerThread;
  OK(__cudaPopCallConfiguration(&grid, &block, &shared, &stream));
  CHECK(grid.x == 1 && block.x == 2 && shared == 0 && stream == nullptr);
  RETURNS(__cudaPopCallConfiguration(&grid, &block, &shared, &stream), cudaErrorMissingConfiguration);
  cudaKernel_t kernel = nullptr;
  OK(__cudaGetKernel(&kernel, &fill));
  OK(__cudaLaunchKernel(kernel, dim3(1), dim3(2), arguments, 0, stream));
  OK(cudaMemcpy(host, out, sizeof host, cudaMemcpyDeviceToHost));
  CHECK(host[0] == 3 && host[1] == 3);
  value = 4;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(1);
  config.blockDim = dim3(1);
  OK(cudaLaunchKernelExC(&config, &fill, arguments));
  OK(cudaLaunchCooperativeKernel(static_cast<const void*>(&fill), dim3(1), dim3(1), arguments, 0, 0));
  OK(cudaMemcpy(host, out, sizeof host, cudaMemcpyDeviceToHost));
  CHECK(host[0] == 4 && host[1] == 3);
  const char* name;
  OK(cudaFuncGetName(&name, &fill));
  CHECK(std::string(name) == "_Z4fillPii");
  std::size_t offset = 0, size = 0;
  OK(cudaFuncGetParamInfo(&fill, 1, &offset, &size));
  CHECK(offset == 8 && size == 4);
}

TEST(symbols) {
  int value = -1;
  OK(cudaMemcpyFromSymbol(&value, static_cast<const void*>(&counter), 4));  // loads the module
  CHECK(value == 0);
  OK(launch(&counting, 1, 1, 0));
  OK(launch(&counting, 1, 1, 0));
  OK(cudaMemcpyFromSymbol(&value, static_cast<const void*>(&counter), 4));
  CHECK(value == 2);
  value = 40;
  OK(cudaMemcpyToSymbol(static_cast<const void*>(&counter), &value, 4));
  OK(launch(&counting, 1, 1, 0));
  void* address;
  OK(cudaGetSymbolAddress(&address, static_cast<const void*>(&counter)));
  OK(cudaMemcpy(&value, address, 4, cudaMemcpyDeviceToHost));
  CHECK(value == 41);
  std::size_t size = 0;
  OK(cudaGetSymbolSize(&size, static_cast<const void*>(&table)));
  CHECK(size == 64);
  char bytes[64];
  OK(cudaMemcpyFromSymbol(bytes, static_cast<const void*>(&table), 60, 4));
  CHECK(bytes[0] == 9 && bytes[59] == 9);
  RETURNS(cudaMemcpyFromSymbol(bytes, static_cast<const void*>(&table), 61, 4), cudaErrorInvalidValue);
  RETURNS(cudaMemcpyToSymbol(static_cast<const void*>(&table), bytes, 65), cudaErrorInvalidValue);
  RETURNS(cudaMemcpyToSymbol(static_cast<const void*>(&table), bytes, 4, 0, cudaMemcpyDeviceToHost),
          cudaErrorInvalidMemcpyDirection);
  OK(cudaDeviceReset());
  OK(cudaMemcpyFromSymbol(&value, static_cast<const void*>(&counter), 4));
  CHECK(value == 0);
}

TEST(managed_variables) {
  CHECK(__cudaInitModule(handle) != 0);
  CHECK(*managed == 0x05050505);  // the module's initial value
  *managed = 12;
  void* address;
  OK(cudaGetSymbolAddress(&address, static_cast<const void*>(managed)));
  CHECK(address == managed);
}

TEST(a_managed_variable_without_a_module) {
  __cudaInitModule(other);
  CHECK(*lost == 0);
  *lost = 1;
}

TEST(geometry) {
  RETURNS(launch(&counting, 0, 1, 0), cudaErrorInvalidConfiguration);
  RETURNS(cudaGetLastError(), cudaErrorInvalidConfiguration);
  OK(cudaGetLastError());
  RETURNS(launch(&counting, 1, 0, 0), cudaErrorInvalidConfiguration);
  RETURNS(launch(&counting, 1, 1025, 0), cudaErrorInvalidConfiguration);
  RETURNS(cudaLaunchKernel(static_cast<const void*>(&counting), dim3(1, 65536), dim3(1), nullptr, 0, 0),
          cudaErrorInvalidConfiguration);
  RETURNS(cudaLaunchKernel(static_cast<const void*>(&counting), dim3(1), dim3(1, 1, 65), nullptr, 0, 0),
          cudaErrorInvalidConfiguration);
  OK(launch(&bounded, 1, 128, 0));
  OK(launch(&counting, 1, 32, 48 * 1024));
  RETURNS(launch(&counting, 1, 32, 48 * 1024 + 4), cudaErrorInvalidValue);
  OK(cudaFuncSetAttribute(static_cast<const void*>(&counting), cudaFuncAttributeMaxDynamicSharedMemorySize,
                          100 * 1024));
  OK(launch(&counting, 1, 32, 100 * 1024));
  RETURNS(cudaFuncSetAttribute(static_cast<const void*>(&counting), cudaFuncAttributeMaxDynamicSharedMemorySize,
                               228 * 1024),
          cudaErrorInvalidValue);
  RETURNS(cudaLaunchCooperativeKernel(static_cast<const void*>(&counting), dim3(100000), dim3(1024), nullptr, 0, 0),
          cudaErrorCooperativeLaunchTooLarge);
  OK(cudaDeviceSynchronize());
}

TEST(occupancy) {
  const auto blocks = [](const char* kernel, int threads, std::size_t shared) {
    int value = -1;
    OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&value, static_cast<const void*>(kernel), threads, shared));
    return value;
  };
  CHECK(blocks(&counting, 1, 0) == 32);
  CHECK(blocks(&counting, 65, 0) == 21);
  CHECK(blocks(&counting, 1024, 0) == 2);
  CHECK(blocks(&counting, 64, 32768) == 6);
  CHECK(blocks(&bounded, 128, 0) == 13);  // 16 KiB of static shared memory
  cudaFuncAttributes a;
  OK(cudaFuncGetAttributes(&a, static_cast<const void*>(&bounded)));
  CHECK(a.maxThreadsPerBlock == 128 && a.sharedSizeBytes == 16384 && a.ptxVersion == 90 && a.binaryVersion == 90);
  CHECK(a.maxDynamicSharedSizeBytes == 32768);
}

TEST(static_kernels_of_nvcc) { OK(launch(&quiet, 1, 1, 0)); }

TEST(a_refused_kernel) {
  RETURNS(launch(&refused, 1, 1, 0), cudaErrorNotSupported);
  RETURNS(launch(&refused, 1, 1, 0), cudaErrorNotSupported);
  RETURNS(cudaGetLastError(), cudaErrorNotSupported);
  OK(cudaDeviceSynchronize());  // the context lives
}

TEST(a_kernel_without_a_module) {
  RETURNS(launch(&uncaptured, 1, 1, 0, 1), cudaErrorNoKernelImageForDevice);
  RETURNS(launch(&uncaptured, 1, 1, 0, 1), cudaErrorNoKernelImageForDevice);
  OK(launch(&counting, 1, 1, 0));
}

TEST(a_kernel_that_the_module_lacks) { RETURNS(launch(&absent, 1, 1, 0), cudaErrorInvalidDeviceFunction); }

TEST(a_module_that_cannot_load) { RETURNS(launch(&counting, 1, 1, 0), cudaErrorInvalidKernelImage); }
TEST(no_engine) { RETURNS(launch(&counting, 1, 1, 0), cudaErrorInitializationError); }

// An error in a kernel shows after the launch and stays.
TEST(sticky_errors) {
  const std::pair<int, cudaError_t> expected[] = {{1, cudaErrorAssert},         {2, cudaErrorLaunchFailure},
                                                  {3, cudaErrorIllegalAddress}, {4, cudaErrorMisalignedAddress},
                                                  {5, cudaErrorLaunchTimeout},  {6, cudaErrorHardwareStackError}};
  for (const auto& [status, error] : expected) {
    const pid_t child = fork();
    if (child == 0) {
      void* p;
      OK(launch(&failing, 1, 1, 0, status));
      RETURNS(cudaDeviceSynchronize(), error);
      RETURNS(cudaGetLastError(), error);
      OK(cudaPeekAtLastError());
      RETURNS(cudaMalloc(&p, 4), error);
      RETURNS(launch(&counting, 1, 1, 0), error);
      RETURNS(cudaGetLastError(), error);
      int value;
      OK(cudaGetDevice(&value));
      OK(cudaGetDeviceCount(&value));
      OK(cudaDeviceReset());
      RETURNS(cudaMalloc(&p, 4), cudaErrorDevicesUnavailable);
      _exit(0);
    }
    int result = -1;
    waitpid(child, &result, 0);
    CHECK(result == 0);
  }
}

TEST(launches_that_never_began_leave_the_context) {
  RETURNS(launch(&failing, 1, 1, 0, 7), cudaErrorNotSupported);
  RETURNS(launch(&failing, 1, 1, 0, 8), cudaErrorInvalidConfiguration);
  OK(cudaDeviceSynchronize());
}

TEST(many_threads) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([t] {
      cudaStream_t stream;
      OK(cudaStreamCreate(&stream));
      for (int i = 0; i < 100; ++i) {
        int *out, host[32];
        OK(cudaMallocAsync(reinterpret_cast<void**>(&out), sizeof host, stream));
        OK(launch(&fill, 1, 32, 0, out, t));
        OK(cudaMemcpyAsync(host, out, sizeof host, cudaMemcpyDeviceToHost, stream));
        OK(cudaFreeAsync(out, stream));
        CHECK(host[0] == t && host[31] == t);
        RETURNS(cudaSetDevice(t + 1), cudaErrorInvalidDevice);
        RETURNS(cudaGetLastError(), cudaErrorInvalidDevice);  // each thread's own
      }
      OK(cudaStreamDestroy(stream));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(accesses_are_checked) {
  int* out;
  OK(cudaMalloc(reinterpret_cast<void**>(&out), 128));
  OK(launch(&fill, 1, 32, 0, out, 1));
  OK(cudaDeviceSynchronize());
  OK(launch(&fill, 1, 33, 0, out, 1));
  RETURNS(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
}

// To be recorded.

TEST(record_pointers_in_memory) {
  void* unrelated;
  OK(cudaMalloc(&unrelated, 4096));
  OK(launch(&walk, 1, 1, 0, device_nodes({1, 20, 300})));
}

TEST(record_distinct_launches) {
  int* out;
  OK(cudaMalloc(reinterpret_cast<void**>(&out), 4096));
  for (int i = 0; i < 3; ++i) OK(launch(&fill, 1, 32, 0, out, 5));
  for (int i = 0; i < 3; ++i) OK(launch(&fill, 1, 64, 0, out, 5));
  for (int i = 0; i < 3; ++i) OK(launch(&fill, 1, 64, 0, out, 6));
  for (int i = 0; i < 10; ++i) OK(launch(&fill, 2, 64, 0, out, i));
  int* another;
  OK(cudaMalloc(reinterpret_cast<void**>(&another), 4096));
  OK(launch(&fill, 1, 32, 0, another, 5));  // the same but for the pointer
}

TEST(record_variables) {
  std::printf("first\n");
  OK(launch(&counting, 1, 1, 0));
  std::printf("last\n");
}

TEST(record_an_aggregate) {
  int* out;
  OK(cudaMalloc(reinterpret_cast<void**>(&out), 64));
  OK(launch(&paired, 1, 1, 0, std::pair<int*, unsigned long>(out, 77)));
}

TEST(record_a_pointer_past_the_end) {
  int* out;
  OK(cudaMalloc(reinterpret_cast<void**>(&out), 4096));
  OK(launch(&last, 1, 1, 0, out + 1024));
}

TEST(record_large_memory) {
  int* out;
  OK(cudaMalloc(reinterpret_cast<void**>(&out), 1 << 20));
  OK(launch(&fill, 1, 100, 0, out, 1));
}

TEST(record_refusals) {
  char* registered = static_cast<char*>(std::malloc(4096));
  OK(cudaHostRegister(registered, 4096, 0));
  OK(launch(&fill, 1, 1, 0, reinterpret_cast<int*>(registered), 1));
  RETURNS(launch(&refused, 1, 1, 0), cudaErrorNotSupported);
  RETURNS(launch(&uncaptured, 1, 1, 0, 1), cudaErrorNoKernelImageForDevice);
  RETURNS(launch(&counting, 1, 1, 50000), cudaErrorInvalidValue);
  OK(launch(&failing, 1, 1, 0, 1));
}

TEST(record_nothing) { OK(cudaDeviceSynchronize()); }

TEST(record_in_a_child) {
  if (fork() == 0) std::exit(0);
  wait(nullptr);
}
