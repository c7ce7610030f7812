#include "simt/spin.h"

#include <llvm/Analysis/LoopInfo.h>
#include <llvm/IR/Dominators.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/Module.h>

#include "simt/classify.h"

namespace r3 {
namespace {

// An access whose value another thread may change while this one waits for it.
const llvm::Value* waits_on(const llvm::Instruction& instruction) {
  if (auto* load = llvm::dyn_cast<llvm::LoadInst>(&instruction))
    return load->isVolatile() || load->isAtomic() ? load->getPointerOperand() : nullptr;
  if (auto* exchange = llvm::dyn_cast<llvm::AtomicCmpXchgInst>(&instruction)) return exchange->getPointerOperand();
  if (auto* rmw = llvm::dyn_cast<llvm::AtomicRMWInst>(&instruction)) {
    auto* operand = llvm::dyn_cast<llvm::ConstantInt>(rmw->getValOperand());
    if (rmw->getOperation() == llvm::AtomicRMWInst::Xchg || (operand && operand->isZero()))
      return rmw->use_empty() ? nullptr : rmw->getPointerOperand();
  }
  return nullptr;
}

bool order_matters(const llvm::Instruction& instruction) {
  if (auto* exchange = llvm::dyn_cast<llvm::AtomicCmpXchgInst>(&instruction))
    return space_of(*exchange->getPointerOperand()) != Space::shared;
  if (auto* rmw = llvm::dyn_cast<llvm::AtomicRMWInst>(&instruction)) {
    if (space_of(*rmw->getPointerOperand()) == Space::shared) return false;
    return !rmw->use_empty() || rmw->isFloatingPointOperation() || rmw->getOperation() == llvm::AtomicRMWInst::Xchg;
  }
  return false;
}

bool is_volatile_shared(const llvm::Instruction& instruction) {
  if (auto* load = llvm::dyn_cast<llvm::LoadInst>(&instruction))
    return load->isVolatile() && space_of(*load->getPointerOperand()) == Space::shared;
  if (auto* store = llvm::dyn_cast<llvm::StoreInst>(&instruction))
    return store->isVolatile() && space_of(*store->getPointerOperand()) == Space::shared;
  return false;
}

}  // namespace

void insert_spin_points(llvm::Module& module, const llvm::Function& kernel, KernelProperties& properties) {
  llvm::LLVMContext& context = module.getContext();
  llvm::Type* none = llvm::Type::getVoidTy(context);
  llvm::Type* i32 = llvm::Type::getInt32Ty(context);
  llvm::FunctionCallee spin = module.getOrInsertFunction("r3rt_spin", none);
  llvm::FunctionCallee converge =
      module.getOrInsertFunction("r3rt_converge", llvm::FunctionType::get(i32, {i32}, false));
  unsigned site = 1u << 20;  // apart from the sites of collectives
  for (llvm::Function& function : module) {
    if (function.isDeclaration()) continue;
    llvm::DominatorTree dominators(function);
    llvm::LoopInfo loops(dominators);
    llvm::SmallVector<llvm::Instruction*> spins, converges;
    for (llvm::Instruction& instruction : llvm::instructions(function)) {
      properties.order_sensitive |= order_matters(instruction);
      if (is_volatile_shared(instruction)) converges.push_back(&instruction);
      const llvm::Value* pointer = waits_on(instruction);
      if (!pointer || space_of(*pointer) == Space::local) continue;
      bool in_cycle = &function != &kernel || loops.getLoopFor(instruction.getParent());
      if (!in_cycle) continue;
      spins.push_back(&instruction);
      properties.order_sensitive |= space_of(*pointer) != Space::shared;
    }
    for (llvm::Instruction* at : spins)
      llvm::IRBuilder<>(at->getParent(), std::next(at->getIterator())).CreateCall(spin);
    for (llvm::Instruction* at : converges)
      llvm::IRBuilder<>(at).CreateCall(converge, {llvm::ConstantInt::get(i32, site++)});
    properties.needs_fibres |= !spins.empty() || !converges.empty();
  }
}

}  // namespace r3
