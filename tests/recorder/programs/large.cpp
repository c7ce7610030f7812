// Launches over an allocation of many chunks and an odd size. `large short`: what is left of the device's memory is too
// little for a copy of it.
#include <cstdint>
#include <string_view>

#include "driver.h"

namespace {

constexpr std::size_t size = (16 << 20) + 13;

void write_only(CUfunction function, CUdeviceptr out, std::uint64_t n) {
  void* parameters[] = {&out, &n};
  OK(cuLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, nullptr, parameters, nullptr));
  OK(cuCtxSynchronize());
}

}  // namespace

int main(int count, char** arguments) {
  start();
  const CUfunction kernel = function(load(), "write_only");
  std::vector<unsigned char> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<unsigned char>(i >> 12);
  CUdeviceptr data = 0, filler = 0;
  OK(cuMemAlloc(&data, size));
  OK(cuMemcpyHtoD(data, bytes.data(), size));
  if (count == 2 && std::string_view(arguments[1]) == "short") {
    std::size_t free = 0, total = 0;
    OK(cuMemGetInfo(&free, &total));
    OK(cuMemAlloc(&filler, free - size - size / 2));
  }
  write_only(kernel, data + (5 << 20) - 8, 4);     // across the end of a chunk
  write_only(kernel, data + size / 4 * 4 - 4, 1);  // up to the odd bytes
  write_only(kernel, data, size / 4);

  OK(cuMemcpyDtoH(bytes.data(), data, size));
  std::uint64_t sum = 0;
  for (const unsigned char byte : bytes) sum = sum * 31 + byte;
  std::printf("%llx\n", static_cast<unsigned long long>(sum));
  return 0;
}
