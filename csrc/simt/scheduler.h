// Runs the blocks of a launch: fibres, warps, barriers, and what goes wrong with them.
#pragma once
#include "simt/kernel.h"

namespace r3 {

// Fills `result`. Never throws: what fails is a status.
void run_launch(const KernelProperties& kernel, EntryPoint entry, const r3simt_launch& launch, unsigned flags,
                const std::string& kernel_name, r3simt_result& result);

}  // namespace r3
