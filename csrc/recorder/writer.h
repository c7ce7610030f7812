// From copies of device memory to the recording on the disk, beside the application.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "recorder/image.h"
#include "snapshot/record.h"
#include "snapshot/selection.h"
#include "snapshot/snapshot.h"

namespace r3::recorder {

// A launch on its way to the disk: until it has ended and all its memory is stored.
struct Pending {
  LaunchRecord record;
  std::shared_ptr<const Image> image;
  Launches* launches = nullptr;

  void refuse(const std::string& reason);  // instead of recording it; the first reason counts
  bool refused() const { return refused_; }

 private:
  friend class Writer;
  std::atomic<std::size_t> open_{1};  // what is still to come: the launch's end, copies, blocks
  std::atomic<bool> refused_{false};
  std::mutex mutex_;
  std::string refusal_;
};

// Some of a launch's memory on the host, in a buffer that is asked back.
struct Filled {
  struct Part {
    std::size_t offset, size;
    std::string* hashes;  // where those of its chunks go, in order
  };
  std::shared_ptr<Pending> launch;
  std::byte* data = nullptr;
  std::vector<Part> parts;
  std::function<void()> give_back;
};

// Tells the user and `r3llvm record` why nothing more is recorded; the application goes on.
void stop_recording(const std::filesystem::path& folder, const std::string& reason) noexcept;

class Writer {
 public:
  // Appends to the folder's journal. `most_bytes` bounds what waits in memory of ours. Throws std::system_error.
  Writer(std::filesystem::path folder, std::uint64_t most_bytes);

  void append(std::string_view line) noexcept;
  void refuse(const std::string& kernel, const std::string& reason) noexcept;  // once a kernel and reason

  // Launches are written in the order in which they began.
  std::shared_ptr<Pending> begin(LaunchRecord record, std::shared_ptr<const Image> image, Launches& launches);
  void open(const std::shared_ptr<Pending>& launch);   // something more is to come of it
  void close(const std::shared_ptr<Pending>& launch);  // it came
  void store(Filled block);
  void wait(std::chrono::seconds patience);  // until every launch that began is written

  void fail(const std::string& reason) noexcept;
  bool failed() const { return failed_; }

  // Whether somebody waits for buffers: then blocks move to memory of ours, while there is room.
  std::function<bool()> starved = [] { return false; };

 private:
  void work();
  bool move(Filled& block);
  void compress(Filled& block);
  void write_ended();
  void write(Pending& launch);

  const std::filesystem::path folder_;
  const std::uint64_t most_bytes_;
  std::atomic<bool> failed_{false};
  std::optional<ChunkStore> chunks_;
  std::optional<Journal> journal_;

  std::mutex mutex_;  // of the queue
  std::condition_variable wanted_;
  std::deque<Filled> blocks_, moved_;
  std::uint64_t moved_bytes_ = 0;

  std::mutex journal_mutex_;
  std::condition_variable written_;
  std::deque<std::shared_ptr<Pending>> launches_;
  std::set<std::string> images_;
  std::set<std::pair<std::string, std::string>> refusals_;
};

}  // namespace r3::recorder
