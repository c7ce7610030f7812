#include "recorder/kernel.h"

#include <algorithm>
#include <cstring>

#include "store/names.h"

namespace r3::recorder {
namespace {

constexpr std::size_t most_parameters = 4096;  // CUDA allows 32,764 bytes of them

CUkernel as_kernel(CUfunction handle) { return reinterpret_cast<CUkernel>(handle); }

// A CUkernel is asked as one, for what the other functions say to such a handle is not documented.
void describe(Kernel& kernel) {
  const Driver& driver = r3::driver();
  const char* name = nullptr;
  if (driver.cuKernelGetName && driver.cuKernelGetName(&name, as_kernel(kernel.handle)) == CUDA_SUCCESS && name) {
    kernel.name = name;
    kernel.library = true;
  } else if (driver.cuFuncGetName && driver.cuFuncGetName(&name, kernel.handle) == CUDA_SUCCESS && name) {
    kernel.name = name;
  } else {
    kernel.unknown = "the driver does not tell its name (CUDA 12.4 or later is needed)";
  }
}

// The driver tells one parameter after another, until there is none. Nothing: it tells none of such a handle.
std::optional<std::vector<Parameter>> layout(
    const std::function<CUresult(std::size_t, std::size_t*, std::size_t*)>& info) {
  std::vector<Parameter> parameters;
  while (parameters.size() < most_parameters) {
    std::size_t offset = 0, size = 0;
    const CUresult code = info(parameters.size(), &offset, &size);
    if (code == CUDA_ERROR_INVALID_VALUE) return parameters;
    if (code != CUDA_SUCCESS) return std::nullopt;
    parameters.push_back({static_cast<std::uint32_t>(offset), static_cast<std::uint32_t>(size)});
  }
  return std::nullopt;
}

void lay_out(Kernel& kernel) {
  const Driver& driver = r3::driver();
  std::optional<std::vector<Parameter>> found;
  if (kernel.library && driver.cuKernelGetParamInfo) {
    found = layout([&](std::size_t i, std::size_t* offset, std::size_t* size) {
      return driver.cuKernelGetParamInfo(as_kernel(kernel.handle), i, offset, size);
    });
  } else if (!kernel.library && driver.cuFuncGetParamInfo) {
    found = layout([&](std::size_t i, std::size_t* offset, std::size_t* size) {
      return driver.cuFuncGetParamInfo(kernel.handle, i, offset, size);
    });
  }
  if (!found) {
    kernel.unknown = "the driver does not tell its parameters (CUDA 12.4 or later is needed)";
    return;
  }
  kernel.parameters = std::move(*found);
  for (const Parameter& p : kernel.parameters)
    kernel.parameter_bytes = std::max(kernel.parameter_bytes, p.offset + p.size);
}

// The packed buffer that CU_LAUNCH_PARAM_BUFFER_POINTER and _SIZE name.
std::optional<std::vector<std::byte>> packed_already(void** extra, std::uint32_t bytes) {
  const void* buffer = nullptr;
  const std::size_t* size = nullptr;
  for (std::size_t i = 0; extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
    if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER) {
      buffer = extra[i + 1];
    } else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE) {
      size = static_cast<const std::size_t*>(extra[i + 1]);
    } else {
      return std::nullopt;  // what follows has a meaning that we do not know
    }
  }
  if (!buffer || !size) return std::nullopt;
  std::vector<std::byte> packed(bytes);
  std::memcpy(packed.data(), buffer, std::min<std::size_t>(*size, bytes));
  return packed;
}

}  // namespace

std::shared_ptr<const Image> Kernel::image() const {
  const std::lock_guard lock(mutex_);
  if (!image_) image_ = image_of(handle);
  return image_;
}

void Kernel::load() const {
  if (loaded_.exchange(true)) return;
  int registers = 0;
  if (const CUfunction found = function()) driver().cuFuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, found);
}

CUfunction Kernel::function() const {
  if (!library) return handle;
  CUfunction found = nullptr;
  if (!driver().cuKernelGetFunction || driver().cuKernelGetFunction(&found, as_kernel(handle)) != CUDA_SUCCESS) {
    return nullptr;
  }
  return found;
}

std::optional<std::vector<std::byte>> Kernel::pack(const Launch& launch) const {
  if (!launch.parameters && launch.extra) return packed_already(launch.extra, parameter_bytes);
  std::vector<std::byte> packed(parameter_bytes);
  if (parameters.empty()) return packed;
  if (!launch.parameters) return std::nullopt;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (!launch.parameters[i]) return std::nullopt;
    std::memcpy(packed.data() + parameters[i].offset, launch.parameters[i], parameters[i].size);
  }
  return packed;
}

std::shared_ptr<Kernel> KernelTable::find(CUfunction handle) {
  {
    const std::shared_lock lock(mutex_);
    if (const auto found = kernels_.find(handle); found != kernels_.end()) return found->second;
  }
  auto kernel = look_up(handle);
  const std::unique_lock lock(mutex_);
  return kernels_.try_emplace(handle, std::move(kernel)).first->second;
}

std::shared_ptr<Kernel> KernelTable::look_up(CUfunction handle) {
  auto kernel = std::make_shared<Kernel>();
  kernel->handle = handle;
  describe(*kernel);
  kernel->launches = &launches_of(kernel->name);
  if (kernel->unknown.empty() && kernel->launches->wanted()) lay_out(*kernel);
  return kernel;
}

Launches& KernelTable::launches_of(const std::string& name) {
  const std::lock_guard lock(names_mutex_);
  if (const auto found = launches_.find(name); found != launches_.end()) return found->second;
  const bool wanted = criteria_.want_kernel(name, demangled(name));
  if (!wanted && !name.empty()) skipped_(name);
  return launches_.try_emplace(name, criteria_, wanted).first->second;
}

void KernelTable::forget(CUfunction handle) {
  const std::unique_lock lock(mutex_);
  kernels_.erase(handle);
}

void KernelTable::forget_all() {
  const std::unique_lock lock(mutex_);
  kernels_.clear();
}

std::uint64_t KernelTable::launches_seen() const {
  const std::lock_guard lock(names_mutex_);
  std::uint64_t seen = 0;
  for (const auto& [name, launches] : launches_) seen += launches.seen();
  return seen;
}

}  // namespace r3::recorder
