// One launch on its way through the recorder.
#pragma once
#include <array>
#include <cstdint>
#include <functional>

#include "driver/driver.h"

namespace r3::recorder {

struct Launch {
  CUfunction function;  // or a CUkernel
  std::array<std::uint32_t, 3> grid, block;
  std::uint32_t dynamic_shared = 0;
  CUstream stream = nullptr;  // CU_STREAM_PER_THREAD where a per-thread variant was called with 0
  void** parameters = nullptr;
  void** extra = nullptr;  // packed arguments (CU_LAUNCH_PARAM_BUFFER_POINTER), when there are no parameters
  const CUlaunchAttribute* attributes = nullptr;
  unsigned n_attributes = 0;
  bool cooperative = false;
};

// Calls `real` exactly once and returns its code, whatever happens to the recording; records before and after when the
// launch is one that is wanted. Within ours (nested) calls and in a capturing stream, it only calls `real`.
CUresult launch(const Launch& launch, const std::function<CUresult()>& real) noexcept;
void graph_launched() noexcept;  // counted, not recorded

// Forget what is known of a handle: its module was unloaded.
void forget(CUfunction function) noexcept;
void forget_all() noexcept;

bool recording() noexcept;  // whether this process was asked to record (or to profile); false: hooks stay out of the way
bool ours() noexcept;       // whether this thread is inside the recorder: hooks must call the real function and no more

}  // namespace r3::recorder
