// Look-ups of material cross-sections at random energies, as a Monte-Carlo particle transport makes them.
//
//   lookup [lookups] [nuclides] [points] [rounds]
//
// Each nuclide has cross-sections on an energy grid of its own. The union of all grids tells, for each of its energies,
// where it lies in every nuclide's grid: one binary search a look-up instead of one a nuclide, for much more memory.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>

#include "../check.h"

constexpr int kBlock = 128;
constexpr int kChannels = 5;  // total, elastic, absorption, fission, neutrons from fission
constexpr int kMaterials = 8;
constexpr int kBins = 64;

// Cross-sections at one energy of one nuclide.
struct Point {
  double energy;
  double sections[kChannels];
};

// Pointers to device memory, or to the host's for the reference.
struct Tables {
  int nuclides, points;         // points of each nuclide
  const Point* grids;           // nuclides x points, each nuclide's by rising energy
  const double* union_grid;     // nuclides * points energies, rising
  const int* union_positions;   // for each of them: the point below in every nuclide's grid
  const int* material_starts;   // kMaterials + 1 of them
  const int* material_members;  // nuclides of each material
  const double* densities;      // of each member
};

// A number in [0, 1) that is random in `index` (SplitMix64).
__host__ __device__ inline double random_at(std::uint64_t index) {
  std::uint64_t bits = (index + 1) * 0x9e3779b97f4a7c15u;
  bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9u;
  bits = (bits ^ bits >> 27) * 0x94d049bb133111ebu;
  return static_cast<double>((bits ^ bits >> 31) >> 11) / 9007199254740992.0;
}

// Most particles are in the first materials.
__host__ __device__ inline int pick_material(double random) { return static_cast<int>(kMaterials * random * random); }

// Adds density times the cross-sections at `energy`, on the line between two points.
__host__ __device__ inline void add_sections(const Point* below, double energy, double density, double* sums) {
  const Point &low = below[0], &high = below[1];
  const double part = (energy - low.energy) / (high.energy - low.energy);
  for (int k = 0; k < kChannels; ++k) {
    sums[k] += density * (low.sections[k] + part * (high.sections[k] - low.sections[k]));
  }
}

// The last of n rising energies, but the very last one, that is not above `energy`; 0 when all are.
template <typename Energy>
__device__ int search(int n, double energy, Energy energy_of) {
  int low = 0, high = n - 1;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (energy_of(middle) > energy) {
      high = middle;
    } else {
      low = middle;
    }
  }
  return low;
}

// sections: kChannels for each look-up, of its material at its energy.
__global__ void look_up_union(Tables tables, int lookups, int round, double* sections) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= lookups) return;
  const std::uint64_t sample = 2 * (static_cast<std::uint64_t>(round) * lookups + i);
  const double energy = random_at(sample);
  const int material = pick_material(random_at(sample + 1));
  const double* union_grid = tables.union_grid;
  const int place = search(tables.nuclides * tables.points, energy, [=](int at) { return union_grid[at]; });
  const int* positions = tables.union_positions + static_cast<std::size_t>(place) * tables.nuclides;

  double sums[kChannels] = {};
  for (int m = tables.material_starts[material]; m < tables.material_starts[material + 1]; ++m) {
    const int nuclide = tables.material_members[m];
    const Point* grid = tables.grids + static_cast<std::size_t>(nuclide) * tables.points;
    add_sections(grid + positions[nuclide], energy, tables.densities[m], sums);
  }
  for (int k = 0; k < kChannels; ++k) sections[static_cast<std::size_t>(i) * kChannels + k] = sums[k];
}

// The same by a search in each nuclide's grid.
__global__ void look_up_nuclides(Tables tables, int lookups, int round, double* sections) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= lookups) return;
  const std::uint64_t sample = 2 * (static_cast<std::uint64_t>(round) * lookups + i);
  const double energy = random_at(sample);
  const int material = pick_material(random_at(sample + 1));

  double sums[kChannels] = {};
  for (int m = tables.material_starts[material]; m < tables.material_starts[material + 1]; ++m) {
    const Point* grid = tables.grids + static_cast<std::size_t>(tables.material_members[m]) * tables.points;
    const int place = search(tables.points, energy, [=](int at) { return grid[at].energy; });
    add_sections(grid + place, energy, tables.densities[m], sums);
  }
  for (int k = 0; k < kChannels; ++k) sections[static_cast<std::size_t>(i) * kChannels + k] = sums[k];
}

// How the total cross-sections are distributed: kBins counts over [0, limit).
__global__ void count_totals(const double* sections, int lookups, double limit, unsigned* counts) {
  __shared__ unsigned local[kBins];
  for (int bin = threadIdx.x; bin < kBins; bin += blockDim.x) local[bin] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < lookups; i += gridDim.x * blockDim.x) {
    const double total = sections[static_cast<std::size_t>(i) * kChannels];
    atomicAdd(&local[min(static_cast<int>(total / limit * kBins), kBins - 1)], 1u);
  }
  __syncthreads();
  for (int bin = threadIdx.x; bin < kBins; bin += blockDim.x) {
    if (local[bin] != 0) atomicAdd(&counts[bin], local[bin]);
  }
}

struct Library {
  int nuclides, points;
  std::vector<Point> grids;
  std::vector<double> union_grid;
  std::vector<int> union_positions, material_starts, material_members;
  std::vector<double> densities;
};

Library make_library(int nuclides, int points) {
  Library library{nuclides, points, {}, {}, {}, {0}, {}, {}};
  std::mt19937 random(5);
  const auto uniform = [&] { return static_cast<double>(random()) / 4294967296.0; };
  for (int nuclide = 0; nuclide < nuclides; ++nuclide) {
    std::vector<double> energies(points);
    for (double& energy : energies) energy = uniform();
    std::sort(energies.begin(), energies.end());
    energies.front() = 0, energies.back() = 1;
    for (const double energy : energies) {
      Point point{energy, {}};
      for (double& section : point.sections) section = uniform();
      library.grids.push_back(point);
      library.union_grid.push_back(energy);
    }
  }
  std::sort(library.union_grid.begin(), library.union_grid.end());
  library.union_positions.resize(library.union_grid.size() * nuclides);
  for (int nuclide = 0; nuclide < nuclides; ++nuclide) {
    const Point* grid = &library.grids[static_cast<std::size_t>(nuclide) * points];
    int position = 0;
    for (std::size_t i = 0; i < library.union_grid.size(); ++i) {
      while (position < points - 2 && grid[position + 1].energy <= library.union_grid[i]) ++position;
      library.union_positions[i * nuclides + nuclide] = position;
    }
  }
  // The first material, the fuel, holds every nuclide, the others a few.
  for (int material = 0; material < kMaterials; ++material) {
    std::vector<int> members(nuclides);
    std::iota(members.begin(), members.end(), 0);
    if (material > 0) {
      std::shuffle(members.begin(), members.end(), random);
      members.resize(std::min(nuclides, 3 + 2 * material));
    }
    for (const int member : members) {
      library.material_members.push_back(member);
      library.densities.push_back(uniform() / static_cast<double>(members.size()));
    }
    library.material_starts.push_back(static_cast<int>(library.material_members.size()));
  }
  return library;
}

std::vector<double> reference(const Library& library, int lookups, int round) {
  std::vector<double> sections(static_cast<std::size_t>(lookups) * kChannels);
  for (int i = 0; i < lookups; ++i) {
    const std::uint64_t sample = 2 * (static_cast<std::uint64_t>(round) * lookups + i);
    const double energy = random_at(sample);
    const int material = pick_material(random_at(sample + 1));
    for (int m = library.material_starts[material]; m < library.material_starts[material + 1]; ++m) {
      const auto grid =
          library.grids.begin() + static_cast<std::ptrdiff_t>(library.material_members[m]) * library.points;
      const auto above = std::upper_bound(grid + 1, grid + library.points - 1, energy,
                                          [](double value, const Point& point) { return value < point.energy; });
      add_sections(&*(above - 1), energy, library.densities[m], &sections[static_cast<std::size_t>(i) * kChannels]);
    }
  }
  return sections;
}

int main(int argc, char** argv) {
  const int lookups = example::argument(argc, argv, 1, 20000);
  const int nuclides = example::argument(argc, argv, 2, 24);
  const int points = example::argument(argc, argv, 3, 128);
  const int rounds = example::argument(argc, argv, 4, 2);
  const Library library = make_library(nuclides, std::max(points, 2));

  const example::DeviceArray<Point> grids(library.grids);
  const example::DeviceArray<double> union_grid(library.union_grid), densities(library.densities);
  const example::DeviceArray<int> union_positions(library.union_positions);
  const example::DeviceArray<int> starts(library.material_starts), members(library.material_members);
  const Tables tables{nuclides,      library.points, grids.data(),    union_grid.data(), union_positions.data(),
                      starts.data(), members.data(), densities.data()};

  example::DeviceArray<double> by_union(static_cast<std::size_t>(lookups) * kChannels), by_nuclide(by_union.to_host());
  example::DeviceArray<unsigned> counts(kBins);
  const int blocks = (lookups + kBlock - 1) / kBlock;
  for (int round = 0; round < rounds; ++round) {
    look_up_union<<<blocks, kBlock>>>(tables, lookups, round, by_union.data());
    CHECK(cudaGetLastError());
    look_up_nuclides<<<blocks, kBlock>>>(tables, lookups, round, by_nuclide.data());
    CHECK(cudaGetLastError());
    count_totals<<<32, kBlock>>>(by_union.data(), lookups, 1.0, counts.data());
    CHECK(cudaGetLastError());
  }
  CHECK(cudaDeviceSynchronize());

  const std::vector<double> expected = reference(library, lookups, rounds - 1), got = by_union.to_host();
  const std::vector<unsigned> counted = counts.to_host();
  const auto n_counted = std::accumulate(counted.begin(), counted.end(), 0ull);
  example::Verdict verdict("lookup");
  verdict.expect("by the union of the grids", example::relative_error(got, expected), 1e-13);
  verdict.expect("by each grid", example::relative_error(by_nuclide.to_host(), expected), 1e-13);
  verdict.expect("look-ups counted", n_counted == 1ull * lookups * rounds ? 0 : 1, 0);
  return verdict.report();
}
