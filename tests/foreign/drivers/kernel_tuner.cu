// Runs the kernels of kernel_tuner's example files: its convolutions on the top-left part of their fixed-size image,
// and its vector addition. Reads input.bin and filter.bin, writes tiled.bin, naive.bin and sum.bin.
// BLOCKS_X, BLOCKS_Y: how much of the image, in blocks of the tiled kernel. ROUNDS: how often each kernel is launched.
#include <algorithm>

#include "arrays.h"
#include "convolution.cu"
#include "vector_add.cu"

#ifndef BLOCKS_X
#define BLOCKS_X 6
#define BLOCKS_Y 3
#endif
#ifndef ROUNDS
#define ROUNDS 1
#endif

int main() {
  constexpr int kBlocksX = BLOCKS_X, kBlocksY = BLOCKS_Y;
  constexpr int kTileWidth = block_size_x * tile_size_x, kTileHeight = block_size_y * tile_size_y;
  constexpr int kRows = kBlocksY * kTileHeight;
  constexpr std::size_t kInputs = static_cast<std::size_t>(kRows + border_height) * input_width;
  constexpr std::size_t kOutputs = static_cast<std::size_t>(kRows) * image_width;
  constexpr std::size_t kWeights = filter_height * filter_width;

  const std::vector<float> input = read_floats("input.bin", kInputs), filter = read_floats("filter.bin", kWeights);
  float *device_input, *device_output, *device_filter;
  CHECK(cudaMalloc(&device_input, kInputs * sizeof(float)));
  CHECK(cudaMalloc(&device_output, kOutputs * sizeof(float)));
  CHECK(cudaMalloc(&device_filter, kWeights * sizeof(float)));
  CHECK(cudaMemcpy(device_input, input.data(), kInputs * sizeof(float), cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(device_filter, filter.data(), kWeights * sizeof(float), cudaMemcpyHostToDevice));
  CHECK(cudaMemcpyToSymbol(d_filter, filter.data(), kWeights * sizeof(float)));

  const dim3 block(block_size_x, block_size_y);
  std::vector<float> output(kOutputs);
  CHECK(cudaMemset(device_output, 0, kOutputs * sizeof(float)));
  for (int round = 0; round < ROUNDS; ++round)
    convolution_kernel<<<dim3(kBlocksX, kBlocksY), block>>>(device_output, device_input, device_filter);
  CHECK(cudaGetLastError());
  CHECK(cudaMemcpy(output.data(), device_output, kOutputs * sizeof(float), cudaMemcpyDeviceToHost));
  write_floats("tiled.bin", output);

  CHECK(cudaMemset(device_output, 0, kOutputs * sizeof(float)));
  for (int round = 0; round < ROUNDS; ++round)
    convolution_naive<<<dim3(kBlocksX * tile_size_x, kBlocksY * tile_size_y), block>>>(device_output, device_input,
                                                                                       device_filter);
  CHECK(cudaGetLastError());
  CHECK(cudaMemcpy(output.data(), device_output, kOutputs * sizeof(float), cudaMemcpyDeviceToHost));
  write_floats("naive.bin", output);

  const int n = 50003;
  std::vector<float> sum(n);
  for (int round = 0; round < ROUNDS; ++round)
    vector_add<<<(n + block_size_x - 1) / block_size_x, block_size_x>>>(device_output, device_input, device_input + n,
                                                                        n);
  CHECK(cudaGetLastError());
  CHECK(cudaMemcpy(sum.data(), device_output, n * sizeof(float), cudaMemcpyDeviceToHost));
  write_floats("sum.bin", sum);
  return 0;
}
