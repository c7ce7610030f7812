#include "recorder/context.h"

#include <map>
#include <mutex>

namespace r3::recorder {

DeviceBuffer::DeviceBuffer(std::uint64_t size) { check(driver().cuMemAlloc(&address_, size), "cuMemAlloc"); }

std::shared_ptr<DeviceBuffer> DeviceBuffer::if_spare(std::uint64_t size) {
  std::size_t free = 0, total = 0;
  check(driver().cuMemGetInfo(&free, &total), "cuMemGetInfo");
  if (size > free / 2) return nullptr;
  try {
    return std::make_shared<DeviceBuffer>(size);
  } catch (const DriverError& error) {
    if (error.code == CUDA_ERROR_OUT_OF_MEMORY) return nullptr;
    throw;
  }
}

Context::Context() {
  check(driver().cuCtxGetCurrent(&handle), "cuCtxGetCurrent");
  check(driver().cuCtxGetDevice(&device), "cuCtxGetDevice");
  check(driver().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  check(driver().cuStreamCreate(&copies, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
}

Context& current_context() {
  static auto& mutex = *new std::mutex;
  static auto& contexts = *new std::map<std::pair<CUcontext, unsigned long long>, std::unique_ptr<Context>>;
  CUcontext handle = nullptr;
  check(driver().cuCtxGetCurrent(&handle), "cuCtxGetCurrent");
  unsigned long long id = 0;  // a handle may be given again to a context that comes after
  if (driver().cuCtxGetId) check(driver().cuCtxGetId(handle, &id), "cuCtxGetId");
  const std::lock_guard lock(mutex);
  std::unique_ptr<Context>& context = contexts[{handle, id}];
  if (!context) context = std::make_unique<Context>();
  return *context;
}

}  // namespace r3::recorder
