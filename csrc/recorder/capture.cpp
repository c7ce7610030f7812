#include "recorder/capture.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>

#include "recorder/arena.h"
#include "recorder/capturing.h"
#include "recorder/context.h"
#include "recorder/foreign.h"
#include "recorder/kernel.h"
#include "recorder/log.h"
#include "recorder/profile.h"
#include "recorder/reach.h"
#include "recorder/refusal.h"
#include "recorder/settings.h"
#include "recorder/snapshots.h"
#include "recorder/staging.h"
#include "recorder/turnstile.h"
#include "recorder/wait.h"
#include "recorder/writer.h"

namespace r3::recorder {
namespace {

std::atomic<bool> forked{false};   // a child of the application's: not the application
thread_local bool inside = false;  // the recorder

// While the recorder itself calls the driver.
class Inside {
 public:
  Inside() { inside = true; }
  ~Inside() { inside = false; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  Relaxed relaxed_;
};

// What of a launch's attributes changes what the launch does, and the bytes that their values have.
struct KeptAttribute {
  CUlaunchAttributeID id;
  std::size_t size;
};
constexpr KeptAttribute kept_attributes[] = {
    {CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, sizeof(CUaccessPolicyWindow)},
    {CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, 12},
    {CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE, sizeof(CUclusterSchedulingPolicy)},
    {CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP, sizeof(CUlaunchMemSyncDomainMap)},
    {CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN, sizeof(CUlaunchMemSyncDomain)},
    {CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION, 12},
    {CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, sizeof(unsigned)},
};
// What only says when it runs; `cooperative` is a field of its own.
constexpr CUlaunchAttributeID dropped_attributes[] = {
    CU_LAUNCH_ATTRIBUTE_IGNORE,
    CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
    CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY,
    CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
    CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT,
    CU_LAUNCH_ATTRIBUTE_PRIORITY,
    CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT,
    CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE,
    CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING,
};

// Throws Refusal.
std::vector<AttributeRecord> attributes_of(const Launch& launch) {
  std::vector<AttributeRecord> attributes;
  for (unsigned i = 0; i < launch.n_attributes; ++i) {
    const CUlaunchAttribute& attribute = launch.attributes[i];
    const auto kept = std::ranges::find(kept_attributes, attribute.id, &KeptAttribute::id);
    if (kept == std::end(kept_attributes)) {
      if (std::ranges::find(dropped_attributes, attribute.id) != std::end(dropped_attributes)) continue;
      throw Refusal("the launch has an attribute that r3llvm does not know (" + std::to_string(attribute.id) + ")");
    }
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW &&
        !DeviceArena::owns(reinterpret_cast<CUdeviceptr>(attribute.value.accessPolicyWindow.base_ptr))) {
      continue;
    }
    AttributeRecord record{static_cast<std::uint32_t>(attribute.id), {}};
    std::memcpy(record.value.data(), &attribute.value, kept->size);
    attributes.push_back(record);
  }
  return attributes;
}

std::string_view bytes_of(const std::vector<AttributeRecord>& attributes) {
  static_assert(std::has_unique_object_representations_v<AttributeRecord>);
  return {reinterpret_cast<const char*>(attributes.data()), attributes.size() * sizeof(AttributeRecord)};
}

std::uint64_t word_at(std::span<const std::byte> bytes, std::size_t offset) {
  std::uint64_t word;
  std::memcpy(&word, bytes.data() + offset, sizeof word);
  return word;
}

// The largest power of two that divides it, up to 16.
std::uint32_t alignment_of(std::uint32_t number) { return number == 0 ? 16 : std::min(16u, number & -number); }

std::vector<ParameterRecord> parameters_of(const Kernel& kernel, std::span<const std::byte> arguments,
                                           std::span<const RelocationRecord> relocations) {
  std::vector<ParameterRecord> parameters;
  for (const Parameter& p : kernel.parameters) {
    const bool scalar = p.size == 1 || p.size == 2 || p.size == 4 || p.size == 8;
    const bool pointer =
        p.size == 8 && (DeviceArena::owns(word_at(arguments, p.offset)) ||
                        std::ranges::find(relocations, p.offset, &RelocationRecord::offset) != relocations.end());
    parameters.push_back({p.offset, p.size, std::min(alignment_of(p.offset), alignment_of(p.size)),
                          pointer  ? "pointer"
                          : scalar ? "scalar"
                                   : "aggregate"});
  }
  return parameters;
}

std::vector<RelocationRecord> relocations_of(std::span<const std::byte> arguments,
                                             std::span<const Variable> variables) {
  std::vector<RelocationRecord> relocations;
  for (std::size_t at = 0; at + 8 <= arguments.size(); at += 8) {
    const std::uint64_t word = word_at(arguments, at);
    for (const Variable& variable : variables) {
      if (word - variable.base >= variable.size) continue;
      relocations.push_back({static_cast<std::uint32_t>(at), variable.name, word - variable.base});
    }
  }
  return relocations;
}

int shared_carveout(const Kernel& kernel) {
  int percent = -1;
  const CUfunction function = kernel.function();
  if (!function || driver().cuFuncGetAttribute(&percent, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
                                               function) != CUDA_SUCCESS) {
    return -1;
  }
  return std::clamp(percent, -1, 100);
}

std::string mebibytes(std::uint64_t bytes) { return std::to_string((bytes + (1 << 20) - 1) >> 20) + " MiB"; }

bool capture_error(CUresult code) {
  return code >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED && code <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
}

class Recorder {
 public:
  Recorder();

  CUresult launch(const Launch& launch, const std::function<CUresult()>& real);
  void count_graph() { ++graph_launches_; }
  void capture_began();
  void capture_ended();
  void forget(CUfunction function) { kernels_.forget(function); }
  void forget_all();
  bool make_room();
  void settle() { wait_for_copies(); }
  void finish() noexcept;

 private:
  enum class Owner { nobody, we, another };

  CUresult alone(const Launch& launch, const Kernel& kernel, std::uint64_t index, std::vector<std::byte> arguments,
                 std::vector<AttributeRecord> attributes, const std::function<CUresult()>& real);
  std::unique_ptr<Snapshots> before(const Launch& launch, const Kernel& kernel, std::uint64_t index,
                                    std::vector<std::byte> arguments, std::vector<AttributeRecord> attributes);
  bool recordable(CUstream stream);
  void wait_for_copies();
  void end();
  bool own();
  void skipped(const std::string& kernel);
  void refuse(const Kernel& kernel, const std::string& reason);
  void fail(const std::string& reason);

  Settings settings_;
  KernelTable kernels_{settings_.criteria, [this](const std::string& kernel) { skipped(kernel); }};
  Turnstile turnstile_;
  std::atomic<bool> off_{false};  // failed, another process's recording, or at the end
  std::atomic<std::uint64_t> graph_launches_{0}, captured_launches_{0};
  std::atomic<int> captures_{0};  // in progress
  std::atomic<bool> finished_{false};

  std::mutex mutex_;
  Owner owner_ = Owner::nobody;
  std::unique_ptr<Writer> writer_;
  std::unique_ptr<Staging> staging_;
  std::unique_ptr<Profile> profile_;
};

Recorder::Recorder() {
  try {
    settings_ = Settings::from_environment();
    if (!settings_.profile.empty()) profile_ = std::make_unique<Profile>(settings_.profile);
  } catch (const std::exception& error) {
    settings_.folder = environment("R3LLVM_RECORD");
    fail(error.what());
  }
}

CUresult Recorder::launch(const Launch& launch, const std::function<CUresult()>& real) {
  std::shared_ptr<Kernel> kernel;
  std::uint64_t index = 0;
  std::optional<std::vector<std::byte>> arguments;
  std::vector<AttributeRecord> attributes;
  bool wanted = false;
  try {
    kernel = kernels_.find(launch.function);
    index = kernel->launches->count();
    if (!off_ && (profile_ || !kernel->launches->idle())) {
      const Inside here;
      if (!recordable(launch.stream)) {
        // left alone
      } else if (profile_) {
        kernel->load();
        wanted = true;
      } else if (settings_.criteria.want_launch(index) && own()) {
        if (!kernel->unknown.empty()) throw Refusal(kernel->unknown);
        attributes = attributes_of(launch);
        arguments = kernel->pack(launch);
        const auto image = arguments ? kernel->image() : nullptr;
        if (arguments && !image) throw Refusal("its module was loaded out of the recorder's sight");
        if (arguments && image->hash.empty()) throw Refusal("its device image could not be read");
        wanted =
            arguments &&
            kernel->launches->take(
                index, identity(image->hash, {launch.grid, launch.block, launch.dynamic_shared, launch.cooperative},
                                *arguments, bytes_of(attributes)));
      }
    }
  } catch (const Refusal& refusal) {
    kernel->launches->refused(false);
    refuse(*kernel, refusal.what());
  } catch (const std::exception& error) {
    fail(error.what());
  }
  if (wanted && profile_) return profile_->measure(kernel->name, index, launch.stream, real);
  if (wanted) return alone(launch, *kernel, index, std::move(*arguments), std::move(attributes), real);
  const Turnstile::Together together(turnstile_);
  return real();
}

// A launch that is recorded.
CUresult Recorder::alone(const Launch& launch, const Kernel& kernel, std::uint64_t index,
                         std::vector<std::byte> arguments, std::vector<AttributeRecord> attributes,
                         const std::function<CUresult()>& real) {
  const Turnstile::Alone alone(turnstile_);
  const KeepMapped readable;
  std::unique_ptr<Snapshots> snapshots;
  try {
    const Inside here;
    snapshots = before(launch, kernel, index, std::move(arguments), std::move(attributes));
    if (!snapshots) kernel.launches->refused();
  } catch (const std::system_error& error) {
    fail(error.what());
  } catch (const std::exception& error) {
    kernel.launches->refused();
    refuse(kernel, error.what());
  }
  const CUresult code = real();
  if (!snapshots) return code;
  const Inside here;
  snapshots->after(code, settings_.wait_seconds);
  return code;
}

std::unique_ptr<Snapshots> Recorder::before(const Launch& launch, const Kernel& kernel, std::uint64_t index,
                                            std::vector<std::byte> arguments, std::vector<AttributeRecord> attributes) {
  // A capture may have begun since the launch was found to be recordable.
  const auto waited = capturing() ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : wait_for_device(settings_.wait_seconds);
  if (!waited) throw Refusal("earlier work was not done in time: it may wait for the host to queue this launch");
  if (const CUresult code = *waited; code != CUDA_SUCCESS) {
    if (capture_error(code)) ++captured_launches_;
    return nullptr;  // an error of the application's own, which the launch will tell it
  }
  const auto image = kernel.image();
  if (!image) throw Refusal("its module was unloaded");
  Context& context = current_context();
  std::vector<Variable> variables = variables_of(kernel.handle, *image);
  const auto managed = std::ranges::stable_partition(
      variables, [](const Variable& variable) { return find_foreign(variable.base) != ForeignKind::managed; });
  std::vector<std::string> warnings;
  for (const Variable& variable : managed) {
    warnings.push_back("its module has the managed variable " + variable.name + ", which is not recorded");
  }
  variables.erase(managed.begin(), managed.end());
  const Reached reached = reach(context, arguments, variables, settings_.all_allocations);

  LaunchRecord record;
  record.kernel = kernel.name;
  record.module = image->module;
  record.image = image->hash;
  record.index = index;
  record.grid = launch.grid;
  record.block = launch.block;
  record.dynamic_shared = launch.dynamic_shared;
  record.cooperative = launch.cooperative;
  record.relocations = relocations_of(arguments, variables);
  record.parameters = parameters_of(kernel, arguments, record.relocations);
  record.arguments = std::move(arguments);
  record.attributes = std::move(attributes);
  record.shared_carveout = shared_carveout(kernel);
  record.warnings = std::move(warnings);
  record.warnings.insert(record.warnings.end(), reached.warnings.begin(), reached.warnings.end());
  std::uint64_t bytes = 0;
  for (const Allocation& allocation : reached.allocations) {
    record.regions.push_back({"allocation", "", allocation.base, allocation.size, {}, {}});
    bytes += allocation.size;
  }
  for (const Variable& variable : variables) {
    record.regions.push_back({"variable", variable.name, variable.base, variable.size, {}, {}});
    bytes += variable.size;
  }
  if (bytes > settings_.most_bytes) {
    throw Refusal("needs " + mebibytes(bytes) + ", --max-bytes allows " + mebibytes(settings_.most_bytes));
  }
  return std::make_unique<Snapshots>(context, *writer_, *staging_, std::move(record), image, *kernel.launches);
}

// Not when the launch goes into a graph, or waiting for the device would break somebody's capture.
bool Recorder::recordable(CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult code =
      captures_ != 0 ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : driver().cuStreamIsCapturing(stream, &status);
  if (code == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_NONE) return true;
  if (code == CUDA_SUCCESS || capture_error(code)) ++captured_launches_;
  return false;  // what else the driver has against the stream it tells the application at the launch
}

void Recorder::capture_began() {
  const Turnstile::Alone alone(turnstile_);
  ++captures_;
}

void Recorder::capture_ended() {
  int present = captures_;
  while (present > 0 && !captures_.compare_exchange_weak(present, present - 1)) {
  }
}

void Recorder::forget_all() {
  kernels_.forget_all();
  if (profile_) profile_->read_all();
  wait_for_copies();
}

void Recorder::wait_for_copies() {
  if (const std::lock_guard lock(mutex_); !staging_) return;
  staging_->wait();
}

bool Recorder::make_room() {
  if (const std::lock_guard lock(mutex_); !staging_) return false;
  if (!staging_->busy()) return false;
  staging_->wait();
  return true;
}

// The first process that launches a wanted kernel makes the recording.
bool Recorder::own() {
  const std::lock_guard lock(mutex_);
  if (owner_ != Owner::nobody) return owner_ == Owner::we && !writer_->failed();
  CUdevice device = 0;
  if (driver().cuCtxGetDevice(&device) != CUDA_SUCCESS) return false;  // the launch will fail for want of a context
  const std::filesystem::path file = settings_.folder / "owner";
  const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) {
    if (errno != EEXIST) throw std::system_error(errno, std::generic_category(), file.string());
    owner_ = Owner::another;
    off_ = true;
    return false;
  }
  const auto rank = recorder::rank();
  const std::string text = std::to_string(getpid()) + " " + (rank ? std::to_string(*rank) : "-") + "\n";
  const bool written = ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const int error = errno;
  ::close(fd);
  if (!written) throw std::system_error(error, std::generic_category(), file.string());

  char name[256] = "";
  int major = 0, minor = 0;
  check(driver().cuDeviceGetName(name, sizeof name, device), "cuDeviceGetName");
  check(driver().cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device),
        "cuDeviceGetAttribute");
  check(driver().cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device),
        "cuDeviceGetAttribute");
  writer_ = std::make_unique<Writer>(settings_.folder, settings_.most_bytes);
  staging_ = std::make_unique<Staging>(*writer_);
  writer_->append(device_line(name, major, minor));
  owner_ = Owner::we;
  return true;
}

void Recorder::skipped(const std::string& kernel) {
  if (off_ || profile_) return;
  Journal(settings_.folder / "journal.jsonl").append(skipped_line(kernel));
}

void Recorder::refuse(const Kernel& kernel, const std::string& reason) {
  if (writer_) writer_->refuse(kernel.name, reason);
}

// Recording stops; the application goes on.
void Recorder::fail(const std::string& reason) {
  if (!off_.exchange(true)) stop_recording(settings_.folder, reason);
}

void Recorder::finish() noexcept {
  try {
    end();
  } catch (const std::exception& error) {
    say_once(std::string("the recording has no end: ") + error.what());
  }
}

void Recorder::end() {
  if (finished_.exchange(true)) return;
  const Inside here;
  bool quiet = false;  // otherwise some launch never ends, and there is no waiting for it
  {
    const Turnstile::Alone alone(turnstile_, std::chrono::seconds(10));
    off_ = true;
    quiet = static_cast<bool>(alone);
  }
  if (profile_) return profile_->write(graph_launches_, captured_launches_);
  Owner owner = Owner::nobody;
  {
    const std::lock_guard lock(mutex_);
    owner = owner_;
  }
  if (owner == Owner::we) writer_->wait(quiet ? forever : std::chrono::seconds(10));
  std::error_code error;
  const bool anothers =
      owner == Owner::another || (owner == Owner::nobody && std::filesystem::exists(settings_.folder / "owner", error));
  Journal journal(settings_.folder / "journal.jsonl");
  if (anothers) return journal.append(other_process_line(getpid(), kernels_.launches_seen()));
  std::vector<std::pair<std::string_view, std::uint64_t>> foreign;
  const auto bytes = foreign_bytes();
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != 0) foreign.emplace_back(describe(static_cast<ForeignKind>(i)), bytes[i]);
  }
  journal.append(count_line(graph_launches_, captured_launches_, foreign));
  journal.append(end_line(kernels_.launches_seen()));
}

std::atomic<Recorder*> made{nullptr};
pid_t application = 0;

void finish() noexcept {
  if (!recording() || getpid() != application) return;
  try {
    if (Recorder* recorder = made) {
      // In a thread of its own: what the driver keeps a thread is gone already for the one that exits.
      return std::thread([recorder] { recorder->finish(); }).join();
    }
    // A program that launched nothing has an end, too, if it is one that uses CUDA at all.
    if (!dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD)) return;
    if (!environment("R3LLVM_RECORD_PROFILE").empty()) return;
    Journal(std::filesystem::path(environment("R3LLVM_RECORD")) / "journal.jsonl").append(end_line(0));
  } catch (const std::exception& error) {
    say_once(std::string("the recording has no end: ") + error.what());
  }
}

// Made at the first launch: long after the driver's own exit handlers were registered, so that ours comes before them.
Recorder& recorder() {
  static Recorder& instance = [&]() -> Recorder& {
    auto* const recorder = new Recorder;  // outlives every static destructor that may still launch
    made = recorder;
    std::atexit([] { finish(); });
    return *recorder;
  }();
  return instance;
}

__attribute__((destructor)) void unload() { finish(); }

}  // namespace

namespace {

// Before a fork: a child gets the driver's locks as they are, so no thread of ours may be inside it then.
void settle() {
  if (Recorder* recorder = made; recorder && recording()) recorder->settle();
}

}  // namespace

bool recording() noexcept {
  static const bool on = [] {
    if (!asked()) return false;
    application = getpid();
    pthread_atfork(settle, nullptr, [] { forked = true; });
    return true;
  }();
  return on && !forked.load(std::memory_order_relaxed);
}

bool ours() noexcept { return inside; }

CUresult launch(const Launch& launch, const std::function<CUresult()>& real) noexcept {
  if (!recording() || inside) return real();
  return recorder().launch(launch, real);
}

void graph_launched() noexcept {
  if (recording() && !inside) recorder().count_graph();
}

void capture_began() noexcept {
  if (recording() && !inside) recorder().capture_began();
}

void capture_ended() noexcept {
  if (recording() && !inside) recorder().capture_ended();
}

void forget(CUfunction function) noexcept {
  if (Recorder* recorder = made; recorder && recording()) recorder->forget(function);
}

void forget_all() noexcept {
  if (Recorder* recorder = made; recorder && recording()) recorder->forget_all();
}

bool make_room() noexcept {
  Recorder* const recorder = made;
  return recorder && recording() && recorder->make_room();
}

}  // namespace r3::recorder
