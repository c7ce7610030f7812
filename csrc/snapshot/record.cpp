#include "snapshot/record.h"

#include <nlohmann/json.hpp>

namespace r3 {
namespace {

using nlohmann::ordered_json;

// Names come from the application: bytes that are no UTF-8 are replaced, not thrown over.
std::string text(const ordered_json& value) {
  return value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

std::string hex(const std::vector<std::byte>& bytes) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string out;
  out.reserve(2 * bytes.size());
  for (const std::byte byte : bytes) {
    out += digits[std::to_integer<unsigned>(byte) >> 4];
    out += digits[std::to_integer<unsigned>(byte) & 15];
  }
  return out;
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
  return text({{"type", "launch"},
               {"kernel", launch.kernel},
               {"module", launch.module},
               {"index", launch.index},
               {"grid", launch.grid},
               {"block", launch.block},
               {"dynamic_shared", launch.dynamic_shared},
               {"cooperative", launch.cooperative},
               {"arguments", hex(launch.arguments)},
               {"parameters", std::move(parameters)},
               {"regions", std::move(regions)}});
}

std::string refusal_line(std::string_view kernel, std::string_view reason) {
  return text({{"type", "refusal"}, {"kernel", kernel}, {"reason", reason}});
}

std::string skipped_line(std::string_view kernel) { return text({{"type", "skipped"}, {"kernel", kernel}}); }

std::string end_line(std::uint64_t launches_seen) { return text({{"type", "end"}, {"launches_seen", launches_seen}}); }

}  // namespace r3
