// Flow in a lid-driven cavity by the lattice Boltzmann method (D2Q9, BGK), in single or double precision.
//
// Populations lie direction by direction: population q of cell (x, y) is at [q * width * height + y * width + x].
#pragma once

namespace lbm {

constexpr int kDirections = 9;

template <typename Real>
struct Cavity {
  int width, height;
  Real lid_speed;   // of the top wall, towards greater x, in cells per step
  Real relaxation;  // rate at which populations approach equilibrium, in (0, 2)
};

// Starts one time step: every cell pulls the populations that reach it, bouncing at the walls, and relaxes them.
template <typename Real>
void start_step(const Cavity<Real>& cavity, const Real* from, Real* to);

// How many cells all steps so far have updated, in either precision. Waits for the device.
unsigned long long cells_updated();

}  // namespace lbm
