// Optimised device IR to PTX.
#include <llvm/ADT/SmallString.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/Support/raw_ostream.h>

#include "compile/child.h"
#include "compile/llvm_compat.h"
#include "compile/module.h"

namespace r3 {

std::string generate_ptx(const DeviceModule& module, const Target& target) {
  const auto machine = target_machine(compat::triple(*module), target);
  note("generating PTX");
  llvm::SmallString<0> ptx;
  llvm::raw_svector_ostream stream(ptx);
  llvm::legacy::PassManager passes;
  if (machine->addPassesToEmitFile(passes, stream, nullptr, llvm::CodeGenFileType::AssemblyFile))
    throw CompileError("this LLVM's NVPTX target cannot emit PTX");
  passes.run(*module);
  module.throw_diagnostics();
  return std::string(ptx);
}

}  // namespace r3
