// Another preloaded library, which counts allocations and passes them on to whoever is behind it.
#include <cuda.h>
#include <dlfcn.h>

#include <cstdio>

extern "C" CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t size) {
  const auto next = reinterpret_cast<decltype(&cuMemAlloc_v2)>(dlsym(RTLD_NEXT, "cuMemAlloc_v2"));
  std::puts("allocation seen");
  return next(address, size);
}
