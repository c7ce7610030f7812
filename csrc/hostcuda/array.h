// CUDA arrays: texels in rows, row after row and slice after slice, without padding.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

struct cudaArray {
  std::uint64_t base = 0;
  cudaChannelFormatDesc format{};
  cudaExtent extent{};  // in texels, 0 where there is no such dimension; layers are the depth
  unsigned flags = 0;

  std::size_t channels() const { return (format.x != 0) + (format.y != 0) + (format.z != 0) + (format.w != 0); }
  std::size_t texel_bytes() const { return channels() * static_cast<std::size_t>(format.x) / 8; }
  std::size_t rows() const { return extent.height ? extent.height : 1; }
  std::size_t slices() const { return extent.depth ? extent.depth : 1; }
  std::size_t row_pitch() const { return extent.width * texel_bytes(); }
};

namespace r3::hostcuda {

// The array that the application holds under this handle; nullptr when there is none.
const cudaArray* find_array(cudaArray_const_t handle);

}  // namespace r3::hostcuda
