#include "simt/classify.h"

#include <llvm/Analysis/ValueTracking.h>
#include <llvm/IR/DataLayout.h>
#include <llvm/IR/InlineAsm.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/IR/Operator.h>
#include <llvm/Support/MathExtras.h>

#include <algorithm>

#include "simt/globals.h"

namespace r3 {
namespace {

unsigned lanes(const llvm::Type* type) {
  auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(type);
  return vector ? vector->getNumElements() : 1;
}

// 64-bit integers take two 32-bit instructions.
unsigned words(const llvm::Type* type) {
  const llvm::Type* scalar = type->getScalarType();
  unsigned bits = scalar->isIntegerTy() ? scalar->getIntegerBitWidth() : 64;
  return std::max(1u, (bits + 31) / 32) * lanes(type);
}

int float_class(const llvm::Type* type) {
  const llvm::Type* scalar = type->getScalarType();
  return scalar->isDoubleTy() ? R3SIMT_FP64 : scalar->isFloatTy() ? R3SIMT_FP32 : R3SIMT_FP16;
}

// A multiplication that code generation fuses into the one addition that uses it.
bool fuses(const llvm::Instruction& multiply) {
  if (multiply.getOpcode() != llvm::Instruction::FMul || !multiply.hasAllowContract() || !multiply.hasOneUse())
    return false;
  auto* user = llvm::dyn_cast<llvm::Instruction>(*multiply.user_begin());
  return user && user->hasAllowContract() &&
         (user->getOpcode() == llvm::Instruction::FAdd || user->getOpcode() == llvm::Instruction::FSub);
}

// How many machine accesses an access of `bytes` at `alignment` needs: at most 16 bytes each, aligned to their size.
unsigned pieces(std::uint64_t bytes, std::uint64_t alignment) {
  std::uint64_t width = std::min<std::uint64_t>({16, alignment, llvm::PowerOf2Ceil(bytes)});
  return static_cast<unsigned>(llvm::divideCeil(bytes, std::max<std::uint64_t>(width, 1)));
}

struct Counter {
  BlockClasses& classes;
  const llvm::DataLayout& layout;

  void add(int which, unsigned n = 1) {
    classes.issues[which] = static_cast<std::uint16_t>(std::min(classes.issues[which] + n, 65535u));
  }

  void memory(const llvm::Value& pointer, const llvm::Type* type, llvm::Align alignment, bool is_store) {
    unsigned n = pieces(layout.getTypeStoreSize(const_cast<llvm::Type*>(type)), alignment.value());
    switch (space_of(pointer)) {
      case Space::shared:
        return add(is_store ? R3SIMT_SHARED_STORE : R3SIMT_SHARED_LOAD, n);
      case Space::local:
        return add(R3SIMT_LOCAL, n);
      case Space::constant:
        return add(R3SIMT_CONSTANT, n);
      default:
        return add(is_store ? R3SIMT_GLOBAL_STORE : R3SIMT_GLOBAL_LOAD, n);
    }
  }

  void call(const llvm::CallBase& call) {
    if (call.isInlineAsm()) return add(R3SIMT_INT);
    const llvm::Function* callee = call.getCalledFunction();
    if (!callee) return add(R3SIMT_CALL, 8 + call.arg_size());
    llvm::StringRef name = callee->getName();
    if (name.starts_with("r3rt_")) return;                 // our own hooks
    if (name.starts_with("r3m_")) return add(R3SIMT_INT);  // one PTX instruction
    if (!callee->isIntrinsic()) return add(R3SIMT_CALL, 4 + call.arg_size());
    auto has = [&](llvm::StringRef part) { return name.contains(part); };
    if (has("lifetime") || has("dbg") || has("assume") || has("noalias") || has("invariant") || has("annotation") ||
        has("sideeffect") || has("addrspace.wrap"))
      return;
    if (has("sreg")) return add(R3SIMT_INT);
    if (has("barrier") || has("membar") || has("fence")) return add(R3SIMT_BARRIER);
    if (has("shfl") || has("vote") || has("match") || has("redux") || has("activemask") || has("elect") ||
        has("bar.warp"))
      return add(R3SIMT_WARP);
    if (has(".atomic.")) return add(R3SIMT_ATOMIC);
    if (has("memcpy") || has("memmove") || has("memset")) {
      auto* length = llvm::dyn_cast<llvm::ConstantInt>(call.getArgOperand(2));
      unsigned n = length ? static_cast<unsigned>(llvm::divideCeil(length->getZExtValue(), 4)) : 16;
      add(R3SIMT_LOCAL, 2 * n);
      return;
    }
    if (has("approx")) return add(R3SIMT_SFU, has(".d") ? 2 : 1);
    llvm::Type* type = call.getType();
    bool is_float = type->isFPOrFPVectorTy();
    if (is_float && (has("sqrt") || has("div.") || has("rcp") || has("sin") || has("cos") || has("exp") || has("log") ||
                     has("pow") || has("tan")))
      return add(R3SIMT_FP_SLOW, lanes(type));
    if (is_float && (has("floor") || has("ceil") || has("trunc") || has("round") || has("rint")))
      return add(R3SIMT_CONVERT, lanes(type));
    if (is_float && has("fabs")) return;  // an operand modifier
    if (is_float) return add(float_class(type), lanes(type));
    if (has("2i") || has("2ui") || has("2ll") || has("2ull") || has("fpto")) return add(R3SIMT_CONVERT);
    add(R3SIMT_INT, type->isIntOrIntVectorTy() ? words(type) : 1);
  }

  void instruction(const llvm::Instruction& instruction) {
    llvm::Type* type = instruction.getType();
    switch (instruction.getOpcode()) {
      case llvm::Instruction::PHI:
      case llvm::Instruction::BitCast:
      case llvm::Instruction::AddrSpaceCast:
      case llvm::Instruction::PtrToInt:
      case llvm::Instruction::IntToPtr:
      case llvm::Instruction::Freeze:
      case llvm::Instruction::ZExt:
      case llvm::Instruction::Trunc:
      case llvm::Instruction::Alloca:
      case llvm::Instruction::ExtractValue:
      case llvm::Instruction::InsertValue:
      case llvm::Instruction::ExtractElement:
      case llvm::Instruction::InsertElement:
      case llvm::Instruction::ShuffleVector:
      case llvm::Instruction::Unreachable:
      case llvm::Instruction::FNeg:
        return;
      case llvm::Instruction::GetElementPtr: {
        auto& gep = llvm::cast<llvm::GetElementPtrInst>(instruction);
        unsigned variable = 0;
        for (const llvm::Use& index : gep.indices()) variable += !llvm::isa<llvm::Constant>(index);
        return add(R3SIMT_INT, 2 * variable);
      }
      case llvm::Instruction::UDiv:
      case llvm::Instruction::SDiv:
      case llvm::Instruction::URem:
      case llvm::Instruction::SRem:
        return add(R3SIMT_INT_SLOW, words(type));
      case llvm::Instruction::Mul:
        return add(R3SIMT_INT, words(type) > lanes(type) ? 4 * lanes(type) : lanes(type));
      case llvm::Instruction::ICmp:
        return add(R3SIMT_INT, words(instruction.getOperand(0)->getType()));
      case llvm::Instruction::FCmp:
        return add(float_class(instruction.getOperand(0)->getType()), lanes(type));
      case llvm::Instruction::FMul:
        if (fuses(instruction)) return;
        [[fallthrough]];
      case llvm::Instruction::FAdd:
      case llvm::Instruction::FSub:
        return add(float_class(type), lanes(type));
      case llvm::Instruction::FDiv:
      case llvm::Instruction::FRem:
        return add(R3SIMT_FP_SLOW, lanes(type) * (type->getScalarType()->isDoubleTy() ? 2 : 1));
      case llvm::Instruction::SIToFP:
      case llvm::Instruction::UIToFP:
      case llvm::Instruction::FPToSI:
      case llvm::Instruction::FPToUI:
      case llvm::Instruction::FPTrunc:
      case llvm::Instruction::FPExt:
        return add(R3SIMT_CONVERT, lanes(type));
      case llvm::Instruction::Load: {
        auto& load = llvm::cast<llvm::LoadInst>(instruction);
        return memory(*load.getPointerOperand(), type, load.getAlign(), false);
      }
      case llvm::Instruction::Store: {
        auto& store = llvm::cast<llvm::StoreInst>(instruction);
        return memory(*store.getPointerOperand(), store.getValueOperand()->getType(), store.getAlign(), true);
      }
      case llvm::Instruction::AtomicRMW:
      case llvm::Instruction::AtomicCmpXchg:
        return add(R3SIMT_ATOMIC);
      case llvm::Instruction::Fence:
        return add(R3SIMT_BARRIER);
      case llvm::Instruction::Br:
        return add(R3SIMT_CONTROL, llvm::cast<llvm::BranchInst>(instruction).isConditional() ? 1 : 0);
      case llvm::Instruction::Switch:
        return add(R3SIMT_CONTROL, 2 * llvm::Log2_32_Ceil(llvm::cast<llvm::SwitchInst>(instruction).getNumCases() + 1));
      case llvm::Instruction::Ret:
      case llvm::Instruction::IndirectBr:
        return add(R3SIMT_CONTROL);
      case llvm::Instruction::Call:
        return call(llvm::cast<llvm::CallBase>(instruction));
      default:
        return add(R3SIMT_INT, type->isVoidTy() ? 1 : words(type));
    }
  }
};

}  // namespace

Space space_of(const llvm::Value& pointer) {
  auto by_number = [](unsigned space) {
    switch (space) {
      case as_global:
        return Space::global;
      case as_shared:
        return Space::shared;
      case as_constant:
      case as_param:
        return Space::constant;
      case as_local:
        return Space::local;
      default:
        return Space::generic;
    }
  };
  Space known = by_number(pointer.getType()->getPointerAddressSpace());
  const llvm::Value* object = llvm::getUnderlyingObject(&pointer, 12);
  if (known != Space::generic && known != Space::global) return known;
  if (llvm::isa<llvm::AllocaInst>(object)) return Space::local;
  if (auto* argument = llvm::dyn_cast<llvm::Argument>(object); argument && argument->hasByValAttr())
    return Space::constant;
  if (known == Space::generic) {
    if (auto* variable = llvm::dyn_cast<llvm::GlobalVariable>(object)) {
      if (variable->isConstant() && variable->getAddressSpace() == 0) return Space::constant;
      return by_number(variable->getAddressSpace());
    }
    known = by_number(object->getType()->getPointerAddressSpace());
  }
  return known;
}

BlockClasses classify_block(const llvm::BasicBlock& block, const llvm::DataLayout& layout) {
  BlockClasses classes;
  Counter counter{classes, layout};
  for (const llvm::Instruction& instruction : block) counter.instruction(instruction);
  return classes;
}

}  // namespace r3
