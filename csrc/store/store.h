// Where `r3llvm wrap` keeps what it captured. See recordings/README.md, "The store".
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace r3 {

struct StoredModule {
  std::string hash;
  std::string arch;  // "sm_90"
  std::filesystem::path bitcode;
  std::optional<std::vector<std::string>> variables;  // names of its device variables; nothing: not known
};

// The module captured with the device image of this hash, if any. Throws std::runtime_error when the store is damaged.
std::optional<StoredModule> find_module(const std::string& image_hash);

std::string read_file(const std::filesystem::path& path);  // throws std::runtime_error

}  // namespace r3
