#include <atomic>
#include <cstdio>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "hostcuda/api.h"

namespace r3::hostcuda {
namespace {

thread_local cudaError_t last_error = cudaSuccess;
std::atomic<cudaError_t> death = cudaSuccess;

struct Text {
  const char *name, *description;
};

Text text_of(cudaError_t error) {
  switch (error) {
#define R3_ERROR(code, description) \
  case code:                        \
    return {#code, description};
#include "hostcuda/errors.def"
#undef R3_ERROR
    default:
      return {"unrecognized error code", "unrecognized error code"};
  }
}

}  // namespace

void say(std::string_view line) {
  const std::string whole = "r3llvm: " + std::string(line) + "\n";
  std::fwrite(whole.data(), 1, whole.size(), stderr);
}

cudaError_t not_supported(const char* what) noexcept {
  static std::mutex& mutex = *new std::mutex;
  static auto& named = *new std::set<std::string_view>;
  const std::lock_guard lock(mutex);
  if (named.insert(what).second) say(std::string(what) + " is not supported on the host device");
  return cudaErrorNotSupported;
}

cudaError_t settle(cudaError_t error) noexcept {
  if (error != cudaSuccess) last_error = error;
  return error;
}

cudaError_t cause_of_death() noexcept { return death.load(std::memory_order_relaxed); }
void kill_context(cudaError_t error) noexcept { death = error; }

cudaError_t internal_failure(const std::exception& error) noexcept {
  say(error.what());
  return cudaErrorInitializationError;
}

// unsupported.cpp's.
int refuse_call(const char* name) noexcept { return settle(not_supported(name)); }

}  // namespace r3::hostcuda

using namespace r3::hostcuda;

cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return last_error; }
const char* cudaGetErrorName(cudaError_t error) { return text_of(error).name; }
const char* cudaGetErrorString(cudaError_t error) { return text_of(error).description; }
