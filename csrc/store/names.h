// Names of entities with internal linkage: nvcc registers others than clang gives them in the captured module.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace r3 {

// What a kernel or variable that was registered as `name` may be called in a module, the likeliest first.
std::vector<std::string> module_names(std::string_view name);

// The C++ name, or `name` itself when it is not a mangled one.
std::string demangled(const std::string& name);

}  // namespace r3
