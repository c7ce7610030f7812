#include "snapshot/record.h"

#include <nlohmann/json.hpp>

namespace r3 {
namespace {

using nlohmann::ordered_json;

// Names come from the application: bytes that are no UTF-8 are replaced, not thrown over.
std::string text(const ordered_json& value) {
  return value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

std::string hex(std::span<const std::byte> bytes) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string out;
  out.reserve(2 * bytes.size());
  for (const std::byte byte : bytes) {
    out += digits[std::to_integer<unsigned>(byte) >> 4];
    out += digits[std::to_integer<unsigned>(byte) & 15];
  }
  return out;
}

// What the journal says of a launch on a GPU.
void add_device_fields(ordered_json& line, const LaunchRecord& launch) {
  auto attributes = ordered_json::array();
  for (const AttributeRecord& a : launch.attributes) attributes.push_back({{"id", a.id}, {"value", hex(a.value)}});
  auto relocations = ordered_json::array();
  for (const RelocationRecord& r : launch.relocations) {
    relocations.push_back({{"offset", r.offset}, {"variable", r.variable}, {"addend", r.addend}});
  }
  line["image"] = launch.image;
  line["attributes"] = std::move(attributes);
  line["shared_carveout"] = launch.shared_carveout;
  line["relocations"] = std::move(relocations);
  line["warnings"] = launch.warnings;
}

}  // namespace

std::string launch_line(const LaunchRecord& launch) {
  auto parameters = ordered_json::array();
  for (const ParameterRecord& p : launch.parameters) {
    parameters.push_back({{"offset", p.offset}, {"size", p.size}, {"alignment", p.alignment}, {"kind", p.kind}});
  }
  auto regions = ordered_json::array();
  for (const RegionSnapshot& r : launch.regions) {
    regions.push_back({{"kind", r.kind},
                       {"name", r.name},
                       {"base", r.base},
                       {"size", r.size},
                       {"prologue", r.prologue},
                       {"epilogue", r.epilogue}});
  }
  ordered_json line{{"type", "launch"},
                    {"kernel", launch.kernel},
                    {"module", launch.module},
                    {"index", launch.index},
                    {"grid", launch.grid},
                    {"block", launch.block},
                    {"dynamic_shared", launch.dynamic_shared},
                    {"cooperative", launch.cooperative},
                    {"arguments", hex(launch.arguments)},
                    {"parameters", std::move(parameters)},
                    {"regions", std::move(regions)}};
  if (!launch.image.empty()) add_device_fields(line, launch);
  return text(line);
}

std::string refusal_line(std::string_view kernel, std::string_view reason) {
  return text({{"type", "refusal"}, {"kernel", kernel}, {"reason", reason}});
}

std::string skipped_line(std::string_view kernel) { return text({{"type", "skipped"}, {"kernel", kernel}}); }

std::string end_line(std::uint64_t launches_seen) { return text({{"type", "end"}, {"launches_seen", launches_seen}}); }

std::string device_line(std::string_view name, int major, int minor) {
  return text(
      {{"type", "device"}, {"name", name}, {"capability", std::to_string(major) + "." + std::to_string(minor)}});
}

std::string image_line(std::string_view hash, std::string_view kind, std::uint64_t bytes) {
  return text({{"type", "image"}, {"hash", hash}, {"kind", kind}, {"bytes", bytes}});
}

std::string count_line(std::uint64_t graph_launches, std::uint64_t captured_launches,
                       std::span<const std::pair<std::string_view, std::uint64_t>> foreign) {
  auto kinds = ordered_json::array();
  for (const auto& [kind, bytes] : foreign) kinds.push_back({{"kind", kind}, {"bytes", bytes}});
  return text({{"type", "count"},
               {"graph_launches", graph_launches},
               {"captured_launches", captured_launches},
               {"foreign", std::move(kinds)}});
}

std::string other_process_line(std::int64_t pid, std::uint64_t launches) {
  return text({{"type", "other_process"}, {"pid", pid}, {"launches", launches}});
}

std::string profile_line(std::span<const KernelTimes> kernels, std::uint64_t graph_launches,
                         std::uint64_t captured_launches) {
  auto all = ordered_json::array();
  for (const KernelTimes& k : kernels) {
    auto times = ordered_json::array();
    for (const double time : k.times) times.push_back(time < 0 ? ordered_json(nullptr) : ordered_json(time));
    all.push_back({{"kernel", k.kernel},
                   {"launches", k.launches},
                   {"seconds", k.seconds},
                   {"median_seconds", k.median_seconds},
                   {"times", std::move(times)}});
  }
  return text({{"type", "profile"},
               {"kernels", std::move(all)},
               {"graph_launches", graph_launches},
               {"captured_launches", captured_launches}});
}

}  // namespace r3
