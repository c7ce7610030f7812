#include "hostcuda/launch.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "hostcuda/device.h"
#include "hostcuda/memory.h"
#include "hostcuda/occupancy.h"
#include "hostcuda/recorder.h"
#include "hostcuda/stream.h"

namespace r3::hostcuda {
namespace {

bool checking() {
  static const bool on = [] {
    const char* value = std::getenv("R3LLVM_CHECK");
    return value && std::string_view(value) == "1";
  }();
  return on;
}

cudaError_t check_geometry(const Launch& how) {
  const std::uint32_t grid[3] = {how.grid.x, how.grid.y, how.grid.z},
                      block[3] = {how.block.x, how.block.y, how.block.z};
  std::uint64_t threads = 1;
  for (int i = 0; i < 3; ++i) {
    if (grid[i] == 0 || grid[i] > max_grid_dim[i]) return cudaErrorInvalidConfiguration;
    if (block[i] == 0 || block[i] > static_cast<std::uint32_t>(max_block_dim[i])) return cudaErrorInvalidConfiguration;
    threads *= block[i];
  }
  return threads <= max_block_threads ? cudaSuccess : cudaErrorInvalidConfiguration;
}

// What the kernel itself limits. The codes are those that an H200 gives.
cudaError_t check_resources(const Kernel& kernel, const Launch& how) {
  const int threads = static_cast<int>(how.block.x * how.block.y * how.block.z);
  if (threads > static_cast<int>(kernel.info().max_threads)) return cudaErrorInvalidValue;
  if (how.dynamic_shared > static_cast<std::size_t>(kernel.max_dynamic_shared())) return cudaErrorInvalidValue;
  if (how.cooperative) {
    const auto resident =
        static_cast<std::uint64_t>(multiprocessors) * blocks_per_multiprocessor(kernel, threads, how.dynamic_shared);
    if (std::uint64_t{how.grid.x} * how.grid.y * how.grid.z > resident) return cudaErrorCooperativeLaunchTooLarge;
  }
  return cudaSuccess;
}

std::vector<std::byte> pack(const r3simt_kernel_info& info, void** arguments) {
  std::vector<std::byte> packed(info.parameter_bytes);
  for (std::uint32_t i = 0; i < info.n_parameters; ++i) {
    std::memcpy(packed.data() + info.parameters[i].offset, arguments[i], info.parameters[i].size);
  }
  return packed;
}

cudaError_t code_of(r3simt_status status) {
  switch (status) {
    case R3SIMT_OK:
      return cudaSuccess;
    case R3SIMT_ASSERT:
      return cudaErrorAssert;
    case R3SIMT_TRAP:
      return cudaErrorLaunchFailure;
    case R3SIMT_ILLEGAL_ADDRESS:
      return cudaErrorIllegalAddress;
    case R3SIMT_MISALIGNED:
      return cudaErrorMisalignedAddress;
    case R3SIMT_DEADLOCK:
      return cudaErrorLaunchTimeout;
    case R3SIMT_STACK_OVERFLOW:
      return cudaErrorHardwareStackError;
    case R3SIMT_UNSUPPORTED:
      return cudaErrorNotSupported;
    case R3SIMT_INVALID_LAUNCH:
      return cudaErrorInvalidConfiguration;
  }
  return cudaErrorUnknown;
}

// Whether a failed launch leaves the context usable.
bool never_began(r3simt_status status) { return status == R3SIMT_UNSUPPORTED || status == R3SIMT_INVALID_LAUNCH; }

std::vector<r3simt_region> live_regions() {
  std::vector<r3simt_region> regions;
  for (const Block& block : memory().blocks()) regions.push_back({block.base, block.size});
  return regions;
}

// One launch at a time: streams are in order with each other, and a recording sees no other kernel's writes.
std::mutex& launching() {
  static auto& mutex = *new std::mutex;
  return mutex;
}

void say_once(const std::string& line) {
  static auto& said = *new std::set<std::string>;
  if (said.insert(line).second) say(line);
}

cudaError_t run(Kernel& kernel, const Launch& how, const std::vector<std::byte>& packed) {
  const std::lock_guard lock(launching());
  Recorder* const recorder = hostcuda::recorder();
  if (kernel.info().refusal) {
    const std::string reason = kernel.info().refusal;
    say_once(kernel.description() + " cannot run here: " + reason);
    if (recorder) recorder->refuse(kernel.name(), reason);
    return cudaErrorNotSupported;
  }
  r3simt_launch request{};
  request.kernel = kernel.name().c_str();
  request.grid[0] = how.grid.x, request.grid[1] = how.grid.y, request.grid[2] = how.grid.z;
  request.block[0] = how.block.x, request.block[1] = how.block.y, request.block[2] = how.block.z;
  request.dynamic_shared = static_cast<std::uint32_t>(how.dynamic_shared);
  request.parameters = packed.data();
  request.output_fd = 1;
  request.cooperative = how.cooperative;
  std::vector<r3simt_region> regions;
  if (checking()) {
    regions = live_regions();
    request.regions = regions.data();
    request.n_regions = regions.size();
  }
  if (recorder) recorder->begin(kernel, how, packed);
  std::fflush(stdout);  // what the host printed comes before what the kernel prints
  r3simt_result result{};
  const r3simt_status status = engine().run(kernel.image().module(), &request, &result);
  if (recorder) recorder->finish(status == R3SIMT_OK ? "" : result.message);
  if (result.warning[0]) say_once(result.warning);
  if (status == R3SIMT_OK) return cudaSuccess;
  say_once(result.message);
  if (never_began(status)) return code_of(status);
  kill_context(code_of(status));
  return cudaSuccess;
}

}  // namespace

unsigned load_flags() { return checking() ? R3SIMT_CHECK : 0; }

cudaError_t launch(const void* function, const Launch& how, void** arguments) {
  Recorder* const recorder = hostcuda::recorder();
  if (recorder) recorder->count();
  Kernel* const kernel = registry().kernel(function);
  if (!kernel) return unknown_kernel(function);
  if (!valid(how.stream)) return cudaErrorInvalidResourceHandle;
  if (const cudaError_t error = check_geometry(how); error != cudaSuccess) return error;
  if (const Refusal refusal = kernel->resolve()) {
    if (recorder) recorder->refuse(kernel->name(), refusal.reason);
    return refusal.error;
  }
  if (const cudaError_t error = check_resources(*kernel, how); error != cudaSuccess) {
    if (recorder) recorder->refuse(kernel->name(), std::string("the launch failed: ") + cudaGetErrorString(error));
    return error;
  }
  return run(*kernel, how, pack(kernel->info(), arguments));
}

}  // namespace r3::hostcuda

using namespace r3::hostcuda;

namespace {

// <<<…>>> pushes the configuration; the kernel's host stub pops it.
thread_local std::vector<Launch> configurations;

cudaError_t launch_extended(const cudaLaunchConfig_t* config, const void* function, void** arguments) {
  if (!config) return cudaErrorInvalidValue;
  Launch how{config->gridDim, config->blockDim, config->dynamicSmemBytes, config->stream, false};
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const cudaLaunchAttribute& attribute = config->attrs[i];
    if (attribute.id == cudaLaunchAttributeCooperative) how.cooperative = attribute.val.cooperative != 0;
    if (attribute.id == cudaLaunchAttributeClusterDimension) {
      const auto& cluster = attribute.val.clusterDim;
      if (cluster.x * cluster.y * cluster.z > 1) return not_supported("a launch with thread block clusters");
    }
  }
  return launch(function, how, arguments);
}

}  // namespace

cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments, size_t shared,
                             cudaStream_t stream) {
  return call([&] { return launch(function, {grid, block, shared, stream, false}, arguments); });
}
R3_PTSZ(cudaLaunchKernel);

cudaError_t cudaLaunchCooperativeKernel(const void* function, dim3 grid, dim3 block, void** arguments, size_t shared,
                                        cudaStream_t stream) {
  return call([&] { return launch(function, {grid, block, shared, stream, true}, arguments); });
}
R3_PTSZ(cudaLaunchCooperativeKernel);

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function, void** arguments) {
  return call([&] { return launch_extended(config, function, arguments); });
}
R3_PTSZ(cudaLaunchKernelExC);

cudaError_t cudaGetKernel(cudaKernel_t* out, const void* function) {
  return call([&] {
    Kernel* const kernel = registry().kernel(function);
    if (!out) return cudaErrorInvalidValue;
    if (!kernel) return cudaErrorInvalidDeviceFunction;
    *out = reinterpret_cast<cudaKernel_t>(kernel);
    return cudaSuccess;
  });
}

cudaError_t cudaGetFuncBySymbol(cudaFunction_t* out, const void* function) {
  return cudaGetKernel(reinterpret_cast<cudaKernel_t*>(out), function);
}

#pragma GCC visibility push(default)
extern "C" {

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, CUstream_st* stream) {
  configurations.push_back({grid, block, shared, stream, false});
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  return query([&] {
    if (configurations.empty()) return cudaErrorMissingConfiguration;
    const Launch how = configurations.back();
    configurations.pop_back();
    *grid = how.grid;
    *block = how.block;
    *shared = how.dynamic_shared;
    *static_cast<cudaStream_t*>(stream) = how.stream;
    return cudaSuccess;
  });
}

cudaError_t __cudaGetKernel(cudaKernel_t* out, const void* function) { return cudaGetKernel(out, function); }

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, size_t shared,
                               cudaStream_t stream) {
  return cudaLaunchKernel(kernel, grid, block, arguments, shared, stream);
}
R3_PTSZ(__cudaLaunchKernel);

}  // extern "C"
#pragma GCC visibility pop
