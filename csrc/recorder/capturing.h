// Whether some stream of the process captures work into a graph: then nobody may wait for the device.
#pragma once

namespace r3::recorder {

bool capturing() noexcept;

}  // namespace r3::recorder
