#include "hostcuda/engine.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>

namespace r3::hostcuda {
namespace {

// R3LLVM_CORE, else libr3core.so beside this library.
std::filesystem::path core_path() {
  if (const char* given = std::getenv("R3LLVM_CORE"); given && *given) return given;
  Dl_info here{};
  if (!dladdr(reinterpret_cast<const void*>(&core_path), &here) || !here.dli_fname) return "libr3core.so";
  std::error_code error;  // the link libcudart.so may lie elsewhere
  const auto self = std::filesystem::canonical(here.dli_fname, error);
  return (error ? std::filesystem::path(here.dli_fname) : self).parent_path() / "libr3core.so";
}

[[noreturn]] void refuse(const std::string& reason) {
  throw std::runtime_error("cannot load the execution engine: " + reason +
                           "; reinstall r3llvm, or set R3LLVM_CORE to its libr3core.so");
}

template <class Function>
void bind(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (!function) refuse(dlerror());
}

Engine open() {
  void* library = dlopen(core_path().c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) refuse(dlerror());
  Engine engine{};
  decltype(&r3_compile_init) init = nullptr;
  bind(library, "r3simt_load", engine.load);
  bind(library, "r3simt_unload", engine.unload);
  bind(library, "r3simt_kernel", engine.kernel);
  bind(library, "r3simt_run", engine.run);
  bind(library, "r3_bytes_free", engine.free_bytes);
  bind(library, "r3_compile_init", init);
  init();
  return engine;
}

}  // namespace

const Engine& engine() {
  static const Engine instance = open();
  return instance;
}

}  // namespace r3::hostcuda
