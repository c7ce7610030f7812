// Compiles a lowered kernel with ORC.
#pragma once
#include <memory>
#include <string>

#include "simt/kernel.h"

namespace llvm {
class LLVMContext;
class Module;
}  // namespace llvm

namespace r3 {

class CompiledKernel {
 public:
  // Takes the module over. Throws std::runtime_error with a one-line reason.
  CompiledKernel(std::unique_ptr<llvm::LLVMContext> context, std::unique_ptr<llvm::Module> module,
                 const std::string& entry);
  ~CompiledKernel();
  EntryPoint entry() const { return entry_; }

 private:
  struct State;
  std::unique_ptr<State> state_;
  EntryPoint entry_ = nullptr;
};

// Gives a device module the host's triple and data layout, so that what follows optimises for the host.
void retarget_to_host(llvm::Module& module);

}  // namespace r3
