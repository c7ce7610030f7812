// The kernel that is measured: its module, and how it is launched.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "device/memory.h"
#include "driver/driver.h"

namespace r3::device {

// What a candidate did wrong, as opposed to what went wrong around it (DriverError itself).
struct Fault : DriverError {
  Fault(CUresult code, const std::string& what, const char* step) : DriverError(code, what), step(step) {}
  const char* step;  // "load", "launch" or "run"
};

class Module {
 public:
  explicit Module(const std::string& code);  // a cubin, PTX or fat binary; throws Fault
  ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  CUfunction function(const std::string& name) const;            // throws Fault
  std::optional<Range> variable(const std::string& name) const;  // nothing: the module has none of that name
 private:
  CUmodule module_ = nullptr;
};

struct LaunchAttribute {
  std::uint32_t id;
  std::string value;  // the bytes of a CUlaunchAttributeValue
};

struct Launch {
  CUfunction function = nullptr;
  std::array<std::uint32_t, 3> grid{1, 1, 1}, block{1, 1, 1};
  std::uint32_t dynamic_shared = 0;
  bool cooperative = false;
  int shared_carveout = -1;            // percent; -1: the driver's choice
  std::string arguments;               // packed
  std::vector<std::uint32_t> offsets;  // of the parameters in them
  std::vector<LaunchAttribute> attributes;
};

// A launch made ready, to be put into a stream any number of times.
class ReadyLaunch {
 public:
  explicit ReadyLaunch(const Launch& launch);  // sets the function's attributes; throws Fault
  ReadyLaunch(const ReadyLaunch&) = delete;
  ReadyLaunch& operator=(const ReadyLaunch&) = delete;

  void enqueue(CUstream stream);  // throws Fault

  int attribute(CUfunction_attribute attribute) const;
  int resident_blocks() const;  // per multiprocessor; 0 when no block fits

 private:
  Launch launch_;
  std::vector<void*> parameters_;
  std::size_t arguments_size_;
  std::array<void*, 5> extra_{};
  std::vector<CUlaunchAttribute> attributes_;
};

}  // namespace r3::device
