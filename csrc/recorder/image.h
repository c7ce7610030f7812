// The device images that the application loaded, and the module that each was compiled from.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "driver/driver.h"

namespace r3::recorder {

struct Variable {
  std::string name;
  std::uint64_t base, size;  // where this context has it
};

// One loaded module or library. Immutable once handed out.
struct Image {
  std::vector<std::byte> bytes;  // cubin, PTX or fat binary, as the driver got it; empty when it could not be read
  std::string kind;              // "cubin", "ptx", "fatbin"; "" when there are no bytes
  std::string hash;              // content_hash(bytes); for a fat binary that of header and body, as the store has it
  std::string module;            // the captured module's hash; empty when the store has none
  std::vector<std::string> variables;  // names of its device variables: from the store, or from the cubin's symbols
};

// What was loaded under the handle (called by the hooks of cuModuleLoad…, cuLibraryLoad… and cuLinkComplete). `data`
// may be a fat binary's wrapper (__fatBinC_Wrapper_t), the fat binary itself, a cubin (ELF) or PTX text.
void module_loaded(CUmodule module, const void* data) noexcept;
void module_loaded_from_file(CUmodule module, const char* path) noexcept;
void module_unloaded(CUmodule module) noexcept;
void library_loaded(CUlibrary library, const void* data) noexcept;
void library_loaded_from_file(CUlibrary library, const char* path) noexcept;
void library_unloaded(CUlibrary library) noexcept;
// The library's module in a context; the function that stands for a kernel there.
void library_module(CUlibrary library, CUmodule module) noexcept;
void kernel_function(CUkernel kernel, CUfunction function) noexcept;
// A variable that the application asked for by name: recorded too, when the image's own list is not known.
void variable_used(CUmodule module, CUlibrary library, const char* name) noexcept;

// The image of a launched function, which may be a CUkernel; null when it was loaded out of our sight.
std::shared_ptr<const Image> image_of(CUfunction function) noexcept;
// Its variables' places in the current context, by the names that the captured module gives them. What the compiler
// dropped is left out; a managed variable is told and lies in foreign memory (foreign.h).
std::vector<Variable> variables_of(CUfunction function, const Image& image);

}  // namespace r3::recorder
