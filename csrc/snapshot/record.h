// The lines of journal.jsonl. See recordings/README.md.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "snapshot/snapshot.h"

namespace r3 {

struct ParameterRecord {
  std::uint32_t offset, size, alignment;
  std::string_view kind;  // "scalar", "pointer" or "aggregate"
};

// One attribute of an extended launch: a CUlaunchAttributeID and its value's 64 bytes.
struct AttributeRecord {
  std::uint32_t id;
  std::array<std::byte, 64> value;
};

// An argument word that points into a module variable.
struct RelocationRecord {
  std::uint32_t offset;
  std::string variable;
  std::uint64_t addend;
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
  // Of launches on a GPU only.
  std::string image;
  std::vector<AttributeRecord> attributes;
  int shared_carveout = -1;  // percent; -1: the driver's choice
  std::vector<RelocationRecord> relocations;
  std::vector<std::string> warnings;
};

std::string launch_line(const LaunchRecord& launch);
std::string refusal_line(std::string_view kernel, std::string_view reason);
std::string skipped_line(std::string_view kernel);
std::string end_line(std::uint64_t launches_seen);
std::string device_line(std::string_view name, int major, int minor);  // of the compute capability
std::string image_line(std::string_view hash, std::string_view kind, std::uint64_t bytes);
std::string count_line(std::uint64_t graph_launches, std::uint64_t captured_launches,
                       std::span<const std::pair<std::string_view, std::uint64_t>> foreign);  // kind, bytes
std::string other_process_line(std::int64_t pid, std::uint64_t launches);

struct KernelTimes {
  std::string kernel;
  std::uint64_t launches = 0;
  double seconds = 0;  // all launches together
  double median_seconds = 0;
  std::vector<double> times;  // seconds, in order; negative: not measured
};
std::string profile_line(std::span<const KernelTimes> kernels, std::uint64_t graph_launches,
                         std::uint64_t captured_launches);

}  // namespace r3
