// Small applications: `application NAME` is one.
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <thread>

#include "driver.h"

namespace {

constexpr std::uint64_t n = 3000;

struct Node {
  CUdeviceptr next;
  std::uint64_t value;
  std::byte rest[8176];  // so that the next one is out of a pointer's reach
};

struct View {
  CUdeviceptr data;
  std::uint32_t n, stride;
};

std::vector<float> ramp(float from) {
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = from + static_cast<float>(i);
  return values;
}

void nothing() { std::puts("no CUDA here"); }

void saxpy() {
  start();
  const CUdeviceptr x = upload(ramp(1)), y = upload(ramp(2)), unrelated = upload(ramp(3));
  launch(function("saxpy"), y, x, 2.0f, n);
  launch(function("saxpy"), y, x, 0.5f, n);
  print("y", y, n * 4);
  print("unrelated", unrelated, n * 4);
  OK(cuMemFree(x));
  OK(cuMemFree(y));
}

void list() {
  start();
  const CUdeviceptr last = upload(std::vector<Node>{{0, 7, {}}});
  const CUdeviceptr middle = upload(std::vector<Node>{{last, 11, {}}});
  const CUdeviceptr first = upload(std::vector<Node>{{middle, 13, {}}});
  const CUdeviceptr apart = upload(std::vector<Node>{{first, 17, {}}});
  const CUdeviceptr sum = allocate(8);
  launch(function("sum_list"), sum, first);
  std::printf("sum %llu\n", download<unsigned long long>(sum, 1)[0]);
  print("apart", apart + 8, 8);
}

void embedded() {
  start();
  const CUdeviceptr data = upload(ramp(1));
  launch(function("scale_view"), View{data, 100, 3}, 2.0f);
  print("data", data, n * 4);
  const CUdeviceptr view = upload(std::vector<View>{{data + 4, 50, 1}});
  launch(function("scale_through"), view, 3.0f);
  print("data", data, n * 4);
}

void mixed() {
  start();
  const CUdeviceptr out = allocate(8);
  launch(function("mixed"), out, std::uint8_t{1}, std::uint16_t{2}, std::uint32_t{3}, 4.5, std::uint8_t{5});
  std::printf("%g\n", download<double>(out, 1)[0]);
}

void packed() {
  start();
  struct {
    CUdeviceptr out;
    std::uint8_t a;
    std::uint16_t b;
    std::uint32_t c;
    double d;
    std::uint8_t e;
  } arguments{allocate(8), 1, 2, 3, 4.5, 5};
  std::size_t size = sizeof arguments;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &arguments, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
  OK(cuLaunchKernel(function("mixed"), 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra));
  std::printf("%g\n", download<double>(arguments.out, 1)[0]);
}

void extended() {
  start();
  CUdeviceptr out = allocate(n * 4);
  std::uint64_t count = n;
  void* parameters[] = {&out, &count};
  CUlaunchAttribute attributes[2] = {};
  attributes[0].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  attributes[0].value.clusterDim = {2, 1, 1};
  attributes[1].id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
  attributes[1].value.priority = -1;
  CUlaunchConfig config = {};
  config.gridDimX = 4;
  config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
  config.blockDimX = 64;
  config.sharedMemBytes = 256;
  config.attrs = attributes;
  config.numAttrs = 2;
  OK(cuLaunchKernelEx(&config, function("write_only"), parameters, nullptr));
  print("out", out, n * 4);
}

void cooperative() {
  start();
  CUdeviceptr out = allocate(n * 4);
  std::uint64_t count = n;
  void* parameters[] = {&out, &count};
  OK(cuLaunchCooperativeKernel(function("write_only"), 2, 1, 1, 64, 1, 1, 0, nullptr, parameters));
  std::printf("too large: %s\n", name_of(cuda().cuLaunchCooperativeKernel(function("write_only"), 100000, 1, 1, 64, 1,
                                                                          1, 0, nullptr, parameters)));
  print("out", out, n * 4);
}

void variables() {
  start();
  const CUdeviceptr out = allocate(4), looked_up = allocate(16), index = upload(std::vector<unsigned>{3, 2, 1, 0});
  launch(function("count_calls"), out);
  launch(function("count_calls"), out);
  launch(function("look_up"), looked_up, index, std::uint64_t{4});
  std::printf("%u\n", download<unsigned>(out, 1)[0]);
  print("looked up", looked_up, 16);
  CUdeviceptr counter;
  std::size_t size;
  static const CUmodule module = load();
  OK(cuModuleGetGlobal(&counter, &size, module, "counter"));
  launch(function(module, "histogram"), counter, upload(std::vector<unsigned char>{0, 0, 0}), std::uint64_t{3});
  std::printf("%zu %u\n", size, download<unsigned>(counter, 1)[0]);
}

void library() {
  start();
  CUlibrary library;
  CUkernel kernel;
  OK(cuLibraryLoadData(&library, kernels().c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  OK(cuLibraryGetKernel(&kernel, library, "count_calls"));
  const CUdeviceptr out = allocate(4);
  launch(reinterpret_cast<CUfunction>(kernel), out);
  CUfunction function;
  OK(cuKernelGetFunction(&function, kernel));
  launch(function, out);
  std::printf("%u\n", download<unsigned>(out, 1)[0]);
  OK(cuLibraryUnload(library));
}

void pitched() {
  start();
  CUdeviceptr rows;
  std::size_t pitch;
  OK(cuMemAllocPitch(&rows, &pitch, 100, 7, 4));
  OK(cuMemsetD8(rows, 1, pitch * 7));
  std::vector<unsigned char> host(700, 9);
  CUDA_MEMCPY2D copy = {};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = host.data();
  copy.srcPitch = 100;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = rows;
  copy.dstPitch = pitch;
  copy.WidthInBytes = 100;
  copy.Height = 7;
  OK(cuMemcpy2D(&copy));
  launch(function("histogram"), upload(std::vector<unsigned>(256)), rows, std::uint64_t{pitch * 7});
  OK(cuCtxSynchronize());
  CUdeviceptr base;
  std::size_t size;
  OK(cuMemGetAddressRange(&base, &size, rows + 5));
  std::printf("%d %zu\n", base == rows, size);
  print("rows", rows, pitch * 7);
}

void stream_ordered() {
  start();
  CUstream stream, other;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cuStreamCreate(&other, CU_STREAM_DEFAULT));
  CUmemPoolProps properties = {};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemoryPool pool;
  OK(cuMemPoolCreate(&pool, &properties));
  for (int i = 0; i < 3; ++i) {
    CUdeviceptr first, second;
    OK(cuMemAllocAsync(&first, n * 4, stream));
    OK(cuMemAllocFromPoolAsync(&second, n * 4, pool, other));
    const std::vector<float> values = ramp(static_cast<float>(i));
    OK(cuMemcpyHtoDAsync(first, values.data(), n * 4, stream));
    OK(cuMemcpyHtoDAsync(second, values.data(), n * 4, stream));
    if (try_launch(function("saxpy"), stream, first, second, 2.0f + i, n) != CUDA_SUCCESS) die("launch");
    OK(cuStreamSynchronize(stream));
    print("first", first, n * 4);
    OK(cuMemFreeAsync(first, stream));
    OK(cuMemFreeAsync(second, other));
  }
  OK(cuStreamSynchronize(stream));
  OK(cuStreamDestroy(stream));
}

void own_mappings() {
  start();
  constexpr std::size_t size = 4 << 20;
  CUdeviceptr base;
  OK(cuMemAddressReserve(&base, 2 * size, 0, 0, 0));
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemAccessDesc access = {properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  for (int i = 0; i < 2; ++i) {
    CUmemGenericAllocationHandle memory;
    OK(cuMemCreate(&memory, size, &properties, 0));
    OK(cuMemMap(base + i * size, size, 0, memory, 0));
    OK(cuMemRelease(memory));
  }
  OK(cuMemSetAccess(base, 2 * size, &access, 1));
  OK(cuMemsetD8(base, 0, 2 * size));
  const std::vector<float> values = ramp(1);
  const CUdeviceptr across = base + size - 2000;
  OK(cuMemcpyHtoD(across, values.data(), n * 4));
  launch(function("scale_view"), View{across, n, 1}, 2.0f);
  print("across", across, n * 4);
  OK(cuMemUnmap(base, 2 * size));
  OK(cuMemAddressFree(base, 2 * size));
  launch(function("do_nothing"));
  OK(cuCtxSynchronize());
}

void foreign() {
  start();
  CUdeviceptr managed, mapped;
  OK(cuMemAllocManaged(&managed, n * 4, CU_MEM_ATTACH_GLOBAL));
  void* pinned;
  OK(cuMemHostAlloc(&pinned, n * 4, CU_MEMHOSTALLOC_DEVICEMAP));
  OK(cuMemHostGetDevicePointer(&mapped, pinned, 0));
  static unsigned ours[n];
  OK(cuMemHostRegister(ours, sizeof ours, 0));
  launch(function("write_only"), managed, n);
  launch(function("write_only"), mapped, n);
  launch(function("write_only"), reinterpret_cast<CUdeviceptr>(ours), n);
  const CUdeviceptr head = upload(std::vector<Node>{{managed, 1, {}}}), sum = allocate(8);
  OK(cuCtxSynchronize());
  std::memset(reinterpret_cast<void*>(managed), 0, 16);
  launch(function("sum_list"), sum, head);
  OK(cuCtxSynchronize());
  std::printf("%u %u %u\n", reinterpret_cast<unsigned*>(managed)[9], static_cast<unsigned*>(pinned)[9], ours[9]);
  OK(cuMemHostUnregister(ours));
  OK(cuMemFreeHost(pinned));
  OK(cuMemFree(managed));
}

void captured() {
  start();
  CUstream stream;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  const CUdeviceptr x = upload(ramp(1)), y = upload(ramp(2));
  const CUfunction saxpy = function("saxpy");
  OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  for (int i = 0; i < 3; ++i) {
    if (try_launch(saxpy, stream, y, x, 2.0f, n) != CUDA_SUCCESS) die("launch");
  }
  CUgraph graph;
  CUgraphExec instance;
  OK(cuStreamEndCapture(stream, &graph));
  OK(cuGraphInstantiateWithFlags(&instance, graph, 0));
  OK(cuGraphLaunch(instance, stream));
  OK(cuGraphLaunch(instance, stream));
  OK(cuStreamSynchronize(stream));
  print("y", y, n * 4);
  launch(saxpy, y, x, 2.0f, n);
  print("y", y, n * 4);
}

void unloads() {
  start();
  const CUdeviceptr out = allocate(4);
  for (int i = 0; i < 3; ++i) {
    const CUmodule module = load();
    launch(function(module, "count_calls"), out);
    std::printf("%u\n", download<unsigned>(out, 1)[0]);
    OK(cuModuleUnload(module));
  }
}

void threads() {
  const CUcontext context = start();
  const CUfunction saxpy = function("saxpy");
  std::atomic<int> wrong = 0;
  std::vector<std::thread> all;
  for (int t = 0; t < 4; ++t) {
    all.emplace_back([&, t] {
      OK(cuCtxSetCurrent(context));
      CUstream stream;
      OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
      for (int i = 0; i < 20; ++i) {
        const CUdeviceptr x = upload(ramp(static_cast<float>(t))), y = upload(ramp(static_cast<float>(i)));
        if (try_launch(saxpy, stream, y, x, 2.0f, n) != CUDA_SUCCESS) die("launch");
        OK(cuStreamSynchronize(stream));
        const auto result = download<float>(y, n);
        for (std::size_t k = 0; k < n; ++k) {
          wrong += result[k] != 2.0f * static_cast<float>(t + k) + static_cast<float>(i + k);
        }
        OK(cuMemFree(x));
        OK(cuMemFree(y));
      }
    });
  }
  for (std::thread& thread : all) thread.join();
  std::printf("%d wrong\n", wrong.load());
}

void exhausts() {
  start();
  std::vector<CUdeviceptr> all;
  CUresult code;
  for (;;) {
    CUdeviceptr address;
    code = cuda().cuMemAlloc(&address, 16 << 20);
    if (code != CUDA_SUCCESS) break;
    all.push_back(address);
  }
  std::printf("%d, more than one: %d\n", code, all.size() > 1);
  const CUdeviceptr first = all.front();
  OK(cuMemFree(all.back()));
  launch(function("write_only"), first, n);
  print("first", first, n * 4);
  CUdeviceptr empty = 0;
  std::printf("%s\n", name_of(cuda().cuMemAlloc(&empty, 0)));
  for (const CUdeviceptr address : all) {
    if (address != all.back()) OK(cuMemFree(address));
  }
}

void forks() {
  start();
  const CUdeviceptr out = allocate(n * 4);
  const CUfunction nothing = function("do_nothing");
  launch(function("write_only"), out, n);
  OK(cuCtxSynchronize());
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    std::printf("child %s\n", name_of(try_launch(nothing, nullptr)));
    std::exit(0);  // with exit handlers
  }
  int status;
  waitpid(child, &status, 0);
  std::printf("%d\n", status);
  launch(nothing);
  print("out", out, n * 4);
}

void exits_running() {
  const CUcontext context = start();
  const CUfunction writes = function("write_only");
  static std::atomic<int> launched = 0;
  for (int t = 0; t < 3; ++t) {
    std::thread([context, writes] {
      cuda().cuCtxSetCurrent(context);
      CUdeviceptr out = 0;
      if (cuda().cuMemAlloc(&out, n * 4) != CUDA_SUCCESS) return;
      while (try_launch(writes, nullptr, out, n) == CUDA_SUCCESS) ++launched;
      for (;;) pause();
    }).detach();
  }
  while (launched < 20) std::this_thread::yield();
  std::puts("enough");
  std::exit(4);
}

void killed() {
  start();
  const CUdeviceptr x = upload(ramp(1)), y = upload(ramp(2));
  for (int i = 0; i < 8; ++i) launch(function("saxpy"), y, x, static_cast<float>(i), n);
  OK(cuCtxSynchronize());
  std::puts("done");
  std::fflush(stdout);
  raise(SIGKILL);
}

void faults() {
  start();
  CUdeviceptr out = allocate(n * 4);
  const CUfunction writes = function("write_only"), illegal = function("illegal_address");
  launch(writes, out, n);
  std::printf("launch %s\n", name_of(try_launch(illegal, nullptr, out)));
  std::printf("synchronise %s\n", name_of(cuda().cuCtxSynchronize()));
  std::printf("allocate %s\n", name_of(cuda().cuMemAlloc(&out, 4)));
  std::printf("free %s\n", name_of(cuda().cuMemFree(out)));
  std::printf("launch %s\n", name_of(try_launch(writes, nullptr, out, n)));
}

void refused_launches() {
  start();
  const CUfunction f = function("write_only");
  CUdeviceptr out = allocate(n * 4);
  std::uint64_t count = n;
  void* parameters[] = {&out, &count};
  std::printf("%s\n", name_of(cuda().cuLaunchKernel(f, 0, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr)));
  std::printf("%s\n", name_of(cuda().cuLaunchKernel(f, 1, 1, 1, 2048, 1, 1, 0, nullptr, parameters, nullptr)));
  std::printf("%s\n", name_of(cuda().cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 1 << 20, nullptr, parameters, nullptr)));
  OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr));
  print("out", out, n * 4);
  std::printf("%s\n", name_of(cuda().cuMemFree(out + 512)));
  OK(cuMemFree(out));
  std::printf("%s\n", name_of(cuda().cuMemFree(out)));
  OK(cuMemFree(0));
}

// More than one chunk, of which a kernel that is told an address in the midst of it changes one; an odd end.
void large() {
  start();
  std::vector<unsigned char> bytes(1500001);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<unsigned char>(i % 251);
  const CUdeviceptr data = upload(bytes);
  OK(cuMemsetD32(data + 600000, 0, 1000));
  launch(function("write_only"), data + 600000, std::uint64_t{1000});
  print("data", data, bytes.size());
}

void unsynchronised() {
  start();
  const CUdeviceptr x = upload(ramp(1)), y = upload(ramp(2));
  launch(function("saxpy"), y, x, 2.0f, n);
}

// A launch behind work that only the host lets go on, once the launch is queued.
void waits_for_host() {
  start();
  const CUfunction saxpy = function("saxpy");
  const CUdeviceptr x = upload(ramp(1)), y = upload(ramp(2));
  void* word;
  CUdeviceptr address;
  CUstream stream;
  OK(cuMemHostAlloc(&word, 4, CU_MEMHOSTALLOC_DEVICEMAP));
  OK(cuMemHostGetDevicePointer(&address, word, 0));
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  auto& go = *static_cast<std::atomic<std::uint32_t>*>(word);
  go = 0;
  OK(cuStreamWaitValue32(stream, address, 1, CU_STREAM_WAIT_VALUE_GEQ));
  launch(saxpy, y, x, 2.0f, n);
  go = 1;
  OK(cuStreamSynchronize(stream));
  launch(function("write_only"), x, n);
  print("y", y, n * 4);
}

// Contexts that end while what was launched in them is still being copied.
void contexts() {
  OK(cuInit(0));
  for (int i = 0; i < 3; ++i) {
    CUcontext context;
    OK(cuCtxCreate(&context, nullptr, 0, 0));
    const CUfunction writes = function(load(), "write_only");
    const CUdeviceptr out = allocate((n + i) * 4);
    launch(writes, out, n + i);
    print("out", out, (n + i) * 4);
    OK(cuCtxDestroy(context));
  }
}

void peers() {
  const CUcontext first = start();
  const CUfunction saxpy = function("saxpy");
  const CUdeviceptr y = upload(ramp(2));
  CUcontext second;
  OK(cuDevicePrimaryCtxRetain(&second, 1));
  OK(cuCtxSetCurrent(second));
  const CUdeviceptr x = upload(ramp(1));
  const CUfunction writes = function(load(), "write_only");
  launch(writes, x, std::uint64_t{5});
  OK(cuCtxSynchronize());
  OK(cuCtxSetCurrent(first));
  OK(cuCtxEnablePeerAccess(second, 0));
  launch(saxpy, y, x, 2.0f, n);
  print("y", y, n * 4);
}

void many() {
  start();
  const CUdeviceptr x = upload(ramp(1)), y = upload(ramp(2));
  for (int i = 0; i < 12; ++i) launch(function("saxpy"), y, x, static_cast<float>(i), n);
  for (int i = 0; i < 3; ++i) launch(function("write_only"), x, n);  // the same launch each time
  launch(function("do_nothing"));
  print("y", y, n * 4);
}

const std::map<std::string, void (*)()> applications = {
    {"nothing", nothing},
    {"saxpy", saxpy},
    {"list", list},
    {"embedded", embedded},
    {"mixed", mixed},
    {"packed", packed},
    {"extended", extended},
    {"cooperative", cooperative},
    {"variables", variables},
    {"library", library},
    {"pitched", pitched},
    {"stream_ordered", stream_ordered},
    {"own_mappings", own_mappings},
    {"foreign", foreign},
    {"captured", captured},
    {"unloads", unloads},
    {"threads", threads},
    {"exhausts", exhausts},
    {"forks", forks},
    {"exits_running", exits_running},
    {"killed", killed},
    {"faults", faults},
    {"refused_launches", refused_launches},
    {"large", large},
    {"unsynchronised", unsynchronised},
    {"waits_for_host", waits_for_host},
    {"contexts", contexts},
    {"peers", peers},
    {"many", many},
};

}  // namespace

int main(int count, char** arguments) {
  const auto found = applications.find(count == 2 ? arguments[1] : "");
  if (found == applications.end()) die("which application?");
  found->second();
  return 0;
}
