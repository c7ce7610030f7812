#include "recorder/image.h"

#include <link.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <span>
#include <string_view>
#include <unordered_map>

#include "recorder/aside.h"
#include "recorder/elf.h"
#include "recorder/foreign.h"
#include "snapshot/snapshot.h"
#include "store/fat_binary.h"
#include "store/names.h"
#include "store/store.h"

namespace r3::recorder {
namespace {

using Bytes = std::span<const std::byte>;

// Calls `use` with the program or library that `address` lies in, if any. Not dladdr, which looks through all its
// symbols.
template <class F>
bool with_program_around(const void* address, F&& use) {
  struct Search {
    std::uint64_t address;
    F& use;
  } search{reinterpret_cast<std::uint64_t>(address), use};
  return dl_iterate_phdr(
             [](dl_phdr_info* object, std::size_t, void* argument) {
               const auto& [address, use] = *static_cast<Search*>(argument);
               for (const ElfW(Phdr) & segment : std::span(object->dlpi_phdr, object->dlpi_phnum)) {
                 if (segment.p_type != PT_LOAD) continue;
                 if (address - object->dlpi_addr - segment.p_vaddr >= segment.p_memsz) continue;
                 use(*object);
                 return 1;
               }
               return 0;
             },
             &search) != 0;
}

// What lies in a program or shared library outlives what is loaded from it.
bool in_program(const void* data) {
  return data && with_program_around(data, [](const dl_phdr_info&) {});
}

// Calls `use` with the constant data of the program or library that `address` lies in.
template <class F>
void for_constants_around(const void* address, F&& use) {
  with_program_around(address, [&](const dl_phdr_info& object) {
    for (const ElfW(Phdr) & segment : std::span(object.dlpi_phdr, object.dlpi_phnum)) {
      if (segment.p_type != PT_LOAD || !(segment.p_flags & PF_R) || segment.p_flags & PF_W) continue;
      const auto* start = reinterpret_cast<const char*>(object.dlpi_addr + segment.p_vaddr);
      use(std::string_view(start, segment.p_filesz));
    }
  });
}

struct Recognised {
  std::string kind;
  Bytes bytes;
};

Recognised recognise(const void* data) {
  if (const auto image = fat_binary(data)) return {"fatbin", *image};
  if (const auto size = elf_size(data)) return {"cubin", {static_cast<const std::byte*>(data), *size}};
  const auto* text = static_cast<const char*>(data);
  const auto first = static_cast<unsigned char>(text[0]);
  if (std::isspace(first) || first == '/' || first == '.') {  // PTX begins with a comment or with .version
    return {"ptx", std::as_bytes(std::span(text, std::strlen(text)))};
  }
  return {};
}

// "f" of "a::f" and "f(int)::f"
std::string last_identifier(const std::string& mangled) {
  const std::string name = demangled(mangled);
  const auto end =
      std::find_if_not(name.rbegin(), name.rend(), [](unsigned char c) { return std::isalnum(c) || c == '_'; });
  return {end.base(), name.end()};
}

// The names in the program's constants that may stand for a variable which the captured module calls `name`: those that
// nvcc registers it under.
std::set<std::string> registered_as(const std::string& name, const void* address) {
  std::set<std::string> found;
  const std::string identifier = last_identifier(name);
  if (identifier.empty()) return found;
  for_constants_around(address, [&](std::string_view constants) {
    constexpr std::size_t longest = 4096;
    const auto not_of_a_name = [](unsigned char c) { return !std::isalnum(c) && c != '_'; };
    for (std::size_t at = 0; (at = constants.find(identifier, at)) != std::string_view::npos; at += identifier.size()) {
      const auto nearby = constants.substr(at < longest ? 0 : at - longest, std::min(at, longest));
      const auto before = std::find_if(nearby.rbegin(), nearby.rend(), not_of_a_name).base();
      const auto length = static_cast<std::size_t>(nearby.end() - before);
      const auto rest = constants.substr(at, longest);
      const auto after = std::find_if(rest.begin(), rest.end(), not_of_a_name);
      if (after == rest.end() || *after != '\0') continue;
      std::string candidate(constants.substr(at - length, length + static_cast<std::size_t>(after - rest.begin())));
      const auto names = module_names(candidate);
      if (std::find(names.begin(), names.end(), name) != names.end()) found.insert(std::move(candidate));
    }
  });
  return found;
}

// The variables that PTX text defines: ".visible .global .align 4 .b8 name[16];"
std::vector<std::string> ptx_variables(std::string_view text) {
  std::vector<std::string> found;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    line = line.substr(0, line.find_first_of("=;[{/"));
    bool variable = false;
    std::string_view name;
    while (!line.empty()) {
      const std::size_t start = line.find_first_not_of(" \t\r");
      if (start == std::string_view::npos) break;
      line.remove_prefix(start);
      name = line.substr(0, line.find_first_of(" \t\r"));
      line.remove_prefix(name.size());
      if (name == ".extern") break;
      if (name == ".global" || name == ".const") {
        variable = true;
      } else if (!variable && !(name == ".visible" || name == ".weak" || name == ".common")) {
        break;
      }
    }
    if (variable && !name.empty() && name[0] != '.' && name.find('$') == std::string_view::npos &&
        !std::isdigit(static_cast<unsigned char>(name[0]))) {
      found.emplace_back(name);
    }
  }
  return found;
}

// A module or library that the application loaded. Hashing and copying waits until a kernel of it is recorded, but for
// images whose memory the application may take back.
class Loaded {
 public:
  explicit Loaded(const void* data) : recognised_(recognise(data)), address_(recognised_.bytes.data()) {
    if (in_program(address_)) return;
    copy_.assign(recognised_.bytes.begin(), recognised_.bytes.end());
    recognised_.bytes = copy_;
    address_ = nullptr;
  }
  explicit Loaded(const std::string& file) {
    const std::string bytes = read_file(file) + '\0';  // PTX ends by it
    const Recognised found = recognise(bytes.data());
    if (found.bytes.size() > bytes.size()) return;  // cut short: the driver will not have loaded it either
    copy_.assign(found.bytes.begin(), found.bytes.end());
    recognised_ = {found.kind, copy_};
  }
  Loaded(const Loaded&) = delete;
  Loaded& operator=(const Loaded&) = delete;

  std::shared_ptr<const Image> image() {
    const std::lock_guard lock(mutex_);
    if (!image_) image_ = read();
    return image_;
  }

  void used(const char* name) {
    const std::lock_guard lock(mutex_);
    if (used_.insert(name).second) spelled_.clear();
  }

  // `locate(name, &base, &size)`: whether the loaded image has a variable of this name in the current context.
  template <class F>
  std::vector<Variable> variables(const Image& image, F&& locate) {
    const std::lock_guard lock(mutex_);
    std::set<std::string> names(image.variables.begin(), image.variables.end());
    if (!listed_) names.insert(used_.begin(), used_.end());
    std::vector<Variable> found;
    for (const std::string& name : names) {
      Variable variable{name, 0, 0};
      auto spelled = spelled_.find(name);
      if (spelled == spelled_.end()) {
        spelled = spelled_.emplace(name, std::string()).first;
        for (const std::string& candidate : spellings(name)) {
          if (!locate(candidate, &variable.base, &variable.size)) continue;
          spelled->second = candidate;
          break;
        }
      }
      if (spelled->second.empty() || !locate(spelled->second, &variable.base, &variable.size)) continue;
      found.push_back(std::move(variable));
    }
    return found;
  }

 private:
  std::shared_ptr<const Image> read() {
    auto image = std::make_shared<Image>();
    image->kind = recognised_.kind;
    if (image->kind.empty()) return image;
    image->bytes.assign(recognised_.bytes.begin(), recognised_.bytes.end());
    image->hash = content_hash(image->bytes);
    std::optional<StoredModule> stored;
    aside([&] { stored = find_module(image->hash); });
    if (stored) image->module = stored->hash;
    listed_ = true;
    if (stored && stored->variables) {
      image->variables = *stored->variables;
    } else if (image->kind == "cubin") {
      image->variables = cubin_variables(image->bytes);
    } else if (image->kind == "ptx") {
      const auto* text = reinterpret_cast<const char*>(image->bytes.data());
      image->variables = ptx_variables({text, image->bytes.size()});
    } else {
      listed_ = false;
    }
    return image;
  }

  // What the loaded image may call the variable that the captured module calls `name`, the likeliest first.
  std::vector<std::string> spellings(const std::string& name) {
    std::vector<std::string> all{name};
    for (const std::string& candidate : used_) {
      const auto names = module_names(candidate);
      if (candidate != name && std::find(names.begin(), names.end(), name) != names.end()) all.push_back(candidate);
    }
    if (address_) {
      const auto registered = registered_as(name, address_);
      all.insert(all.end(), registered.begin(), registered.end());
    }
    return all;
  }

  std::mutex mutex_;
  Recognised recognised_;
  std::vector<std::byte> copy_;
  const void* address_ = nullptr;  // in the program that brought it along
  std::shared_ptr<const Image> image_;
  bool listed_ = false;  // the image's variables are known
  std::set<std::string> used_;
  std::map<std::string, std::string> spelled_;  // by the captured module's name; empty: not in the loaded image
};

struct Handle {
  CUmodule module;    // or
  CUlibrary library;  // this
  std::shared_ptr<Loaded> loaded;
};

class Images {
 public:
  void add(const void* key, Handle handle) {
    const std::lock_guard lock(mutex_);
    by_handle_.insert_or_assign(key, std::move(handle));
  }

  // Of a module that belongs to a library, or a function that stands for a kernel.
  void alias(const void* key, const void* of) {
    const std::lock_guard lock(mutex_);
    if (const auto found = by_handle_.find(of); found != by_handle_.end()) {
      const Handle handle = found->second;
      by_handle_.insert_or_assign(key, handle);
    }
  }

  void remove(const void* key) {
    const std::lock_guard lock(mutex_);
    const auto found = by_handle_.find(key);
    if (found == by_handle_.end()) return;
    const auto loaded = found->second.loaded;
    std::erase_if(by_handle_, [&](const auto& entry) { return entry.second.loaded == loaded; });
  }

  std::optional<Handle> find(const void* key) {
    const std::lock_guard lock(mutex_);
    const auto found = by_handle_.find(key);
    if (found == by_handle_.end()) return std::nullopt;
    return found->second;
  }

  std::optional<Handle> of(CUfunction function) {
    if (const auto known = find(function)) return known;
    CUmodule module = nullptr;
    if (driver().cuFuncGetModule && driver().cuFuncGetModule(&module, function) == CUDA_SUCCESS) {
      if (const auto known = find(module)) return known;
    }
    CUlibrary library = nullptr;
    if (driver().cuKernelGetLibrary &&
        driver().cuKernelGetLibrary(&library, reinterpret_cast<CUkernel>(function)) == CUDA_SUCCESS) {
      return find(library);
    }
    return std::nullopt;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<const void*, Handle> by_handle_;
};

Images& images() {
  static auto& instance = *new Images;  // exit handlers unload modules
  return instance;
}

}  // namespace

void module_loaded(CUmodule module, const void* data) noexcept {
  aside([&] { images().add(module, {module, nullptr, std::make_shared<Loaded>(data)}); });
}

void module_loaded_from_file(CUmodule module, const char* path) noexcept {
  aside([&] { images().add(module, {module, nullptr, std::make_shared<Loaded>(std::string(path))}); });
}

void module_unloaded(CUmodule module) noexcept {
  aside([&] { images().remove(module); });
}

void library_loaded(CUlibrary library, const void* data) noexcept {
  aside([&] { images().add(library, {nullptr, library, std::make_shared<Loaded>(data)}); });
}

void library_loaded_from_file(CUlibrary library, const char* path) noexcept {
  aside([&] { images().add(library, {nullptr, library, std::make_shared<Loaded>(std::string(path))}); });
}

void library_unloaded(CUlibrary library) noexcept {
  aside([&] { images().remove(library); });
}

void library_module(CUlibrary library, CUmodule module) noexcept {
  aside([&] { images().alias(module, library); });
}

void kernel_function(CUkernel kernel, CUfunction function) noexcept {
  aside([&] {
    CUlibrary library = nullptr;
    if (driver().cuKernelGetLibrary && driver().cuKernelGetLibrary(&library, kernel) == CUDA_SUCCESS) {
      images().alias(function, library);
    }
  });
}

void variable_used(CUmodule module, CUlibrary library, const char* name) noexcept {
  aside([&] {
    const void* key = module ? static_cast<const void*>(module) : library;
    if (const auto handle = images().find(key)) handle->loaded->used(name);
  });
}

std::shared_ptr<const Image> image_of(CUfunction function) noexcept {
  std::shared_ptr<const Image> image;
  aside([&] {
    if (const auto handle = images().of(function)) image = handle->loaded->image();
  });
  return image;
}

std::vector<Variable> variables_of(CUfunction function, const Image& image) {
  const auto handle = images().of(function);
  if (!handle) return {};
  const auto locate = [&](const std::string& name, std::uint64_t* base, std::uint64_t* size) {
    CUdeviceptr at = 0;
    std::size_t bytes = 0;
    bool managed = false;
    CUresult code = CUDA_ERROR_NOT_FOUND;
    if (handle->module) {
      code = driver().cuModuleGetGlobal(&at, &bytes, handle->module, name.c_str());
    } else {
      code = driver().cuLibraryGetGlobal(&at, &bytes, handle->library, name.c_str());
      if (code != CUDA_SUCCESS && driver().cuLibraryGetManaged) {
        code = driver().cuLibraryGetManaged(&at, &bytes, handle->library, name.c_str());
        managed = code == CUDA_SUCCESS;
      }
    }
    if (code != CUDA_SUCCESS || at == 0 || bytes == 0) return false;
    if (!managed) {
      unsigned flag = 0;
      managed = driver().cuPointerGetAttribute(&flag, CU_POINTER_ATTRIBUTE_IS_MANAGED, at) == CUDA_SUCCESS && flag;
    }
    if (managed) add_foreign(at, bytes, ForeignKind::managed);
    *base = at;
    *size = bytes;
    return true;
  };
  return handle->loaded->variables(image, locate);
}

}  // namespace r3::recorder
