// Building loads of ThreadContext fields into lowered code.
#pragma once
#include <llvm/ADT/DenseMap.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

namespace r3 {

// Hands out the thread context of a function; the call that fetches it stands once, at the function's entry.
class ContextAccess {
 public:
  explicit ContextAccess(llvm::Module& module) : module_(module) {}

  llvm::Value* context(llvm::Function& function);
  // A load of `type` at `offset` in the context. `constant`: the field never changes while the thread runs.
  llvm::Value* field(llvm::IRBuilderBase& builder, std::size_t offset, llvm::Type* type, bool constant = true);

 private:
  llvm::Module& module_;
  llvm::DenseMap<llvm::Function*, llvm::Instruction*> calls_;
};

}  // namespace r3
