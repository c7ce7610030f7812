// Writes launches into the folder that R3LLVM_RECORD names. See recordings/README.md. Whatever happens in here, the
// application computes and prints the same.
#pragma once
#include <atomic>
#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>

#include "hostcuda/launch.h"
#include "snapshot/record.h"
#include "snapshot/selection.h"
#include "snapshot/snapshot.h"

namespace r3::hostcuda {

class Recorder {
 public:
  explicit Recorder(std::filesystem::path folder) noexcept;

  void count() noexcept { ++launches_seen_; }
  // Around a launch, one at a time: memory before it, memory after it. `failure` is why the launch failed, or empty.
  void begin(const Kernel& kernel, const Launch& launch, std::span<const std::byte> arguments) noexcept;
  void finish(const std::string& failure) noexcept;
  void refuse(const std::string& kernel, const std::string& reason) noexcept;
  void end() noexcept;

 private:
  Launches& select(const std::string& kernel);
  void fail(const std::string& kernel, const std::string& reason) noexcept;
  void append_refusal(const std::string& kernel, const std::string& reason);

  const std::filesystem::path folder_;
  std::recursive_mutex mutex_;
  bool failed_ = false;
  Criteria criteria_;
  std::optional<ChunkStore> chunks_;
  std::optional<Journal> journal_;
  std::map<std::string, Launches> kernels_;
  Launches* taken_ = nullptr;  // those of the launch that is being recorded
  std::set<std::pair<std::string, std::string>> refusals_;
  std::optional<LaunchRecord> pending_;
  std::atomic<std::uint64_t> launches_seen_{0};
};

Recorder* recorder();  // null when nothing is to be recorded

}  // namespace r3::hostcuda
