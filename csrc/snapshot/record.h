// The lines of journal.jsonl. See recordings/README.md.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "snapshot/snapshot.h"

namespace r3 {

struct ParameterRecord {
  std::uint32_t offset, size, alignment;
  std::string_view kind;  // "scalar", "pointer" or "aggregate"
};

struct LaunchRecord {
  std::string kernel, module;
  std::uint64_t index = 0;
  std::array<std::uint32_t, 3> grid{}, block{};
  std::uint32_t dynamic_shared = 0;
  bool cooperative = false;
  std::vector<std::byte> arguments;
  std::vector<ParameterRecord> parameters;
  std::vector<RegionSnapshot> regions;
};

std::string launch_line(const LaunchRecord& launch);
std::string refusal_line(std::string_view kernel, std::string_view reason);
std::string skipped_line(std::string_view kernel);
std::string end_line(std::uint64_t launches_seen);

}  // namespace r3
