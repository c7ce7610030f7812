// Voxel back-projection (FDK weights) of pytigre: reads projections.bin and angles.bin, writes volume.bin.
//
//   tigre_backprojection voxels detector angles
//
// A cube of `voxels` cells a side and of size 2, seen from `angles` directions by a square detector of `detector`
// pixels a side and of size 3. The source is 10 away from the axis, and 15 away from the detector.
#include "arrays.h"
#include "voxel_backprojection.hpp"

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const int voxels = std::atoi(argv[1]), detector = std::atoi(argv[2]), n_angles = std::atoi(argv[3]);
  std::vector<float> projections = read_floats("projections.bin", std::size_t(detector) * detector * n_angles);
  const std::vector<float> angles = read_floats("angles.bin", 3 * n_angles);  // alpha, theta, psi of each

  std::vector<float> zeros(n_angles, 0.0f), source(n_angles, 10.0f), distance(n_angles, 15.0f);
  Geometry geometry{};
  geometry.nVoxelX = geometry.nVoxelY = geometry.nVoxelZ = voxels;
  geometry.sVoxelX = geometry.sVoxelY = geometry.sVoxelZ = 2.0f;
  geometry.dVoxelX = geometry.dVoxelY = geometry.dVoxelZ = 2.0f / voxels;
  geometry.nDetecU = geometry.nDetecV = detector;
  geometry.sDetecU = geometry.sDetecV = 3.0f;
  geometry.dDetecU = geometry.dDetecV = 3.0f / detector;
  geometry.offOrigX = geometry.offOrigY = geometry.offOrigZ = zeros.data();
  geometry.offDetecU = geometry.offDetecV = zeros.data();
  geometry.dRoll = geometry.dPitch = geometry.dYaw = geometry.COR = zeros.data();
  geometry.DSO = source.data();
  geometry.DSD = distance.data();
  geometry.unitX = geometry.unitY = geometry.unitZ = 1.0f;
  geometry.accuracy = 0.5f;

  std::vector<float> volume(std::size_t(voxels) * voxels * voxels);
  const int error = voxel_backprojection(projections.data(), geometry, volume.data(), angles.data(), n_angles);
  if (error != 0) return 1;
  write_floats("volume.bin", volume);
  return 0;
}
