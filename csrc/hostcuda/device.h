// The one device: an sm_90 part with the figures of an H200, but for the memory, which is the machine's.
#pragma once
#include <cstdint>

namespace r3::hostcuda {

inline constexpr int warp_size = 32;
inline constexpr int multiprocessors = 132;
inline constexpr int max_block_threads = 1024;
inline constexpr int max_block_dim[3] = {1024, 1024, 64};
inline constexpr std::uint32_t max_grid_dim[3] = {2147483647, 65535, 65535};
inline constexpr int max_resident_threads = 2048;  // per multiprocessor, like the next ones
inline constexpr int max_resident_blocks = 32;
inline constexpr int registers = 65536;
inline constexpr int shared_bytes = 233472;
inline constexpr int shared_reserved = 1024;  // per block
inline constexpr int shared_default = 49152;  // per block, static and dynamic, unless the kernel opts in
inline constexpr int shared_opt_in = 232448;  // per block
inline constexpr int shared_granularity = 128;
// What a kernel needs in registers is not known without assembling it: the most that leaves full occupancy possible.
inline constexpr int nominal_registers = registers / max_resident_threads;

}  // namespace r3::hostcuda
