// The kernels, by name.
#include "device/kernels.cu"

#include <cstdio>
#include <cstring>
#include <tuple>

#include "fake.h"
#include "kernels.cu"

namespace fake {
namespace {

// Calls a kernel with arguments from the packed buffer, where each lies aligned to its own type.
template <typename... Arguments>
void run(const void* function, const std::byte* buffer) {
  std::tuple<Arguments...> arguments;
  std::size_t offset = 0;
  const auto take = [&]<typename Argument>(Argument& argument) {
    offset = (offset + alignof(Argument) - 1) / alignof(Argument) * alignof(Argument);
    std::memcpy(&argument, buffer + offset, sizeof argument);
    offset += sizeof argument;
  };
  std::apply([&](auto&... each) { (take(each), ...); }, arguments);
  std::apply(reinterpret_cast<void (*)(Arguments...)>(const_cast<void*>(function)), arguments);
}

template <typename... Arguments>
Kernel kernel(void (*function)(Arguments...)) {
  return {{sizeof(Arguments)...}, &run<Arguments...>, reinterpret_cast<const void*>(function)};
}

}  // namespace

const Kernel* find_kernel(const std::string& name) {
  static const auto& kernels = *new std::unordered_map<std::string, Kernel>{
#define R3_NAMED(name) {#name, kernel(&name)},
#include "kernels.inc"
#undef R3_NAMED
  };
  const auto found = kernels.find(name);
  return found == kernels.end() ? nullptr : &found->second;
}

}  // namespace fake
