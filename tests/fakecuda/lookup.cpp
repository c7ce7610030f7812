// Names: functions by version, errors.
#include <cstring>

#include "fake.h"

// Generated (exports.py).
extern "C" {
struct fake_version {
  const char* base;
  int since, per_thread;
  void* function;
};
struct fake_error {
  int code;
  const char* name;
};
extern const fake_version fake_versions[];
extern const fake_error fake_errors[];
}

namespace fake {
namespace {

const char* name_of(CUresult code) {
  for (const fake_error* error = fake_errors; error->name; ++error) {
    if (error->code == static_cast<int>(code)) return error->name;
  }
  return nullptr;
}

CUresult look_up(const char* symbol, void** result, int version, cuuint64_t flags,
                 CUdriverProcAddressQueryResult* status, const char* name) {
  return call(
      Needs::nothing,
      [&] {
        require(symbol && result, CUDA_ERROR_INVALID_VALUE);
        const fake_version* found = nullptr;
        bool known = false;
        const bool per_thread = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
        for (const fake_version* candidate = fake_versions; candidate->base; ++candidate) {
          if (std::strcmp(candidate->base, symbol) != 0) continue;
          known = true;
          if (candidate->since > version || (candidate->per_thread && !per_thread)) continue;
          if (!found || candidate->per_thread >= found->per_thread) found = candidate;  // ascending by version
        }
        if (status) {
          *status = found   ? CU_GET_PROC_ADDRESS_SUCCESS
                    : known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                            : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
        }
        *result = found ? found->function : nullptr;
        require(found, CUDA_ERROR_NOT_FOUND);
      },
      name);
}

}  // namespace
}  // namespace fake

using namespace fake;

CUresult cuGetProcAddress(const char* symbol, void** result, int version, cuuint64_t flags,
                          CUdriverProcAddressQueryResult* status) {
  return look_up(symbol, result, version, flags, status, __func__);
}

#undef cuGetProcAddress
R3_EXPORT CUresult cuGetProcAddress(const char* symbol, void** result, int version, cuuint64_t flags) {
  return look_up(symbol, result, version, flags, nullptr, __func__);
}

CUresult cuGetErrorName(CUresult code, const char** name) {
  *name = name_of(code);
  return *name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult code, const char** text) { return cuGetErrorName(code, text); }
