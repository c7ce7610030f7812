#include "device/launch.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace r3::device {
namespace {

constexpr std::uint64_t portable_cluster = 8;  // blocks that every GPU with clusters can hold in one

void check_step(CUresult code, const char* call, const char* step) {
  if (code != CUDA_SUCCESS) throw Fault(code, call, step);
}

}  // namespace

Module::Module(const std::string& code) {  // PTX ends with the string's own zero
  check_step(driver().cuModuleLoadData(&module_, code.c_str()), "cuModuleLoadData", "load");
}

Module::~Module() { driver().cuModuleUnload(module_); }

CUfunction Module::function(const std::string& name) const {
  CUfunction function = nullptr;
  check_step(driver().cuModuleGetFunction(&function, module_, name.c_str()), "cuModuleGetFunction", "load");
  return function;
}

std::optional<Range> Module::variable(const std::string& name) const {
  CUdeviceptr address = 0;
  std::size_t size = 0;
  const CUresult code = driver().cuModuleGetGlobal(&address, &size, module_, name.c_str());
  if (code == CUDA_ERROR_NOT_FOUND) return std::nullopt;
  check_step(code, "cuModuleGetGlobal", "load");
  return Range{address, size};
}

ReadyLaunch::ReadyLaunch(const Launch& launch) : launch_(launch), arguments_size_(launch.arguments.size()) {
  // A candidate may declare a parameter larger than it was: the driver then reads past the recorded bytes.
  launch_.arguments.resize(arguments_size_ + 4096);
  for (const std::uint32_t offset : launch_.offsets) {
    if (offset >= arguments_size_) throw std::runtime_error("a recorded parameter lies outside its arguments");
    parameters_.push_back(launch_.arguments.data() + offset);
  }
  extra_ = {CU_LAUNCH_PARAM_BUFFER_POINTER, launch_.arguments.data(), CU_LAUNCH_PARAM_BUFFER_SIZE, &arguments_size_,
            CU_LAUNCH_PARAM_END};
  const auto set = [this](CUfunction_attribute attribute, int value) {
    check_step(driver().cuFuncSetAttribute(launch_.function, attribute, value), "cuFuncSetAttribute", "launch");
  };
  for (const LaunchAttribute& given : launch_.attributes) {
    CUlaunchAttribute attribute{};
    attribute.id = static_cast<CUlaunchAttributeID>(given.id);
    std::memcpy(&attribute.value, given.value.data(), std::min(given.value.size(), sizeof attribute.value));
    attributes_.push_back(attribute);
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
      const auto& cluster = attribute.value.clusterDim;
      if (std::uint64_t{cluster.x} * cluster.y * cluster.z > portable_cluster)
        set(CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1);
    }
  }
  if (launch_.cooperative) {
    CUlaunchAttribute attribute{};
    attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    attribute.value.cooperative = 1;
    attributes_.push_back(attribute);
  }
  if (launch_.dynamic_shared > static_cast<unsigned>(attribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)))
    set(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, static_cast<int>(launch_.dynamic_shared));
  if (launch_.shared_carveout >= 0) set(CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, launch_.shared_carveout);
}

void ReadyLaunch::enqueue(CUstream stream) {
  const auto& [gx, gy, gz] = launch_.grid;
  const auto& [bx, by, bz] = launch_.block;
  void** parameters = parameters_.empty() ? nullptr : parameters_.data();
  void** extra = parameters_.empty() && arguments_size_ > 0 ? extra_.data() : nullptr;
  if (attributes_.empty()) {
    check_step(driver().cuLaunchKernel(launch_.function, gx, gy, gz, bx, by, bz, launch_.dynamic_shared, stream,
                                       parameters, extra),
               "cuLaunchKernel", "launch");
    return;
  }
  if (!driver().cuLaunchKernelEx) throw Fault(CUDA_ERROR_NOT_SUPPORTED, "cuLaunchKernelEx", "launch");
  const CUlaunchConfig config{gx,
                              gy,
                              gz,
                              bx,
                              by,
                              bz,
                              launch_.dynamic_shared,
                              stream,
                              attributes_.data(),
                              static_cast<unsigned>(attributes_.size())};
  check_step(driver().cuLaunchKernelEx(&config, launch_.function, parameters, extra), "cuLaunchKernelEx", "launch");
}

int ReadyLaunch::attribute(CUfunction_attribute attribute) const {
  int value = 0;
  check_step(driver().cuFuncGetAttribute(&value, attribute, launch_.function), "cuFuncGetAttribute", "load");
  return value;
}

int ReadyLaunch::resident_blocks() const {
  const auto& [x, y, z] = launch_.block;
  int blocks = 0;
  const CUresult code = driver().cuOccupancyMaxActiveBlocksPerMultiprocessor(
      &blocks, launch_.function, static_cast<int>(x * y * z), launch_.dynamic_shared);
  return code == CUDA_SUCCESS ? blocks : 0;
}

}  // namespace r3::device
