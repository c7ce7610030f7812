// r3llvm._native: what Python needs of libr3core and csrc/device. Every long call releases the GIL; what needs LLVM
// works in a child process. The typed description of this module is r3llvm/_native.pyi.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "bindings/device.h"
#include "compile/build.h"
#include "compile/compile.h"
#include "simt/replay.h"

namespace py = pybind11;
using namespace py::literals;

namespace {

struct Bytes : r3_bytes {
  Bytes() : r3_bytes{nullptr, 0} {}
  ~Bytes() { r3_bytes_free(this); }
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;
  std::string text() const { return data ? std::string(data, size) : std::string(); }
};

// str where the text is UTF-8 throughout; what a pass or a kernel prints need not be.
py::str to_text(const std::string& bytes) {
  PyObject* text = PyUnicode_DecodeUTF8(bytes.data(), Py_ssize_t(bytes.size()), "backslashreplace");
  if (!text) throw py::error_already_set();
  return py::reinterpret_steal<py::str>(text);
}

r3::Limits limits(double seconds, std::uint64_t memory_bytes) {
  r3::Limits result;
  result.seconds = seconds;
  result.memory_bytes = memory_bytes;
  return result;
}

void check_pipeline(const std::string& passes) {
  Bytes error;
  const int failed = [&] {
    const py::gil_scoped_release release;
    return r3_check_pipeline(passes.c_str(), &error);
  }();
  if (failed) throw py::value_error(error.text());
}

std::string list_passes() {
  Bytes json, error;
  if (r3_list_passes(&json, &error)) throw std::runtime_error(error.text());
  return json.text();
}

py::bytes prepare(const py::bytes& bitcode, const std::string& kernel, double seconds, std::uint64_t memory_bytes) {
  const std::string input = bitcode;
  const std::string prepared = [&] {
    const py::gil_scoped_release release;
    return r3::prepare(input, kernel, limits(seconds, memory_bytes));
  }();
  return prepared;
}

std::unique_ptr<r3::BuildResult> compile(const py::bytes& bitcode, std::string pipeline, std::string cpu,
                                         std::string features, int codegen_level, std::vector<std::string> options,
                                         double seconds, std::uint64_t memory_bytes) {
  r3::BuildRequest request;
  request.bitcode = bitcode;
  request.pipeline = std::move(pipeline);
  request.cpu = std::move(cpu);
  request.features = std::move(features);
  request.codegen_level = codegen_level;
  request.options = std::move(options);
  request.limits = limits(seconds, memory_bytes);
  const py::gil_scoped_release release;
  return std::make_unique<r3::BuildResult>(r3::build(request));
}

using Dimensions = std::array<std::uint32_t, 3>;
using SpanTuple = std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>;  // address, length, offset
using RegionTuple = std::tuple<std::uint64_t, std::uint64_t, std::string>;  // base, size, variable

py::dict counts(const r3simt_counts& counted) {
  py::dict result;
  for (int i = 0; i < R3SIMT_CLASSES; ++i) result[r3simt_class_name(i)] = counted.issues[i];
  result["threads"] = counted.threads;
  result["warps"] = counted.warps;
  result["lane_instructions"] = counted.lane_instructions;
  result["global_requests"] = counted.global_requests;
  result["global_sectors"] = counted.global_sectors;
  result["global_unique_sectors"] = counted.global_unique_sectors;
  result["shared_requests"] = counted.shared_requests;
  result["shared_wavefronts"] = counted.shared_wavefronts;
  result["atomic_conflicts"] = counted.atomic_conflicts;
  return result;
}

py::dict replay(const py::bytes& bitcode, const std::string& kernel, const Dimensions& grid, const Dimensions& block,
                const py::bytes& arguments, const std::vector<SpanTuple>& spans,
                const std::vector<RegionTuple>& regions, int prologue_fd, int epilogue_fd, std::uint32_t dynamic_shared,
                const std::string& passes, const std::string& cpu, const std::string& features, unsigned flags,
                unsigned workers, bool cooperative, double seconds, std::uint64_t memory_bytes) {
  r3::ReplayRequest request;
  request.bitcode = bitcode;
  request.passes = passes;
  request.cpu = cpu;
  request.features = features;
  request.kernel = kernel;
  std::copy(grid.begin(), grid.end(), request.grid);
  std::copy(block.begin(), block.end(), request.block);
  request.dynamic_shared = dynamic_shared;
  request.arguments = arguments;
  for (const auto& [address, length, offset] : spans) request.spans.push_back({address, length, offset});
  for (const auto& [base, size, variable] : regions) request.regions.push_back({base, size, variable});
  request.prologue_fd = prologue_fd;
  request.epilogue_fd = epilogue_fd;
  request.flags = flags;
  request.workers = workers;
  request.cooperative = cooperative;
  request.limits = limits(seconds, memory_bytes);
  const r3::ReplayResult result = [&] {
    const py::gil_scoped_release release;
    r3_compile_init();
    return r3::replay(request);
  }();
  py::list differences;
  for (const auto& difference : result.differences)
    differences.append(py::make_tuple(difference.region, difference.bytes, difference.first_offset));
  return py::dict("status"_a = result.status, "message"_a = to_text(result.message),
                  "warning"_a = to_text(result.warning), "output"_a = to_text(result.output),
                  "differences"_a = differences, "counts"_a = counts(result.counts),
                  "load_seconds"_a = result.load_seconds, "run_seconds"_a = result.run_seconds);
}

}  // namespace

PYBIND11_MODULE(_native, m) {
  m.doc() = "LLVM pipelines, PTX and replays on the CPU, each in a child process; replays on a GPU, in this one.";
  m.attr("LLVM_VERSION") = r3_llvm_version();
  m.attr("CHECK") = int(R3SIMT_CHECK);
  m.attr("COUNT") = int(R3SIMT_COUNT);
  const r3::Limits defaults;

  m.def("init", &r3_compile_init, py::call_guard<py::gil_scoped_release>());
  m.def("check_pipeline", &check_pipeline, "passes"_a);
  m.def("check_options", &r3::check_options, "options"_a, py::call_guard<py::gil_scoped_release>());
  m.def("check_target", &r3::check_target, "cpu"_a, "features"_a = "", py::call_guard<py::gil_scoped_release>());
  m.def("list_passes", &list_passes);
  m.def("prepare", &prepare, "bitcode"_a, "kernel"_a, "seconds"_a = defaults.seconds,
        "memory_bytes"_a = defaults.memory_bytes);

  py::class_<r3::BuildResult>(m, "BuildResult")
      .def_readonly("status", &r3::BuildResult::status)
      .def_property_readonly("message", [](const r3::BuildResult& result) { return to_text(result.message); })
      .def_property_readonly("log", [](const r3::BuildResult& result) { return to_text(result.log); })
      .def_property_readonly("bitcode", [](const r3::BuildResult& result) { return py::bytes(result.bitcode); })
      .def_property_readonly("ptx", [](const r3::BuildResult& result) { return py::bytes(result.ptx); })
      .def_readonly("seconds", &r3::BuildResult::seconds);
  m.def("compile", &compile, "bitcode"_a, "pipeline"_a, "cpu"_a = "sm_90", "features"_a = "", "codegen_level"_a = 3,
        "options"_a = std::vector<std::string>(), "seconds"_a = defaults.seconds,
        "memory_bytes"_a = defaults.memory_bytes);

  m.def("replay", &replay, py::kw_only(), "bitcode"_a, "kernel"_a, "grid"_a, "block"_a, "arguments"_a, "spans"_a,
        "regions"_a, "prologue_fd"_a, "epilogue_fd"_a, "dynamic_shared"_a = 0, "passes"_a = "", "cpu"_a = "sm_90",
        "features"_a = "", "flags"_a = unsigned(R3SIMT_CHECK | R3SIMT_COUNT), "workers"_a = 1, "cooperative"_a = false,
        "seconds"_a = defaults.seconds, "memory_bytes"_a = defaults.memory_bytes);

  r3::bind_device(m);
}
