// The GPU's time in each kernel, as `r3llvm record --profile` ranks them.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "recorder/context.h"

namespace r3::recorder {

class Profile {
 public:
  explicit Profile(std::filesystem::path file);
  ~Profile();

  // Calls `real`, a launch into the stream, between two events. The stream is held until both are enqueued, so that the
  // time between them is the kernel's, however long the CPU takes.
  CUresult measure(const std::string& kernel, std::uint64_t index, CUstream stream,
                   const std::function<CUresult()>& real);
  void read_all();  // before a context goes: waits for what was launched
  void write(std::uint64_t graph_launches, std::uint64_t captured_launches);  // throws std::system_error

 private:
  class Pool;
  struct Times {
    std::vector<float> seconds;  // by launch; negative: not measured
  };

  Pool& pool();
  std::vector<Pool*> pools();
  void add(const std::string& kernel, std::uint64_t index, float seconds);
  void watch();

  const std::filesystem::path file_;
  std::mutex mutex_;
  std::map<Context*, std::unique_ptr<Pool>> pools_;
  bool watched_ = false;
  std::mutex times_mutex_;
  std::map<std::string, Times> times_;
};

}  // namespace r3::recorder
