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

// While any stream captures, nothing is recorded: a synchronisation would break the capture. capture_began() is to be
// called before cuStreamBeginCapture… (it waits for a recorded launch to end); capture_ended() when that failed, and
// after cuStreamEndCapture, whatever it returned.
void capture_began() noexcept;
void capture_ended() noexcept;

// Forget what is known of a handle: its module is about to be unloaded.
void forget(CUfunction function) noexcept;
// Of all handles: a context is about to go (cuCtxDestroy, cuDevicePrimaryCtxReset, cuDevicePrimaryCtxRelease), or a
// module whose functions are not known. Waits until what was recorded in it has left the device.
void forget_all() noexcept;
// Gives the device memory back that snapshots still hold, when an allocation found none. False: they held none.
bool make_room() noexcept;

bool recording() noexcept;  // whether this process was asked to record (or to profile); false: hooks stay out of the
                            // way
bool ours() noexcept;       // whether this thread is inside the recorder: hooks must call the real function and no more

}  // namespace r3::recorder
