// Waiting for the device, but not for ever.
#pragma once
#include <cstdint>
#include <optional>

#include "driver/driver.h"

namespace r3::recorder {

// Waits until the current context's work is done; its code. Nothing: it was not done in time.
// The application may have queued work that waits for the host, which waits for this launch to be queued, too.
std::optional<CUresult> wait_for_device(std::uint64_t seconds);

}  // namespace r3::recorder
