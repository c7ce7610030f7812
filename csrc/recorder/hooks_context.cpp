// Contexts that end, peers, and captures in progress.
#include <atomic>

#include "recorder/arena.h"
#include "recorder/aside.h"
#include "recorder/capture.h"
#include "recorder/capturing.h"
#include "recorder/hooks.h"

namespace r3::recorder {
namespace {

std::atomic<int> captures{0};

// A capture that was broken has ended, too; one that the call did not mean goes on.
CUresult ended(CUresult code) noexcept {
  const bool another = code == CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD || code == CUDA_ERROR_STREAM_CAPTURE_UNMATCHED ||
                       code == CUDA_ERROR_ILLEGAL_STATE || code == CUDA_ERROR_INVALID_VALUE ||
                       code == CUDA_ERROR_INVALID_HANDLE;
  if (another || !recording()) return code;
  int before = captures;
  while (before > 0 && !captures.compare_exchange_weak(before, before - 1)) {
  }
  if (before > 0) capture_ended();
  return code;
}

// Known before it begins: whoever then waits for the device would break it.
template <class F>
CUresult begin(F&& real) {
  if (!recording()) return real();
  ++captures;
  capture_began();
  const CUresult code = real();
  if (code != CUDA_SUCCESS) ended(CUDA_SUCCESS);
  return code;
}

// A device's primary context, null when there is none.
CUcontext primary_context(CUdevice device) {
  unsigned flags = 0;
  int is_active = 0;
  CUcontext context = nullptr;
  if (driver().cuDevicePrimaryCtxGetState(device, &flags, &is_active) != CUDA_SUCCESS || !is_active) return nullptr;
  if (driver().cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS) return nullptr;
  driver().cuDevicePrimaryCtxRelease(device);
  return context;
}

bool is_active(CUdevice device) {
  unsigned flags = 0;
  int active = 1;
  return driver().cuDevicePrimaryCtxGetState(device, &flags, &active) != CUDA_SUCCESS || active;
}

// `real` takes the device's primary context away; `always`: even from those who still hold it.
template <class F>
CUresult end_primary(CUdevice device, bool always, F&& real) {
  if (!active()) return real();
  CUcontext context = nullptr;
  aside([&] { context = primary_context(device); });
  if (context) forget_all();
  const CUresult code = real();
  if (code == CUDA_SUCCESS && context && (always || !is_active(device))) {
    aside([&] { arena().release_all(context); });
  }
  return code;
}

}  // namespace

bool capturing() noexcept { return captures != 0; }

}  // namespace r3::recorder

using namespace r3;            // NOLINT: this file defines the driver's own names
using namespace r3::recorder;  // NOLINT

R3_EXPORT CUresult cuCtxDestroy_v2(CUcontext context) {
  if (active()) forget_all();
  const CUresult code = real().cuCtxDestroy_v2(context);
  if (code == CUDA_SUCCESS && active()) aside([&] { arena().release_all(context); });
  return code;
}

R3_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  return end_primary(device, false, [&] { return real().cuDevicePrimaryCtxRelease_v2(device); });
}

R3_EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
  return end_primary(device, true, [&] { return real().cuDevicePrimaryCtxReset_v2(device); });
}

R3_EXPORT CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
  const CUresult code = real().cuCtxEnablePeerAccess(peer, flags);
  if (code == CUDA_SUCCESS && active()) {
    aside([] {
      CUdevice device = 0;
      if (driver().cuCtxGetDevice(&device) == CUDA_SUCCESS) arena().open_to(device);
    });
  }
  return code;
}

R3_EXPORT CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc* access, size_t count) {
  const CUresult code = real().cuMemPoolSetAccess(pool, access, count);
  if (code == CUDA_SUCCESS && active()) {
    aside([&] {
      for (size_t i = 0; i < count; ++i) {
        const bool device = access[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE;
        if (device && access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE) arena().open_to(access[i].location.id);
      }
    });
  }
  return code;
}

R3_EXPORT CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
  return begin([&] { return real().cuStreamBeginCapture_v2(stream, mode); });
}

R3_EXPORT CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode) {
  return begin([&] { return real().cuStreamBeginCapture_v2_ptsz(stream, mode); });
}

R3_EXPORT CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode* dependencies,
                                               const CUgraphEdgeData* edges, size_t count, CUstreamCaptureMode mode) {
  return begin([&] { return real().cuStreamBeginCaptureToGraph(stream, graph, dependencies, edges, count, mode); });
}

R3_EXPORT CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph, const CUgraphNode* dependencies,
                                                    const CUgraphEdgeData* edges, size_t count,
                                                    CUstreamCaptureMode mode) {
  return begin(
      [&] { return real().cuStreamBeginCaptureToGraph_ptsz(stream, graph, dependencies, edges, count, mode); });
}

R3_EXPORT CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  return ended(real().cuStreamEndCapture(stream, graph));
}

R3_EXPORT CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph* graph) {
  return ended(real().cuStreamEndCapture_ptsz(stream, graph));
}
