#include "device/kernels.h"

#include <algorithm>

#include "device/kernels_ptx.h"

namespace r3::device {
namespace {

constexpr unsigned threads = 256;

}  // namespace

Kernels::Kernels() {
  check(driver().cuModuleLoadData(&module_, kernels_ptx), "cuModuleLoadData of r3llvm's kernels");
  CUdevice device = 0;
  int multiprocessors = 0;
  check(driver().cuCtxGetDevice(&device), "cuCtxGetDevice");
  check(driver().cuDeviceGetAttribute(&multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device),
        "cuDeviceGetAttribute");
  blocks_ = 8 * static_cast<unsigned>(multiprocessors);
}

Kernels::~Kernels() { driver().cuModuleUnload(module_); }  // fails when the context is gone, and so is the module

CUfunction Kernels::function(const std::string& name) const {
  CUfunction& found = functions_[name];
  if (!found) check(driver().cuModuleGetFunction(&found, module_, name.c_str()), name.c_str());
  return found;
}

void Kernels::launch(const std::string& name, std::uint64_t work, void** arguments, CUstream stream) const {
  if (work == 0) return;
  const auto blocks = static_cast<unsigned>(std::min<std::uint64_t>(blocks_, (work + threads - 1) / threads));
  check(driver().cuLaunchKernel(function(name), blocks, 1, 1, threads, 1, 1, 0, stream, arguments, nullptr),
        name.c_str());
}

void Kernels::scan_words(CUdeviceptr base, std::uint64_t size, std::uint64_t low, std::uint64_t high, CUdeviceptr bases,
                         CUdeviceptr sizes, std::uint64_t n_allocations, CUdeviceptr flags, CUstream stream,
                         std::uint64_t reach) const {
  std::uint64_t n = size / 8;
  void* arguments[] = {&base, &n, &low, &high, &reach, &bases, &sizes, &n_allocations, &flags};
  launch("r3_scan_words", n, arguments, stream);
}

void Kernels::changed_chunks(CUdeviceptr a, CUdeviceptr b, std::uint64_t size, std::uint64_t chunk_bytes,
                             CUdeviceptr flags, CUstream stream) const {
  std::uint64_t n = size / 8, chunk_words = chunk_bytes / 8;
  void* arguments[] = {&a, &b, &n, &chunk_words, &flags};
  launch("r3_changed_chunks", n, arguments, stream);
}

}  // namespace r3::device
