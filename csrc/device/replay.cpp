#include "device/replay.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <stdexcept>

namespace r3::device {
namespace {

constexpr std::uint64_t block_bytes = 4096;        // changes are kept in blocks of this size
constexpr std::uint64_t alignment = 512;           // of regions in an image
constexpr std::uint64_t small_shift = 8;           // tiles of 4 KiB
constexpr std::uint64_t large_shift = 12;          // tiles of 64 KiB
constexpr std::uint64_t most_scratch = 256 << 20;  // most of the epilogue that is on the device at once
constexpr std::uint64_t canary = 0xa5;

// As compare.cu and tile.h have them.
struct Tile {
  std::uint64_t to, from, bytes;
};
struct CompareTile {
  std::uint64_t actual, expected, bytes, region, offset;
};
struct RegionTolerance {
  std::uint64_t element, ulps, absolute, relative;
};
struct RegionResult {
  std::uint64_t differing = 0, first = ~0ull, ulps = 0, absolute = 0, relative = 0;
};

std::uint64_t round_up(std::uint64_t value, std::uint64_t step) { return (value + step - 1) / step * step; }

std::uint64_t tile_bytes(std::uint64_t shift) { return 16ull << shift; }

template <typename Emit>
void cut(std::uint64_t size, std::uint64_t shift, Emit emit) {
  const std::uint64_t step = tile_bytes(shift);
  for (std::uint64_t at = 0; at < size; at += step) emit(at, std::min(step, size - at));
}

template <typename Value>
std::span<const std::byte> bytes_of(const std::vector<Value>& values) {
  return std::as_bytes(std::span(values));
}

}  // namespace

Device::Device() : staging(stream), mailbox(4 * sizeof(std::uint64_t)) {
  if (!driver().cuEventElapsedTime) throw std::runtime_error("its driver is older than CUDA 12.8; update it");
  // Nothing that a kernel leaves in the cache on purpose may reach the next one. A device without such a cache refuses.
  driver().cuCtxSetLimit(CU_LIMIT_PERSISTING_L2_CACHE_SIZE, 0);
  if (driver().cuCtxResetPersistingL2Cache) driver().cuCtxResetPersistingL2Cache();
  driver().cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, 64 << 10);  // more than anyone reads of a kernel's output
}

CUdeviceptr Device::scratch(std::uint64_t size) {
  if (scratch_.size() < size) {
    scratch_ = Buffer();
    scratch_ = Buffer(size);
  }
  return scratch_.address();
}

const Buffer& Device::flush() {
  if (flush_.size() == 0) {
    CUdevice device = 0;
    int bytes = 0;
    check(driver().cuCtxGetDevice(&device), "cuCtxGetDevice");
    check(driver().cuDeviceGetAttribute(&bytes, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, device), "cuDeviceGetAttribute");
    flush_ = Buffer(2 * std::max<std::uint64_t>(bytes, 1 << 20));
    check(driver().cuMemsetD8Async(flush_.address(), 0, flush_.size(), stream), "cuMemsetD8Async");
  }
  return flush_;
}

void Device::forget_expected(std::uint64_t size) {
  if (size > 0) check(driver().cuMemsetD8Async(scratch_.address(), 0, size, stream), "cuMemsetD8Async");
  staging.clear();
}

bool ComparisonResult::equal() const {
  return canaries == 0 &&
         std::all_of(regions.begin(), regions.end(), [](const Comparison& region) { return region.differing == 0; });
}

Replay::Replay(std::shared_ptr<Device> device, std::vector<Region> regions, std::uint64_t chunk_bytes)
    : device_(std::move(device)), chunk_bytes_(chunk_bytes) {
  if (chunk_bytes == 0 || chunk_bytes % block_bytes != 0)
    throw std::invalid_argument("the recording's chunks are no multiple of 4096 bytes");
  std::uint64_t at = 0;
  for (const Region& region : regions) {
    Part part;
    part.region = region;
    part.at = at;
    at += round_up(region.size, alignment);
    parts_.push_back(std::move(part));
  }
}

std::vector<Range> Replay::ranges() const {
  std::vector<Range> ranges;
  for (const Part& part : parts_) {
    if (!part.region.variable) ranges.push_back({part.region.base, part.region.size});
  }
  return ranges;
}

std::vector<std::uint64_t> Replay::changed_bytes() const {
  std::vector<std::uint64_t> bytes;
  for (const Part& part : parts_) bytes.push_back(part.changed_bytes);
  return bytes;
}

void Replay::begin() {
  drop();
  std::uint64_t size = 0;
  for (Part& part : parts_) {
    size = part.at + round_up(part.region.size, alignment);
    part.changed.clear();
    part.changed_blocks.clear();
    part.changed_bytes = 0;
  }
  device_->arena.map(ranges());
  prologue_ = Buffer(size);
  results_ = Buffer(parts_.size() * (sizeof(RegionResult) + sizeof(RegionTolerance)) + sizeof(std::uint64_t));
}

void Replay::put(std::size_t region, std::uint64_t offset, std::span<const std::byte> prologue,
                 std::optional<std::span<const std::byte>> epilogue) {
  Part& part = parts_.at(region);
  if (offset % chunk_bytes_ != 0 || offset >= part.region.size ||
      prologue.size() != std::min(chunk_bytes_, part.region.size - offset) ||
      (epilogue && epilogue->size() != prologue.size()))
    throw std::invalid_argument("a chunk does not fit its region");
  device_->staging.upload(this->prologue(part) + offset, prologue);
  if (!epilogue) return;
  part.changed[offset].assign(epilogue->begin(), epilogue->end());
  for (std::size_t at = 0; at < prologue.size(); at += block_bytes) {
    const std::size_t size = std::min<std::size_t>(block_bytes, prologue.size() - at);
    const std::byte* a = prologue.data() + at;
    const std::byte* b = epilogue->data() + at;
    if (std::memcmp(a, b, size) == 0) continue;
    std::uint64_t n = 0;
    for (std::size_t i = 0; i < size; ++i) n += a[i] != b[i];
    part.changed_bytes += n;
    part.changed_blocks.push_back({offset + at, size});
  }
}

void Replay::finish() {
  for (Part& part : parts_) {
    part.changed_blocks = merged(std::move(part.changed_blocks));
    if (part.poison) bake(part, *part.poison);
  }
  check(driver().cuStreamSynchronize(device_->stream), "cuStreamSynchronize");
  device_->staging.clear();
  resident_ = true;
  stale_ = true;
}

void Replay::drop() {
  resident_ = false;
  stale_ = true;
  prologue_ = Buffer();
  for (Table* table : {&all_, &changed_, &canaries_}) *table = Table();
  memory_batches_.clear();
  for (Part& part : parts_) {
    if (part.poison) part.poison->image = Buffer();
  }
}

void Replay::bind(std::size_t region, std::optional<CUdeviceptr> address) { parts_.at(region).variable = address; }

std::vector<Range> Replay::changing(const Part& part) const {
  std::vector<Range> blocks = part.changed_blocks;
  if (part.poison) {
    const auto& mask = part.poison->mask;
    for (std::uint64_t at = 0; at < mask.size(); at += block_bytes) {
      const std::uint64_t size = std::min<std::uint64_t>(block_bytes, mask.size() - at);
      if (std::memchr(mask.data() + at, 1, size)) blocks.push_back({at, size});
    }
  }
  return merged(std::move(blocks));
}

std::uint64_t Replay::restored_bytes() const {
  std::uint64_t bytes = 0;
  for (const Part& part : parts_) {
    for (const Range& range : changing(part)) bytes += range.size;
  }
  return bytes;
}

// Poison ------------------------------------------------------------------------------------------------------------

std::uint64_t Replay::poison(std::size_t region, std::optional<std::uint8_t> pattern, Where where) {
  Part& part = parts_.at(region);
  stale_ = true;
  if (!pattern) {
    part.poison.reset();
    return 0;
  }
  Poison poison;
  poison.pattern = *pattern;
  poison.mask.resize(part.region.size);
  if (where == Where::all) {
    std::fill(poison.mask.begin(), poison.mask.end(), 1);
  } else if (where == Where::written) {
    if (part.written.empty()) throw std::invalid_argument("nothing was learnt of this region");
    poison.mask = part.written;
  } else {
    std::vector<std::byte> before;
    for (const auto& [offset, after] : part.changed) {
      before.resize(after.size());
      device_->staging.download(before, prologue(part) + offset);
      for (std::size_t i = 0; i < after.size(); ++i) poison.mask[offset + i] = before[i] != after[i];
    }
  }
  const auto bytes = static_cast<std::uint64_t>(std::count(poison.mask.begin(), poison.mask.end(), 1));
  bake(part, poison);
  part.poison = std::move(poison);
  return bytes;
}

void Replay::bake(const Part& part, Poison& poison) {
  poison.image = Buffer(part.region.size);
  const CUstream stream = device_->stream;
  check(driver().cuMemcpyDtoDAsync(poison.image.address(), prologue(part), part.region.size, stream),
        "cuMemcpyDtoDAsync");
  std::vector<std::byte> chunk;
  cut(part.region.size, large_shift, [&](std::uint64_t at, std::uint64_t size) {
    const std::span mask(poison.mask.data() + at, size);
    const auto n = static_cast<std::uint64_t>(std::count(mask.begin(), mask.end(), 1));
    if (n == 0) return;
    if (n == size) {
      check(driver().cuMemsetD8Async(poison.image.address() + at, poison.pattern, size, stream), "cuMemsetD8Async");
      return;
    }
    chunk.resize(size);
    device_->staging.download(chunk, poison.image.address() + at);
    for (std::size_t i = 0; i < size; ++i) {
      if (mask[i]) chunk[i] = std::byte{poison.pattern};
    }
    device_->staging.upload(poison.image.address() + at, chunk);
  });
}

bool Replay::learn(std::size_t region) {
  Part& part = parts_.at(region);
  if (!part.poison || std::count(part.poison->mask.begin(), part.poison->mask.end(), 0) != 0)
    throw std::invalid_argument("only of a region that is poisoned as a whole can be learnt what is written");
  if (!part.address()) {  // the module lacks this variable
    part.written.assign(part.region.size, 0);
    return true;
  }
  const std::byte poison{part.poison->pattern};
  if (part.written.empty()) part.written.assign(part.region.size, 1);
  std::vector<std::byte> found, before;
  bool consistent = true;
  for (std::uint64_t at = 0; at < part.region.size; at += chunk_bytes_) {
    const std::uint64_t size = std::min(chunk_bytes_, part.region.size - at);
    found.resize(size);
    device_->staging.download(found, *part.address() + at);
    const auto changed = part.changed.find(at);
    if (changed == part.changed.end()) {
      before.resize(size);
      device_->staging.download(before, prologue(part) + at);
    }
    const std::vector<std::byte>& expected = changed == part.changed.end() ? before : changed->second;
    std::uint8_t* written = part.written.data() + at;
    for (std::size_t i = 0; i < size; ++i) {
      const bool equal = found[i] == expected[i];
      consistent &= equal || found[i] == poison;
      written[i] &= static_cast<std::uint8_t>(equal);
    }
  }
  return consistent;
}

// Restoring ---------------------------------------------------------------------------------------------------------

template <typename AnyTile>
Replay::Table Replay::upload(const std::vector<AnyTile>& tiles, std::uint64_t shift) {
  Table table{Buffer(tiles.size() * sizeof(AnyTile)), tiles.size(), shift};
  device_->staging.upload(table.tiles.address(), bytes_of(tiles));
  return table;
}

void Replay::build_tables() {
  const CUdeviceptr scratch = device_->scratch(scratch_bytes());
  if (!stale_ && scratch == scratch_) return;
  scratch_ = scratch;
  std::vector<Tile> all, changed, canaries;
  std::uint64_t n_ranges = 0, changing_bytes = 0;
  for (const Part& part : parts_) {
    if (part.region.variable) continue;
    for (const Range& range : changing(part)) {
      ++n_ranges;
      changing_bytes += range.size;
    }
  }
  const std::uint64_t changed_shift = changing_bytes > n_ranges * tile_bytes(large_shift) ? large_shift : small_shift;
  for (const Part& part : parts_) {
    if (part.region.variable) continue;
    const auto add = [&](std::vector<Tile>& tiles, std::uint64_t offset, std::uint64_t size, std::uint64_t shift) {
      cut(size, shift, [&](std::uint64_t at, std::uint64_t bytes) {
        tiles.push_back({part.region.base + offset + at, source(part) + offset + at, bytes});
      });
    };
    add(all, 0, part.region.size, large_shift);
    for (const Range& range : changing(part)) add(changed, range.base, range.size, changed_shift);
  }
  // What lies in a granule of ours, but in no region.
  const std::vector<Range> used = merged(ranges());
  auto region = used.begin();
  for (const Range& granule : device_->arena.granules(used)) {
    std::uint64_t at = granule.base;
    const auto guard = [&](std::uint64_t end) {
      if (end <= at) return;
      cut(end - at, large_shift,
          [&](std::uint64_t from, std::uint64_t bytes) { canaries.push_back({at + from, 0, bytes}); });
    };
    for (; region != used.end() && region->base < granule.base + granule.size; ++region) {
      guard(region->base);
      at = region->base + region->size;
    }
    guard(granule.base + granule.size);
  }
  all_ = upload(all, large_shift);
  changed_ = upload(changed, changed_shift);
  canaries_ = upload(canaries, large_shift);
  memory_batches_ = batches(false);
  stale_ = false;
}

// By the driver, since a variable may be constant memory, whose caches it sees to.
void Replay::copy_variables(bool changed_only) {
  for (const Part& part : parts_) {
    if (!part.region.variable || !part.variable) continue;
    const std::vector<Range> whole{{0, part.region.size}};
    for (const auto& [offset, size] : changed_only ? changing(part) : whole) {
      check(driver().cuMemcpyDtoDAsync(*part.variable + offset, source(part) + offset, size, device_->stream),
            "cuMemcpyDtoDAsync");
    }
  }
}

namespace {

void run_tiles(const Device& device, const char* kernel, CUdeviceptr tiles, std::uint64_t n, std::uint64_t shift,
               std::optional<std::uint64_t> pattern = std::nullopt, CUdeviceptr count = 0) {
  std::uint64_t value = pattern.value_or(0);
  void* arguments[] = {&tiles, &n, &shift, &value, &count};
  device.kernels.launch(kernel, n << shift, arguments, device.stream);
}

}  // namespace

void Replay::restore() {
  if (!resident_) throw std::logic_error("the launch is not resident");
  build_tables();
  run_tiles(*device_, "r3_copy_tiles", all_.tiles.address(), all_.n, all_.shift);
  run_tiles(*device_, "r3_fill_tiles", canaries_.tiles.address(), canaries_.n, canaries_.shift, canary);
  copy_variables(false);
}

void Replay::restore_changed() {
  build_tables();
  run_tiles(*device_, "r3_copy_tiles", changed_.tiles.address(), changed_.n, changed_.shift);
  copy_variables(true);
}

// Comparing ---------------------------------------------------------------------------------------------------------

// What all changed chunks take, but no more than `most_scratch` at once (or one chunk).
std::uint64_t Replay::scratch_bytes() const {
  std::uint64_t bytes = 0;
  for (const Part& part : parts_) {
    for (const auto& [offset, chunk] : part.changed) bytes += round_up(chunk.size(), alignment);
  }
  return std::min(bytes, std::max(most_scratch, chunk_bytes_));
}

std::vector<Replay::Batch> Replay::batches(bool variables) {
  std::vector<Batch> result;
  std::vector<CompareTile> tiles;
  std::vector<Piece> pieces;
  std::uint64_t used = 0;
  const auto close = [&] {
    if (tiles.empty()) return;
    result.push_back({std::move(pieces), upload(tiles, large_shift)});
    pieces.clear();
    tiles.clear();
    used = 0;
  };
  const std::uint64_t room = scratch_bytes();
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const Part& part = parts_[i];
    if (part.region.variable != variables || !part.address()) continue;
    const auto add = [&](std::uint64_t offset, std::uint64_t size, CUdeviceptr expected) {
      cut(size, large_shift, [&](std::uint64_t at, std::uint64_t bytes) {
        tiles.push_back({*part.address() + offset + at, expected + at, bytes, i, offset + at});
      });
    };
    std::uint64_t unchanged = 0;  // from here on
    for (const auto& [offset, bytes] : part.changed) {
      add(unchanged, offset - unchanged, prologue(part) + unchanged);
      if (used + bytes.size() > room) close();
      pieces.push_back({&bytes, used});
      add(offset, bytes.size(), scratch_ + used);
      used += round_up(bytes.size(), alignment);
      unchanged = offset + bytes.size();
    }
    add(unchanged, part.region.size - unchanged, prologue(part) + unchanged);
  }
  close();
  return result;
}

ComparisonResult Replay::compare(const std::vector<Tolerance>& tolerances) {
  if (!tolerances.empty() && tolerances.size() != parts_.size())
    throw std::invalid_argument("as many tolerances as regions are needed");
  build_tables();
  std::vector<RegionTolerance> wanted(parts_.size());
  for (std::size_t i = 0; i < tolerances.size(); ++i) {
    const Tolerance& given = tolerances[i];
    wanted[i] = {static_cast<std::uint64_t>(given.element), given.ulps, std::bit_cast<std::uint64_t>(given.absolute),
                 std::bit_cast<std::uint64_t>(given.relative)};
  }
  std::vector<RegionResult> found(parts_.size());
  const CUdeviceptr results = results_.address(), bounds = results + found.size() * sizeof(RegionResult);
  const CUdeviceptr count = bounds + wanted.size() * sizeof(RegionTolerance);
  const std::vector<std::uint64_t> zero{0};
  device_->staging.upload(bounds, bytes_of(wanted));
  device_->staging.upload(results, bytes_of(found));
  device_->staging.upload(count, bytes_of(zero));
  run_tiles(*device_, "r3_check_tiles", canaries_.tiles.address(), canaries_.n, canaries_.shift, canary, count);
  const std::vector<Batch> variable_batches = batches(true);
  for (const auto* some : {static_cast<const std::vector<Batch>*>(&memory_batches_), &variable_batches}) {
    for (const Batch& batch : *some) {
      std::vector<Upload> uploads;
      for (const Piece& piece : batch.pieces) uploads.push_back({scratch_ + piece.at, *piece.bytes});
      device_->staging.upload(uploads);
      CUdeviceptr tiles = batch.table.tiles.address(), tolerance = bounds, result = results;
      std::uint64_t n = batch.table.n, shift = batch.table.shift;
      void* arguments[] = {&tiles, &n, &shift, &tolerance, &result};
      device_->kernels.launch("r3_compare_tiles", n << shift, arguments, device_->stream);
    }
  }
  ComparisonResult compared;
  device_->staging.download(std::as_writable_bytes(std::span(found)), results);
  device_->staging.download(std::as_writable_bytes(std::span(&compared.canaries, 1)), count);
  device_->forget_expected(scratch_bytes());
  for (const RegionResult& result : found) {
    compared.regions.push_back({result.differing, static_cast<std::int64_t>(result.first), result.ulps,
                                std::bit_cast<double>(result.absolute), std::bit_cast<double>(result.relative)});
  }
  return compared;
}

}  // namespace r3::device
