#include "simt/trace.h"

#include <algorithm>
#include <bit>

namespace r3 {
namespace {

// Rows kept a site between two flushes; what goes beyond is extrapolated from these.
constexpr std::uint32_t max_rows = 1024;
constexpr unsigned sector_shift = 5;

}  // namespace

WarpTrace::WarpTrace(const std::vector<AccessSite>& sites) : kinds_(sites), sites_(sites.size()) {}

void WarpTrace::add(std::uint32_t index, unsigned lane, std::uint64_t address, std::uint32_t bytes, Space space) {
  Site& site = sites_[index];
  if (!site.touched) {
    site.touched = true;
    touched_.push_back(index);
  }
  std::uint32_t turn = site.taken[lane]++;
  if (turn >= max_rows) return;
  if (turn >= site.rows.size()) site.rows.emplace_back();
  Row& row = site.rows[turn];
  row.lanes |= 1u << lane;
  row.address[lane] = address;
  site.space = space;
  site.bytes = bytes;
}

void WarpTrace::touch(std::uint64_t sector) {
  std::uint64_t block = sector >> 12;
  if (block != last_block_) {
    last_block_ = block;
    last_bits_ = &sectors_[block];
  }
  (*last_bits_)[(sector >> 6) & 63] |= 1ull << (sector & 63);
}

void WarpTrace::count_row(const Row& row, const Site& site, Access access, r3simt_counts& counts) {
  std::array<std::uint64_t, 4 * warp_size> units;
  std::size_t n = 0;
  if (site.space == Space::shared) {
    // Four-byte words in 32 banks; wide accesses go in halves or quarters of a warp.
    unsigned group = site.bytes > 8 ? 8 : site.bytes > 4 ? 16 : 32;
    counts.shared_requests += 1;
    for (unsigned first = 0; first < warp_size; first += group) {
      n = 0;
      for (unsigned lane = first; lane < first + group; ++lane) {
        if (!(row.lanes >> lane & 1)) continue;
        std::uint64_t low = row.address[lane] >> 2, high = (row.address[lane] + std::max(site.bytes, 1u) - 1) >> 2;
        for (std::uint64_t word = low; word <= high && n < units.size(); ++word) units[n++] = word;
      }
      if (n == 0) continue;
      std::sort(units.begin(), units.begin() + n);
      std::size_t distinct = std::unique(units.begin(), units.begin() + n) - units.begin();
      std::array<std::uint8_t, 32> banks{};
      std::uint8_t worst = 0;
      for (std::size_t i = 0; i < distinct; ++i) worst = std::max(worst, ++banks[units[i] & 31]);
      counts.shared_wavefronts += worst;
    }
  } else {
    counts.global_requests += 1;
    std::uint64_t previous = ~0ull;
    bool sorted = true;
    for (unsigned lane = 0; lane < warp_size; ++lane) {
      if (!(row.lanes >> lane & 1)) continue;
      std::uint64_t low = row.address[lane] >> sector_shift;
      std::uint64_t high = (row.address[lane] + std::max(site.bytes, 1u) - 1) >> sector_shift;
      for (std::uint64_t sector = low; sector <= high && n < units.size(); ++sector) {
        if (sector == previous) continue;
        if (n > 0 && sector < previous) sorted = false;
        units[n++] = previous = sector;
      }
    }
    if (!sorted) {
      std::sort(units.begin(), units.begin() + n);
      n = std::unique(units.begin(), units.begin() + n) - units.begin();
    }
    counts.global_sectors += n;
    for (std::size_t i = 0; i < n; ++i) touch(units[i]);
  }
  if (access == Access::atomic) {
    n = 0;
    for (unsigned lane = 0; lane < warp_size; ++lane)
      if (row.lanes >> lane & 1) units[n++] = row.address[lane];
    std::sort(units.begin(), units.begin() + n);
    std::uint64_t worst = 0, run = 0;
    for (std::size_t i = 0; i < n; ++i) {
      run = i > 0 && units[i] == units[i - 1] ? run + 1 : 0;
      worst = std::max(worst, run);
    }
    counts.atomic_conflicts += worst;
  }
}

void WarpTrace::flush(r3simt_counts& counts) {
  for (std::uint32_t index : touched_) {
    Site& site = sites_[index];
    r3simt_counts counted{};
    for (const Row& row : site.rows) count_row(row, site, kinds_[index].access, counted);
    std::uint64_t turns = *std::max_element(site.taken.begin(), site.taken.end());
    std::uint64_t kept = std::min<std::uint64_t>(turns, max_rows);
    auto scale = [&](std::uint64_t value) { return kept == turns ? value : value * turns / kept; };
    counts.global_requests += scale(counted.global_requests);
    counts.global_sectors += scale(counted.global_sectors);
    counts.shared_requests += scale(counted.shared_requests);
    counts.shared_wavefronts += scale(counted.shared_wavefronts);
    counts.atomic_conflicts += scale(counted.atomic_conflicts);
    site.taken.fill(0);
    site.rows.clear();
    site.touched = false;
  }
  touched_.clear();
}

std::uint64_t WarpTrace::unique_sectors() const {
  std::uint64_t total = 0;
  for (const auto& [block, bits] : sectors_)
    for (std::uint64_t word : bits) total += std::popcount(word);
  return total;
}

void WarpTrace::merge_sectors(const WarpTrace& other) {
  for (const auto& [block, bits] : other.sectors_) {
    auto& mine = sectors_[block];
    for (std::size_t i = 0; i < bits.size(); ++i) mine[i] |= bits[i];
  }
  last_block_ = ~0ull;
}

}  // namespace r3
