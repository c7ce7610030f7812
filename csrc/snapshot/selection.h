// Which launches are recorded.
#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <regex>
#include <set>
#include <span>
#include <string>
#include <string_view>

namespace r3 {

struct Geometry {
  std::array<std::uint32_t, 3> grid{}, block{};
  std::uint32_t dynamic_shared = 0;
  bool cooperative = false;
};

// What makes two launches of a kernel the same: all but the device addresses. `code` tells kernels of one name apart (a
// module's or image's hash); `more` is whatever else changes what the launch does.
std::string identity(std::string_view code, const Geometry& geometry, std::span<const std::byte> arguments,
                     std::string_view more = {});

// What the user asked for.
struct Criteria {
  std::optional<std::regex> kernels;  // searched in the mangled and in the C++ name
  std::uint64_t most = 4;             // recorded launches a kernel
  std::uint64_t every = 1;            // only launches whose index is a multiple of it
  std::set<std::uint64_t> launches;   // only these indices, if there are any

  // From R3LLVM_RECORD_KERNELS, _MAX, _EVERY and _LAUNCHES. Throws std::runtime_error: which one is wrong.
  static Criteria from_environment();

  bool want_kernel(const std::string& name, const std::string& cxx_name) const;
  bool want_launch(std::uint64_t index) const;
};

// One kernel's launches. Thread-safe; idle() and count() are cheap.
class Launches {
 public:
  Launches(const Criteria& criteria, bool wanted) : criteria_(criteria), idle_(!wanted), wanted_(wanted) {}

  bool wanted() const { return wanted_; }
  bool idle() const { return idle_.load(std::memory_order_relaxed); }  // no launch will be recorded any more
  std::uint64_t count() { return seen_.fetch_add(1, std::memory_order_relaxed); }  // the present launch's index
  std::uint64_t seen() const { return seen_.load(std::memory_order_relaxed); }
  // Whether the launch of this index is to be recorded. Identical launches are recorded once, unless they were asked
  // for by index.
  bool take(std::uint64_t index, const std::string& identity);
  // How a launch that was taken ended; a launch may be refused before, too. A kernel that is refused again and again is
  // given up.
  void recorded();
  void refused(bool taken = true);

 private:
  const Criteria& criteria_;
  std::atomic<std::uint64_t> seen_{0};
  std::atomic<bool> idle_;
  const bool wanted_;
  std::mutex mutex_;
  std::uint64_t taken_ = 0, recorded_ = 0, refused_ = 0;
  std::set<std::string> distinct_;
};

// An environment variable's number, or `otherwise` when it is not set. Throws std::runtime_error.
std::uint64_t environment_number(const char* name, std::uint64_t otherwise);
std::string_view environment(const char* name);  // empty when it is not set

}  // namespace r3
