#include "recorder/wait.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <memory>
#include <thread>

#include "recorder/context.h"

namespace r3::recorder {

// The driver's own wait has no limit, so it is another thread's, which ends when the work does.
std::optional<CUresult> wait_for_device(std::uint64_t seconds) {
  CUcontext context = nullptr;
  check(driver().cuCtxGetCurrent(&context), "cuCtxGetCurrent");
  const auto promise = std::make_shared<std::promise<CUresult>>();
  std::future<CUresult> done = promise->get_future();
  std::thread waiting([promise, context] {
    const Relaxed relaxed;
    const CUresult code = driver().cuCtxSetCurrent(context);
    promise->set_value(code == CUDA_SUCCESS ? driver().cuCtxSynchronize() : code);
  });
  if (done.wait_for(std::chrono::seconds(std::min<std::uint64_t>(seconds, 1'000'000))) != std::future_status::ready) {
    waiting.detach();
    return std::nullopt;
  }
  waiting.join();  // a fork of the application's must find no thread of ours inside the driver
  return done.get();
}

}  // namespace r3::recorder
