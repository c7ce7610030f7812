// What recorder and hostcuda write: content-addressed, compressed chunks and a journal of launches. See
// recordings/README.md.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace r3 {

inline constexpr std::size_t chunk_bytes = 256 * 1024;

// BLAKE2b-128 in lower-case hex: the name of a chunk, a module or an image.
std::string content_hash(std::span<const std::byte> bytes);

// Writes a file that appears whole or not at all. Throws std::system_error.
void write_whole(const std::filesystem::path& path, std::span<const std::byte> bytes);

// Stores chunks as chunks/ab/abcdef….zst (one zstd frame of at most chunk_bytes raw bytes). Each file appears whole or
// not at all (written beside, then renamed). Thread-safe. Throws std::system_error when the disk refuses.
class ChunkStore {
 public:
  explicit ChunkStore(std::filesystem::path root);
  // Hashes in order, each chunk_bytes long but the last. `threads` at most share the work; 0: one a processor.
  std::vector<std::string> put(std::span<const std::byte> bytes, unsigned threads = 0);

 private:
  std::filesystem::path root_;
};

struct RegionSnapshot {
  std::string kind;  // "allocation" or "variable"
  std::string name;  // of a variable
  std::uint64_t base = 0, size = 0;
  std::vector<std::string> prologue, epilogue;
};

// journal.jsonl: one JSON object a line, flushed line by line, so that a killed application leaves whole lines only.
class Journal {
 public:
  explicit Journal(const std::filesystem::path& file);
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;
  void append(std::string_view json_line);

 private:
  int fd_;
};

}  // namespace r3
