#include "recorder/writer.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>

#include "recorder/log.h"

namespace r3::recorder {
namespace {

constexpr std::size_t huge_page = 2 << 20;

// Half of the processors that this process may use: the application has work for them, too.
unsigned thread_count() {
  cpu_set_t set;
  CPU_ZERO(&set);
  const int processors = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 2;
  return static_cast<unsigned>(std::clamp(processors / 2, 1, 8));
}

// Linux keeps a priority a thread.
void step_back() { setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), 10); }

std::size_t size_of(const Filled& block) {
  return block.parts.empty() ? 0 : block.parts.back().offset + block.parts.back().size;
}

}  // namespace

void stop_recording(const std::filesystem::path& folder, const std::string& reason) noexcept {
  try {
    say_once("recording stopped: " + reason);
    if (!folder.empty()) std::ofstream(folder / "failed") << reason << '\n';
  } catch (const std::exception&) {  // the disk that failed the recording may fail its epitaph, too
  }
}

void Pending::refuse(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (!refused_) refusal_ = reason;
  refused_ = true;
}

Writer::Writer(std::filesystem::path folder, std::uint64_t most_bytes)
    : folder_(std::move(folder)), most_bytes_(most_bytes) {
  chunks_.emplace(folder_);
  journal_.emplace(folder_ / "journal.jsonl");
  for (unsigned i = 0; i < thread_count(); ++i) std::thread([this] { work(); }).detach();
}

void Writer::append(std::string_view line) noexcept {
  if (failed_) return;
  try {
    const std::lock_guard lock(journal_mutex_);
    journal_->append(line);
  } catch (const std::exception& error) {
    fail(error.what());
  }
}

void Writer::refuse(const std::string& kernel, const std::string& reason) noexcept {
  try {
    {
      const std::lock_guard lock(journal_mutex_);
      if (!refusals_.emplace(kernel, reason).second) return;
    }
    append(refusal_line(kernel, reason));
  } catch (const std::exception& error) {
    fail(error.what());
  }
}

void Writer::fail(const std::string& reason) noexcept {
  if (!failed_.exchange(true)) stop_recording(folder_, reason);
}

std::shared_ptr<Pending> Writer::begin(LaunchRecord record, std::shared_ptr<const Image> image, Launches& launches) {
  auto launch = std::make_shared<Pending>();
  launch->record = std::move(record);
  launch->image = std::move(image);
  launch->launches = &launches;
  const std::lock_guard lock(journal_mutex_);
  launches_.push_back(launch);
  return launch;
}

void Writer::open(const std::shared_ptr<Pending>& launch) { ++launch->open_; }

void Writer::close(const std::shared_ptr<Pending>& launch) {
  if (--launch->open_ == 0) write_ended();
}

void Writer::store(Filled block) {
  open(block.launch);
  const std::lock_guard lock(mutex_);
  blocks_.push_back(std::move(block));
  wanted_.notify_one();
}

void Writer::wait(std::chrono::seconds patience) {
  std::unique_lock lock(journal_mutex_);
  written_.wait_for(lock, patience, [this] { return launches_.empty(); });
}

void Writer::work() {
  step_back();
  std::unique_lock lock(mutex_);
  for (;;) {
    wanted_.wait(lock, [this] { return !blocks_.empty() || !moved_.empty(); });
    auto& queue = blocks_.empty() ? moved_ : blocks_;
    Filled block = std::move(queue.front());
    const bool lent = &queue == &blocks_;
    queue.pop_front();
    lock.unlock();
    if (!(lent && starved() && move(block))) {
      compress(block);
      block.give_back();
      const auto launch = std::move(block.launch);
      block = {};
      close(launch);
    }
    lock.lock();
  }
}

// Into memory of ours, so that the buffer is free for the next. False: there is no room.
bool Writer::move(Filled& block) {
  const std::size_t size = (size_of(block) + huge_page - 1) / huge_page * huge_page;
  {
    const std::lock_guard lock(mutex_);
    if (moved_bytes_ + size > most_bytes_) return false;
    moved_bytes_ += size;
  }
  auto* const memory = static_cast<std::byte*>(std::aligned_alloc(huge_page, size));
  if (memory) {
    madvise(memory, size, MADV_HUGEPAGE);  // a page fault every 4 KiB takes longer than the copy
    std::memcpy(memory, block.data, size_of(block));
    block.give_back();
    block.data = memory;
    block.give_back = [this, memory, size] {
      std::free(memory);
      const std::lock_guard lock(mutex_);
      moved_bytes_ -= size;
    };
  }
  const std::lock_guard lock(mutex_);
  if (!memory) {
    moved_bytes_ -= size;
    return false;
  }
  moved_.push_back(std::move(block));
  wanted_.notify_one();
  return true;
}

void Writer::compress(Filled& block) {
  if (failed_ || block.launch->refused()) return;
  try {
    for (const Filled::Part& part : block.parts) {
      auto hashes = chunks_->put({block.data + part.offset, part.size}, 1);
      std::ranges::move(hashes, part.hashes);
    }
  } catch (const std::exception& error) {
    fail(error.what());
  }
}

void Writer::write_ended() {
  const std::lock_guard lock(journal_mutex_);
  while (!launches_.empty() && launches_.front()->open_ == 0) {
    try {
      write(*launches_.front());
    } catch (const std::exception& error) {
      fail(error.what());
    }
    launches_.pop_front();
  }
  if (launches_.empty()) written_.notify_all();
}

// Under journal_mutex_.
void Writer::write(Pending& launch) {
  if (failed_) return;
  LaunchRecord& record = launch.record;
  if (launch.refused()) {
    launch.launches->refused();
    if (refusals_.emplace(record.kernel, launch.refusal_).second) {
      journal_->append(refusal_line(record.kernel, launch.refusal_));
    }
    return;
  }
  for (RegionSnapshot& region : record.regions) {
    for (std::size_t i = 0; i < region.epilogue.size(); ++i) {
      if (region.epilogue[i].empty()) region.epilogue[i] = region.prologue[i];  // the launch did not change it
    }
  }
  if (!record.image.empty() && images_.insert(record.image).second) {
    std::filesystem::create_directories(folder_ / "images");
    write_whole(folder_ / "images" / record.image, launch.image->bytes);
    journal_->append(image_line(record.image, launch.image->kind, launch.image->bytes.size()));
  }
  journal_->append(launch_line(record));
  launch.launches->recorded();
}

}  // namespace r3::recorder
