// Lowers what involves other threads or the launch: barriers, warp operations, special registers, device-scope atomics.
#pragma once
#include <llvm/IR/InstrTypes.h>

#include "simt/context.h"
#include "simt/kernel.h"

namespace r3 {

class CollectiveLowering {
 public:
  CollectiveLowering(llvm::Module& module, ContextAccess& context, KernelProperties& properties)
      : module_(module), context_(context), properties_(properties) {}

  // Replaces the call and returns true, or leaves it and returns false when it is of another kind.
  bool lower(llvm::CallBase& call);

 private:
  llvm::Value* lowered(llvm::CallBase& call, llvm::StringRef name, llvm::IRBuilder<>& builder);
  llvm::Value* special_register(llvm::StringRef name, llvm::IRBuilder<>& builder, llvm::Type* type);
  llvm::Value* barrier(llvm::CallBase& call, llvm::StringRef name, llvm::IRBuilder<>& builder);
  llvm::Value* shuffle(llvm::CallBase& call, llvm::StringRef name, llvm::IRBuilder<>& builder);
  llvm::Value* warp(llvm::IRBuilder<>& builder, WarpOp op, llvm::Value* mask, llvm::Value* value);
  llvm::Value* atomic(llvm::CallBase& call, llvm::StringRef name, llvm::IRBuilder<>& builder);
  llvm::Value* runtime(llvm::IRBuilder<>& builder, llvm::StringRef name, llvm::Type* result,
                       llvm::ArrayRef<llvm::Value*> arguments);
  llvm::Value* site(llvm::IRBuilder<>& builder) { return builder.getInt32(++sites_); }

  llvm::Module& module_;
  ContextAccess& context_;
  KernelProperties& properties_;
  unsigned sites_ = 0;
};

}  // namespace r3
