#include "hostcuda/recorder.h"

#include <unistd.h>

#include <cstring>
#include <fstream>
#include <stdexcept>

#include "hostcuda/memory.h"
#include "snapshot/reachability.h"
#include "store/names.h"

namespace r3::hostcuda {
namespace {

constexpr std::string_view kinds[] = {"scalar", "pointer", "aggregate"};  // by r3simt_parameter.is_pointer

std::span<const std::byte> bytes_of(std::uint64_t base, std::uint64_t size) {
  return {static_cast<const std::byte*>(pointer_to(base)), size};
}

std::uint64_t word_at(std::span<const std::byte> bytes, std::size_t offset) {
  std::uint64_t word;
  std::memcpy(&word, bytes.data() + offset, sizeof word);
  return word;
}

Geometry geometry_of(const Launch& launch) {
  return {{launch.grid.x, launch.grid.y, launch.grid.z},
          {launch.block.x, launch.block.y, launch.block.z},
          static_cast<std::uint32_t>(launch.dynamic_shared),
          launch.cooperative};
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
    criteria_ = Criteria::from_environment();
  } catch (const std::exception& error) {
    fail("", error.what());
  }
}

Launches& Recorder::select(const std::string& kernel) {
  if (const auto found = kernels_.find(kernel); found != kernels_.end()) return found->second;
  const bool wanted = criteria_.want_kernel(kernel, demangled(kernel));
  if (!wanted) journal_->append(skipped_line(kernel));
  return kernels_.try_emplace(kernel, criteria_, wanted).first->second;
}

void Recorder::begin(const Kernel& kernel, const Launch& launch, std::span<const std::byte> arguments) noexcept {
  const std::lock_guard lock(mutex_);
  if (failed_) return;
  try {
    Launches& launches = select(kernel.name());
    const std::uint64_t index = launches.count();
    const Geometry geometry = geometry_of(launch);
    if (launches.idle() || !launches.take(index, identity(kernel.image().stored().hash, geometry, arguments))) return;
    taken_ = &launches;
    refuse_host_pointers(arguments);
    LaunchRecord record;
    record.kernel = kernel.name();
    record.module = kernel.image().stored().hash;
    record.index = index;
    record.grid = geometry.grid;
    record.block = geometry.block;
    record.dynamic_shared = geometry.dynamic_shared;
    record.cooperative = geometry.cooperative;
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
    taken_->recorded();
    taken_ = nullptr;
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
    if (taken_) taken_->refused();
    taken_ = nullptr;
    if (select(kernel).wanted()) append_refusal(kernel, reason);
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
