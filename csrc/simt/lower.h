// Turns the device IR of one kernel into host IR.
#pragma once
#include <functional>
#include <optional>

#include "simt/kernel.h"

namespace r3 {

struct LowerOptions {
  unsigned flags = 0;  // R3SIMT_*
  // The fixed address of a device variable, or nothing when it has none (then it becomes private data of this kernel).
  std::function<std::optional<std::uint64_t>(const std::string& name)> variable;
};

// `module` holds one kernel and what it reaches. Sets properties.refusal and returns when something cannot be lowered.
KernelProperties lower_kernel(llvm::Module& module, const std::string& kernel, const LowerOptions& options);

}  // namespace r3
