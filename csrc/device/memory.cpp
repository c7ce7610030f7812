#include "device/memory.h"

#include <algorithm>
#include <cstring>
#include <future>
#include <stdexcept>
#include <utility>

#include "snapshot/arena.h"

namespace r3::device {

std::vector<Range> merged(std::vector<Range> ranges, std::uint64_t gap) {
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.base < b.base; });
  std::vector<Range> result;
  for (const Range& range : ranges) {
    if (!result.empty() && range.base <= result.back().base + result.back().size + gap) {
      Range& last = result.back();
      last.size = std::max(last.base + last.size, range.base + range.size) - last.base;
    } else {
      result.push_back(range);
    }
  }
  return result;
}

// Destructors ignore the driver's codes: they fail only when the context is gone, and the memory with it.

Buffer::Buffer(std::uint64_t size) : size_(size) {
  if (size > 0) check(driver().cuMemAlloc(&address_, size), "cuMemAlloc");
}

Buffer::~Buffer() {
  if (address_) driver().cuMemFree(address_);
}

Buffer::Buffer(Buffer&& other) noexcept
    : address_(std::exchange(other.address_, 0)), size_(std::exchange(other.size_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(address_, other.address_);
  std::swap(size_, other.size_);
  return *this;
}

PinnedBuffer::PinnedBuffer(std::size_t size) : size_(size) {
  void* data = nullptr;
  check(driver().cuMemHostAlloc(&data, size, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP), "cuMemHostAlloc");
  data_ = static_cast<std::byte*>(data);
  std::memset(data_, 0, size);
}

PinnedBuffer::~PinnedBuffer() { driver().cuMemFreeHost(data_); }

CUdeviceptr PinnedBuffer::address() const {
  CUdeviceptr address = 0;
  check(driver().cuMemHostGetDevicePointer(&address, data_, 0), "cuMemHostGetDevicePointer");
  return address;
}

Event::Event() { check(driver().cuEventCreate(&event_, CU_EVENT_DEFAULT), "cuEventCreate"); }

Event::~Event() {
  if (event_) driver().cuEventDestroy(event_);
}

Event::Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}

void Event::record(CUstream stream) const { check(driver().cuEventRecord(event_, stream), "cuEventRecord"); }

void Event::wait() const { check(driver().cuEventSynchronize(event_), "cuEventSynchronize"); }

double Event::seconds_since(const Event& start) const {
  float milliseconds = 0;
  check(driver().cuEventElapsedTime(&milliseconds, start.event_, event_), "cuEventElapsedTime");
  return milliseconds * 1e-3;
}

Stream::Stream() { check(driver().cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate"); }

Stream::~Stream() { driver().cuStreamDestroy(stream_); }

void Stream::wait() const { check(driver().cuStreamSynchronize(stream_), "cuStreamSynchronize"); }

Arena::Arena() {
  CUdevice device = 0;
  int supported = 0;
  check(driver().cuCtxGetDevice(&device), "cuCtxGetDevice");
  check(driver().cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device),
        "cuDeviceGetAttribute");
  if (!supported) throw std::runtime_error("this GPU has no virtual memory management, which replays need");
  properties_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties_.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
  std::size_t granularity = 0;
  check(driver().cuMemGetAllocationGranularity(&granularity, &properties_, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
        "cuMemGetAllocationGranularity");
  granularity_ = granularity;
  CUdeviceptr address = 0;
  check(driver().cuMemAddressReserve(&address, arena_size, granularity, arena_base, 0), "cuMemAddressReserve");
  if (address == arena_base) return;  // to the driver the address is a hint only
  driver().cuMemAddressFree(address, arena_size);
  throw std::runtime_error(
      "the addresses of recorded memory (0x300000000000) are taken in this process; start it anew, and without tools "
      "that map memory there");
}

Arena::~Arena() {
  for (const auto& [base, size] : mapped_) driver().cuMemUnmap(base, size);
  driver().cuMemAddressFree(arena_base, arena_size);
}

std::vector<Range> Arena::granules(const std::vector<Range>& ranges) const {
  std::vector<Range> touched;
  for (const auto& [base, size] : ranges) {
    if (base < arena_base || size > arena_size || base - arena_base > arena_size - size)
      throw std::runtime_error("recorded memory lies outside the recorder's addresses; record again");
    const std::uint64_t start = base / granularity_ * granularity_;
    const std::uint64_t end = (base + size + granularity_ - 1) / granularity_ * granularity_;
    touched.push_back({start, end - start});
  }
  return merged(std::move(touched));
}

void Arena::map(const std::vector<Range>& ranges) {
  const std::uint64_t most =
      std::max<std::uint64_t>(granularity_, 64 << 20);  // of one piece, so that keep() finds some
  const auto back = [this](std::uint64_t base, std::uint64_t size) {
    CUmemGenericAllocationHandle handle = 0;
    check(driver().cuMemCreate(&handle, size, &properties_, 0), "cuMemCreate");
    const CUresult code = driver().cuMemMap(base, size, 0, handle, 0);
    driver().cuMemRelease(handle);  // lives on while it is mapped
    check(code, "cuMemMap");
    mapped_.emplace(base, size);
    const CUmemAccessDesc access{properties_.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    check(driver().cuMemSetAccess(base, size, &access, 1), "cuMemSetAccess");
  };
  for (const auto& [base, size] : granules(ranges)) {
    for (std::uint64_t at = base; at < base + size;) {
      const auto after = mapped_.upper_bound(at);
      if (after != mapped_.begin()) {
        const auto& [start, length] = *std::prev(after);
        if (at < start + length) {
          at = start + length;
          continue;
        }
      }
      std::uint64_t end = std::min(base + size, at + most);
      if (after != mapped_.end()) end = std::min(end, after->first);
      back(at, end - at);
      at = end;
    }
  }
}

void Arena::keep(const std::vector<Range>& ranges) {
  const std::vector<Range> wanted = granules(ranges);
  std::erase_if(mapped_, [&](const auto& piece) {
    const auto [base, size] = piece;
    const bool used = std::any_of(wanted.begin(), wanted.end(), [base = base, size = size](const Range& range) {
      return range.base < base + size && base < range.base + range.size;
    });
    if (!used) check(driver().cuMemUnmap(base, size), "cuMemUnmap");
    return !used;
  });
}

Staging::Staging(CUstream stream) : stream_(stream), pinned_(n_slots * slot_bytes), free_(n_slots), used_(n_slots) {
  check(driver().cuCtxGetCurrent(&context_), "cuCtxGetCurrent");
  for (const Event& event : free_) event.record(stream);
}

void Staging::upload_through(std::size_t slot, const Upload& piece) {
  std::byte* pinned = pinned_.data() + slot * slot_bytes;
  free_[slot].wait();
  used_[slot] = std::max(used_[slot], piece.from.size());
  std::memcpy(pinned, piece.from.data(), piece.from.size());
  check(driver().cuMemcpyHtoDAsync(piece.to, pinned, piece.from.size(), stream_), "cuMemcpyHtoDAsync");
  free_[slot].record(stream_);
}

void Staging::upload(CUdeviceptr to, std::span<const std::byte> from) {
  while (!from.empty()) {
    const auto piece = from.first(std::min(slot_bytes, from.size()));
    upload_through(next_, {to, piece});
    next_ = (next_ + 1) % n_slots;
    to += piece.size();
    from = from.subspan(piece.size());
  }
}

void Staging::upload(const std::vector<Upload>& pieces) {
  std::vector<Upload> small;  // that fit a slot
  std::size_t bytes = 0;
  for (Upload piece : pieces) {
    bytes += piece.from.size();
    for (; piece.from.size() > slot_bytes; piece = {piece.to + slot_bytes, piece.from.subspan(slot_bytes)})
      small.push_back({piece.to, piece.from.first(slot_bytes)});
    if (!piece.from.empty()) small.push_back(piece);
  }
  if (bytes < n_slots * slot_bytes) {
    for (const Upload& piece : small) upload(piece.to, piece.from);
    return;
  }
  std::vector<std::future<void>> threads;
  for (std::size_t thread = 0; thread < n_threads; ++thread) {
    threads.push_back(std::async(std::launch::async, [&, thread] {
      check(driver().cuCtxSetCurrent(context_), "cuCtxSetCurrent");
      std::size_t n = 0;
      for (std::size_t i = thread; i < small.size(); i += n_threads) upload_through(2 * thread + n++ % 2, small[i]);
    }));
  }
  for (auto& thread : threads) thread.get();
}

void Staging::download(std::span<std::byte> to, CUdeviceptr from) {
  while (!to.empty()) {
    const auto whole = to.first(std::min(n_slots * slot_bytes, to.size()));
    for (const Event& event : free_) event.wait();
    check(driver().cuMemcpyDtoHAsync(pinned_.data(), from, whole.size(), stream_), "cuMemcpyDtoHAsync");
    check(driver().cuStreamSynchronize(stream_), "cuStreamSynchronize");
    std::fill(used_.begin(), used_.end(), slot_bytes);
    std::memcpy(whole.data(), pinned_.data(), whole.size());
    from += whole.size();
    to = to.subspan(whole.size());
  }
}

void Staging::clear() {
  check(driver().cuStreamSynchronize(stream_), "cuStreamSynchronize");
  for (std::size_t slot = 0; slot < n_slots; ++slot) {
    std::memset(pinned_.data() + slot * slot_bytes, 0, std::exchange(used_[slot], 0));
  }
}

}  // namespace r3::device
