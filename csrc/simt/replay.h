// One replay on the CPU: map the recorded memory at its addresses, run the kernel, compare every recorded byte.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "compile/child.h"
#include "simt/simt.h"

namespace r3 {

struct Span {
  std::uint64_t address, length, offset;
};  // page-aligned, into the two image files
struct Region {
  std::uint64_t base, size;
  std::string variable;
};  // `variable` is empty for an allocation

struct ReplayRequest {
  std::string bitcode;  // optimised device bitcode
  std::string passes;   // run first when not empty
  std::string cpu = "sm_90", features;
  std::string kernel;
  std::uint32_t grid[3], block[3], dynamic_shared = 0;
  std::string arguments;  // packed parameter bytes
  std::vector<Span> spans;
  std::vector<Region> regions;
  int prologue_fd = -1, epilogue_fd = -1;
  unsigned flags = R3SIMT_CHECK | R3SIMT_COUNT;
  unsigned workers = 1;
  bool cooperative = false;
  Limits limits;
};

struct RegionDifference {
  std::size_t region;
  std::uint64_t bytes, first_offset;
};

struct ReplayResult {
  std::string status;  // "ok", "mismatch", or r3simt_status / child failure in snake case
  std::string message, warning, output;
  std::vector<RegionDifference> differences;
  r3simt_counts counts{};
  double load_seconds = 0, run_seconds = 0;
};

// Runs in a forked child: a crash, hang or leak of the kernel stays there. The epilogue is mapped only after the kernel
// ended.
R3_API ReplayResult replay(const ReplayRequest& request);

}  // namespace r3
