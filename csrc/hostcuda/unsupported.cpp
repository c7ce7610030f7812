// The entry points that this library has only so that a program that links them loads. They take whatever they are
// given. CUDA's headers are not included: they declare these with their real parameters.
namespace r3::hostcuda {
int refuse_call(const char* name) noexcept;
}

#define R3_UNSUPPORTED(name) \
  extern "C" __attribute__((visibility("default"))) int name() noexcept { return r3::hostcuda::refuse_call(#name); }
#include "hostcuda/unsupported.def"
