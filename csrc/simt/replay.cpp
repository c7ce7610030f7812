#include "simt/replay.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string_view>

namespace r3 {
namespace {

constexpr const char* status_names[] = {"ok",       "assert",         "trap",        "illegal_address", "misaligned",
                                        "deadlock", "stack_overflow", "unsupported", "invalid_launch"};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The child's answer, as bytes: fixed-size fields, then strings with their length. Both ends are this file.
class Writer {
 public:
  template <typename T>
  void put(const T& value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void put_text(const std::string& text) {
    put(text.size());
    bytes_ += text;
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  template <typename T>
  T get() {
    T value{};
    std::memcpy(&value, next(sizeof value).data(), sizeof value);
    return value;
  }
  std::string get_text() { return std::string(next(get<std::size_t>())); }

 private:
  std::string_view next(std::size_t size) {
    if (size > rest_.size()) throw std::runtime_error("the replay's answer is cut short");
    std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }
  std::string_view rest_;
};

void map_spans(const std::vector<Span>& spans, int fd) {
  for (const Span& span : spans) {
    void* wanted = reinterpret_cast<void*>(span.address);
    void* mapped = mmap(wanted, span.length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED_NOREPLACE | MAP_NORESERVE,
                        fd, static_cast<off_t>(span.offset));
    if (mapped != wanted)
      throw std::runtime_error("the recorded addresses are taken in this process: " +
                               std::string(std::strerror(errno)));
  }
}

// Compares a region with its bytes in the epilogue's file, span by span (a region lies within one span).
RegionDifference compare(std::size_t index, const Region& region, const std::vector<Span>& spans,
                         const char* epilogue) {
  RegionDifference difference{index, 0, 0};
  auto after = std::upper_bound(spans.begin(), spans.end(), region.base,
                                [](std::uint64_t base, const Span& span) { return base < span.address; });
  if (after == spans.begin()) throw std::runtime_error("a region lies outside the mapped memory");
  const Span& span = after[-1];
  const char* actual = reinterpret_cast<const char*>(region.base);
  const char* expected = epilogue + span.offset + (region.base - span.address);
  constexpr std::uint64_t step = 4096;
  for (std::uint64_t at = 0; at < region.size; at += step) {
    std::uint64_t n = std::min(step, region.size - at);
    if (std::memcmp(actual + at, expected + at, n) == 0) continue;
    for (std::uint64_t i = at; i < at + n; ++i) {
      if (actual[i] == expected[i]) continue;
      if (difference.bytes++ == 0) difference.first_offset = i;
    }
  }
  return difference;
}

struct Module {
  r3simt_module* handle = nullptr;
  ~Module() { r3simt_unload(handle); }
};

std::string run_in_place(const ReplayRequest& request) {
  auto start = std::chrono::steady_clock::now();
  map_spans(request.spans, request.prologue_fd);

  std::map<std::string, std::uint64_t> variables;
  for (const Region& region : request.regions)
    if (!region.variable.empty()) variables[region.variable] = region.base;
  r3simt_load_options options{};
  options.passes = request.passes.empty() ? nullptr : request.passes.c_str();
  options.target = {request.cpu.c_str(), request.features.c_str(), 3};
  options.flags = request.flags;
  options.user = &variables;
  // The recorded memory already holds the variables' values; one that was not recorded stays private data.
  options.place_variable = [](void* user, const char* name, std::uint64_t, std::uint64_t, int,
                              const void*) -> std::uint64_t {
    auto& known = *static_cast<std::map<std::string, std::uint64_t>*>(user);
    auto found = known.find(name);
    return found == known.end() ? 0 : found->second;
  };
  Module module;
  r3_bytes error{};
  if (r3simt_load(request.bitcode.data(), request.bitcode.size(), &options, &module.handle, &error)) {
    std::string text(error.data, error.size);
    r3_bytes_free(&error);
    throw std::runtime_error(text);
  }

  std::vector<r3simt_region> regions;
  for (const Region& region : request.regions) regions.push_back({region.base, region.size});
  std::sort(regions.begin(), regions.end(),
            [](const r3simt_region& a, const r3simt_region& b) { return a.base < b.base; });

  r3simt_result result{};
  Writer answer;
  std::string output;
  const r3simt_kernel_info* info = r3simt_kernel(module.handle, request.kernel.c_str());
  double load_seconds = seconds_since(start), run_seconds = 0;
  if (info && !info->refusal && request.arguments.size() < info->parameter_bytes) {
    result.status = R3SIMT_INVALID_LAUNCH;
    std::snprintf(result.message, sizeof result.message, "kernel %s takes %u bytes of parameters; %zu were recorded",
                  request.kernel.c_str(), info->parameter_bytes, request.arguments.size());
  } else {
    int output_fd = memfd_create("r3-output", MFD_CLOEXEC);
    r3simt_launch launch{};
    launch.kernel = request.kernel.c_str();
    std::copy_n(request.grid, 3, launch.grid);
    std::copy_n(request.block, 3, launch.block);
    launch.dynamic_shared = request.dynamic_shared;
    launch.parameters = request.arguments.data();
    launch.workers = request.workers;
    launch.regions = regions.data();
    launch.n_regions = regions.size();
    launch.output_fd = output_fd;
    launch.cooperative = request.cooperative;
    start = std::chrono::steady_clock::now();
    r3simt_run(module.handle, &launch, &result);
    run_seconds = seconds_since(start);
    constexpr std::size_t most = 1 << 20;
    output.resize(most);
    ssize_t n = pread(output_fd, output.data(), most, 0);
    output.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
    close(output_fd);
  }

  std::vector<RegionDifference> differences;
  if (result.status == R3SIMT_OK && request.epilogue_fd >= 0) {
    std::uint64_t length = 0;
    for (const Span& span : request.spans) length = std::max(length, span.offset + span.length);
    void* epilogue = length ? mmap(nullptr, length, PROT_READ, MAP_PRIVATE, request.epilogue_fd, 0) : nullptr;
    if (epilogue == MAP_FAILED)
      throw std::runtime_error("cannot map the recorded result: " + std::string(std::strerror(errno)));
    for (std::size_t i = 0; i < request.regions.size(); ++i) {
      RegionDifference difference = compare(i, request.regions[i], request.spans, static_cast<const char*>(epilogue));
      if (difference.bytes) differences.push_back(difference);
    }
  }
  answer.put(static_cast<int>(result.status));
  answer.put(result.counts);
  answer.put(load_seconds);
  answer.put(run_seconds);
  answer.put_text(result.message);
  answer.put_text(result.warning);
  answer.put_text(output);
  answer.put(differences.size());
  for (const RegionDifference& difference : differences) answer.put(difference);
  return answer.take();
}

}  // namespace

ReplayResult replay(const ReplayRequest& request) {
  ChildOutcome outcome = run_in_child(request.limits, [&] { return run_in_place(request); });
  ReplayResult result;
  switch (outcome.kind) {
    case ChildOutcome::Kind::ok:
      break;
    case ChildOutcome::Kind::failed:
      result.status = "crash";
      result.message = outcome.payload;
      return result;
    case ChildOutcome::Kind::timed_out:
      result.status = "run_timeout";
      result.message =
          "kernel " + request.kernel + " did not end within " + std::to_string(request.limits.seconds) + " s";
      return result;
    case ChildOutcome::Kind::out_of_memory:
      result.status = "run_memory";
      result.message =
          "kernel " + request.kernel + " needed more than " + std::to_string(request.limits.memory_bytes) + " bytes";
      return result;
    default:
      result.status = "crash";
      result.message = outcome.kind == ChildOutcome::Kind::signalled
                           ? "ended by signal " + std::to_string(outcome.code)
                           : "exited with status " + std::to_string(outcome.code);
      if (!outcome.log.empty()) result.message += ": " + outcome.log.substr(0, outcome.log.find('\n'));
      return result;
  }
  Reader answer(outcome.payload);
  int status = answer.get<int>();
  result.counts = answer.get<r3simt_counts>();
  result.load_seconds = answer.get<double>();
  result.run_seconds = answer.get<double>();
  result.message = answer.get_text();
  result.warning = answer.get_text();
  result.output = answer.get_text();
  for (auto n = answer.get<std::size_t>(); n > 0; --n) result.differences.push_back(answer.get<RegionDifference>());
  result.status = status == R3SIMT_OK && !result.differences.empty() ? "mismatch" : status_names[status];
  return result;
}

}  // namespace r3
