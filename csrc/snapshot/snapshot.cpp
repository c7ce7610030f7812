#include "snapshot/snapshot.h"

#include <fcntl.h>
#include <sodium.h>
#include <unistd.h>
#include <zstd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <memory>
#include <mutex>
#include <system_error>
#include <unordered_set>

namespace r3 {
namespace {

constexpr int compression_level = 3;

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

std::vector<std::string> ChunkStore::put(std::span<const std::byte> bytes) {
  struct Free {
    void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
  };
  std::unique_ptr<ZSTD_CCtx, Free> compressor;
  std::vector<std::byte> frame;
  std::vector<std::string> hashes;
  for (; !bytes.empty(); bytes = bytes.subspan(std::min(chunk_bytes, bytes.size()))) {
    const auto chunk = bytes.first(std::min(chunk_bytes, bytes.size()));
    const std::string hash = content_hash(chunk);
    hashes.push_back(hash);
    const auto folder = root_ / "chunks" / hash.substr(0, 2);
    const auto file = folder / (hash + ".zst");
    if (known().has(file.string())) continue;
    if (::access(file.c_str(), F_OK) != 0) {
      if (!compressor) {
        compressor.reset(ZSTD_createCCtx());
        if (!compressor) throw std::bad_alloc();
        frame.resize(ZSTD_compressBound(chunk_bytes));
      }
      const std::size_t size = ZSTD_compressCCtx(compressor.get(), frame.data(), frame.size(), chunk.data(),
                                                 chunk.size(), compression_level);
      if (ZSTD_isError(size)) throw std::runtime_error(std::string("zstd: ") + ZSTD_getErrorName(size));
      std::error_code error;
      std::filesystem::create_directory(folder, error);
      if (error) throw std::system_error(error, folder.string());
      write_whole(file, std::span(frame).first(size));
    }
    known().add(file.string());
  }
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
