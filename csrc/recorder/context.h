// What the recorder keeps in each of the application's contexts, and device memory of its own there.
#pragma once
#include <cstdint>
#include <memory>

#include "device/kernels.h"
#include "driver/driver.h"

namespace r3::recorder {

// While it lives, this thread may make calls that another thread's stream capture would forbid, and break by.
class Relaxed {
 public:
  Relaxed() { exchange(); }
  ~Relaxed() { exchange(); }
  Relaxed(const Relaxed&) = delete;
  Relaxed& operator=(const Relaxed&) = delete;

 private:
  void exchange() {
    if (driver().cuThreadExchangeStreamCaptureMode) driver().cuThreadExchangeStreamCaptureMode(&mode_);
  }
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

// Device memory from the driver itself, in the current context, which must be current again when it is freed.
class DeviceBuffer {
 public:
  explicit DeviceBuffer(std::uint64_t size);  // throws DriverError
  ~DeviceBuffer() { driver().cuMemFree(address_); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  // Null when the application might miss that much memory.
  static std::shared_ptr<DeviceBuffer> if_spare(std::uint64_t size);

  CUdeviceptr address() const { return address_; }

 private:
  CUdeviceptr address_ = 0;
};

struct Context {
  Context();  // of the current one; throws DriverError

  CUcontext handle = nullptr;
  CUdevice device = 0;
  device::Kernels kernels;
  CUstream stream = nullptr;  // for what a recorded launch waits for
  CUstream copies = nullptr;  // for what goes to the host meanwhile
};

// The current context's. Never destroyed: the application may destroy the context itself, with all that is in it.
Context& current_context();

}  // namespace r3::recorder
