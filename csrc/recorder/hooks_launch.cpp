// Launches: on their way through the recorder.
#include <algorithm>
#include <functional>
#include <span>

#include "recorder/aside.h"
#include "recorder/capture.h"
#include "recorder/hooks.h"

namespace r3::recorder {
namespace {

// Which stream a per-thread variant means by 0.
CUstream per_thread(CUstream stream) { return stream ? stream : CU_STREAM_PER_THREAD; }

template <class F>
CUresult recorded(const Launch& launch, F&& real) {
  return recorder::launch(launch, std::ref(real));  // by reference: no allocation a launch
}

template <class F>
CUresult launch_kernel(F&& real, CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                       unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared, CUstream stream,
                       void** parameters, void** extra, bool cooperative) {
  return recorded({.function = function,
                   .grid = {grid_x, grid_y, grid_z},
                   .block = {block_x, block_y, block_z},
                   .dynamic_shared = shared,
                   .stream = stream,
                   .parameters = parameters,
                   .extra = extra,
                   .cooperative = cooperative},
                  real);
}

template <class F>
CUresult launch_extended(F&& real, const CUlaunchConfig& config, CUstream stream, CUfunction function,
                         void** parameters, void** extra) {
  const std::span attributes(config.attrs, config.attrs ? config.numAttrs : 0);
  const bool cooperative = std::any_of(attributes.begin(), attributes.end(), [](const CUlaunchAttribute& attribute) {
    return attribute.id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE && attribute.value.cooperative;
  });
  return recorded({.function = function,
                   .grid = {config.gridDimX, config.gridDimY, config.gridDimZ},
                   .block = {config.blockDimX, config.blockDimY, config.blockDimZ},
                   .dynamic_shared = config.sharedMemBytes,
                   .stream = stream,
                   .parameters = parameters,
                   .extra = extra,
                   .attributes = config.attrs,
                   .n_attributes = static_cast<unsigned>(attributes.size()),
                   .cooperative = cooperative},
                  real);
}

}  // namespace
}  // namespace r3::recorder

using namespace r3;            // NOLINT: this file defines the driver's own names
using namespace r3::recorder;  // NOLINT

R3_EXPORT CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                  unsigned bz, unsigned shared, CUstream stream, void** parameters, void** extra) {
  const auto launch = [&] {
    return real().cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra);
  };
  if (!active()) return launch();
  return launch_kernel(launch, f, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra, false);
}

R3_EXPORT CUresult cuLaunchKernel_ptsz(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                       unsigned bz, unsigned shared, CUstream stream, void** parameters, void** extra) {
  const auto launch = [&] {
    return real().cuLaunchKernel_ptsz(f, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra);
  };
  if (!active()) return launch();
  return launch_kernel(launch, f, gx, gy, gz, bx, by, bz, shared, per_thread(stream), parameters, extra, false);
}

R3_EXPORT CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                                             unsigned by, unsigned bz, unsigned shared, CUstream stream,
                                             void** parameters) {
  const auto launch = [&] {
    return real().cuLaunchCooperativeKernel(f, gx, gy, gz, bx, by, bz, shared, stream, parameters);
  };
  if (!active()) return launch();
  return launch_kernel(launch, f, gx, gy, gz, bx, by, bz, shared, stream, parameters, nullptr, true);
}

R3_EXPORT CUresult cuLaunchCooperativeKernel_ptsz(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                                                  unsigned by, unsigned bz, unsigned shared, CUstream stream,
                                                  void** parameters) {
  const auto launch = [&] {
    return real().cuLaunchCooperativeKernel_ptsz(f, gx, gy, gz, bx, by, bz, shared, stream, parameters);
  };
  if (!active()) return launch();
  return launch_kernel(launch, f, gx, gy, gz, bx, by, bz, shared, per_thread(stream), parameters, nullptr, true);
}

R3_EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f, void** parameters, void** extra) {
  const auto launch = [&] { return real().cuLaunchKernelEx(config, f, parameters, extra); };
  if (!active() || !config) return launch();
  return launch_extended(launch, *config, config->hStream, f, parameters, extra);
}

R3_EXPORT CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig* config, CUfunction f, void** parameters, void** extra) {
  const auto launch = [&] { return real().cuLaunchKernelEx_ptsz(config, f, parameters, extra); };
  if (!active() || !config) return launch();
  return launch_extended(launch, *config, per_thread(config->hStream), f, parameters, extra);
}

R3_EXPORT CUresult cuGraphLaunch(CUgraphExec graph, CUstream stream) {
  if (active()) graph_launched();
  return real().cuGraphLaunch(graph, stream);
}

R3_EXPORT CUresult cuGraphLaunch_ptsz(CUgraphExec graph, CUstream stream) {
  if (active()) graph_launched();
  return real().cuGraphLaunch_ptsz(graph, stream);
}
