// Stands in for libr3core.so: its "bitcode" lists variables, and its kernels are written here. What the tests of the
// runtime and the recorder need of an engine, without LLVM.
//
//   variable NAME SIZE BYTE      a variable of SIZE bytes, each BYTE
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <sstream>
#include <string>

#include "simt/simt.h"

struct r3simt_module {
  std::map<std::string, std::uint64_t> variables;
  bool checked = false;
};

namespace {

constexpr r3simt_parameter pointer_and_int[] = {{0, 8, 8, 1}, {8, 4, 4, 0}};
constexpr r3simt_parameter pointer_only[] = {{0, 8, 8, 1}};
constexpr r3simt_parameter int_only[] = {{0, 4, 4, 0}};
constexpr r3simt_parameter pair[] = {{0, 16, 8, 2}};

std::map<std::string, r3simt_kernel_info> kernels = {
    {"_Z4fillPii", {2, pointer_and_int, 12, 0, 1024, nullptr}},
    {"_Z4walkP4Node", {1, pointer_only, 8, 0, 1024, nullptr}},
    {"_Z4lastPi", {1, pointer_only, 8, 0, 1024, nullptr}},
    {"_Z5countv", {0, nullptr, 0, 0, 1024, nullptr}},
    {"_Z4failii", {1, int_only, 4, 0, 1024, nullptr}},
    {"_Z7boundedv", {0, nullptr, 0, 16384, 128, nullptr}},
    {"_Z7refusedv", {0, nullptr, 0, 0, 1024, "inline PTX `wgmma.fence` is not translated"}},
    {"_Z4pairSt4pairIPimE", {1, pair, 16, 0, 1024, nullptr}},
    {"_ZL5quietv", {0, nullptr, 0, 0, 1024, nullptr}},
};

struct Node {
  Node* next;
  long value;
};

template <class T>
T argument(const r3simt_launch* launch, std::size_t offset) {
  T value;
  std::memcpy(&value, static_cast<const char*>(launch->parameters) + offset, sizeof value);
  return value;
}

}  // namespace

extern "C" {

R3_API void r3_compile_init() {}
R3_API void r3_bytes_free(r3_bytes* bytes) { delete[] bytes->data; }

R3_API int r3simt_load(const char* bitcode, size_t size, const r3simt_load_options* options, r3simt_module** out,
                       r3_bytes* error) {
  if (std::string(options->passes) != "default<O3>" || std::string(options->target.features) != "+ptx88" ||
      std::string(options->target.cpu) != "sm_90") {
    *error = {new char[]{"wrong options"}, 13};
    return 1;
  }
  auto* module = new r3simt_module;
  module->checked = options->flags & R3SIMT_CHECK;
  std::istringstream lines(std::string(bitcode, size));
  std::string kind, name;
  for (std::size_t bytes, fill; lines >> kind >> name >> bytes >> fill;) {
    const std::string initial(bytes, static_cast<char>(fill));
    module->variables[name] = options->place_variable(options->user, name.c_str(), bytes, 8, 0, initial.data());
  }
  *out = module;
  return 0;
}

R3_API void r3simt_unload(r3simt_module* module) { delete module; }

R3_API const r3simt_kernel_info* r3simt_kernel(r3simt_module*, const char* name) {
  const auto found = kernels.find(name);
  return found == kernels.end() ? nullptr : &found->second;
}

R3_API r3simt_status r3simt_run(r3simt_module* module, const r3simt_launch* launch, r3simt_result* result) {
  const std::string kernel = launch->kernel;
  if (kernel == "_Z4fillPii") {
    auto* out = argument<int*>(launch, 0);
    const auto begin = reinterpret_cast<std::uint64_t>(out),
               end = begin + launch->grid[0] * launch->block[0] * sizeof(int);
    const auto holds = [&](const r3simt_region& r) { return r.base <= begin && end <= r.base + r.size; };
    if (module->checked && std::none_of(launch->regions, launch->regions + launch->n_regions, holds)) {
      std::strcpy(result->message, "out of bounds");
      return R3SIMT_ILLEGAL_ADDRESS;
    }
    for (std::uint32_t i = 0; i < launch->grid[0] * launch->block[0]; ++i) out[i] = argument<int>(launch, 8);
  } else if (kernel == "_Z4walkP4Node") {
    for (auto* node = argument<Node*>(launch, 0); node; node = node->next) node->value *= 2;
  } else if (kernel == "_Z4lastPi") {
    argument<int*>(launch, 0)[-1] = 9;
  } else if (kernel == "_Z5countv") {
    ++*reinterpret_cast<int*>(module->variables.at("counter"));
    dprintf(launch->output_fd, "counted\n");
  } else if (kernel == "_Z4failii") {
    std::strcpy(result->message, "the kernel failed as told");
    return static_cast<r3simt_status>(argument<int>(launch, 0));
  } else if (kernel == "_Z4pairSt4pairIPimE") {
    *argument<int*>(launch, 0) = static_cast<int>(argument<unsigned long>(launch, 8));
  }
  return R3SIMT_OK;
}
}
