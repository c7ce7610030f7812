#include "snapshot/snapshot.h"

#include <fcntl.h>
#include <sodium.h>
#include <unistd.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <future>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <unordered_set>

namespace r3 {
namespace {

constexpr int compression_level = 1;          // twice as fast as 3, and hardly larger
constexpr std::size_t chunks_per_thread = 8;  // fewer are not worth a thread

[[noreturn]] void fail(const std::filesystem::path& path) {
  throw std::system_error(errno, std::generic_category(), path.string());
}

// Returns false (with errno) when the disk refuses.
bool write_all(int fd, const void* data, std::size_t size) {
  auto* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = ::write(fd, at, size);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    at += written;
    size -= static_cast<std::size_t>(written);
  }
  return true;
}

// One frame after another, each from the start.
class Compressor {
 public:
  std::span<const std::byte> operator()(std::span<const std::byte> bytes) {
    if (!context_) {
      context_.reset(ZSTD_createCCtx());
      if (!context_) throw std::bad_alloc();
      frame_.resize(ZSTD_compressBound(chunk_bytes));
    }
    const std::size_t size =
        ZSTD_compressCCtx(context_.get(), frame_.data(), frame_.size(), bytes.data(), bytes.size(), compression_level);
    if (ZSTD_isError(size)) throw std::runtime_error(std::string("zstd: ") + ZSTD_getErrorName(size));
    return std::span(frame_).first(size);
  }

 private:
  struct Free {
    void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
  };
  std::unique_ptr<ZSTD_CCtx, Free> context_;
  std::vector<std::byte> frame_;
};

// What this process knows to be stored, by root. Chunks are never taken away while a recording grows.
struct Known {
  std::mutex mutex;
  std::unordered_set<std::string> hashes;

  bool has(const std::string& key) {
    const std::lock_guard lock(mutex);
    return hashes.contains(key);
  }
  void add(std::string key) {
    const std::lock_guard lock(mutex);
    hashes.insert(std::move(key));
  }
};

Known& known() {
  static Known& instance = *new Known;  // outlives every static destructor that may still record
  return instance;
}

}  // namespace

void write_whole(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  static std::atomic<unsigned> counter{0};
  const std::filesystem::path beside =
      path.parent_path() / (".part-" + std::to_string(getpid()) + "-" + std::to_string(counter++));
  const int fd = ::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) fail(beside);
  bool good = write_all(fd, bytes.data(), bytes.size());
  int error = errno;
  if (::close(fd) != 0 && good) {  // a full quota may be told only here
    good = false;
    error = errno;
  }
  if (good && ::rename(beside.c_str(), path.c_str()) == 0) return;
  if (good) error = errno;
  ::unlink(beside.c_str());
  errno = error;
  fail(path);
}

std::string content_hash(std::span<const std::byte> bytes) {
  static const int ready = sodium_init();  // also picks the fastest implementation for this processor
  (void)ready;
  std::array<unsigned char, 16> digest;
  crypto_generichash(digest.data(), digest.size(), reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
                     nullptr, 0);
  std::array<char, 2 * digest.size() + 1> hex;
  sodium_bin2hex(hex.data(), hex.size(), digest.data(), digest.size());
  return hex.data();
}

ChunkStore::ChunkStore(std::filesystem::path root) : root_(std::move(root)) {
  std::error_code error;
  std::filesystem::create_directories(root_ / "chunks", error);
  if (error) throw std::system_error(error, (root_ / "chunks").string());
}

std::vector<std::string> ChunkStore::put(std::span<const std::byte> bytes, unsigned threads) {
  std::vector<std::string> hashes((bytes.size() + chunk_bytes - 1) / chunk_bytes);
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    Compressor compress;
    for (std::size_t i; (i = next++) < hashes.size();) {
      const auto chunk = bytes.subspan(i * chunk_bytes).first(std::min(chunk_bytes, bytes.size() - i * chunk_bytes));
      hashes[i] = content_hash(chunk);
      const auto folder = root_ / "chunks" / hashes[i].substr(0, 2);
      const auto file = folder / (hashes[i] + ".zst");
      if (known().has(file.string())) continue;
      if (::access(file.c_str(), F_OK) != 0) {
        std::error_code error;
        std::filesystem::create_directory(folder, error);
        if (error) throw std::system_error(error, folder.string());
        write_whole(file, compress(chunk));
      }
      known().add(file.string());
    }
  };
  std::vector<std::future<void>> helpers;
  if (threads == 0) threads = std::thread::hardware_concurrency();
  const std::size_t useful = hashes.size() / chunks_per_thread;
  for (std::size_t i = 1; i < std::min<std::size_t>(useful, threads); ++i) {
    helpers.push_back(std::async(std::launch::async, work));
  }
  work();
  for (auto& helper : helpers) helper.get();
  return hashes;
}

Journal::Journal(const std::filesystem::path& file)
    : fd_(::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) {
  if (fd_ < 0) fail(file);
}

Journal::~Journal() { ::close(fd_); }

void Journal::append(std::string_view json_line) {
  const std::string line = std::string(json_line) + "\n";
  const off_t before = ::lseek(fd_, 0, SEEK_END);
  if (write_all(fd_, line.data(), line.size())) return;
  const int error = errno;
  if (before >= 0 && ::ftruncate(fd_, before) != 0) {  // no half line may stay behind
  }
  errno = error;
  fail("journal.jsonl");
}

}  // namespace r3
