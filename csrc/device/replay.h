// One recorded launch's memory on the device: restored before a launch of it, compared after.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "device/kernels.h"
#include "device/launch.h"
#include "device/memory.h"

namespace r3::device {

// What all launches of a recording share on one device. Lives in the context that is current at its construction.
class Device {
 public:
  Device();
  Arena arena;
  Stream stream;
  Kernels kernels;
  Staging staging;
  PinnedBuffer mailbox;                      // a few words for what the host and small kernels tell each other
  CUdeviceptr scratch(std::uint64_t size);   // at least so large; moves when it has to grow
  const Buffer& flush();                     // twice as large as the L2 cache
  void forget_expected(std::uint64_t size);  // waits, and overwrites so much of scratch, and staging

 private:
  Buffer scratch_, flush_;
};

struct Region {
  std::uint64_t base = 0;  // of no meaning for a variable
  std::uint64_t size = 0;
  bool variable = false;
};

enum class Element { bytes, f16, bf16, f32, f64 };

struct Tolerance {  // see r3llvm.runner.protocol
  Element element = Element::bytes;
  std::uint64_t ulps = 0;
  double absolute = 0, relative = 0;
};

struct Comparison {
  std::uint64_t differing = 0;
  std::int64_t first = -1;
  std::uint64_t max_ulps = 0;
  double max_absolute = 0, max_relative = 0;
};

struct ComparisonResult {
  std::vector<Comparison> regions;
  std::uint64_t canaries = 0;
  bool equal() const;
};

enum class Where { all, changed, written };

class Replay {
 public:
  // chunk_bytes: a multiple of 4096. Nothing is resident yet.
  Replay(std::shared_ptr<Device> device, std::vector<Region> regions, std::uint64_t chunk_bytes);

  // Loading: begin, put every chunk of every region (its offset in the region; no epilogue: it equals the prologue),
  // finish. The prologue goes to the device, the epilogue stays in host memory. May be done again after drop().
  // begin throws DriverError with CUDA_ERROR_OUT_OF_MEMORY when the device has not enough memory left.
  void begin();
  void put(std::size_t region, std::uint64_t offset, std::span<const std::byte> prologue,
           std::optional<std::span<const std::byte>> epilogue);
  void finish();
  void drop();  // leaves the device; what the arena has mapped stays
  bool resident() const { return resident_; }
  std::vector<Range> ranges() const;  // in the arena
  std::vector<std::uint64_t> changed_bytes() const;

  // Where the loaded module has a variable; nothing: it has none, and the region is left alone.
  void bind(std::size_t region, std::optional<CUdeviceptr> address);

  // See r3llvm.runner.protocol's Poison and Run.learn. poison: the bytes that are poisoned now.
  std::uint64_t poison(std::size_t region, std::optional<std::uint8_t> pattern, Where where);
  bool learn(std::size_t region);  // the last launch's memory; false: not consistent

  // In the device's stream.
  void restore();                                                      // everything, and the canaries
  void restore_changed();                                              // what the launch changes
  ComparisonResult compare(const std::vector<Tolerance>& tolerances);  // waits; none: exact
  // Bytes that restore_changed copies.
  std::uint64_t restored_bytes() const;

  Device& device() const { return *device_; }

 private:
  struct Poison {
    std::uint8_t pattern;
    std::vector<std::uint8_t> mask;  // of the region's bytes: 1 is poisoned
    Buffer image;                    // the prologue with the poison in it
  };
  struct Part {  // what is known of a region
    Region region;
    std::uint64_t at = 0;                                     // in prologue_
    std::map<std::uint64_t, std::vector<std::byte>> changed;  // epilogue of the chunks that the launch changes
    std::vector<Range> changed_blocks;                        // offsets; merged at block_bytes
    std::uint64_t changed_bytes = 0;
    std::optional<Poison> poison;
    std::vector<std::uint8_t> written;  // empty: nothing learnt
    std::optional<CUdeviceptr> variable;
    std::optional<CUdeviceptr> address() const {
      return region.variable ? variable : std::optional<CUdeviceptr>(region.base);
    }
  };
  struct Table {  // tiles on the device
    Buffer tiles;
    std::uint64_t n = 0, shift = 0;
  };
  struct Piece {  // of the epilogue, to be uploaded
    const std::vector<std::byte>* bytes;
    std::uint64_t at;  // in the scratch buffer
  };
  struct Batch {  // what is compared at once, with the expected bytes that it needs
    std::vector<Piece> pieces;
    Table table;
  };

  CUdeviceptr prologue(const Part& part) const { return prologue_.address() + part.at; }
  CUdeviceptr source(const Part& part) const { return part.poison ? part.poison->image.address() : prologue(part); }
  std::vector<Range> changing(const Part& part) const;  // offsets
  void bake(const Part& part, Poison& poison);
  void build_tables();
  std::uint64_t scratch_bytes() const;
  std::vector<Batch> batches(bool variables);
  template <typename Tile>
  Table upload(const std::vector<Tile>& tiles, std::uint64_t shift);
  void copy_variables(bool changed_only);

  std::shared_ptr<Device> device_;
  std::vector<Part> parts_;
  std::uint64_t chunk_bytes_;
  bool resident_ = false, stale_ = true;
  Buffer prologue_;
  Buffer results_;  // of a comparison: RegionResult and RegionTolerance by region, and the canaries' count
  Table all_, changed_, canaries_;
  CUdeviceptr scratch_ = 0;  // that the batches were made for
  std::vector<Batch> memory_batches_;
};

}  // namespace r3::device
