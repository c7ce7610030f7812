#include "device/timing.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>

namespace r3::device {
namespace {

constexpr unsigned most_ahead = 32, enough_ahead = 6;  // repetitions in the queue
constexpr double most_seconds_ahead = 0.25;
constexpr std::uint64_t gate_nanoseconds = 20'000'000;  // the gate opens by itself then
constexpr std::uint64_t clock_nanoseconds = 50'000;
constexpr double short_seconds = 2e-6;         // a kernel that is timed in batches
constexpr double maybe_short_seconds = 10e-6;  // what events may read for one: they cost some microseconds themselves
constexpr double batch_seconds = 20e-6;
constexpr unsigned probe_batch = 32, most_in_batch = 64;
constexpr unsigned most_launches_ahead = 512;  // the queue holds about a thousand calls; a full one blocks the host

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Tells what the kernel did while it ran, which kills the context, from a launch that was refused and from what failed
// around it.
template <typename Body>
auto blame(Body body) {
  try {
    return body();
  } catch (const DriverError& error) {
    if (driver().cuCtxSynchronize() == CUDA_SUCCESS) throw;
    throw Fault(error.code, "kernel", "run");
  }
}

class Loop {
 public:
  Loop(Replay& memory, ReadyLaunch& launch, bool cold)
      : memory_(memory), launch_(launch), cold_(cold), stream_(memory.device().stream) {}

  // Times of `n` repetitions, each the mean of `batch` launches.
  std::vector<double> repeat(unsigned n, unsigned batch) {
    while (events_.size() < 2 * n) events_.emplace_back();
    return blame([&] {
      close_gate();
      for (unsigned i = 0; i < n; ++i) {
        // A flush takes the device longer than a repetition takes the host, which so stays ahead with the gate open.
        if (cold_ && batch == 1 && i == enough_ahead) open_gate();
        prepare();
        events_[2 * i].record(stream_);
        for (unsigned k = 0; k < batch; ++k) launch_.enqueue(stream_);
        events_[2 * i + 1].record(stream_);
      }
      open_gate();
      check(driver().cuStreamSynchronize(stream_), "cuStreamSynchronize");
      std::vector<double> times;
      for (unsigned i = 0; i < n; ++i) times.push_back(events_[2 * i + 1].seconds_since(events_[2 * i]) / batch);
      return times;
    });
  }

 private:
  void prepare() {
    memory_.restore_changed();
    if (!cold_) return;
    Device& device = memory_.device();
    CUdeviceptr units = device.flush().address(), sink = device.mailbox.address() + 3 * sizeof(std::uint64_t);
    std::uint64_t n = device.flush().size() / 16;
    void* arguments[] = {&units, &n, &sink};
    device.kernels.launch("r3_read", n, arguments, stream_);
  }

  std::atomic_ref<std::uint64_t> go() {
    return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(memory_.device().mailbox.data()));
  }

  // Nothing in the queue runs before it is full, so that no event waits for the host.
  void close_gate() {
    go().store(0);
    CUdeviceptr address = memory_.device().mailbox.address();
    std::uint64_t nanoseconds = gate_nanoseconds;
    void* arguments[] = {&address, &nanoseconds};
    memory_.device().kernels.launch("r3_wait", 1, arguments, stream_);
  }
  void open_gate() { go().store(1); }

  Replay& memory_;
  ReadyLaunch& launch_;
  bool cold_;
  CUstream stream_;
  std::vector<Event> events_;
};

// Launches that a batch holds; 1: the kernel is not short, or a second launch would find other work than the first.
unsigned batch_of(Replay& memory, Loop& loop, const std::vector<Tolerance>& tolerances) {
  loop.repeat(1, 2);
  if (!memory.compare(tolerances).equal()) return 1;
  const double seconds = std::max(loop.repeat(1, probe_batch).front(), 1e-9);
  return seconds < short_seconds
             ? static_cast<unsigned>(std::min(std::ceil(batch_seconds / seconds), 1.0 * most_in_batch))
             : 1;
}

unsigned clock_mhz(Device& device) {
  auto* found = reinterpret_cast<std::uint64_t*>(device.mailbox.data()) + 1;  // the gate has the first word
  CUdeviceptr address = device.mailbox.address() + sizeof *found;
  std::uint64_t nanoseconds = clock_nanoseconds;
  void* arguments[] = {&address, &nanoseconds};
  device.kernels.launch("r3_clock", 1, arguments, device.stream);
  device.stream.wait();
  return found[1] == 0 ? 0 : static_cast<unsigned>(std::llround(1000.0 * double(found[0]) / double(found[1])));
}

}  // namespace

MedianInterval median_interval(std::vector<double> times) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  std::sort(times.begin(), times.end());
  const std::size_t n = times.size();
  if (n == 0) return {-infinity, 0, infinity};
  const double median = n % 2 ? times[n / 2] : (times[n / 2 - 1] + times[n / 2]) / 2;
  // How many order statistics can be left out at either end: the number of times below the true median is binomial.
  std::size_t out = 0;
  if (n <= 1000) {
    double probability = std::pow(0.5, double(n)), tail = probability;
    while (tail <= 0.025) {
      ++out;
      probability *= double(n - out + 1) / double(out);
      tail += probability;
    }
  } else {
    out = static_cast<std::size_t>((double(n) - 1.96 * std::sqrt(double(n))) / 2);
  }
  if (out == 0) return {-infinity, median, infinity};
  return {times[out - 1], median, times[n - out]};
}

double run_once(Replay& memory, ReadyLaunch& launch) {
  const Stream& stream = memory.device().stream;
  const Event start, end;
  memory.restore();
  stream.wait();
  return blame([&] {
    start.record(stream);
    launch.enqueue(stream);
    end.record(stream);
    check(driver().cuCtxSynchronize(), "cuCtxSynchronize");  // which also lets the driver print what the kernel printed
    return end.seconds_since(start);
  });
}

Timing time_launches(Replay& memory, ReadyLaunch& launch, const TimingOptions& options,
                     const std::vector<Tolerance>& tolerances) {
  const auto start = Clock::now();
  Timing timing;
  if (options.cold) memory.device().flush();
  timing.first = run_once(memory, launch);
  Loop loop(memory, launch, options.cold);
  double shortest = timing.first, wall = 0;  // wall: of one repetition
  for (unsigned i = 0; i < std::max(options.warmup, 1u) && (i == 0 || seconds_since(start) < options.seconds / 4);
       ++i) {
    const auto before = Clock::now();
    shortest = std::min(shortest, loop.repeat(1, 1).front());
    wall = seconds_since(before);
  }
  if (shortest < maybe_short_seconds) timing.batch = batch_of(memory, loop, tolerances);
  const unsigned most = std::max(options.most, 1u), least = std::min(std::max(options.least, 1u), most);
  unsigned next = options.bound ? std::min(6u, least) : least;  // six is the first number with an interval
  while (true) {
    const auto fits =
        static_cast<unsigned>(std::clamp(most_seconds_ahead / std::max(wall, 1e-6), 1.0, 1.0 * most_ahead));
    next = std::min(
        {next, fits, most_launches_ahead / (timing.batch + 8), most - static_cast<unsigned>(timing.times.size())});
    const auto before = Clock::now();
    const std::vector<double> times = loop.repeat(next, timing.batch);
    wall = seconds_since(before) / next;
    timing.times.insert(timing.times.end(), times.begin(), times.end());
    const std::size_t n = timing.times.size();
    const MedianInterval interval = median_interval(timing.times);
    timing.hopeless = options.bound && interval.low > *options.bound;
    const bool precise = (interval.high - interval.low) / 2 <= options.precision * interval.median;
    if (timing.hopeless || n >= most || (n >= least && precise) || seconds_since(start) >= options.seconds) break;
    next = n < least ? least - static_cast<unsigned>(n) : most_ahead;
  }
  timing.sm_clock_mhz = clock_mhz(memory.device());
  if (timing.batch > 1) loop.repeat(1, 1);
  blame([&] { check(driver().cuCtxSynchronize(), "cuCtxSynchronize"); });
  return timing;
}

}  // namespace r3::device
