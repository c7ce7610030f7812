// Runs the cavity in both precisions, sums its mass and momentum on the device, and checks everything on the host.
//
//   lbm [width] [height] [steps]
#include "../check.h"
#include "lbm.h"

namespace {

using lbm::Cavity;
using lbm::kDirections;

constexpr int kBlock = 128;

// Its own copy of the lattice: the other file's is private to that file.
__constant__ int direction_x[kDirections] = {0, 1, 0, -1, 0, 1, -1, -1, 1};
__constant__ int direction_y[kDirections] = {0, 0, 1, 0, -1, 1, 1, -1, -1};

// Adds mass, x and y momentum of all cells to `totals`. Dynamic shared memory: three values a thread.
template <typename Real>
__global__ void add_moments(const Real* populations, int cells, double* totals) {
  extern __shared__ unsigned char shared[];
  double* const sums = reinterpret_cast<double*>(shared);
  double mass = 0, momentum_x = 0, momentum_y = 0;
  for (int cell = blockIdx.x * blockDim.x + threadIdx.x; cell < cells; cell += gridDim.x * blockDim.x) {
    for (int q = 0; q < kDirections; ++q) {
      const double population = populations[q * cells + cell];
      mass += population;
      momentum_x += population * direction_x[q];
      momentum_y += population * direction_y[q];
    }
  }
  double* const own = sums + 3 * threadIdx.x;
  own[0] = mass, own[1] = momentum_x, own[2] = momentum_y;
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) {
      for (int k = 0; k < 3; ++k) own[k] += own[3 * half + k];
    }
  }
  if (threadIdx.x == 0) {
    for (int k = 0; k < 3; ++k) atomicAdd(&totals[k], own[k]);
  }
}

constexpr int kX[kDirections] = {0, 1, 0, -1, 0, 1, -1, -1, 1};
constexpr int kY[kDirections] = {0, 0, 1, 0, -1, 1, 1, -1, -1};
double host_weight(int q) { return q == 0 ? 4.0 / 9 : q < 5 ? 1.0 / 9 : 1.0 / 36; }

// The same step the other way round: every cell pushes its populations to its neighbours, or back to itself at a wall.
std::vector<double> reference(const Cavity<double>& cavity, std::vector<double> from, int steps) {
  const int width = cavity.width, height = cavity.height, cells = width * height;
  const auto mirrored = [](int q) { return q == 0 ? 0 : q < 5 ? (q + 1) % 4 + 1 : (q - 3) % 4 + 5; };
  for (int step = 0; step < steps; ++step) {
    std::vector<double> arrived(from.size());
    for (int y = 0; y < height; ++y) {
      for (int x = 0; x < width; ++x) {
        for (int q = 0; q < kDirections; ++q) {
          const int to_x = x + kX[q], to_y = y + kY[q];
          const double population = from[q * cells + y * width + x];
          if (to_x >= 0 && to_x < width && to_y >= 0 && to_y < height) {
            arrived[q * cells + to_y * width + to_x] = population;
          } else {
            const double dragged = to_y >= height ? 6 * host_weight(q) * cavity.lid_speed * kX[q] : 0.0;
            arrived[mirrored(q) * cells + y * width + x] = population - dragged;
          }
        }
      }
    }
    for (int cell = 0; cell < cells; ++cell) {
      double density = 0, x = 0, y = 0;
      for (int q = 0; q < kDirections; ++q) {
        density += arrived[q * cells + cell];
        x += kX[q] * arrived[q * cells + cell];
        y += kY[q] * arrived[q * cells + cell];
      }
      x /= density, y /= density;
      for (int q = 0; q < kDirections; ++q) {
        const double along = kX[q] * x + kY[q] * y;
        const double equilibrium =
            host_weight(q) * density * (1 + 3 * along + 4.5 * along * along - 1.5 * (x * x + y * y));
        from[q * cells + cell] =
            arrived[q * cells + cell] + cavity.relaxation * (equilibrium - arrived[q * cells + cell]);
      }
    }
  }
  return from;
}

template <typename Real>
void run(int width, int height, int steps, double tolerance, example::Verdict& verdict) {
  const Cavity<Real> cavity{width, height, Real(0.1), Real(1.2)};
  const int cells = width * height;
  std::vector<Real> at_rest(static_cast<std::size_t>(kDirections) * cells);
  for (int q = 0; q < kDirections; ++q) {
    for (int cell = 0; cell < cells; ++cell) at_rest[q * cells + cell] = static_cast<Real>(host_weight(q));
  }

  example::DeviceArray<Real> populations(at_rest), next(at_rest.size());
  const unsigned long long updated_before = lbm::cells_updated();
  for (int step = 0; step < steps; ++step) {
    lbm::start_step(cavity, populations.data(), next.data());
    populations.swap(next);
  }
  example::DeviceArray<double> totals(3);
  add_moments<<<32, kBlock, 3 * kBlock * sizeof(double)>>>(populations.data(), cells, totals.data());
  CHECK(cudaGetLastError());

  const Cavity<double> exact{width, height, cavity.lid_speed, cavity.relaxation};
  const std::vector<double> expected = reference(exact, {at_rest.begin(), at_rest.end()}, steps);
  std::vector<long double> moments(3);  // a plain sum of millions of doubles would round more than is allowed
  for (int q = 0; q < kDirections; ++q) {
    for (int cell = 0; cell < cells; ++cell) {
      moments[0] += expected[q * cells + cell];
      moments[1] += expected[q * cells + cell] * kX[q];
      moments[2] += expected[q * cells + cell] * kY[q];
    }
  }
  verdict.expect("populations", example::relative_error(populations.to_host(), expected), tolerance);
  verdict.expect("mass and momentum", example::relative_error(totals.to_host(), moments), 10 * tolerance);
  const unsigned long long updated = lbm::cells_updated() - updated_before;
  verdict.expect("cells updated", updated == static_cast<unsigned long long>(cells) * steps ? 0 : 1, 0);
}

}  // namespace

int main(int argc, char** argv) {
  const int width = example::argument(argc, argv, 1, 192);
  const int height = example::argument(argc, argv, 2, 96);
  const int steps = example::argument(argc, argv, 3, 5);
  example::Verdict verdict("lbm");
  run<float>(width, height, steps, 2e-6 * steps, verdict);
  run<double>(width, height, steps, 1e-13 * steps, verdict);
  return verdict.report();
}
