// A program as nvcc leaves it: the fat binary (FATBIN) in its constants, behind a wrapper, and the names under which it
// registers variables, that of a static one without what clang adds to it. With an argument, the image is given from
// memory that is then overwritten and freed.
#include <cstring>

#include "driver.h"

asm(".pushsection .rodata\n.balign 8\nfat_binary: .incbin \"" FATBIN "\"\nfat_binary_end:\n.popsection");
extern "C" const char fat_binary[], fat_binary_end[];

struct Wrapper {
  unsigned magic, version;
  const void *data, *more;
};

const Wrapper wrapper{0x466243b1, 1, fat_binary, nullptr};
const char* volatile registered = "counter";

int main(int count, char**) {
  start();
  CUlibrary library;
  CUkernel kernel;
  if (count == 1) {
    OK(cuLibraryLoadData(&library, &wrapper, nullptr, nullptr, 0, nullptr, nullptr, 0));
  } else {
    const auto size = static_cast<std::size_t>(fat_binary_end - fat_binary);
    std::vector<char> copy(fat_binary, fat_binary_end);
    OK(cuLibraryLoadData(&library, copy.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
    std::memset(copy.data(), 0, size);
  }
  OK(cuLibraryGetKernel(&kernel, library, "count_calls"));
  CUdeviceptr out;
  unsigned calls;
  OK(cuMemAlloc(&out, sizeof calls));
  void* parameters[] = {&out};
  OK(cuLaunchKernel(reinterpret_cast<CUfunction>(kernel), 1, 1, 1, 32, 1, 1, 0, nullptr, parameters, nullptr));
  OK(cuMemcpyDtoH(&calls, out, sizeof calls));
  std::printf("%u %s\n", calls, registered);
}
