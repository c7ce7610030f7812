// Gravity among n bodies, all pairs, with a screened force and a periodic tide.
//
//   nbody [bodies] [steps]
//
// Bodies start as a Plummer sphere at rest. A block stages the bodies that pull on it in shared memory, tile by tile.
#include "../check.h"

constexpr int kBlock = 128;
constexpr float kSoftening = 0.05f;     // keeps close encounters finite
constexpr float kScreening = 4.0f;      // the length over which the force fades
constexpr float kTide = 0.02f;          // strength of the tide
constexpr float kTideFrequency = 1.5f;  // per unit of time
constexpr float kTimeStep = 0.01f;

// The i-th point of an additive recurrence: evenly spread over (0, 1), the same on host and device.
__host__ __device__ inline float spread(unsigned i, unsigned step) {
  return (static_cast<float>((i + 1) * step >> 8) + 0.5f) / 16777216.0f;
}
constexpr unsigned kSpreadRadius = 2654435769u, kSpreadHeight = 3242174889u, kSpreadAngle = 2447445413u;

// positions: x, y, z and mass.
__global__ void place_bodies(float4* positions, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float enclosed = 0.05f + 0.9f * spread(i, kSpreadRadius);
  const float radius = rsqrtf(powf(enclosed, -2.0f / 3.0f) - 1.0f);
  const float height = 2.0f * spread(i, kSpreadHeight) - 1.0f;
  float sine, cosine;
  sincosf(6.2831853f * spread(i, kSpreadAngle), &sine, &cosine);
  const float ring = sqrtf(1.0f - height * height);
  positions[i] = make_float4(radius * ring * cosine, radius * ring * sine, radius * height, 1.0f / n);
}

__device__ inline void add_pull(float4 on, float4 from, float3& acceleration) {
  const float x = from.x - on.x, y = from.y - on.y, z = from.z - on.z;
  const float squared = x * x + y * y + z * z + kSoftening * kSoftening;
  const float inverse = rsqrtf(squared);
  const float scaled = squared * inverse / kScreening;
  const float pull = from.w * inverse * inverse * inverse * expf(-scaled) * (1.0f + scaled);
  acceleration.x += pull * x;
  acceleration.y += pull * y;
  acceleration.z += pull * z;
}

__global__ void step(const float4* positions, float4* next_positions, float4* velocities, int n, float time) {
  __shared__ float4 tile[kBlock];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const float4 own = i < n ? positions[i] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  float3 acceleration = make_float3(0.0f, 0.0f, 0.0f);
  for (int start = 0; start < n; start += kBlock) {
    const int other = start + threadIdx.x;
    tile[threadIdx.x] = other < n ? positions[other] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    __syncthreads();
    for (int k = 0; k < kBlock; ++k) add_pull(own, tile[k], acceleration);
    __syncthreads();
  }
  if (i >= n) return;
  acceleration.x += kTide * sinf(kTideFrequency * time) * own.x;

  float4 velocity = velocities[i];
  velocity.x += kTimeStep * acceleration.x;
  velocity.y += kTimeStep * acceleration.y;
  velocity.z += kTimeStep * acceleration.z;
  velocities[i] = velocity;
  next_positions[i] = make_float4(own.x + kTimeStep * velocity.x, own.y + kTimeStep * velocity.y,
                                  own.z + kTimeStep * velocity.z, own.w);
}

struct Body {
  double position[3], velocity[3], mass;
};

std::vector<Body> reference(int n, int steps) {
  std::vector<Body> bodies(n);
  for (int i = 0; i < n; ++i) {
    const double enclosed = 0.05 + 0.9 * spread(i, kSpreadRadius);
    const double radius = 1.0 / std::sqrt(std::pow(enclosed, -2.0 / 3.0) - 1.0);
    const double height = 2.0 * spread(i, kSpreadHeight) - 1.0, ring = std::sqrt(1.0 - height * height);
    const double angle = 6.2831853 * spread(i, kSpreadAngle);
    bodies[i] = {{radius * ring * std::cos(angle), radius * ring * std::sin(angle), radius * height}, {}, 1.0 / n};
  }
  for (int s = 0; s < steps; ++s) {
    const std::vector<Body> before = bodies;
    for (Body& body : bodies) {
      const Body& own = before[&body - bodies.data()];
      double acceleration[3] = {};
      for (const Body& other : before) {
        double offset[3], squared = static_cast<double>(kSoftening) * kSoftening;
        for (int axis = 0; axis < 3; ++axis) {
          offset[axis] = other.position[axis] - own.position[axis];
          squared += offset[axis] * offset[axis];
        }
        const double distance = std::sqrt(squared), scaled = distance / kScreening;
        const double pull = other.mass / (squared * distance) * std::exp(-scaled) * (1.0 + scaled);
        for (int axis = 0; axis < 3; ++axis) acceleration[axis] += pull * offset[axis];
      }
      acceleration[0] += kTide * std::sin(static_cast<double>(kTideFrequency) * s * kTimeStep) * own.position[0];
      for (int axis = 0; axis < 3; ++axis) {
        body.velocity[axis] += kTimeStep * acceleration[axis];
        body.position[axis] += kTimeStep * body.velocity[axis];
      }
    }
  }
  return bodies;
}

int main(int argc, char** argv) {
  const int n = example::argument(argc, argv, 1, 1000);
  const int steps = example::argument(argc, argv, 2, 3);

  example::DeviceArray<float4> positions(n), next_positions(n), velocities(n);
  const int blocks = (n + kBlock - 1) / kBlock;
  place_bodies<<<blocks, kBlock>>>(positions.data(), n);
  CHECK(cudaGetLastError());
  for (int s = 0; s < steps; ++s) {
    step<<<blocks, kBlock>>>(positions.data(), next_positions.data(), velocities.data(), n, s * kTimeStep);
    CHECK(cudaGetLastError());
    positions.swap(next_positions);
  }
  const std::vector<float4> got_positions = positions.to_host(), got_velocities = velocities.to_host();

  std::vector<float> got[2];
  std::vector<double> expected[2];
  const std::vector<Body> bodies = reference(n, steps);
  for (int i = 0; i < n; ++i) {
    const float4 position = got_positions[i], velocity = got_velocities[i];
    got[0].insert(got[0].end(), {position.x, position.y, position.z});
    got[1].insert(got[1].end(), {velocity.x, velocity.y, velocity.z});
    expected[0].insert(expected[0].end(), bodies[i].position, bodies[i].position + 3);
    expected[1].insert(expected[1].end(), bodies[i].velocity, bodies[i].velocity + 3);
  }
  example::Verdict verdict("nbody");
  verdict.expect("positions", example::relative_error(got[0], expected[0]), 1e-5);
  verdict.expect("velocities", example::relative_error(got[1], expected[1]), 1e-4);
  return verdict.report();
}
