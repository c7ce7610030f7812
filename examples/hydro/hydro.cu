// A blast wave in a gas, by Lagrangian hydrodynamics on a mesh of hexahedra that moves with the gas.
//
//   hydro [elements along an edge] [steps]
//
// Four kernels a step, which gather through lists of indices. What an element's corner forces take from its internal
// energy, the nodes get as kinetic energy: the total stays what it was, to rounding. Three sides of the cube mirror.
#include <algorithm>
#include <numeric>

#include "../check.h"

constexpr int kBlock = 128;
constexpr int kCorners = 8;                        // corner c is at (c & 1, c >> 1 & 1, c >> 2 & 1) of its element
constexpr double kGamma = 1.4;                     // ratio of the specific heats
constexpr double kCold = 1e-6;                     // specific internal energy outside the blast
constexpr double kBlast = 1.0;                     // energy of the blast, in the element at the origin
constexpr double kLinear = 0.3, kQuadratic = 1.5;  // artificial viscosity
constexpr double kCourant = 0.25, kGrowth = 1.1;   // how long a step may be, and how much longer than the last

// Pointers to device memory, or to the host's for the reference.
struct Mesh {
  int elements, nodes, edge;  // edge: nodes along an edge of the cube
  const int* element_nodes;   // kCorners of each element
  const int* node_starts;     // nodes + 1 of them
  const int* node_corners;    // corners (element * kCorners + corner) that meet in each node
  const double* node_masses;
  const double* element_masses;
};

struct State {
  double3* positions;   // of nodes
  double3* velocities;  // of nodes
  double3* averages;    // of nodes: velocities over the step
  double3* forces;      // of corners
  double* energies;     // of elements, each for a unit of mass
  double* volumes;      // of elements
  double* stresses;     // of elements: pressure and viscosity
};

__host__ __device__ inline double3 operator+(double3 a, double3 b) {
  return make_double3(a.x + b.x, a.y + b.y, a.z + b.z);
}
__host__ __device__ inline double3 operator-(double3 a, double3 b) {
  return make_double3(a.x - b.x, a.y - b.y, a.z - b.z);
}
__host__ __device__ inline double3 operator*(double s, double3 a) { return make_double3(s * a.x, s * a.y, s * a.z); }
__host__ __device__ inline double dot(double3 a, double3 b) { return a.x * b.x + a.y * b.y + a.z * b.z; }
__host__ __device__ inline double3 cross(double3 a, double3 b) {
  return make_double3(a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x);
}

// The volume of a hexahedron; adds to each corner a quarter of the areas, outwards, of the faces that meet there.
__host__ __device__ inline double measure(const double3* at, double3* areas) {
  constexpr int kFaces[6][4] = {{0, 4, 6, 2}, {1, 3, 7, 5}, {0, 1, 5, 4}, {2, 6, 7, 3}, {0, 2, 3, 1}, {4, 5, 7, 6}};
  double volume = 0;
  for (const auto& face : kFaces) {
    const double3 a = at[face[0]], b = at[face[1]], c = at[face[2]], d = at[face[3]];
    const double3 area = 0.5 * cross(c - a, d - b);
    volume += dot(area, a + b + c + d) / 12;
    if (areas == nullptr) continue;
    for (const int corner : face) areas[corner] = areas[corner] + 0.25 * area;
  }
  return volume;
}

__host__ __device__ inline void push_corners(const Mesh& mesh, const State& state, int element) {
  double3 at[kCorners], areas[kCorners] = {};
  for (int c = 0; c < kCorners; ++c) at[c] = state.positions[mesh.element_nodes[element * kCorners + c]];
  measure(at, areas);
  for (int c = 0; c < kCorners; ++c) state.forces[element * kCorners + c] = state.stresses[element] * areas[c];
}

__host__ __device__ inline void move_node(const Mesh& mesh, const State& state, int node, double step) {
  double3 force = make_double3(0, 0, 0);
  for (int k = mesh.node_starts[node]; k < mesh.node_starts[node + 1]; ++k) {
    force = force + state.forces[mesh.node_corners[k]];
  }
  const double3 before = state.velocities[node];
  double3 after = before + step / mesh.node_masses[node] * force;
  if (node % mesh.edge == 0) after.x = 0;
  if (node / mesh.edge % mesh.edge == 0) after.y = 0;
  if (node / mesh.edge / mesh.edge == 0) after.z = 0;
  state.velocities[node] = after;
  state.averages[node] = 0.5 * (before + after);
  state.positions[node] = state.positions[node] + step * state.averages[node];
}

// Returns the longest step that the element allows next.
__host__ __device__ inline double update_element(const Mesh& mesh, const State& state, int element, double step) {
  double3 at[kCorners];
  double work = 0;
  for (int c = 0; c < kCorners; ++c) {
    const int node = mesh.element_nodes[element * kCorners + c];
    at[c] = state.positions[node];
    work += dot(state.forces[element * kCorners + c], state.averages[node]);
  }
  const double mass = mesh.element_masses[element];
  const double volume = measure(at, nullptr), density = mass / volume, length = cbrt(volume);
  const double energy = state.energies[element] - step * work / mass;
  const double pressure = (kGamma - 1) * density * fmax(energy, 0.0);
  const double sound = sqrt(kGamma * pressure / density);
  const double closing = fmax(0.0, length * (state.volumes[element] - volume) / (volume * step));
  state.energies[element] = energy;
  state.volumes[element] = volume;
  state.stresses[element] = pressure + density * closing * (kLinear * sound + kQuadratic * closing);
  return kCourant * length / (sound + 2 * kQuadratic * closing + 1e-12);
}

__global__ void push_corners(Mesh mesh, State state) {
  const int element = blockIdx.x * blockDim.x + threadIdx.x;
  if (element < mesh.elements) push_corners(mesh, state, element);
}

__global__ void move_nodes(Mesh mesh, State state, const double* step) {
  const int node = blockIdx.x * blockDim.x + threadIdx.x;
  if (node < mesh.nodes) move_node(mesh, state, node, *step);
}

// limits: of each element, for limit_step.
__global__ void update_elements(Mesh mesh, State state, const double* step, double* limits) {
  const int element = blockIdx.x * blockDim.x + threadIdx.x;
  if (element < mesh.elements) limits[element] = update_element(mesh, state, element, *step);
}

// next: in, all bits but the sign's; out, the next step. Doubles above zero are ordered as their bits are.
__global__ void limit_step(const double* limits, int elements, const double* step, unsigned long long* next) {
  double limit = kGrowth * *step;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < elements; i += gridDim.x * blockDim.x) {
    limit = fmin(limit, limits[i]);
  }
  for (int offset = 16; offset > 0; offset /= 2) limit = fmin(limit, __shfl_down_sync(0xffffffffu, limit, offset));
  if (threadIdx.x % 32 == 0) atomicMin(next, static_cast<unsigned long long>(__double_as_longlong(limit)));
}

// Everything on the host, as it is at the start; `run` takes it on from there.
struct Gas {
  std::vector<int> element_nodes, node_starts, node_corners;
  std::vector<double> node_masses, element_masses, energies, volumes, stresses;
  std::vector<double3> positions, velocities, averages, forces;
  int edge;
  double first_step;

  explicit Gas(int n) : edge(n + 1) {
    const int nodes = edge * edge * edge, elements = n * n * n;
    const double volume = 1.0 / elements;
    for (int node = 0; node < nodes; ++node) {
      const int x = node % edge, y = node / edge % edge, z = node / edge / edge;
      positions.push_back(make_double3(1.0 * x / n, 1.0 * y / n, 1.0 * z / n));
    }
    std::vector<std::vector<int>> meeting(nodes);
    for (int element = 0; element < elements; ++element) {
      const int first = element % n + edge * (element / n % n + edge * (element / n / n));
      for (int c = 0; c < kCorners; ++c) {
        const int node = first + (c & 1) + edge * ((c >> 1 & 1) + edge * (c >> 2 & 1));
        element_nodes.push_back(node);
        meeting[node].push_back(element * kCorners + c);
      }
    }
    node_starts.push_back(0);
    for (const std::vector<int>& corners : meeting) {
      node_corners.insert(node_corners.end(), corners.begin(), corners.end());
      node_starts.push_back(static_cast<int>(node_corners.size()));
      node_masses.push_back(volume * static_cast<double>(corners.size()) / kCorners);
    }
    element_masses.assign(elements, volume);  // the density is 1
    volumes.assign(elements, volume);
    energies.assign(elements, kCold);
    energies[0] = kBlast / volume;
    for (const double energy : energies) stresses.push_back((kGamma - 1) * energy);
    first_step = kCourant / n / std::sqrt(kGamma * stresses[0]);
    velocities.resize(nodes), averages.resize(nodes), forces.resize(node_corners.size());
  }

  void run(int steps) {
    const Mesh mesh{elements(),
                    nodes(),
                    edge,
                    element_nodes.data(),
                    node_starts.data(),
                    node_corners.data(),
                    node_masses.data(),
                    element_masses.data()};
    const State state{positions.data(), velocities.data(), averages.data(), forces.data(),
                      energies.data(),  volumes.data(),    stresses.data()};
    double step = first_step;
    for (int i = 0; i < steps; ++i) {
      for (int element = 0; element < elements(); ++element) push_corners(mesh, state, element);
      for (int node = 0; node < nodes(); ++node) move_node(mesh, state, node, step);
      double next = kGrowth * step;
      for (int element = 0; element < elements(); ++element) {
        next = std::min(next, update_element(mesh, state, element, step));
      }
      step = next;
    }
  }

  double energy() const {
    long double sum = 0;  // of very many small ones and a few large ones
    for (int i = 0; i < elements(); ++i) sum += element_masses[i] * energies[i];
    for (int i = 0; i < nodes(); ++i) sum += 0.5 * node_masses[i] * dot(velocities[i], velocities[i]);
    return static_cast<double>(sum);
  }

  int elements() const { return static_cast<int>(element_masses.size()); }
  int nodes() const { return static_cast<int>(node_masses.size()); }
};

std::vector<double> flat(const std::vector<double3>& vectors) {
  std::vector<double> values;
  for (const double3& vector : vectors) values.insert(values.end(), {vector.x, vector.y, vector.z});
  return values;
}

int main(int argc, char** argv) {
  const int n = std::min(example::argument(argc, argv, 1, 12), 400);
  const int steps = example::argument(argc, argv, 2, 16);
  const Gas start(n);

  const example::DeviceArray<int> element_nodes(start.element_nodes), node_starts(start.node_starts);
  const example::DeviceArray<int> node_corners(start.node_corners);
  const example::DeviceArray<double> node_masses(start.node_masses), element_masses(start.element_masses);
  example::DeviceArray<double3> positions(start.positions), velocities(start.velocities), averages(start.averages);
  example::DeviceArray<double3> forces(start.forces);
  example::DeviceArray<double> energies(start.energies), volumes(start.volumes), stresses(start.stresses);
  example::DeviceArray<double> limits(start.elements()), step(std::vector<double>{start.first_step}), next_step(1);
  const Mesh mesh{start.elements(),   start.nodes(),       start.edge,         element_nodes.data(),
                  node_starts.data(), node_corners.data(), node_masses.data(), element_masses.data()};
  const State state{positions.data(), velocities.data(), averages.data(), forces.data(),
                    energies.data(),  volumes.data(),    stresses.data()};

  const int element_blocks = (mesh.elements + kBlock - 1) / kBlock, node_blocks = (mesh.nodes + kBlock - 1) / kBlock;
  for (int i = 0; i < steps; ++i) {
    push_corners<<<element_blocks, kBlock>>>(mesh, state);
    CHECK(cudaGetLastError());
    move_nodes<<<node_blocks, kBlock>>>(mesh, state, step.data());
    CHECK(cudaGetLastError());
    update_elements<<<element_blocks, kBlock>>>(mesh, state, step.data(), limits.data());
    CHECK(cudaGetLastError());
    CHECK(cudaMemset(next_step.data(), 0x7f, sizeof(double)));
    limit_step<<<64, kBlock>>>(limits.data(), mesh.elements, step.data(),
                               reinterpret_cast<unsigned long long*>(next_step.data()));
    CHECK(cudaGetLastError());
    step.swap(next_step);
  }
  CHECK(cudaDeviceSynchronize());

  Gas expected = start, got = start;
  expected.run(steps);
  got.positions = positions.to_host(), got.velocities = velocities.to_host(), got.energies = energies.to_host();
  example::Verdict verdict("hydro");
  verdict.expect("positions", example::relative_error(flat(got.positions), flat(expected.positions)), 1e-12);
  verdict.expect("velocities", example::relative_error(flat(got.velocities), flat(expected.velocities)), 1e-10);
  verdict.expect("energies", example::relative_error(got.energies, expected.energies), 1e-10);
  verdict.expect("total energy", std::fabs(got.energy() / start.energy() - 1), 1e-12);
  return verdict.report();
}
