#pragma once
#include <string>
#include <vector>

namespace llvm {
class Function;
class Module;
}  // namespace llvm

namespace r3 {

struct InlinePtxProblem {
  llvm::Function* function;
  std::string instruction;  // the first PTX instruction of the function that could not be translated
};

// Replaces every inline-PTX call in the module with IR: plain IR for arithmetic and memory, llvm.nvvm.* intrinsics for
// barriers, warp-wide operations and special registers. Calls that could not be translated stay, and their functions
// are returned.
std::vector<InlinePtxProblem> translate_inline_ptx(llvm::Module& module);

}  // namespace r3
