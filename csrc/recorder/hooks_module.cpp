// What the application loads, asks for by name and unloads.
#include "recorder/capture.h"
#include "recorder/hooks.h"
#include "recorder/image.h"

using namespace r3;            // NOLINT: this file defines the driver's own names
using namespace r3::recorder;  // NOLINT

R3_EXPORT CUresult cuModuleLoad(CUmodule* module, const char* path) {
  const CUresult code = real().cuModuleLoad(module, path);
  if (code == CUDA_SUCCESS && active()) module_loaded_from_file(*module, path);
  return code;
}

R3_EXPORT CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  const CUresult code = real().cuModuleLoadData(module, image);
  if (code == CUDA_SUCCESS && active()) module_loaded(*module, image);
  return code;
}

R3_EXPORT CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned count, CUjit_option* options,
                                      void** values) {
  const CUresult code = real().cuModuleLoadDataEx(module, image, count, options, values);
  if (code == CUDA_SUCCESS && active()) module_loaded(*module, image);
  return code;
}

R3_EXPORT CUresult cuModuleLoadFatBinary(CUmodule* module, const void* image) {
  const CUresult code = real().cuModuleLoadFatBinary(module, image);
  if (code == CUDA_SUCCESS && active()) module_loaded(*module, image);
  return code;
}

R3_EXPORT CUresult cuModuleUnload(CUmodule module) {
  if (active()) {
    forget_all();
    module_unloaded(module);
  }
  return real().cuModuleUnload(module);
}

R3_EXPORT CUresult cuModuleGetGlobal_v2(CUdeviceptr* address, size_t* size, CUmodule module, const char* name) {
  const CUresult code = real().cuModuleGetGlobal_v2(address, size, module, name);
  if (code == CUDA_SUCCESS && active()) variable_used(module, nullptr, name);
  return code;
}

R3_EXPORT CUresult cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option* jit_options, void** jit_values,
                                     unsigned jit_count, CUlibraryOption* options, void** values, unsigned count) {
  const CUresult result =
      real().cuLibraryLoadData(library, code, jit_options, jit_values, jit_count, options, values, count);
  if (result == CUDA_SUCCESS && active()) library_loaded(*library, code);
  return result;
}

R3_EXPORT CUresult cuLibraryLoadFromFile(CUlibrary* library, const char* path, CUjit_option* jit_options,
                                         void** jit_values, unsigned jit_count, CUlibraryOption* options, void** values,
                                         unsigned count) {
  const CUresult result =
      real().cuLibraryLoadFromFile(library, path, jit_options, jit_values, jit_count, options, values, count);
  if (result == CUDA_SUCCESS && active()) library_loaded_from_file(*library, path);
  return result;
}

R3_EXPORT CUresult cuLibraryUnload(CUlibrary library) {
  if (active()) {
    forget_all();
    library_unloaded(library);
  }
  return real().cuLibraryUnload(library);
}

R3_EXPORT CUresult cuLibraryGetModule(CUmodule* module, CUlibrary library) {
  const CUresult code = real().cuLibraryGetModule(module, library);
  if (code == CUDA_SUCCESS && active()) library_module(library, *module);
  return code;
}

R3_EXPORT CUresult cuLibraryGetGlobal(CUdeviceptr* address, size_t* size, CUlibrary library, const char* name) {
  const CUresult code = real().cuLibraryGetGlobal(address, size, library, name);
  if (code == CUDA_SUCCESS && active()) variable_used(nullptr, library, name);
  return code;
}

R3_EXPORT CUresult cuLibraryGetManaged(CUdeviceptr* address, size_t* size, CUlibrary library, const char* name) {
  const CUresult code = real().cuLibraryGetManaged(address, size, library, name);
  if (code == CUDA_SUCCESS && active()) variable_used(nullptr, library, name);
  return code;
}

R3_EXPORT CUresult cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  const CUresult code = real().cuKernelGetFunction(function, kernel);
  if (code == CUDA_SUCCESS && active()) kernel_function(kernel, *function);
  return code;
}
