#include "simt/context.h"

#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Metadata.h>

namespace r3 {

llvm::Value* ContextAccess::context(llvm::Function& function) {
  llvm::Instruction*& call = calls_[&function];
  if (call) return call;
  auto& llvm_context = module_.getContext();
  llvm::FunctionCallee callee = module_.getOrInsertFunction("r3rt_context", llvm::PointerType::get(llvm_context, 0));
  auto* declaration = llvm::cast<llvm::Function>(callee.getCallee());
  declaration->setDoesNotAccessMemory();
  declaration->setDoesNotThrow();
  declaration->setWillReturn();
  llvm::BasicBlock& entry = function.getEntryBlock();
  llvm::IRBuilder<> builder(&entry, entry.getFirstInsertionPt());
  call = builder.CreateCall(callee);
  return call;
}

llvm::Value* ContextAccess::field(llvm::IRBuilderBase& builder, std::size_t offset, llvm::Type* type, bool constant) {
  llvm::Value* base = context(*builder.GetInsertBlock()->getParent());
  llvm::Value* address = builder.CreateConstInBoundsGEP1_64(builder.getInt8Ty(), base, offset);
  llvm::LoadInst* load = builder.CreateLoad(type, address);
  if (constant) load->setMetadata(llvm::LLVMContext::MD_invariant_load, llvm::MDNode::get(module_.getContext(), {}));
  return load;
}

}  // namespace r3
