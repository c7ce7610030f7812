// Counts memory transactions of a warp from the addresses its lanes touched.
#pragma once
#include <array>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "simt/abi.h"
#include "simt/simt.h"

namespace r3 {

// Lanes run one after another up to the next barrier or warp operation. The n-th access of a lane at a site is taken to
// be issued together with the n-th access of every other lane at that site, which is what a warp that reconverges does.
class WarpTrace {
 public:
  explicit WarpTrace(const std::vector<AccessSite>& sites);

  void add(std::uint32_t site, unsigned lane, std::uint64_t address, std::uint32_t bytes, Space space);
  void flush(r3simt_counts& counts);  // at the end of a stretch, or before another warp's lanes run
  std::uint64_t unique_sectors() const;
  void merge_sectors(const WarpTrace& other);

 private:
  struct Row {
    std::uint32_t lanes = 0;
    std::array<std::uint64_t, warp_size> address;
  };
  struct Site {
    std::array<std::uint32_t, warp_size> taken{};  // accesses so far, by lane
    std::vector<Row> rows;
    Space space = Space::generic;
    std::uint32_t bytes = 0;
    bool touched = false;
  };

  void count_row(const Row& row, const Site& site, Access access, r3simt_counts& counts);
  void touch(std::uint64_t sector);

  const std::vector<AccessSite>& kinds_;
  std::vector<Site> sites_;
  std::vector<std::uint32_t> touched_;
  std::unordered_map<std::uint64_t, std::array<std::uint64_t, 64>> sectors_;  // 128 KiB of sectors a bit map
  std::uint64_t last_block_ = ~0ull;
  std::array<std::uint64_t, 64>* last_bits_ = nullptr;
};

}  // namespace r3
