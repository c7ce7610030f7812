// All device code, as one module.
#include "device/compare.cu"
#include "device/memory.cu"
#include "device/timing.cu"
