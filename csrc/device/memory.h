// Device memory that a replay needs: buffers, the recorder's addresses, and the way between host and device.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "driver/driver.h"

namespace r3::device {

struct Range {
  std::uint64_t base, size;
};

// The ranges sorted, and merged where no more than `gap` bytes lie between them.
std::vector<Range> merged(std::vector<Range> ranges, std::uint64_t gap = 0);

class Buffer {  // device memory; throws DriverError when there is not enough
 public:
  Buffer() = default;
  explicit Buffer(std::uint64_t size);
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  CUdeviceptr address() const { return address_; }
  std::uint64_t size() const { return size_; }

 private:
  CUdeviceptr address_ = 0;
  std::uint64_t size_ = 0;
};

class PinnedBuffer {  // host memory that the device can reach; zero-filled
 public:
  explicit PinnedBuffer(std::size_t size);
  ~PinnedBuffer();
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;
  std::byte* data() const { return data_; }
  CUdeviceptr address() const;  // as kernels see it
  std::size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_;
};

class Event {
 public:
  Event();
  ~Event();
  Event(Event&& other) noexcept;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record(CUstream stream) const;
  void wait() const;
  double seconds_since(const Event& start) const;  // both have happened

 private:
  CUevent event_ = nullptr;
};

class Stream {
 public:
  Stream();
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator CUstream() const { return stream_; }
  void wait() const;

 private:
  CUstream stream_ = nullptr;
};

// The recorder's address range (snapshot/arena.h), reserved in full; granules of it are backed by memory as asked.
class Arena {
 public:
  Arena();  // in the current context; throws std::runtime_error, with what to do, when the range is not to be had
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::vector<Range> granules(const std::vector<Range>& ranges) const;  // all that the ranges touch, merged
  void map(const std::vector<Range>& ranges);                           // those of them that are not mapped yet
  void keep(const std::vector<Range>& ranges);                          // gives back what the ranges do not touch

 private:
  CUmemAllocationProp properties_{};
  std::uint64_t granularity_ = 0;
  std::map<std::uint64_t, std::uint64_t> mapped_;  // base → size, as cuMemMap was called
};

struct Upload {
  CUdeviceptr to;
  std::span<const std::byte> from;
};

// Copies of pageable memory in stream order, through pinned buffers. What the host reads or writes is free again when a
// call returns.
class Staging {
 public:
  explicit Staging(CUstream stream);  // in the current context
  void upload(CUdeviceptr to, std::span<const std::byte> from);
  void upload(const std::vector<Upload>& pieces);  // by several threads when it is much
  void download(std::span<std::byte> to, CUdeviceptr from);
  void clear();  // waits, and overwrites what the pinned memory still holds

 private:
  static constexpr std::size_t slot_bytes = 1 << 20, n_slots = 8, n_threads = 4;  // each thread has two slots

  void upload_through(std::size_t slot, const Upload& piece);

  CUcontext context_ = nullptr;
  CUstream stream_;
  PinnedBuffer pinned_;
  std::vector<Event> free_;        // by slot: its last copy
  std::vector<std::size_t> used_;  // by slot: bytes that may hold something
  std::size_t next_ = 0;
};

}  // namespace r3::device
