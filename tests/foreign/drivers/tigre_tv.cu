// Total-variation denoising of pytigre: reads input.bin, writes output.bin.
//
//   tigre_tv nx ny nz lambda iterations
#include "arrays.h"
#include "tvdenoising.hpp"

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  const long size[3] = {std::atol(argv[1]), std::atol(argv[2]), std::atol(argv[3])};
  const float spacing[3] = {1.0f, 1.0f, 1.0f};
  std::vector<float> input = read_floats("input.bin", size[0] * size[1] * size[2]), output(input.size());
  const float lambda = static_cast<float>(std::atof(argv[4]));
  const int error = tvdenoising(input.data(), output.data(), lambda, spacing, size, std::atoi(argv[5]));
  if (error != 0) return 1;
  write_floats("output.bin", output);
  return 0;
}
