// All device code, as one module.
#include "device/memory.cu"
// memory.cu has the tiles that these work on.
#include "device/compare.cu"
#include "device/timing.cu"
