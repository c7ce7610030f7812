// How many blocks of a kernel fit on a multiprocessor, from its threads and shared memory.
#pragma once
#include <cstddef>

#include "hostcuda/registry.h"

namespace r3::hostcuda {

int blocks_per_multiprocessor(const Kernel& kernel,  // resolved
                              int block_threads, std::size_t dynamic_shared);

}  // namespace r3::hostcuda
