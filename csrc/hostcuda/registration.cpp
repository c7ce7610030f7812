// The entry points that both compilers' generated code calls before main.
#include "hostcuda/api.h"
#include "hostcuda/registry.h"

using namespace r3::hostcuda;

namespace {

Image& image_of(void** handle) { return *reinterpret_cast<Image*>(handle); }

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

void** __cudaRegisterFatBinary(void* fat_binary) { return reinterpret_cast<void**>(registry().add_image(fat_binary)); }

void __cudaRegisterFatBinaryEnd(void**) {}

void __cudaUnregisterFatBinary(void** handle) {
  if (handle) registry().remove_image(&image_of(handle));
}

void __cudaRegisterFunction(void** handle, const char* host, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*,
                            int*) {
  registry().add_kernel(image_of(handle), host, name);
}

void __cudaRegisterVar(void** handle, char* host, char*, const char* name, int, size_t size, int, int) {
  registry().add_variable(image_of(handle), host, name, size);
}

void __cudaRegisterHostVar(void** handle, const char* name, char* host, size_t size) {
  registry().add_variable(image_of(handle), host, name, size);
}

void __cudaRegisterManagedVar(void** handle, void** host, char*, const char* name, int, size_t size, int, int) {
  query([&] {
    registry().add_managed(image_of(handle), host, name, size);
    return cudaSuccess;
  });
}

char __cudaInitModule(void** handle) {
  registry().load_managed(image_of(handle));
  return 1;
}

}  // extern "C"
#pragma GCC visibility pop
