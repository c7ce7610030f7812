#pragma once
#include <stdexcept>

namespace r3::recorder {

// Why a launch cannot be recorded, in the words that the user reads.
struct Refusal : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace r3::recorder
