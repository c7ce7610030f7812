// Launches.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "fake.h"

namespace fake {
namespace {

struct Geometry {
  unsigned grid[3], block[3], shared;
};

thread_local Module* running = nullptr;

void log_launch(const std::string& name, const Geometry& g) {
  const char* path = std::getenv("FAKECUDA_LOG");
  if (!path) return;
  if (std::FILE* file = std::fopen(path, "a")) {
    std::fprintf(file, "%s %u %u %u %u %u %u %u\n", name.c_str(), g.grid[0], g.grid[1], g.grid[2], g.block[0],
                 g.block[1], g.block[2], g.shared);
    std::fclose(file);
  }
}

std::vector<std::byte> pack(const Entry& entry, void** parameters, void** extra) {
  require(!parameters || !extra, CUDA_ERROR_INVALID_VALUE);
  std::vector<std::byte> buffer(entry.buffer);
  if (parameters) {
    for (std::size_t i = 0; i < entry.parameters.size(); ++i) {
      require(parameters[i], CUDA_ERROR_INVALID_VALUE);
      std::memcpy(buffer.data() + entry.parameters[i].offset, parameters[i], entry.parameters[i].size);
    }
    return buffer;
  }
  const void* from = nullptr;
  std::size_t size = 0;
  for (void** at = extra; at && *at != CU_LAUNCH_PARAM_END; at += 2) {
    if (*at == CU_LAUNCH_PARAM_BUFFER_POINTER) {
      from = at[1];
    } else if (*at == CU_LAUNCH_PARAM_BUFFER_SIZE) {
      size = *static_cast<std::size_t*>(at[1]);
    } else {
      throw Failure{CUDA_ERROR_INVALID_VALUE};
    }
  }
  require(buffer.empty() || (from && size >= buffer.size()), CUDA_ERROR_INVALID_VALUE);
  if (!buffer.empty()) std::memcpy(buffer.data(), from, buffer.size());
  return buffer;
}

int resident_blocks(const Function& function, std::size_t threads, std::size_t shared) {
  if (threads == 0 || threads > static_cast<std::size_t>(function.entry->max_threads)) return 0;
  const std::size_t bytes = function.entry->shared + shared + 1024;
  return static_cast<int>(std::min({2048 / threads, std::size_t{32}, (228 << 10) / bytes}));
}

CUresult launch(CUfunction handle, const Geometry& g, CUstream stream_handle, void** parameters, void** extra,
                bool cooperative, const char* name) {
  return in_context(
      [&](Context& context) {
        Stream& stream = stream_of(stream_handle, context);
        const Function& function = function_of(handle, *stream.context, true);
        const Entry& entry = *function.entry;
        require(function.module->context == stream.context, CUDA_ERROR_INVALID_HANDLE);
        for (int i = 0; i < 3; ++i) require(g.grid[i] && g.block[i], CUDA_ERROR_INVALID_VALUE);
        require(g.grid[0] <= 0x7fffffff && g.grid[1] <= 65535 && g.grid[2] <= 65535, CUDA_ERROR_INVALID_VALUE);
        const std::size_t threads = std::size_t{g.block[0]} * g.block[1] * g.block[2];
        require(threads <= 1024 && g.block[2] <= 64, CUDA_ERROR_INVALID_VALUE);
        require(threads <= static_cast<std::size_t>(entry.max_threads), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
        require(entry.shared + g.shared <= static_cast<std::size_t>(function.dynamic_shared), CUDA_ERROR_INVALID_VALUE);
        const std::size_t blocks = std::size_t{g.grid[0]} * g.grid[1] * g.grid[2];
        if (cooperative) {
          require(blocks <= 4u * resident_blocks(function, threads, g.shared), CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
        }
        const Kernel* kernel = find_kernel(entry.name);
        require(kernel, CUDA_ERROR_NOT_SUPPORTED);  // none of ours
        require(std::ranges::equal(kernel->sizes, entry.parameters, {}, {}, &Parameter::size),
                CUDA_ERROR_INVALID_IMAGE);
        auto buffer = pack(entry, parameters, extra);
        // A time that a test can foresee, and that fewer instructions make shorter.
        const double seconds =
            2e-6 + 1e-9 * static_cast<double>(entry.instructions * ((blocks * threads + 1023) / 1024));
        enqueue(stream, [=, &entry, target = stream.context, module = function.module, buffer = std::move(buffer),
                         hung = false]() mutable {
          if (hung) return false;
          log_launch(entry.name, g);
          running = module;
          target->fault = run_on_device(*target, [&] { kernel->run(kernel->function, buffer.data()); }, &hung);
          running = nullptr;
          state().clock += seconds;
          return !hung;
        });
      },
      name);
}

}  // namespace

void* variable(const char* name) { return reinterpret_cast<void*>(running->variables.at(name)); }

}  // namespace fake

using namespace fake;

CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                        unsigned bz, unsigned shared, CUstream stream, void** parameters, void** extra) {
  return launch(function, {{gx, gy, gz}, {bx, by, bz}, shared}, stream, parameters, extra, false, __func__);
}

R3_EXPORT CUresult cuLaunchKernel_ptsz(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                                       unsigned by, unsigned bz, unsigned shared, CUstream stream, void** parameters,
                                       void** extra) {
  return launch(function, {{gx, gy, gz}, {bx, by, bz}, shared}, stream ? stream : CU_STREAM_PER_THREAD, parameters,
                extra, false, __func__);
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                   unsigned bz, unsigned shared, CUstream stream, void** parameters) {
  return launch(function, {{gx, gy, gz}, {bx, by, bz}, shared}, stream, parameters, nullptr, true, __func__);
}

R3_EXPORT CUresult cuLaunchCooperativeKernel_ptsz(CUfunction function, unsigned gx, unsigned gy, unsigned gz,
                                                  unsigned bx, unsigned by, unsigned bz, unsigned shared,
                                                  CUstream stream, void** parameters) {
  return launch(function, {{gx, gy, gz}, {bx, by, bz}, shared}, stream ? stream : CU_STREAM_PER_THREAD, parameters,
                nullptr, true, __func__);
}

namespace {

CUresult launch_extended(const CUlaunchConfig* c, CUfunction function, void** parameters, void** extra, CUstream stream,
                         const char* name) {
  if (!c) return CUDA_ERROR_INVALID_VALUE;
  bool cooperative = false;
  for (unsigned i = 0; i < c->numAttrs; ++i) {
    const CUlaunchAttribute& attribute = c->attrs[i];
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) cooperative = attribute.value.cooperative;
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
      const auto& cluster = attribute.value.clusterDim;
      if (!cluster.x || !cluster.y || !cluster.z || c->gridDimX % cluster.x || c->gridDimY % cluster.y ||
          c->gridDimZ % cluster.z) {
        return CUDA_ERROR_INVALID_CLUSTER_SIZE;
      }
    }
  }
  return launch(
      function,
      {{c->gridDimX, c->gridDimY, c->gridDimZ}, {c->blockDimX, c->blockDimY, c->blockDimZ}, c->sharedMemBytes}, stream,
      parameters, extra, cooperative, name);
}

}  // namespace

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** parameters, void** extra) {
  return launch_extended(config, function, parameters, extra, config ? config->hStream : nullptr, __func__);
}

R3_EXPORT CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig* config, CUfunction function, void** parameters,
                                         void** extra) {
  return launch_extended(config, function, parameters, extra,
                         config && config->hStream ? config->hStream : CU_STREAM_PER_THREAD, __func__);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction handle, int threads, size_t shared) {
  return in_context(
      [&](Context& context) { *blocks = resident_blocks(function_of(handle, context, true), threads, shared); });
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction function, int threads,
                                                              size_t shared, unsigned) {
  return cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, shared);
}
