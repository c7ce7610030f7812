// The time step.
#include "../check.h"
#include "lbm.h"

namespace lbm {
namespace {

constexpr int kBlockWidth = 64;
constexpr int kBlockHeight = 4;

__constant__ int direction_x[kDirections] = {0, 1, 0, -1, 0, 1, -1, -1, 1};
__constant__ int direction_y[kDirections] = {0, 0, 1, 0, -1, 1, 1, -1, -1};
__constant__ int opposite[kDirections] = {0, 3, 4, 1, 2, 7, 8, 5, 6};
__constant__ float weights_float[kDirections];  // set before the first step
__constant__ double weights_double[kDirections];

__device__ unsigned long long updated;

template <typename Real>
__device__ Real weight(int q);
template <>
__device__ float weight<float>(int q) {
  return weights_float[q];
}
template <>
__device__ double weight<double>(int q) {
  return weights_double[q];
}

template <typename Real>
__global__ void step(Cavity<Real> cavity, const Real* from, Real* to) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x;
  const int y = blockIdx.y * blockDim.y + threadIdx.y;
  const bool inside = x < cavity.width && y < cavity.height;
  if (inside) {
    const int cells = cavity.width * cavity.height;
    const int cell = y * cavity.width + x;
    Real population[kDirections];
    Real density = 0, momentum_x = 0, momentum_y = 0;
    for (int q = 0; q < kDirections; ++q) {
      const int source_x = x - direction_x[q], source_y = y - direction_y[q];
      if (source_x >= 0 && source_x < cavity.width && source_y >= 0 && source_y < cavity.height) {
        population[q] = from[q * cells + source_y * cavity.width + source_x];
      } else {
        population[q] = from[opposite[q] * cells + cell];
        if (source_y >= cavity.height) population[q] += 6 * weight<Real>(q) * cavity.lid_speed * direction_x[q];
      }
      density += population[q];
      momentum_x += population[q] * direction_x[q];
      momentum_y += population[q] * direction_y[q];
    }
    const Real velocity_x = momentum_x / density, velocity_y = momentum_y / density;
    const Real squared = velocity_x * velocity_x + velocity_y * velocity_y;
    for (int q = 0; q < kDirections; ++q) {
      const Real along = direction_x[q] * velocity_x + direction_y[q] * velocity_y;
      const Real equilibrium =
          weight<Real>(q) * density * (1 + 3 * along + Real(4.5) * along * along - Real(1.5) * squared);
      to[q * cells + cell] = population[q] + cavity.relaxation * (equilibrium - population[q]);
    }
  }
  const int count = __syncthreads_count(inside);
  if (threadIdx.x == 0 && threadIdx.y == 0) atomicAdd(&updated, static_cast<unsigned long long>(count));
}

void set_weights() {
  float single[kDirections];
  double both[kDirections];
  for (int q = 0; q < kDirections; ++q) {
    both[q] = q == 0 ? 4.0 / 9 : q < 5 ? 1.0 / 9 : 1.0 / 36;
    single[q] = static_cast<float>(both[q]);
  }
  CHECK(cudaMemcpyToSymbol(weights_float, single, sizeof(single)));
  CHECK(cudaMemcpyToSymbol(weights_double, both, sizeof(both)));
}

}  // namespace

template <typename Real>
void start_step(const Cavity<Real>& cavity, const Real* from, Real* to) {
  static const bool weights_set = (set_weights(), true);
  (void)weights_set;
  const dim3 block(kBlockWidth, kBlockHeight);
  const dim3 grid((cavity.width + block.x - 1) / block.x, (cavity.height + block.y - 1) / block.y);
  step<<<grid, block>>>(cavity, from, to);
  CHECK(cudaGetLastError());
}

template void start_step(const Cavity<float>&, const float*, float*);
template void start_step(const Cavity<double>&, const double*, double*);

unsigned long long cells_updated() {
  unsigned long long result = 0;
  CHECK(cudaMemcpyFromSymbol(&result, updated, sizeof(result)));
  return result;
}

}  // namespace lbm
