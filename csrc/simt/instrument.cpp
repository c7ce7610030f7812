#include "simt/instrument.h"

#include <llvm/Analysis/ValueTracking.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/IntrinsicInst.h>

#include <algorithm>
#include <bit>

#include "simt/classify.h"

namespace r3 {
namespace {

struct Found {
  llvm::Instruction* before;
  llvm::Value* pointer;
  AccessSite site;
  llvm::Value* length = nullptr;  // of a memcpy or memset
};

// Memory that no other thread can see, or that cannot be wrong.
bool is_private(Space space) { return space == Space::local || space == Space::constant; }

void find(llvm::Instruction& instruction, const llvm::DataLayout& layout, std::vector<Found>& found) {
  auto add = [&](llvm::Value* pointer, llvm::Type* type, llvm::Align alignment, Access access) {
    Space space = space_of(*pointer);
    if (is_private(space)) return;
    // A front end may promise more alignment than the hardware asks for (CUB does): its own size, 16 bytes at most.
    const std::uint64_t bytes = layout.getTypeStoreSize(type);
    const std::uint64_t needed = std::min({alignment.value(), std::bit_floor(bytes), std::uint64_t{16}});
    found.push_back({&instruction,
                     pointer,
                     {access, space, static_cast<std::uint32_t>(bytes), static_cast<std::uint32_t>(needed)}});
  };
  if (auto* load = llvm::dyn_cast<llvm::LoadInst>(&instruction))
    return add(load->getPointerOperand(), load->getType(), load->getAlign(), Access::load);
  if (auto* store = llvm::dyn_cast<llvm::StoreInst>(&instruction))
    return add(store->getPointerOperand(), store->getValueOperand()->getType(), store->getAlign(), Access::store);
  if (auto* rmw = llvm::dyn_cast<llvm::AtomicRMWInst>(&instruction))
    return add(rmw->getPointerOperand(), rmw->getType(), rmw->getAlign(), Access::atomic);
  if (auto* exchange = llvm::dyn_cast<llvm::AtomicCmpXchgInst>(&instruction))
    return add(exchange->getPointerOperand(), exchange->getNewValOperand()->getType(), exchange->getAlign(),
               Access::atomic);
  if (auto* transfer = llvm::dyn_cast<llvm::MemIntrinsic>(&instruction)) {
    auto range = [&](llvm::Value* pointer, Access access) {
      Space space = space_of(*pointer);
      if (!is_private(space)) found.push_back({&instruction, pointer, {access, space, 0, 1}, transfer->getLength()});
    };
    range(transfer->getRawDest(), Access::store);
    if (auto* copy = llvm::dyn_cast<llvm::MemTransferInst>(transfer)) range(copy->getRawSource(), Access::load);
  }
}

}  // namespace

void count_blocks(llvm::Module& module, ContextAccess& context, KernelProperties& properties) {
  const llvm::DataLayout& layout = module.getDataLayout();
  for (llvm::Function& function : module) {
    if (function.isDeclaration()) continue;
    std::vector<llvm::BasicBlock*> blocks;
    for (llvm::BasicBlock& block : function) blocks.push_back(&block);
    for (llvm::BasicBlock* block : blocks) {
      BlockClasses classes = classify_block(*block, layout);
      bool empty = true;
      for (std::uint16_t n : classes.issues) empty &= n == 0;
      if (empty) continue;
      std::size_t index = properties.blocks.size();
      properties.blocks.push_back(classes);
      context.context(function);  // its call must come first in the entry block
      llvm::BasicBlock::iterator at = block->getFirstInsertionPt();
      if (block == &function.getEntryBlock())
        at = std::next(llvm::cast<llvm::Instruction>(context.context(function))->getIterator());
      llvm::IRBuilder<> builder(block, at);
      llvm::Value* counters = context.field(builder, offsetof(ThreadContext, counters), builder.getPtrTy());
      llvm::Value* counter = builder.CreateConstInBoundsGEP1_64(builder.getInt32Ty(), counters, index);
      builder.CreateStore(builder.CreateAdd(builder.CreateLoad(builder.getInt32Ty(), counter), builder.getInt32(1)),
                          counter);
    }
  }
}

void hook_accesses(llvm::Module& module, KernelProperties& properties) {
  const llvm::DataLayout& layout = module.getDataLayout();
  auto& context = module.getContext();
  llvm::FunctionCallee access = module.getOrInsertFunction(
      "r3rt_access",
      llvm::FunctionType::get(
          llvm::Type::getVoidTy(context),
          {llvm::Type::getInt32Ty(context), llvm::Type::getInt64Ty(context), llvm::Type::getInt64Ty(context)}, false));
  llvm::cast<llvm::Function>(access.getCallee())->setDoesNotThrow();
  for (llvm::Function& function : module) {
    if (function.isDeclaration()) continue;
    std::vector<Found> found;
    for (llvm::Instruction& instruction : llvm::instructions(function)) find(instruction, layout, found);
    for (const Found& place : found) {
      llvm::IRBuilder<> builder(place.before);
      llvm::Value* length = place.length ? builder.CreateZExtOrTrunc(place.length, builder.getInt64Ty())
                                         : builder.getInt64(place.site.bytes);
      builder.CreateCall(access, {builder.getInt32(static_cast<std::uint32_t>(properties.sites.size())),
                                  builder.CreatePtrToInt(place.pointer, builder.getInt64Ty()), length});
      properties.sites.push_back(place.site);
    }
  }
}

}  // namespace r3
