// Questions about kernels: attributes, parameters, occupancy.
#include <algorithm>
#include <charconv>

#include "hostcuda/device.h"
#include "hostcuda/occupancy.h"
#include "hostcuda/registry.h"

namespace r3::hostcuda {
namespace {

constexpr std::size_t up(std::size_t value, std::size_t unit) { return (value + unit - 1) / unit * unit; }

int resident_by_threads(int block_threads) {
  return std::min<int>(max_resident_blocks, max_resident_threads / static_cast<int>(up(block_threads, warp_size)));
}

// "sm_90" and "sm_90a" → 90
int architecture(const std::string& arch) {
  int number = 0;
  if (arch.starts_with("sm_")) std::from_chars(arch.data() + 3, arch.data() + arch.size(), number);
  return number;
}

// A call about a kernel, which it gets resolved.
template <class Body>
cudaError_t about(const void* function, Body&& body) {
  return call([&] {
    Kernel* const kernel = registry().kernel(function);
    if (!kernel) return unknown_kernel(function);
    if (const Refusal refusal = kernel->resolve()) return refusal.error;
    return body(*kernel);
  });
}

cudaError_t set_attribute(Kernel& kernel, cudaFuncAttribute attribute, int value) {
  switch (attribute) {
    case cudaFuncAttributeMaxDynamicSharedMemorySize:
      return kernel.allow_dynamic_shared(value) ? cudaSuccess : cudaErrorInvalidValue;
    case cudaFuncAttributePreferredSharedMemoryCarveout:
      if (value < -1 || value > 100) return cudaErrorInvalidValue;
      kernel.carveout = value;
      return cudaSuccess;
    case cudaFuncAttributeClusterDimMustBeSet:
    case cudaFuncAttributeRequiredClusterWidth:
    case cudaFuncAttributeRequiredClusterHeight:
    case cudaFuncAttributeRequiredClusterDepth:
      return not_supported("cudaFuncSetAttribute for thread block clusters");
    case cudaFuncAttributeNonPortableClusterSizeAllowed:
    case cudaFuncAttributeClusterSchedulingPolicyPreference:
      return cudaSuccess;  // about clusters that no launch here will have
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace

int blocks_per_multiprocessor(const Kernel& kernel, int block_threads, std::size_t dynamic_shared) {
  if (block_threads > max_block_threads || dynamic_shared > static_cast<std::size_t>(kernel.max_dynamic_shared()))
    return 0;
  const std::size_t shared = up(kernel.info().static_shared + dynamic_shared + shared_reserved, shared_granularity);
  return std::min(resident_by_threads(block_threads), static_cast<int>(shared_bytes / shared));
}

}  // namespace r3::hostcuda

using namespace r3::hostcuda;

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* out, const void* function) {
  return about(function, [&](Kernel& kernel) {
    if (!out) return cudaErrorInvalidValue;
    *out = {};
    out->sharedSizeBytes = kernel.info().static_shared;
    out->maxThreadsPerBlock = static_cast<int>(kernel.info().max_threads);
    out->numRegs = nominal_registers;
    out->ptxVersion = out->binaryVersion = architecture(kernel.image().stored().arch);
    out->maxDynamicSharedSizeBytes = kernel.max_dynamic_shared();
    out->preferredShmemCarveout = kernel.carveout;
    return cudaSuccess;
  });
}

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  return about(function, [&](Kernel& kernel) { return set_attribute(kernel, attribute, value); });
}

cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t kernel, cudaFuncAttribute attribute, int value, int device) {
  if (device != 0) return settle(cudaErrorInvalidDevice);
  return cudaFuncSetAttribute(kernel, attribute, value);
}

cudaError_t cudaFuncSetCacheConfig(const void* function, cudaFuncCache) {
  return call([&] { return registry().kernel(function) ? cudaSuccess : unknown_kernel(function); });
}

cudaError_t cudaFuncSetSharedMemConfig(const void* function, cudaSharedMemConfig) {
  return call([&] { return registry().kernel(function) ? cudaSuccess : unknown_kernel(function); });
}

cudaError_t cudaFuncGetName(const char** name, const void* function) {
  return call([&] {
    Kernel* const kernel = registry().kernel(function);
    if (!name) return cudaErrorInvalidValue;
    if (!kernel) return unknown_kernel(function);
    *name = kernel->name().c_str();
    return cudaSuccess;
  });
}

cudaError_t cudaFuncGetParamInfo(const void* function, size_t index, size_t* offset, size_t* size) {
  return about(function, [&](Kernel& kernel) {
    if (!offset || index >= kernel.info().n_parameters) return cudaErrorInvalidValue;
    *offset = kernel.info().parameters[index].offset;
    if (size) *size = kernel.info().parameters[index].size;
    return cudaSuccess;
  });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* function, int block_threads,
                                                                   size_t dynamic_shared, unsigned) {
  return about(function, [&](Kernel& kernel) {
    if (!blocks || block_threads <= 0) return cudaErrorInvalidValue;
    *blocks = blocks_per_multiprocessor(kernel, block_threads, dynamic_shared);
    return cudaSuccess;
  });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function, int block_threads,
                                                          size_t dynamic_shared) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, block_threads, dynamic_shared, 0);
}

cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, const void* function, int blocks,
                                                      int block_threads) {
  return about(function, [&](Kernel& kernel) {
    if (!bytes || blocks <= 0 || block_threads <= 0) return cudaErrorInvalidValue;
    if (blocks > resident_by_threads(block_threads)) return cudaErrorInvalidValue;
    const std::size_t share =
        shared_bytes / blocks / shared_granularity * shared_granularity;  // as CUDA: none reserved
    const std::size_t rest = share - std::min<std::size_t>(share, kernel.info().static_shared);
    *bytes = std::min(rest, static_cast<std::size_t>(kernel.max_dynamic_shared()));
    return cudaSuccess;
  });
}
