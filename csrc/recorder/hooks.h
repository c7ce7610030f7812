// The driver's functions that the recorder replaces (hooks.def), and the ones that they stand for.
#pragma once
#include "driver/driver.h"

#define R3_EXPORT extern "C" __attribute__((visibility("default")))

// What cuda.h does not declare: the per-thread variants, and what its macros took the name of.
#undef cuGetProcAddress
R3_EXPORT CUresult cuGetProcAddress(const char* symbol, void** function, int version, cuuint64_t flags);
#define R3_PER_THREAD(name, of) R3_EXPORT decltype(of) name;
R3_PER_THREAD(cuMemAllocAsync_ptsz, cuMemAllocAsync)
R3_PER_THREAD(cuMemAllocFromPoolAsync_ptsz, cuMemAllocFromPoolAsync)
R3_PER_THREAD(cuMemFreeAsync_ptsz, cuMemFreeAsync)
R3_PER_THREAD(cuStreamBeginCapture_v2_ptsz, cuStreamBeginCapture_v2)
R3_PER_THREAD(cuStreamBeginCaptureToGraph_ptsz, cuStreamBeginCaptureToGraph)
R3_PER_THREAD(cuStreamEndCapture_ptsz, cuStreamEndCapture)
R3_PER_THREAD(cuLaunchKernel_ptsz, cuLaunchKernel)
R3_PER_THREAD(cuLaunchKernelEx_ptsz, cuLaunchKernelEx)
R3_PER_THREAD(cuLaunchCooperativeKernel_ptsz, cuLaunchCooperativeKernel)
R3_PER_THREAD(cuGraphLaunch_ptsz, cuGraphLaunch)
#undef R3_PER_THREAD

namespace r3::recorder {

template <class Signature>
class Function;

// One of the driver's own functions; calling one that this driver lacks is an error that it could give, too.
template <class... Arguments>
class Function<CUresult(Arguments...)> {
 public:
  CUresult operator()(Arguments... arguments) const { return pointer ? pointer(arguments...) : CUDA_ERROR_NOT_FOUND; }
  CUresult (*pointer)(Arguments...) = nullptr;
};

struct Real {
#define R3_HOOK(base, exported, since, streams) Function<decltype(::exported)> exported;
#include "recorder/hooks.def"
#undef R3_HOOK
};

// The driver's own. Without libcuda in the process, as while a program only looks for it, all are null.
const Real& real() noexcept;

// Whether a hook has something to do but to call the driver.
bool active() noexcept;

}  // namespace r3::recorder
