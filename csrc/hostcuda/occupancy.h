// How many blocks of a kernel fit on a multiprocessor, from its threads and shared memory.
#pragma once
#include <cstddef>

#include "simt/simt.h"

namespace r3::hostcuda {

int blocks_per_multiprocessor(const r3simt_kernel_info& info, int block_threads, std::size_t dynamic_shared);

}  // namespace r3::hostcuda
