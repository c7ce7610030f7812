// Streams and events. Every operation has ended when its call returns, so they only carry what can be asked about them.
#pragma once
#include "hostcuda/api.h"

namespace r3::hostcuda {

inline constexpr int greatest_stream_priority = -5;

bool valid(cudaStream_t stream);  // a stream that exists, or one of the default streams
void forget_streams_and_events();

}  // namespace r3::hostcuda
