#include "recorder/wait.h"

#include <chrono>
#include <cstdlib>
#include <future>
#include <memory>
#include <thread>

#include "recorder/context.h"
#include "recorder/settings.h"

namespace r3::recorder {
namespace {

std::chrono::duration<double> patience() {
  const std::string text(environment("R3LLVM_RECORD_WAIT"));
  char* end = nullptr;
  const double seconds = std::strtod(text.c_str(), &end);
  return std::chrono::duration<double>(!text.empty() && *end == '\0' && seconds > 0 && seconds < 1e6 ? seconds : 20);
}

}  // namespace

// The driver's own wait has no limit, so it is another thread's, which ends when the work does.
std::optional<CUresult> wait_for_device() {
  CUcontext context = nullptr;
  check(driver().cuCtxGetCurrent(&context), "cuCtxGetCurrent");
  const auto promise = std::make_shared<std::promise<CUresult>>();
  std::future<CUresult> done = promise->get_future();
  std::thread waiting([promise, context] {
    const Relaxed relaxed;
    const CUresult code = driver().cuCtxSetCurrent(context);
    promise->set_value(code == CUDA_SUCCESS ? driver().cuCtxSynchronize() : code);
  });
  static const auto limit = patience();
  if (done.wait_for(limit) != std::future_status::ready) {
    waiting.detach();
    return std::nullopt;
  }
  waiting.join();  // a fork of the application's must find no thread of ours inside the driver
  return done.get();
}

}  // namespace r3::recorder
