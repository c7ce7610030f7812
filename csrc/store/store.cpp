#include "store/store.h"

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace r3 {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

std::filesystem::path store() {
  if (const std::string root = environment("R3LLVM_STORE"); !root.empty()) return root;
  if (const std::string data = environment("XDG_DATA_HOME"); !data.empty()) {
    return std::filesystem::path(data) / "r3llvm" / "store";
  }
  return std::filesystem::path(environment("HOME")) / ".local" / "share" / "r3llvm" / "store";
}

bool is_hash(const std::string& text) {
  return text.size() == 32 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

}  // namespace

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(file), {}};
  if (!file.is_open() || file.bad()) throw std::runtime_error("cannot read " + path.string());
  return bytes;
}

std::optional<StoredModule> find_module(const std::string& image_hash) {
  const auto root = store();
  const auto image = root / "images" / image_hash;
  std::error_code error;
  if (!std::filesystem::exists(image, error)) return std::nullopt;
  std::string hash = read_file(image);
  hash = hash.substr(0, hash.find_first_of(" \r\n"));
  if (!is_hash(hash))
    throw std::runtime_error(image.string() + " does not name a module; delete it and rebuild through `r3llvm wrap`");
  const auto about = root / "modules" / (hash + ".json");
  const auto json = nlohmann::json::parse(read_file(about), nullptr, false);
  const auto arch = json.is_object() ? json.find("arch") : json.end();
  if (!json.is_object() || arch == json.end() || !arch->is_string()) {
    throw std::runtime_error(about.string() + " is damaged; delete it and rebuild through `r3llvm wrap`");
  }
  StoredModule module{hash, arch->get<std::string>(), root / "modules" / (hash + ".bc"), std::nullopt};
  if (const auto names = json.find("variables"); names != json.end() && names->is_array()) {
    module.variables.emplace();
    for (const auto& name : *names) {
      if (name.is_string()) module.variables->push_back(name.get<std::string>());
    }
  }
  return module;
}

}  // namespace r3
