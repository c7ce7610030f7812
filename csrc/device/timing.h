// How long a launch takes.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "device/launch.h"
#include "device/replay.h"

namespace r3::device {

struct MedianInterval {
  double low, median, high;
};

// The median of the times and its 95 % confidence interval by order statistics, which assumes no distribution. Of fewer
// than six, low and high are infinitely far.
MedianInterval median_interval(std::vector<double> times);

struct TimingOptions {  // see r3llvm.runner.protocol's Time
  bool cold = true;
  unsigned warmup = 3, least = 10, most = 400;
  double precision = 0.01, seconds = 2.0;
  std::optional<double> bound;
};

struct Timing {
  std::vector<double> times;  // seconds a launch
  unsigned batch = 1;         // launches that one of them is the mean of
  bool hopeless = false;
  double first = 0;  // seconds of the first launch of all
  unsigned sm_clock_mhz = 0;
};

// One launch of restored memory, waited for: seconds, by events. Throws Fault.
double run_once(Replay& memory, ReadyLaunch& launch);

// Restores, launches and times until the options say enough. The memory is then as one launch of restored memory left
// it. A kernel below 2 µs is timed in batches if a second launch leaves the first one's result as it is (compared under
// the tolerances); any other alone. Throws Fault.
Timing time_launches(Replay& memory, ReadyLaunch& launch, const TimingOptions& options,
                     const std::vector<Tolerance>& tolerances);

}  // namespace r3::device
