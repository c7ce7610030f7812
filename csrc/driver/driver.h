// The CUDA driver, loaded when first asked for: nothing of ours is linked with it, so that everything loads on machines
// that have none.
#pragma once
#include <cuda.h>

#include <stdexcept>
#include <string>

namespace r3 {

struct Driver {
#define R3_DRIVER_FUNCTION(name) decltype(&::name) name = nullptr;
#include "driver/functions.def"
#undef R3_DRIVER_FUNCTION
};

// The driver's own functions (inside an application under record too: the real ones, not our hooks). A function that
// an older driver lacks is null. Throws std::runtime_error when there is no driver.
const Driver& driver();

// "CUDA_ERROR_ILLEGAL_ADDRESS"
std::string error_name(CUresult code);

struct DriverError : std::runtime_error {
  DriverError(CUresult code, const std::string& what);  // what() reads "cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY"
  CUresult code;
};

inline void check(CUresult code, const char* call) {
  if (code != CUDA_SUCCESS) throw DriverError(code, call);
}

}  // namespace r3
