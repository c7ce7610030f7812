// Modules, libraries, functions.
#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>

#include "fake.h"

namespace fake {
namespace {

Module& module_at(CUmodule handle) { return *checked(state().modules, handle); }
Library& library_at(CUlibrary handle) { return *checked(state().libraries, handle); }

LibraryKernel& kernel_at(CUkernel handle) {
  const auto found = state().kernels.find(handle);
  require(found != state().kernels.end(), CUDA_ERROR_INVALID_HANDLE);
  return *found->second;
}

std::string read_file(const char* path) {
  require(path, CUDA_ERROR_INVALID_VALUE);
  std::ifstream file(path, std::ios::binary);
  require(file.good(), CUDA_ERROR_FILE_NOT_FOUND);
  return {std::istreambuf_iterator<char>(file), {}};
}

void parameter(const Entry& entry, std::size_t index, std::size_t* offset, std::size_t* size) {
  require(offset && index < entry.parameters.size(), CUDA_ERROR_INVALID_VALUE);
  *offset = entry.parameters[index].offset;
  if (size) *size = entry.parameters[index].size;
}

int attribute(const Function& function, CUfunction_attribute which) {
  switch (which) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      return function.entry->max_threads;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      return static_cast<int>(function.entry->shared);
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      return 32;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      return 90;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      return function.dynamic_shared;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      return function.carveout;
    default:
      return 0;
  }
}

void set_attribute(Function& function, CUfunction_attribute which, int value) {
  if (which == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
    require(value >= 0 && value + function.entry->shared <= 227 << 10, CUDA_ERROR_INVALID_VALUE);
    function.dynamic_shared = value;
  } else if (which == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT) {
    require(value >= -1 && value <= 100, CUDA_ERROR_INVALID_VALUE);
    function.carveout = value;
  } else {
    require(which == CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, CUDA_ERROR_INVALID_VALUE);
  }
}

void variable_of(const Module& module, const char* name, CUdeviceptr* address, std::size_t* size) {
  require(name && (address || size), CUDA_ERROR_INVALID_VALUE);
  const auto found = std::ranges::find(module.image->globals, name, &Global::name);
  require(found != module.image->globals.end(), CUDA_ERROR_NOT_FOUND);
  if (address) *address = module.variables.at(name);
  if (size) *size = found->size;
}

void clear_logs(unsigned count, const CUjit_option* options, void** values) {
  for (unsigned i = 0; i < count; ++i) {
    const bool size =
        options[i] == CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES || options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES;
    const bool text = options[i] == CU_JIT_INFO_LOG_BUFFER || options[i] == CU_JIT_ERROR_LOG_BUFFER;
    if (size) values[i] = nullptr;
    if (text && values[i]) *static_cast<char*>(values[i]) = 0;
  }
}

CUresult load_module(CUmodule* result, const void* data, const char* name) {
  return in_context(
      [&](Context& context) {
        require(result, CUDA_ERROR_INVALID_VALUE);
        *result = reinterpret_cast<CUmodule>(load(context, read_image(data)));
      },
      name);
}

CUresult load_library(CUlibrary* result, const void* data, const char* name) {
  return in_driver(
      [&] {
        require(result, CUDA_ERROR_INVALID_VALUE);
        auto* library = new Library{.image = read_image(data)};
        for (const Entry& entry : library->image->entries) {
          auto& kernel = library->kernels[entry.name];
          kernel = std::make_unique<LibraryKernel>(library, &entry);
          state().kernels[kernel.get()] = kernel.get();
        }
        state().libraries.insert(library);
        *result = reinterpret_cast<CUlibrary>(library);
      },
      name);
}

struct Link {
  std::string image;
};

}  // namespace

Module* load(Context& context, std::shared_ptr<const Image> image) {
  auto* module = new Module{.context = &context, .image = std::move(image)};
  for (const Entry& entry : module->image->entries) {
    auto& function = module->functions[entry.name];
    function = std::make_unique<Function>(module, &entry, (48 << 10) - static_cast<int>(entry.shared));
    state().functions[function.get()] = function.get();
  }
  for (const Global& global : module->image->globals) {
    if (global.size == 0) continue;
    const CUdeviceptr address = allocate(context, global.size, Kind::variable);
    module->variables[global.name] = address;
    run_on_device(context, [&] { std::memcpy(reinterpret_cast<void*>(address), global.initial.data(), global.size); });
  }
  context.modules.insert(module);
  state().modules.insert(module);
  return module;
}

void unload(Module* module) {
  for (const auto& [name, address] : module->variables) release(address);
  for (const auto& [name, function] : module->functions) state().functions.erase(function.get());
  for (Library* library : state().libraries) {
    std::erase_if(library->modules, [&](const auto& entry) { return entry.second == module; });
  }
  module->context->modules.erase(module);
  state().modules.erase(module);
  delete module;
}

Module* module_of(Library& library, Context& context) {
  Module*& module = library.modules[&context];
  if (!module) module = load(context, library.image);
  return module;
}

Function* find_function(Module& module, std::string_view name) {
  const auto found = module.functions.find(std::string(name));
  return found == module.functions.end() ? nullptr : found->second.get();
}

Function& function_of(CUfunction handle, Context& context, bool kernels) {
  if (const auto found = state().functions.find(handle); found != state().functions.end()) return *found->second;
  require(kernels, CUDA_ERROR_INVALID_HANDLE);
  const LibraryKernel& kernel = kernel_at(reinterpret_cast<CUkernel>(handle));
  return *find_function(*module_of(*kernel.library, context), kernel.entry->name);
}

}  // namespace fake

using namespace fake;

CUresult cuModuleLoadData(CUmodule* module, const void* image) { return load_module(module, image, __func__); }

CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned count, CUjit_option* options, void** values) {
  clear_logs(count, options, values);
  return load_module(module, image, __func__);
}

CUresult cuModuleLoadFatBinary(CUmodule* module, const void* image) { return load_module(module, image, __func__); }

CUresult cuModuleLoad(CUmodule* module, const char* path) {
  return in_context([&](Context& context) {
    const std::string image = read_file(path);
    *module = reinterpret_cast<CUmodule>(load(context, read_image(image.c_str())));
  });
}

CUresult cuModuleUnload(CUmodule handle) {
  return in_context([&](Context&) {
    Module& module = module_at(handle);
    synchronize(*module.context, [&] { return idle(*module.context); });
    unload(&module);
  });
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  return in_driver([&] { *mode = CU_MODULE_EAGER_LOADING; });
}

CUresult cuModuleGetFunction(CUfunction* result, CUmodule handle, const char* name) {
  return in_context([&](Context&) {
    require(result && name, CUDA_ERROR_INVALID_VALUE);
    Function* function = find_function(module_at(handle), name);
    require(function, CUDA_ERROR_NOT_FOUND);
    *result = reinterpret_cast<CUfunction>(function);
  });
}

CUresult cuModuleGetFunctionCount(unsigned* count, CUmodule handle) {
  return in_context([&](Context&) { *count = static_cast<unsigned>(module_at(handle).functions.size()); });
}

CUresult cuModuleGetGlobal(CUdeviceptr* address, size_t* size, CUmodule handle, const char* name) {
  return in_context([&](Context&) { variable_of(module_at(handle), name, address, size); });
}

CUresult cuFuncGetName(const char** name, CUfunction handle) {
  return in_context([&](Context& context) { *name = function_of(handle, context, false).entry->name.c_str(); });
}

CUresult cuFuncGetModule(CUmodule* module, CUfunction handle) {
  return in_context(
      [&](Context& context) { *module = reinterpret_cast<CUmodule>(function_of(handle, context, false).module); });
}

CUresult cuFuncGetParamInfo(CUfunction handle, size_t index, size_t* offset, size_t* size) {
  return in_context(
      [&](Context& context) { parameter(*function_of(handle, context, false).entry, index, offset, size); });
}

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute which, CUfunction handle) {
  return in_context([&](Context& context) {
    require(value && which < CU_FUNC_ATTRIBUTE_MAX, CUDA_ERROR_INVALID_VALUE);
    *value = attribute(function_of(handle, context, false), which);
  });
}

CUresult cuFuncSetAttribute(CUfunction handle, CUfunction_attribute which, int value) {
  return in_context([&](Context& context) { set_attribute(function_of(handle, context, false), which, value); });
}

CUresult cuFuncSetCacheConfig(CUfunction handle, CUfunc_cache) {
  return in_context([&](Context& context) { function_of(handle, context, false); });
}

CUresult cuFuncSetSharedMemConfig(CUfunction handle, CUsharedconfig) {
  return in_context([&](Context& context) { function_of(handle, context, false); });
}

CUresult cuFuncSetBlockShape(CUfunction handle, int x, int y, int z) {  // PyCUDA says it before cuLaunchKernel
  return in_context([&](Context& context) {
    function_of(handle, context, false);
    require(x > 0 && y > 0 && z > 0, CUDA_ERROR_INVALID_VALUE);
  });
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState* loaded, CUfunction handle) {
  return in_context([&](Context& context) {
    function_of(handle, context, false);
    *loaded = CU_FUNCTION_LOADING_STATE_LOADED;
  });
}

CUresult cuFuncLoad(CUfunction handle) {
  return in_context([&](Context& context) { function_of(handle, context, false); });
}

// Libraries

CUresult cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option* options, void** values, unsigned count,
                           CUlibraryOption*, void**, unsigned) {
  clear_logs(count, options, values);
  return load_library(library, code, __func__);
}

CUresult cuLibraryLoadFromFile(CUlibrary* library, const char* path, CUjit_option*, void**, unsigned, CUlibraryOption*,
                               void**, unsigned) {
  std::string image;
  const CUresult code = in_driver([&] { image = read_file(path); }, __func__);
  return code ? code : load_library(library, image.c_str(), "cuLibraryLoadData");
}

CUresult cuLibraryUnload(CUlibrary handle) {
  return in_driver([&] {
    Library& library = library_at(handle);
    while (!library.modules.empty()) {
      Module* module = library.modules.begin()->second;
      library.modules.erase(library.modules.begin());
      unload(module);
    }
    for (const auto& [name, kernel] : library.kernels) state().kernels.erase(kernel.get());
    state().libraries.erase(&library);
    delete &library;
  });
}

CUresult cuLibraryGetKernel(CUkernel* result, CUlibrary handle, const char* name) {
  return in_driver([&] {
    const Library& library = library_at(handle);
    const auto found = library.kernels.find(name);
    require(found != library.kernels.end(), CUDA_ERROR_NOT_FOUND);
    *result = reinterpret_cast<CUkernel>(found->second.get());
  });
}

CUresult cuLibraryGetKernelCount(unsigned* count, CUlibrary handle) {
  return in_driver([&] { *count = static_cast<unsigned>(library_at(handle).kernels.size()); });
}

CUresult cuLibraryGetModule(CUmodule* module, CUlibrary handle) {
  return in_context(
      [&](Context& context) { *module = reinterpret_cast<CUmodule>(module_of(library_at(handle), context)); });
}

CUresult cuLibraryGetGlobal(CUdeviceptr* address, size_t* size, CUlibrary handle, const char* name) {
  return in_context(
      [&](Context& context) { variable_of(*module_of(library_at(handle), context), name, address, size); });
}

CUresult cuLibraryGetManaged(CUdeviceptr*, size_t*, CUlibrary handle, const char*) {
  return in_driver([&] {
    library_at(handle);
    throw Failure{CUDA_ERROR_NOT_FOUND};  // no managed variables here
  });
}

CUresult cuKernelGetFunction(CUfunction* function, CUkernel handle) {
  return in_context([&](Context& context) {
    LibraryKernel& kernel = kernel_at(handle);
    *function = reinterpret_cast<CUfunction>(find_function(*module_of(*kernel.library, context), kernel.entry->name));
  });
}

CUresult cuKernelGetLibrary(CUlibrary* library, CUkernel handle) {
  return in_driver([&] { *library = reinterpret_cast<CUlibrary>(kernel_at(handle).library); });
}

CUresult cuKernelGetName(const char** name, CUkernel handle) {
  return in_driver([&] { *name = kernel_at(handle).entry->name.c_str(); });
}

CUresult cuKernelGetParamInfo(CUkernel handle, size_t index, size_t* offset, size_t* size) {
  return in_driver([&] { parameter(*kernel_at(handle).entry, index, offset, size); });
}

CUresult cuKernelGetAttribute(int* value, CUfunction_attribute which, CUkernel handle, CUdevice) {
  return in_context([&](Context& context) {
    const LibraryKernel& kernel = kernel_at(handle);
    *value = attribute(*find_function(*module_of(*kernel.library, context), kernel.entry->name), which);
  });
}

CUresult cuKernelSetAttribute(CUfunction_attribute which, int value, CUkernel handle, CUdevice) {
  return in_context([&](Context& context) {
    const LibraryKernel& kernel = kernel_at(handle);
    set_attribute(*find_function(*module_of(*kernel.library, context), kernel.entry->name), which, value);
  });
}

// The linker: of what is added, the last image.

CUresult cuLinkCreate(unsigned, CUjit_option*, void**, CUlinkState* link) {
  return in_context([&](Context&) { *link = reinterpret_cast<CUlinkState>(new Link); });
}

CUresult cuLinkAddData(CUlinkState link, CUjitInputType, void* data, size_t size, const char*, unsigned, CUjit_option*,
                       void**) {
  return in_context([&](Context&) { reinterpret_cast<Link*>(link)->image.assign(static_cast<char*>(data), size); });
}

CUresult cuLinkAddFile(CUlinkState link, CUjitInputType, const char* path, unsigned, CUjit_option*, void**) {
  return in_context([&](Context&) { reinterpret_cast<Link*>(link)->image = read_file(path); });
}

CUresult cuLinkComplete(CUlinkState link, void** image, size_t* size) {
  return in_context([&](Context&) {
    *image = reinterpret_cast<Link*>(link)->image.data();
    if (size) *size = reinterpret_cast<Link*>(link)->image.size();
  });
}

CUresult cuLinkDestroy(CUlinkState link) {
  return in_context([&](Context&) { delete reinterpret_cast<Link*>(link); });
}
