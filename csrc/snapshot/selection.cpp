#include "snapshot/selection.h"

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "snapshot/arena.h"

namespace r3 {
namespace {

constexpr std::uint64_t most_refusals = 16;  // of one kernel, each of which may have cost a synchronisation

std::uint64_t number(std::string_view text, const char* variable) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw std::runtime_error(std::string(variable) + " is no number: " + std::string(text));
  }
  return value;
}

}  // namespace

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

std::uint64_t environment_number(const char* name, std::uint64_t otherwise) {
  const std::string_view text = environment(name);
  return text.empty() ? otherwise : number(text, name);
}

std::string identity(std::string_view code, const Geometry& geometry, std::span<const std::byte> arguments,
                     std::string_view more) {
  const std::uint32_t figures[] = {
      geometry.grid[0],        geometry.grid[1],     geometry.grid[2],
      geometry.block[0],       geometry.block[1],    geometry.block[2],
      geometry.dynamic_shared, geometry.cooperative, static_cast<std::uint32_t>(more.size())};
  std::string key(code);
  key.append(reinterpret_cast<const char*>(figures), sizeof figures);
  key.append(more);
  const std::size_t start = key.size();
  key.append(reinterpret_cast<const char*>(arguments.data()), arguments.size());
  for (std::size_t at = 0; at + 8 <= arguments.size(); at += 8) {
    std::uint64_t word;
    std::memcpy(&word, arguments.data() + at, sizeof word);
    if (word - arena_base < arena_size) key.replace(start + at, 8, 8, '\0');
  }
  return key;
}

Criteria Criteria::from_environment() {
  Criteria criteria;
  criteria.most = environment_number("R3LLVM_RECORD_MAX", criteria.most);
  criteria.every = environment_number("R3LLVM_RECORD_EVERY", criteria.every);
  if (criteria.every == 0) throw std::runtime_error("R3LLVM_RECORD_EVERY is 0: it must be at least 1");
  for (std::string_view list = environment("R3LLVM_RECORD_LAUNCHES"); !list.empty();) {
    const std::size_t comma = list.find(',');
    criteria.launches.insert(number(list.substr(0, comma), "R3LLVM_RECORD_LAUNCHES"));
    list = comma == std::string_view::npos ? std::string_view() : list.substr(comma + 1);
  }
  if (const auto text = environment("R3LLVM_RECORD_KERNELS"); !text.empty()) {
    try {
      criteria.kernels.emplace(text.begin(), text.end(), std::regex::ECMAScript | std::regex::optimize);
    } catch (const std::regex_error& error) {
      throw std::runtime_error(std::string("R3LLVM_RECORD_KERNELS is no regular expression: ") + error.what());
    }
  }
  return criteria;
}

bool Criteria::want_kernel(const std::string& name, const std::string& cxx_name) const {
  return !kernels || std::regex_search(name, *kernels) || std::regex_search(cxx_name, *kernels);
}

bool Criteria::want_launch(std::uint64_t index) const {
  return index % every == 0 && (launches.empty() || launches.contains(index));
}

bool Launches::take(std::uint64_t index, const std::string& identity) {
  const std::lock_guard lock(mutex_);
  if (!criteria_.launches.empty() && index >= *criteria_.launches.rbegin()) idle_ = true;
  if (!wanted_ || taken_ >= criteria_.most || refused_ >= most_refusals || !criteria_.want_launch(index)) return false;
  if (!distinct_.insert(identity).second && !criteria_.launches.contains(index)) return false;
  ++taken_;
  return true;
}

void Launches::recorded() {
  const std::lock_guard lock(mutex_);
  if (++recorded_ >= criteria_.most) idle_ = true;
}

void Launches::refused(bool taken) {
  const std::lock_guard lock(mutex_);
  if (taken) --taken_;
  if (++refused_ >= most_refusals) idle_ = true;
}

}  // namespace r3
