// CUDA's own declarations of what this library defines, and the frame that every entry point stands in.
#pragma once

#define CUDA_ENABLE_DEPRECATED  // deprecated entry points are served like any other
#pragma GCC visibility push(default)
#include <cuda_runtime_api.h>
#pragma GCC visibility pop

#include <exception>
#include <new>
#include <string_view>

// The variants for the per-thread default stream: execution is synchronous, so every stream is in order with every
// other.
#define R3_SAME_AS(alias_name, name) \
  extern "C" __attribute__((visibility("default"), alias(#name))) decltype(name) alias_name
#define R3_PTSZ(name) R3_SAME_AS(name##_ptsz, name)
#define R3_PTDS(name) R3_SAME_AS(name##_ptds, name)

namespace r3::hostcuda {

// One line on stderr, prefixed with the project's name.
void say(std::string_view line);

// cudaErrorNotSupported, and `what` named on stderr the first time.
cudaError_t not_supported(const char* what) noexcept;

// Makes `error`, if it is one, this thread's last error; returns it.
cudaError_t settle(cudaError_t error) noexcept;

// The error that killed the context, or cudaSuccess. Nothing revives it, as in CUDA.
cudaError_t cause_of_death() noexcept;
void kill_context(cudaError_t error) noexcept;

// Reports an exception that reached an entry point.
cudaError_t internal_failure(const std::exception& error) noexcept;

// A call that a dead context still answers.
template <class Body>
cudaError_t query(Body&& body) noexcept {
  try {
    return settle(body());
  } catch (const std::bad_alloc&) {
    return settle(cudaErrorMemoryAllocation);
  } catch (const std::exception& error) {
    return settle(internal_failure(error));
  }
}

// A call that needs a live context.
template <class Body>
cudaError_t call(Body&& body) noexcept {
  if (const cudaError_t dead = cause_of_death(); dead != cudaSuccess) return settle(dead);
  return query(body);
}

}  // namespace r3::hostcuda
