#include "hostcuda/registry.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <stdexcept>
#include <utility>

#include "hostcuda/device.h"
#include "hostcuda/memory.h"
#include "snapshot/snapshot.h"
#include "store/fat_binary.h"
#include "store/names.h"

namespace r3::hostcuda {
namespace {

std::string image_hash(const void* data) {
  const auto image = fat_binary(data);
  if (!image) throw std::runtime_error("its device image is no fat binary");
  return content_hash(*image);
}

}  // namespace

Refusal Image::refuse(cudaError_t error, std::string reason, const std::string& user) {
  refusal_ = {error, std::move(reason)};
  say(user + ": " + refusal_.reason);
  return refusal_;
}

Refusal Image::locate(const std::string& user) {
  const std::lock_guard lock(mutex_);
  if (stored_) return {};
  if (refusal_) return refusal_;
  try {
    stored_ = find_module(image_hash(fat_binary_));
  } catch (const std::exception& error) {
    return refuse(cudaErrorInvalidKernelImage, error.what(), user);
  }
  if (stored_) return {};
  return refuse(cudaErrorNoKernelImageForDevice, "no captured module; rebuild the application through `r3llvm wrap`",
                user);
}

Refusal Image::load(const std::string& user) {
  const std::lock_guard lock(mutex_);
  if (module_) return {};
  if (const Refusal refusal = locate(user)) return refusal;
  if (refusal_) return refusal_;
  try {
    const Engine& e = engine();
    const std::string bitcode = read_file(stored_->bitcode);
    if (content_hash(std::as_bytes(std::span(bitcode))) != stored_->hash) {
      return refuse(cudaErrorInvalidKernelImage,
                    stored_->bitcode.string() + " is damaged; delete it and rebuild through `r3llvm wrap`", user);
    }
    const auto place_variable = [](void* self, const char* name, std::uint64_t size, std::uint64_t, int,
                                   const void* initializer) -> std::uint64_t {
      return static_cast<Image*>(self)->place(name, size, initializer);
    };
    const r3simt_load_options options{
        passes, {stored_->arch.c_str(), features, codegen_level}, load_flags(), place_variable, this};
    r3_bytes error{};
    if (e.load(bitcode.data(), bitcode.size(), &options, &module_, &error) != 0) {
      const std::string reason = error.data ? std::string(error.data, error.size) : "the module does not compile";
      e.free_bytes(&error);
      module_ = nullptr;
      return refuse(cudaErrorInvalidKernelImage, reason, user);
    }
  } catch (const std::exception& error) {
    return refuse(cudaErrorInitializationError, error.what(), user);
  }
  return {};
}

void Image::unload() {
  const std::lock_guard lock(mutex_);
  if (!module_) return;
  engine().unload(std::exchange(module_, nullptr));
  for (const PlacedVariable& variable : variables_) memory().release(variable.base, {Block::Kind::variable});
  variables_.clear();
}

std::uint64_t Image::place_managed(const std::string& name, std::uint64_t size) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t base = memory().allocate(size, Block::Kind::managed_variable);
  managed_.push_back({name, base, size});
  return base;
}

void Image::initialize_managed(const std::string& name) {
  const std::string user = "managed variable " + demangled(name);
  if (load(user)) return;
  const auto names = module_names(name);
  const bool placed = std::any_of(variables_.begin(), variables_.end(), [&](const PlacedVariable& variable) {
    return std::find(names.begin(), names.end(), variable.name) != names.end();
  });
  if (!placed) say(user + ": not in the captured module, since clang does not compile __managed__; it starts as zero");
}

std::uint64_t Image::place(const char* name, std::uint64_t size, const void* initializer) {
  std::uint64_t base = 0;
  for (const PlacedVariable& managed : managed_) {
    const auto names = module_names(managed.name);
    if (std::find(names.begin(), names.end(), name) != names.end() && managed.size >= size) base = managed.base;
  }
  if (base == 0) base = memory().allocate(size, Block::Kind::variable);
  if (base == 0) return 0;
  if (initializer) std::memcpy(pointer_to(base), initializer, size);
  variables_.push_back({name, base, size});
  return base;
}

std::string Kernel::description() const { return "kernel " + demangled(name_); }

Refusal Kernel::resolve() {
  const std::lock_guard lock(mutex_);
  if (info_) return {};
  if (refusal_) return refusal_;
  if (const Refusal refusal = image_.load(description())) return refusal;
  for (const std::string& name : module_names(name_)) {
    if (const r3simt_kernel_info* info = engine().kernel(image_.module(), name.c_str())) {
      name_ = name;
      info_ = info;
      return {};
    }
  }
  refusal_ = {cudaErrorInvalidDeviceFunction,
              "the captured module has no such kernel; rebuild the application through `r3llvm wrap`"};
  say(description() + ": " + refusal_.reason);
  return refusal_;
}

int Kernel::max_dynamic_shared() const {
  return opted_shared_ > 0 ? opted_shared_ : std::max(0, shared_default - static_cast<int>(info_->static_shared));
}

bool Kernel::allow_dynamic_shared(int bytes) {
  if (bytes < 0 || bytes > shared_opt_in - static_cast<int>(info_->static_shared)) return false;
  opted_shared_ = bytes;
  return true;
}

Image* Registry::add_image(const void* fat_binary) {
  const std::lock_guard lock(mutex_);
  return images_.emplace_back(std::make_unique<Image>(fat_binary)).get();
}

void Registry::remove_image(Image* image) {
  const std::lock_guard lock(mutex_);
  std::erase_if(kernel_by_address_, [&](const auto& entry) { return &entry.second->image() == image; });
  std::erase_if(variable_by_address_, [&](const auto& entry) { return entry.second.image == image; });
}

void Registry::add_kernel(Image& image, const void* host, const char* name) {
  const std::lock_guard lock(mutex_);
  Kernel* kernel = kernels_.emplace_back(std::make_unique<Kernel>(image, name)).get();
  kernel_by_address_[host] = kernel;
  kernel_by_address_[kernel] = kernel;  // its handle
}

void Registry::add_variable(Image& image, const void* host, const char* name, std::uint64_t) {
  const std::lock_guard lock(mutex_);
  variable_by_address_[host] = {&image, name, false};
}

void Registry::add_managed(Image& image, void** host, const char* name, std::uint64_t size) {
  const std::uint64_t base = image.place_managed(name, size);
  if (base == 0) throw std::bad_alloc();
  *host = pointer_to(base);
  const std::lock_guard lock(mutex_);
  variable_by_address_[host] = {&image, name, true};
  variable_by_address_[*host] = {&image, name, true};  // the host's &variable is the memory's address
}

void Registry::load_managed(Image& image) {
  std::set<std::string> names;
  {
    const std::shared_lock lock(mutex_);
    for (const auto& [address, variable] : variable_by_address_) {
      if (variable.image == &image && variable.managed) names.insert(variable.name);
    }
  }
  for (const std::string& name : names) image.initialize_managed(name);
}

Kernel* Registry::kernel(const void* function) {
  const std::shared_lock lock(mutex_);
  const auto found = kernel_by_address_.find(function);
  return found == kernel_by_address_.end() ? nullptr : found->second;
}

cudaError_t Registry::variable(const void* symbol, PlacedVariable* out) {
  Variable variable;
  {
    const std::shared_lock lock(mutex_);
    const auto found = variable_by_address_.find(symbol);
    if (found == variable_by_address_.end()) return cudaErrorInvalidSymbol;
    variable = found->second;
  }
  if (const Refusal refusal = variable.image->load("variable " + demangled(variable.name))) return refusal.error;
  for (const std::string& name : module_names(variable.name)) {
    for (const PlacedVariable& placed : variable.image->variables()) {
      if (placed.name != name) continue;
      *out = placed;
      return cudaSuccess;
    }
  }
  return cudaErrorInvalidSymbol;
}

void Registry::unload_modules() {
  const std::lock_guard lock(mutex_);
  for (const auto& kernel : kernels_) kernel->forget();
  for (const auto& image : images_) image->unload();
}

Registry& registry() {
  static auto& instance = *new Registry;
  return instance;
}

}  // namespace r3::hostcuda
