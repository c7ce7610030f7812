#include "hostcuda/recorder.h"

#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <stdexcept>

#include "hostcuda/memory.h"
#include "snapshot/reachability.h"
#include "store/names.h"

namespace r3::hostcuda {
namespace {

constexpr std::string_view kinds[] = {"scalar", "pointer", "aggregate"};  // by r3simt_parameter.is_pointer

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

std::span<const std::byte> bytes_of(std::uint64_t base, std::uint64_t size) {
  return {static_cast<const std::byte*>(pointer_to(base)), size};
}

std::uint64_t word_at(std::span<const std::byte> bytes, std::size_t offset) {
  std::uint64_t word;
  std::memcpy(&word, bytes.data() + offset, sizeof word);
  return word;
}

// What makes two launches of a kernel the same: all but the device addresses. (Two modules may each have a kernel of
// that name.)
std::string identity(const std::string& module, const Launch& launch, std::span<const std::byte> arguments) {
  const std::uint32_t geometry[] = {launch.grid.x,
                                    launch.grid.y,
                                    launch.grid.z,
                                    launch.block.x,
                                    launch.block.y,
                                    launch.block.z,
                                    static_cast<std::uint32_t>(launch.dynamic_shared),
                                    launch.cooperative};
  std::string key = module;
  key.append(reinterpret_cast<const char*>(geometry), sizeof geometry);
  const std::size_t start = key.size();
  key.append(reinterpret_cast<const char*>(arguments.data()), arguments.size());
  for (std::size_t at = 0; at + 8 <= arguments.size(); at += 8) {
    if (arena_address(word_at(arguments, at))) key.replace(start + at, 8, 8, '\0');
  }
  return key;
}

void refuse_host_pointers(std::span<const std::byte> arguments) {
  for (std::size_t at = 0; at + 8 <= arguments.size(); at += 8) {
    const auto block = memory().find(word_at(arguments, at));
    if (block && block->kind == Block::Kind::registered) {
      throw std::invalid_argument(
          "an argument points to memory registered with cudaHostRegister, which has no fixed address; allocate it with "
          "cudaMallocHost");
    }
  }
}

std::vector<RegionSnapshot> regions_of(const Kernel& kernel, std::span<const std::byte> arguments) {
  const auto& variables = kernel.image().variables();
  std::vector<Allocation> roots;
  std::map<std::uint64_t, std::string> names;
  for (const PlacedVariable& variable : variables) {
    roots.push_back({variable.base, variable.size});
    names.emplace(variable.base, variable.name);
  }
  std::vector<RegionSnapshot> regions;
  for (const Allocation& allocation : reachable(memory().arena(), arguments, roots)) {
    const auto name = names.find(allocation.base);
    RegionSnapshot region;
    region.kind = name == names.end() ? "allocation" : "variable";
    if (name != names.end()) region.name = name->second;
    region.base = allocation.base;
    region.size = allocation.size;
    regions.push_back(std::move(region));
  }
  return regions;
}

}  // namespace

Recorder::Recorder(std::filesystem::path folder) noexcept : folder_(std::move(folder)) {
  try {
    chunks_.emplace(folder_);
    journal_.emplace(folder_ / "journal.jsonl");
    if (const auto text = environment("R3LLVM_RECORD_MAX"); !text.empty()) {
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), max_launches_);
      if (error != std::errc() || end != text.data() + text.size()) {
        throw std::runtime_error("R3LLVM_RECORD_MAX is no number: " + std::string(text));
      }
    }
    if (const auto text = environment("R3LLVM_RECORD_KERNELS"); !text.empty()) {
      pattern_.emplace(text.begin(), text.end(), std::regex::ECMAScript | std::regex::optimize);
    }
  } catch (const std::regex_error& error) {
    fail("", std::string("R3LLVM_RECORD_KERNELS is no regular expression: ") + error.what());
  } catch (const std::exception& error) {
    fail("", error.what());
  }
}

Recorder::Selected& Recorder::select(const std::string& kernel) {
  const auto [entry, fresh] = kernels_.try_emplace(kernel);
  if (fresh) {
    entry->second.wanted =
        !pattern_ || std::regex_search(kernel, *pattern_) || std::regex_search(demangled(kernel), *pattern_);
    if (!entry->second.wanted) journal_->append(skipped_line(kernel));
  }
  return entry->second;
}

void Recorder::begin(const Kernel& kernel, const Launch& launch, std::span<const std::byte> arguments) noexcept {
  const std::lock_guard lock(mutex_);
  if (failed_) return;
  try {
    Selected& selected = select(kernel.name());
    const std::uint64_t index = selected.seen++;
    if (!selected.wanted || selected.recorded >= max_launches_) return;
    if (!selected.distinct.insert(identity(kernel.image().stored().hash, launch, arguments)).second) return;
    refuse_host_pointers(arguments);
    LaunchRecord record;
    record.kernel = kernel.name();
    record.module = kernel.image().stored().hash;
    record.index = index;
    record.grid = {launch.grid.x, launch.grid.y, launch.grid.z};
    record.block = {launch.block.x, launch.block.y, launch.block.z};
    record.dynamic_shared = static_cast<std::uint32_t>(launch.dynamic_shared);
    record.cooperative = launch.cooperative;
    record.arguments.assign(arguments.begin(), arguments.end());
    for (std::uint32_t i = 0; i < kernel.info().n_parameters; ++i) {
      const r3simt_parameter& p = kernel.info().parameters[i];
      record.parameters.push_back({p.offset, p.size, p.alignment, kinds[std::min<std::uint32_t>(p.is_pointer, 2)]});
    }
    record.regions = regions_of(kernel, arguments);
    for (RegionSnapshot& region : record.regions) region.prologue = chunks_->put(bytes_of(region.base, region.size));
    pending_ = std::move(record);
  } catch (const std::invalid_argument& refusal) {
    refuse(kernel.name(), refusal.what());
  } catch (const std::exception& error) {
    fail(kernel.name(), error.what());
  }
}

void Recorder::finish(const std::string& failure) noexcept {
  const std::lock_guard lock(mutex_);
  if (!pending_) return;
  LaunchRecord record = std::move(*pending_);
  pending_.reset();
  if (!failure.empty()) return refuse(record.kernel, "the launch failed: " + failure);
  try {
    for (RegionSnapshot& region : record.regions) region.epilogue = chunks_->put(bytes_of(region.base, region.size));
    journal_->append(launch_line(record));
    ++kernels_[record.kernel].recorded;
  } catch (const std::exception& error) {
    fail(record.kernel, error.what());
  }
}

void Recorder::append_refusal(const std::string& kernel, const std::string& reason) {
  if (journal_ && refusals_.emplace(kernel, reason).second) journal_->append(refusal_line(kernel, reason));
}

void Recorder::refuse(const std::string& kernel, const std::string& reason) noexcept {
  const std::lock_guard lock(mutex_);
  if (failed_) return;
  try {
    if (select(kernel).wanted) append_refusal(kernel, reason);
  } catch (const std::exception& error) {
    fail(kernel, error.what());
  }
}

// Recording stops; the application goes on.
void Recorder::fail(const std::string& kernel, const std::string& reason) noexcept {
  failed_ = true;
  try {
    say("recording stopped: " + reason);
    std::ofstream(folder_ / "failed") << reason << '\n';
    if (!kernel.empty()) append_refusal(kernel, "recording stopped: " + reason);
  } catch (const std::exception&) {  // the disk that failed the recording may fail its epitaph too
  }
}

void Recorder::end() noexcept {
  const std::lock_guard lock(mutex_);
  try {
    if (journal_) journal_->append(end_line(launches_seen_));
  } catch (const std::exception& error) {
    if (!failed_) fail("", error.what());
  }
}

namespace {

Recorder* started = nullptr;
pid_t owner = 0;

// From load to unload of this library, so that a program that launches nothing has an end, too. A forked child that
// exits writes none: it is not the application.
__attribute__((constructor)) void start() {
  if (const auto folder = environment("R3LLVM_RECORD"); !folder.empty()) {
    owner = getpid();
    started = new Recorder(std::filesystem::path(folder));
  }
}

__attribute__((destructor)) void stop() {
  if (started && owner == getpid()) started->end();
}

}  // namespace

Recorder* recorder() { return started; }

}  // namespace r3::hostcuda
