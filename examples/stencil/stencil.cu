// A 2D acoustic wave, by finite differences of order 2 * radius in space and 2 in time.
//
//   stencil [width] [height] [radius] [steps]
//
// A block stages its tile of the field and a halo of `radius` cells in shared memory. Two buffers take turns: the one
// with the field before the current one is overwritten with the field after it.
#include <algorithm>

#include "../check.h"

constexpr int kBlockWidth = 32;
constexpr int kBlockHeight = 8;

// next: in, the field one step ago; out, the field one step on. Outside the domain the field is 0.
// speed: per cell, (wave speed * time step / cell size) squared. coefficients: radius + 1 of them, the centre's first.
__global__ void wave_step(const float* current, float* next, const float* speed, const float* coefficients, int width,
                          int height, int radius) {
  extern __shared__ float tile[];
  const int tx = threadIdx.x, ty = threadIdx.y, block_width = blockDim.x, block_height = blockDim.y;
  const int left = blockIdx.x * blockDim.x, top = blockIdx.y * blockDim.y;
  const int tile_width = block_width + 2 * radius, tile_height = block_height + 2 * radius;

  for (int i = ty * block_width + tx; i < tile_width * tile_height; i += block_width * block_height) {
    const int x = left - radius + i % tile_width;
    const int y = top - radius + i / tile_width;
    tile[i] = x >= 0 && x < width && y >= 0 && y < height ? current[y * width + x] : 0.0f;
  }
  __syncthreads();

  const int x = left + tx, y = top + ty;
  if (x >= width || y >= height) return;

  const float centre = tile[(ty + radius) * tile_width + tx + radius];
  float laplacian = 2.0f * coefficients[0] * centre;
  for (int r = 1; r <= radius; ++r) {
    const float west = tile[(ty + radius) * tile_width + tx + radius - r];
    const float east = tile[(ty + radius) * tile_width + tx + radius + r];
    const float north = tile[(ty + radius - r) * tile_width + tx + radius];
    const float south = tile[(ty + radius + r) * tile_width + tx + radius];
    laplacian += coefficients[r] * (west + east + north + south);
  }
  next[y * width + x] = 2.0f * centre - next[y * width + x] + speed[y * width + x] * laplacian;
}

// Central differences for the second derivative, of order 2 * radius.
std::vector<float> second_derivative(int radius) {
  std::vector<float> coefficients(radius + 1);
  double centre = 0;
  for (int r = 1; r <= radius; ++r) {
    double weight = 2.0 / (r * r) * (r % 2 == 1 ? 1 : -1);
    for (int k = 1; k <= r; ++k) weight *= static_cast<double>(radius - r + k) / (radius + k);
    coefficients[r] = static_cast<float>(weight);
    centre -= 2 * weight;
  }
  coefficients[0] = static_cast<float>(centre);
  return coefficients;
}

void reference_step(const std::vector<double>& current, std::vector<double>& next, const std::vector<float>& speed,
                    const std::vector<float>& coefficients, int width, int height) {
  const int radius = static_cast<int>(coefficients.size()) - 1;
  const auto at = [&](int x, int y) {
    return x >= 0 && x < width && y >= 0 && y < height ? current[y * width + x] : 0.0;
  };
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      double laplacian = 2.0 * coefficients[0] * at(x, y);
      for (int r = 1; r <= radius; ++r) {
        laplacian += coefficients[r] * (at(x - r, y) + at(x + r, y) + at(x, y - r) + at(x, y + r));
      }
      double& cell = next[y * width + x];
      cell = 2.0 * at(x, y) - cell + speed[y * width + x] * laplacian;
    }
  }
}

int main(int argc, char** argv) {
  const int width = example::argument(argc, argv, 1, 160);
  const int height = example::argument(argc, argv, 2, 160);
  const int radius = example::argument(argc, argv, 3, 4);
  const int steps = example::argument(argc, argv, 4, 8);

  // A pulse at rest in a medium whose speed grows with depth.
  std::vector<float> pulse(static_cast<std::size_t>(width) * height), speed(pulse.size());
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      const double dx = (x - 0.4 * width) / 6, dy = (y - 0.6 * height) / 6;
      pulse[y * width + x] = static_cast<float>(std::exp(-(dx * dx + dy * dy)));
      speed[y * width + x] = 0.05f + 0.15f * static_cast<float>(y) / static_cast<float>(height);
    }
  }
  const std::vector<float> coefficients = second_derivative(radius);

  example::DeviceArray<float> current(pulse), next(pulse), device_speed(speed), device_coefficients(coefficients);
  const dim3 block(kBlockWidth, kBlockHeight);
  const dim3 grid((width + block.x - 1) / block.x, (height + block.y - 1) / block.y);
  const std::size_t tile_bytes = (block.x + 2 * radius) * (block.y + 2 * radius) * sizeof(float);
  for (int step = 0; step < steps; ++step) {
    wave_step<<<grid, block, tile_bytes>>>(current.data(), next.data(), device_speed.data(), device_coefficients.data(),
                                           width, height, radius);
    CHECK(cudaGetLastError());
    current.swap(next);
  }
  const std::vector<float> field = current.to_host();

  std::vector<double> expected(pulse.begin(), pulse.end()), other = expected;
  for (int step = 0; step < steps; ++step) {
    reference_step(expected, other, speed, coefficients, width, height);
    expected.swap(other);
  }

  example::Verdict verdict("stencil");
  verdict.expect("field", example::relative_error(field, expected), 1e-5 * steps);
  return verdict.report();
}
