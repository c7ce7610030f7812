#include "recorder/settings.h"

#include <charconv>
#include <stdexcept>

namespace r3::recorder {
namespace {

std::optional<std::uint64_t> number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// "0,2" or "all"; what is no number names no rank.
bool rank_wanted() {
  const auto present = rank();
  if (!present) return true;
  std::string_view list = environment("R3LLVM_RECORD_RANKS");
  if (list.empty()) list = "0";
  if (list == "all") return true;
  for (;;) {
    const std::size_t comma = list.find(',');
    if (number(list.substr(0, comma)) == present) return true;
    if (comma == std::string_view::npos) return false;
    list.remove_prefix(comma + 1);
  }
}

}  // namespace

Settings Settings::from_environment() {
  Settings settings;
  settings.folder = environment("R3LLVM_RECORD");
  settings.profile = environment("R3LLVM_RECORD_PROFILE");
  settings.criteria = Criteria::from_environment();
  settings.most_bytes = environment_number("R3LLVM_RECORD_BYTES", settings.most_bytes);
  settings.wait_seconds = environment_number("R3LLVM_RECORD_WAIT", settings.wait_seconds);
  const std::string_view scope = environment("R3LLVM_RECORD_SCOPE");
  if (!scope.empty() && scope != "reachable" && scope != "all") {
    throw std::runtime_error("R3LLVM_RECORD_SCOPE is neither reachable nor all: " + std::string(scope));
  }
  settings.all_allocations = scope == "all";
  return settings;
}

std::optional<std::uint64_t> rank() {
  for (const char* variable : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "SLURM_PROCID",
                               "JSM_NAMESPACE_RANK", "FLUX_TASK_RANK", "PALS_RANKID"}) {
    const auto found = number(environment(variable));
    if (!found) continue;
    // Slurm numbers the one task of a batch script, too.
    if (variable == std::string_view("SLURM_PROCID") && number(environment("SLURM_NTASKS")).value_or(1) <= 1) continue;
    return found;
  }
  return std::nullopt;
}

bool asked() {
  if (environment("R3LLVM_RECORD").empty() && environment("R3LLVM_RECORD_PROFILE").empty()) return false;
  return rank_wanted();
}

}  // namespace r3::recorder
