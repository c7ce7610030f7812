// What is known of a kernel that the application launches.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "driver/driver.h"
#include "recorder/capture.h"
#include "recorder/image.h"
#include "snapshot/selection.h"

namespace r3::recorder {

struct Parameter {
  std::uint32_t offset, size;
};

struct Kernel {
  CUfunction handle = nullptr;
  bool library = false;  // the handle is a CUkernel
  std::string name;      // mangled; empty: the driver does not tell it
  std::string unknown;   // why a launch of it cannot be recorded, whatever its arguments; empty: it can
  std::vector<Parameter> parameters;
  std::uint32_t parameter_bytes = 0;
  Launches* launches = nullptr;  // those of all kernels of this name

  std::shared_ptr<const Image> image() const;  // null: loaded out of our sight
  void load() const;            // the driver loads code when it is first launched, unless it is asked about it before
  CUfunction function() const;  // the handle that attributes can be asked of, in the current context; null: none

  // The arguments of a launch, as the device gets them. Nothing: the driver will refuse this launch.
  std::optional<std::vector<std::byte>> pack(const Launch& launch) const;

 private:
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const Image> image_;
  mutable std::atomic<bool> loaded_{false};
};

// By handle. Thread-safe.
class KernelTable {
 public:
  // `skipped` is called once with the name of each kernel that the criteria leave out.
  KernelTable(const Criteria& criteria, std::function<void(const std::string&)> skipped)
      : criteria_(criteria), skipped_(std::move(skipped)) {}

  std::shared_ptr<Kernel> find(CUfunction handle);
  void forget(CUfunction handle);
  void forget_all();
  std::uint64_t launches_seen() const;

 private:
  std::shared_ptr<Kernel> look_up(CUfunction handle);
  Launches& launches_of(const std::string& name);

  const Criteria& criteria_;
  const std::function<void(const std::string&)> skipped_;
  mutable std::shared_mutex mutex_;
  std::unordered_map<CUfunction, std::shared_ptr<Kernel>> kernels_;
  mutable std::mutex names_mutex_;
  std::map<std::string, Launches> launches_;
};

}  // namespace r3::recorder
