// What `r3llvm record` asks of this process, through its environment.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "snapshot/selection.h"

namespace r3::recorder {

struct Settings {
  std::filesystem::path folder;   // R3LLVM_RECORD
  std::filesystem::path profile;  // R3LLVM_RECORD_PROFILE; empty: record
  Criteria criteria;
  bool all_allocations = false;           // R3LLVM_RECORD_SCOPE=all
  std::uint64_t most_bytes = 4ull << 30;  // R3LLVM_RECORD_BYTES
  std::uint64_t wait_seconds = 20;        // R3LLVM_RECORD_WAIT: for the device, before a launch and after

  static Settings from_environment();  // throws std::runtime_error: which variable is wrong
};

// The MPI rank that a launcher gave this process.
std::optional<std::uint64_t> rank();

// Whether this process was asked to record or to profile, and is of a rank that should.
bool asked();

}  // namespace r3::recorder
