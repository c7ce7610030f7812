// The memory that a launch sees and the memory that it leaves.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "recorder/context.h"
#include "recorder/staging.h"
#include "recorder/writer.h"

namespace r3::recorder {

// What the launch waits for is a copy within the device, which then goes to the host while the application goes on;
// only where device memory is short does it wait for the copy to the host itself. Nothing else may run on the device
// from before the constructor until after() returns.
class Snapshots {
 public:
  // Before the launch; the record's regions say what is recorded. Throws DriverError, and then nothing has begun.
  Snapshots(Context& context, Writer& writer, Staging& staging, LaunchRecord record, std::shared_ptr<const Image> image,
            Launches& launches);
  // After it, with the code that it returned, and how long to wait for its end. To be called once.
  void after(CUresult code, std::uint64_t seconds) noexcept;

 private:
  void take_epilogue();
  std::vector<std::uint8_t> changed_chunks() const;  // of all regions, one after the other
  void hand_over(std::vector<Piece> pieces);

  Context& context_;
  Writer& writer_;
  Staging& staging_;
  std::vector<std::uint64_t> offsets_;      // of the regions in the copy
  std::shared_ptr<DeviceBuffer> prologue_;  // null: device memory is short
  std::shared_ptr<Pending> launch_;
};

}  // namespace r3::recorder
