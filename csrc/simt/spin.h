// Forward progress: where a thread may wait for another one without saying so.
#pragma once
#include "simt/kernel.h"

namespace llvm {
class Function;
class Module;
}  // namespace llvm

namespace r3 {

// Puts a r3rt_spin() after every access that a spin loop could turn on, and a r3rt_converge() before every volatile
// access to shared memory (code from before independent thread scheduling counts on lockstep there). Also finds out
// whether the order of blocks matters: floating-point atomics, atomics whose result is used, flags in global memory.
void insert_spin_points(llvm::Module& module, const llvm::Function& kernel, KernelProperties& properties);

}  // namespace r3
