// printf on the device: a format and a packed argument buffer.
#pragma once
#include <cstdint>
#include <string>

namespace r3 {

// Appends the formatted text. Arguments lie in the buffer as the CUDA ABI packs them: each aligned to its size, floats
// widened to doubles. What CUDA's printf does not know (%zu, a precision of *) stays as it stands. Returns the number
// of conversions.
std::int32_t format_device(std::string& text, const char* format, const void* arguments);

}  // namespace r3
