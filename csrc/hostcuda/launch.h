// Launches: checked as CUDA checks them, recorded when asked to, run by the engine.
#pragma once
#include "hostcuda/registry.h"

namespace r3::hostcuda {

struct Launch {
  dim3 grid, block;
  std::size_t dynamic_shared = 0;
  cudaStream_t stream = nullptr;
  bool cooperative = false;
};

// Runs the kernel to its end. A failure of the kernel itself kills the context and is reported by the calls that
// follow, as by a GPU, which would still be busy when this returns.
cudaError_t launch(const void* function, const Launch& how, void** arguments);

}  // namespace r3::hostcuda
