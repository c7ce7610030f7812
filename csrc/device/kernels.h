// Our own device code (the .cu files of this folder), loaded into the current context.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>

#include "driver/driver.h"

namespace r3::device {

inline constexpr std::uint64_t pointer_reach = 4096;  // how far outside an allocation a pointer may lie and still count

class Kernels {
 public:
  Kernels();  // into the current context; throws DriverError
  ~Kernels();
  Kernels(const Kernels&) = delete;
  Kernels& operator=(const Kernels&) = delete;

  // One launch over `work` items in `stream`; `arguments` as cuLaunchKernel takes them.
  void launch(const std::string& name, std::uint64_t work, void** arguments, CUstream stream) const;

  // See memory.cu. Addresses of device memory; sizes in bytes, ranges 8-byte aligned (a rest of < 8 bytes is left out).
  void scan_words(CUdeviceptr base, std::uint64_t size, std::uint64_t low, std::uint64_t high, CUdeviceptr bases,
                  CUdeviceptr sizes, std::uint64_t n_allocations, CUdeviceptr flags, CUstream stream,
                  std::uint64_t reach = pointer_reach) const;
  void changed_chunks(CUdeviceptr a, CUdeviceptr b, std::uint64_t size, std::uint64_t chunk_bytes, CUdeviceptr flags,
                      CUstream stream) const;

 private:
  CUfunction function(const std::string& name) const;

  CUmodule module_ = nullptr;
  unsigned blocks_ = 0;  // enough to fill the device
  mutable std::unordered_map<std::string, CUfunction> functions_;
};

}  // namespace r3::device
