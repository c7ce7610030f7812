// Waiting for the device, but not for ever.
#pragma once
#include <optional>

#include "driver/driver.h"

namespace r3::recorder {

// Waits until the current context's work is done; its code. Nothing: it was not done within R3LLVM_RECORD_WAIT seconds
// [20]. The application may have queued work that waits for the host, which waits for this launch to be queued, too.
std::optional<CUresult> wait_for_device();

}  // namespace r3::recorder
