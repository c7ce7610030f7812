// What the application's compiler registered: device images, and their kernels and variables by the addresses the host
// knows.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <vector>

#include "hostcuda/api.h"
#include "hostcuda/engine.h"
#include "snapshot/arena.h"
#include "store/store.h"

namespace r3::hostcuda {

struct PlacedVariable {
  std::string name;  // as the module has it
  std::uint64_t base = 0, size = 0;
};

// Why something cannot be used, and the line that was said about it.
struct Refusal {
  cudaError_t error = cudaSuccess;
  std::string reason;

  explicit operator bool() const { return error != cudaSuccess; }
};

// R3SIMT_* for r3simt_load.
unsigned load_flags();

// A registered fat binary and, once needed, its module.
class Image {
 public:
  explicit Image(const void* fat_binary) : fat_binary_(fat_binary) {}

  // Finds the module in the store, without compiling it. `user` ("kernel f") is named in what is said, once, when that
  // fails.
  Refusal locate(const std::string& user);
  // Compiles the module and places its variables.
  Refusal load(const std::string& user);
  void unload();

  // After locate():
  const StoredModule& stored() const { return *stored_; }
  // After load():
  r3simt_module* module() const { return module_; }
  const std::vector<PlacedVariable>& variables() const { return variables_; }

  // Gives a managed variable its memory before the module is there: the host may use it at once.
  std::uint64_t place_managed(const std::string& name, std::uint64_t size);
  // Loads the module for its initial value.
  void initialize_managed(const std::string& name);

 private:
  std::uint64_t place(const char* name, std::uint64_t size, const void* initializer);
  Refusal refuse(cudaError_t error, std::string reason, const std::string& user);

  const void* fat_binary_;
  std::recursive_mutex mutex_;
  std::optional<StoredModule> stored_;
  r3simt_module* module_ = nullptr;
  std::vector<PlacedVariable> variables_;
  std::vector<PlacedVariable> managed_;
  Refusal refusal_;
};

class Kernel {
 public:
  Kernel(Image& image, std::string name) : image_(image), name_(std::move(name)) {}

  // Loads the image if need be and finds the kernel in it.
  Refusal resolve();

  const std::string& name() const { return name_; }  // as the module has it, once resolved
  Image& image() const { return image_; }
  const r3simt_kernel_info& info() const { return *info_; }  // after resolve()

  // cudaFuncSetAttribute's.
  int max_dynamic_shared() const;
  bool allow_dynamic_shared(int bytes);
  int carveout = -1;

  void forget() { info_ = nullptr; }
  std::string description() const;  // "kernel f(int*)"

 private:
  Image& image_;
  std::string name_;
  std::mutex mutex_;
  const r3simt_kernel_info* info_ = nullptr;
  Refusal refusal_;
  int opted_shared_ = 0;
};

// What CUDA says to an address that is no kernel's: it may be a stale handle.
inline cudaError_t unknown_kernel(const void* function) {
  return function ? cudaErrorInvalidResourceHandle : cudaErrorInvalidDeviceFunction;
}

class Registry {
 public:
  Image* add_image(const void* fat_binary);
  void remove_image(Image* image);
  void add_kernel(Image& image, const void* host, const char* name);
  void add_variable(Image& image, const void* host, const char* name, std::uint64_t size);
  void add_managed(Image& image, void** host, const char* name, std::uint64_t size);
  void load_managed(Image& image);

  Kernel* kernel(const void* function);                                // by host stub or by handle; null when unknown
  cudaError_t variable(const void* symbol, PlacedVariable* variable);  // loads the module
  void unload_modules();

 private:
  struct Variable {
    Image* image;
    std::string name;
    bool managed;
  };

  std::shared_mutex mutex_;
  std::vector<std::unique_ptr<Image>> images_;  // of removed ones too: a handle may outlive its library
  std::vector<std::unique_ptr<Kernel>> kernels_;
  std::map<const void*, Kernel*> kernel_by_address_;
  std::map<const void*, Variable> variable_by_address_;
};

Registry& registry();

}  // namespace r3::hostcuda
