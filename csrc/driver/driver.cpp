#include "driver/driver.h"

#include <dlfcn.h>

namespace r3 {
namespace {

#define R3_NAME(name) R3_QUOTED(name)
#define R3_QUOTED(name) #name

// The recorder exports a dlsym of its own, so ours must be looked up by version.
void* library_function(void* library, const char* name) {
  using Dlsym = void* (*)(void*, const char*);
  static const auto real = [] {
    for (const char* version : {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"}) {
      if (void* found = dlvsym(RTLD_NEXT, "dlsym", version)) return reinterpret_cast<Dlsym>(found);
    }
    return static_cast<Dlsym>(&dlsym);
  }();
  return real(library, name);
}

Driver load() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) throw std::runtime_error(std::string("no CUDA driver: ") + dlerror());
  Driver found;
#define R3_DRIVER_FUNCTION(name) \
  found.name = reinterpret_cast<decltype(&::name)>(library_function(library, R3_NAME(name)));
#include "driver/functions.def"
#undef R3_DRIVER_FUNCTION
  return found;
}

}  // namespace

const Driver& driver() {
  static const Driver loaded = load();
  return loaded;
}

std::string error_name(CUresult code) {
  const char* name = nullptr;
  if (driver().cuGetErrorName(code, &name) == CUDA_SUCCESS && name) return name;
  return "CUDA error " + std::to_string(code);
}

DriverError::DriverError(CUresult code, const std::string& what)
    : std::runtime_error(what + ": " + error_name(code)), code(code) {}

}  // namespace r3
