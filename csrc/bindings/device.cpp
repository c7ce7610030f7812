// csrc/device for r3llvm.runner.worker, which makes the context current (PyCUDA) before it calls anything here.
#include "bindings/device.h"

#include <pybind11/stl.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "device/timing.h"

namespace py = pybind11;
using namespace py::literals;

namespace r3::device {
namespace {

using RegionTuple = std::tuple<std::uint64_t, std::uint64_t, bool>;             // base, size, variable
using ToleranceTuple = std::tuple<std::string, std::uint64_t, double, double>;  // element, ulps, absolute, relative
using AttributeTuple = std::tuple<std::uint32_t, py::bytes>;                    // id, value
using Dimensions = std::array<std::uint32_t, 3>;

std::span<const std::byte> span_of(const py::bytes& bytes) {
  const auto view = static_cast<std::string_view>(bytes);
  return std::as_bytes(std::span(view.data(), view.size()));
}

Element element_of(const std::string& name) {
  constexpr std::array names{"bytes", "f16", "bf16", "f32", "f64"};  // in Element's order
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (name == names[i]) return static_cast<Element>(i);
  }
  throw py::value_error("no element type: " + name);
}

std::vector<Tolerance> tolerances_of(const std::vector<ToleranceTuple>& tuples) {
  std::vector<Tolerance> result;
  for (const auto& [element, ulps, absolute, relative] : tuples)
    result.push_back({element_of(element), ulps, absolute, relative});
  return result;
}

std::unique_ptr<ReadyLaunch> ready(const Module& module, const std::string& name, const Dimensions& grid,
                                   const Dimensions& block, std::uint32_t dynamic_shared, bool cooperative,
                                   int shared_carveout, std::string arguments, std::vector<std::uint32_t> offsets,
                                   const std::vector<AttributeTuple>& attributes) {
  Launch launch{module.function(name), grid, block, dynamic_shared, cooperative, shared_carveout, std::move(arguments),
                std::move(offsets),    {}};
  for (const auto& [id, value] : attributes) launch.attributes.push_back({id, value});
  return std::make_unique<ReadyLaunch>(launch);
}

Where where_of(const std::string& name) {
  if (name == "all") return Where::all;
  if (name == "changed") return Where::changed;
  if (name == "written") return Where::written;
  throw py::value_error("nowhere to put poison: " + name);
}

ComparisonResult compare(Replay& memory, const std::vector<ToleranceTuple>& tolerances) {
  const py::gil_scoped_release release;
  return memory.compare(tolerances_of(tolerances));
}

Timing time(Replay& memory, ReadyLaunch& launch, const std::vector<ToleranceTuple>& tolerances, bool cold,
            unsigned warmup, unsigned least, unsigned most, double precision, double seconds,
            std::optional<double> bound) {
  const py::gil_scoped_release release;
  return time_launches(memory, launch, {cold, warmup, least, most, precision, seconds, bound},
                       tolerances_of(tolerances));
}

// DriverError(message) with the attributes code, name and step (empty: nothing that a candidate did).
PyObject* driver_error = nullptr;

void raise(const DriverError& error, const char* step) {
  const py::object raised = py::reinterpret_borrow<py::object>(driver_error)(error.what());
  raised.attr("code") = int(error.code);
  raised.attr("name") = error_name(error.code);
  raised.attr("step") = step;
  PyErr_SetObject(driver_error, raised.ptr());
}

}  // namespace
}  // namespace r3::device

void r3::bind_device(py::module_& m) {
  using namespace r3::device;
  const py::call_guard<py::gil_scoped_release> free;

  driver_error = PyErr_NewException("r3llvm._native.DriverError", PyExc_RuntimeError, nullptr);
  m.attr("DriverError") = py::reinterpret_borrow<py::object>(driver_error);
  py::register_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const Fault& fault) {
      raise(fault, fault.step);
    } catch (const DriverError& error) {
      raise(error, "");
    }
  });

  m.def("synchronize", [] { return int(driver().cuCtxSynchronize()); }, free);
  m.def("flush_output", [] { std::fflush(nullptr); }, free);
  m.def("median_interval", [](std::vector<double> times) {
    const MedianInterval interval = median_interval(std::move(times));
    return std::make_tuple(interval.low, interval.median, interval.high);
  });

  py::class_<Device, std::shared_ptr<Device>>(m, "Device")
      .def(py::init<>(), free)
      .def(
          "keep",
          [](Device& device, const std::vector<std::pair<std::uint64_t, std::uint64_t>>& ranges) {
            std::vector<Range> kept;
            for (const auto& [base, size] : ranges) kept.push_back({base, size});
            device.arena.keep(kept);
          },
          "ranges"_a, free);

  py::class_<Module>(m, "DeviceModule")
      .def(py::init<const std::string&>(), "code"_a, free)
      .def(
          "variable",
          [](const Module& module, const std::string& name) {
            const std::optional<Range> found = module.variable(name);
            return found ? std::optional(std::make_pair(found->base, found->size)) : std::nullopt;
          },
          "name"_a);

  py::class_<ReadyLaunch>(m, "DeviceLaunch")
      .def(py::init(&ready), py::keep_alive<1, 2>(), "module"_a, "name"_a, py::kw_only(), "grid"_a, "block"_a,
           "dynamic_shared"_a = 0, "cooperative"_a = false, "shared_carveout"_a = -1, "arguments"_a = py::bytes(),
           "offsets"_a = std::vector<std::uint32_t>(), "attributes"_a = std::vector<AttributeTuple>())
      .def_property_readonly("resident_blocks", &ReadyLaunch::resident_blocks)
      .def_property_readonly("registers",
                             [](const ReadyLaunch& launch) { return launch.attribute(CU_FUNC_ATTRIBUTE_NUM_REGS); })
      .def_property_readonly("local_bytes", [](const ReadyLaunch& launch) {
        return launch.attribute(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
      });

  py::class_<Comparison>(m, "DeviceComparison")
      .def_readonly("differing", &Comparison::differing)
      .def_readonly("first", &Comparison::first)
      .def_readonly("max_ulps", &Comparison::max_ulps)
      .def_readonly("max_absolute", &Comparison::max_absolute)
      .def_readonly("max_relative", &Comparison::max_relative);
  py::class_<ComparisonResult>(m, "DeviceComparisons")
      .def_readonly("regions", &ComparisonResult::regions)
      .def_readonly("canaries", &ComparisonResult::canaries);
  py::class_<Timing>(m, "DeviceTiming")
      .def_readonly("times", &Timing::times)
      .def_readonly("batch", &Timing::batch)
      .def_readonly("hopeless", &Timing::hopeless)
      .def_readonly("first", &Timing::first)
      .def_readonly("sm_clock_mhz", &Timing::sm_clock_mhz);

  py::class_<Replay>(m, "DeviceReplay")
      .def(py::init([](std::shared_ptr<Device> device, const std::vector<RegionTuple>& tuples, std::uint64_t chunk) {
             std::vector<Region> regions;
             for (const auto& [base, size, variable] : tuples) regions.push_back({base, size, variable});
             return std::make_unique<Replay>(std::move(device), std::move(regions), chunk);
           }),
           "device"_a, "regions"_a, "chunk_bytes"_a)
      .def("begin", &Replay::begin, free)
      .def(
          "put",
          [](Replay& memory, std::size_t region, std::uint64_t offset, const py::bytes& prologue,
             const std::optional<py::bytes>& epilogue) {
            const auto before = span_of(prologue);
            const auto after = epilogue ? std::optional(span_of(*epilogue)) : std::nullopt;
            const py::gil_scoped_release release;
            memory.put(region, offset, before, after);
          },
          "region"_a, "offset"_a, "prologue"_a, "epilogue"_a)
      .def("finish", &Replay::finish, free)
      .def("drop", &Replay::drop, free)
      .def_property_readonly("resident", &Replay::resident)
      .def_property_readonly("ranges",
                             [](const Replay& memory) {
                               std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges;
                               for (const auto& [base, size] : memory.ranges()) ranges.emplace_back(base, size);
                               return ranges;
                             })
      .def_property_readonly("restored_bytes", &Replay::restored_bytes)
      .def_property_readonly("changed_bytes", &Replay::changed_bytes)
      .def("bind", &Replay::bind, "region"_a, "address"_a)
      .def(
          "poison",
          [](Replay& memory, std::size_t region, std::optional<std::uint8_t> pattern, const std::string& where) {
            const Where place = where_of(where);
            const py::gil_scoped_release release;
            return memory.poison(region, pattern, place);
          },
          "region"_a, "pattern"_a, "where"_a = "changed")
      .def("learn", &Replay::learn, "region"_a, free)
      .def(
          "restore",
          [](Replay& memory) {
            memory.restore();
            memory.device().stream.wait();
          },
          free)
      .def("run", &run_once, "launch"_a, free)
      .def("compare", &compare, "tolerances"_a = std::vector<ToleranceTuple>())
      .def("time", &time, "launch"_a, py::kw_only(), "tolerances"_a = std::vector<ToleranceTuple>(), "cold"_a = true,
           "warmup"_a = 3, "least"_a = 10, "most"_a = 400, "precision"_a = 0.01, "seconds"_a = 2.0,
           "bound"_a = std::nullopt);
}
