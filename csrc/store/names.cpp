#include "store/names.h"

#include <cxxabi.h>

#include <cctype>
#include <cstdlib>
#include <memory>

namespace r3 {
namespace {

constexpr std::string_view anonymous_of_clang = "12_GLOBAL__N_1";
constexpr std::string_view anonymous_of_nvcc = "_GLOBAL__N__";  // then a hash and the file's name
constexpr std::string_view internal_of_nvcc = "_INTERNAL_";     // likewise; a scope around namespace-scope variables

// The length-prefixed identifier of an Itanium mangled name that begins at `at`: its end, or 0.
std::size_t identifier_end(std::string_view name, std::size_t at, std::string_view* identifier) {
  std::size_t digits = at, length = 0;
  while (digits < name.size() && std::isdigit(static_cast<unsigned char>(name[digits])) && length < name.size()) {
    length = 10 * length + static_cast<std::size_t>(name[digits++] - '0');
  }
  if (digits == at || length == 0 || length > name.size() - digits) return 0;
  *identifier = name.substr(digits, length);
  return digits + length;
}

// nvcc's scopes of internal linkage in clang's spelling.
std::string with_clang_scopes(std::string_view name) {
  std::string out;
  for (std::size_t at = 0; at < name.size();) {
    std::string_view identifier;
    const std::size_t end = identifier_end(name, at, &identifier);
    if (end == 0) {
      out += name[at++];
      continue;
    }
    if (identifier.starts_with(anonymous_of_nvcc)) {
      out += anonymous_of_clang;
    } else if (!identifier.starts_with(internal_of_nvcc)) {
      out += name.substr(at, end - at);
    }
    at = end;
  }
  return out;
}

// The name of the same entity declared `static`: an L before the last identifier. Empty when the name has no such form.
std::string as_static(std::string_view name) {
  if (!name.starts_with("_Z")) {
    return name.empty() ? std::string() : "_ZL" + std::to_string(name.size()) + std::string(name);
  }
  std::size_t at = name.starts_with("_ZN") ? 3 : 2, last = std::string_view::npos;
  std::string_view identifier;
  while (at < name.size()) {
    const std::size_t end = identifier_end(name, at, &identifier);
    if (end == 0) break;
    last = at;
    at = end;
    if (!name.starts_with("_ZN")) break;
  }
  if (last == std::string_view::npos) return {};
  return std::string(name.substr(0, last)) + "L" + std::string(name.substr(last));
}

}  // namespace

std::vector<std::string> module_names(std::string_view name) {
  std::vector<std::string> names{std::string(name)};
  const std::string scoped = with_clang_scopes(name);
  if (scoped != name) names.push_back(scoped);
  if (const std::string internal = as_static(scoped); !internal.empty()) names.push_back(internal);
  return names;
}

std::string demangled(const std::string& name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status),
                                                         std::free);
  return status == 0 ? text.get() : name;
}

}  // namespace r3
