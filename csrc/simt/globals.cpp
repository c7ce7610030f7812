#include "simt/globals.h"

#include <llvm/IR/Constants.h>
#include <llvm/IR/DataLayout.h>
#include <llvm/IR/GlobalVariable.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/Operator.h>

#include <cstring>

namespace r3 {
namespace {

bool only_read(const llvm::Value& value, unsigned depth = 0) {
  if (depth > 16) return false;
  for (const llvm::User* user : value.users()) {
    if (llvm::isa<llvm::LoadInst>(user)) continue;
    if (llvm::isa<llvm::GEPOperator, llvm::AddrSpaceCastOperator, llvm::BitCastOperator, llvm::ConstantExpr>(user)) {
      if (!only_read(*user, depth + 1)) return false;
      continue;
    }
    return false;
  }
  return true;
}

using Resolve = std::function<std::optional<std::uint64_t>(const llvm::GlobalValue&)>;

bool write(const llvm::Constant& constant, const llvm::DataLayout& layout, const Resolve& address, char* out) {
  llvm::Type* type = constant.getType();
  if (constant.isNullValue() || llvm::isa<llvm::UndefValue>(constant)) return true;  // the buffer starts zeroed
  if (auto* integer = llvm::dyn_cast<llvm::ConstantInt>(&constant)) {
    std::memcpy(out, integer->getValue().getRawData(), layout.getTypeStoreSize(type));
    return true;
  }
  if (auto* real = llvm::dyn_cast<llvm::ConstantFP>(&constant)) {
    llvm::APInt bits = real->getValueAPF().bitcastToAPInt();
    std::memcpy(out, bits.getRawData(), layout.getTypeStoreSize(type));
    return true;
  }
  if (auto* data = llvm::dyn_cast<llvm::ConstantDataSequential>(&constant)) {
    std::memcpy(out, data->getRawDataValues().data(), data->getRawDataValues().size());
    return true;
  }
  if (auto* structure = llvm::dyn_cast<llvm::ConstantStruct>(&constant)) {
    const llvm::StructLayout* fields = layout.getStructLayout(structure->getType());
    for (unsigned i = 0; i < structure->getNumOperands(); ++i)
      if (!write(*structure->getOperand(i), layout, address, out + fields->getElementOffset(i))) return false;
    return true;
  }
  if (llvm::isa<llvm::ConstantArray, llvm::ConstantVector>(constant)) {
    for (unsigned i = 0; i < constant.getNumOperands(); ++i) {
      auto* element = llvm::cast<llvm::Constant>(constant.getOperand(i));
      if (!write(*element, layout, address, out + i * layout.getTypeAllocSize(element->getType()))) return false;
    }
    return true;
  }
  if (type->isPointerTy() || llvm::isa<llvm::ConstantExpr>(constant)) {
    llvm::APInt offset(64, 0);
    const llvm::Value* base = &constant;
    if (auto* cast = llvm::dyn_cast<llvm::ConstantExpr>(base); cast && cast->getOpcode() == llvm::Instruction::PtrToInt)
      base = cast->getOperand(0);
    if (!base->getType()->isPointerTy()) return false;
    base = base->stripAndAccumulateConstantOffsets(layout, offset, /*AllowNonInbounds=*/true);
    while (auto* cast = llvm::dyn_cast<llvm::AddrSpaceCastOperator>(base))
      base = cast->getOperand(0)->stripAndAccumulateConstantOffsets(layout, offset, true);
    auto* global = llvm::dyn_cast<llvm::GlobalValue>(base);
    if (!global) return false;
    std::optional<std::uint64_t> target = address(*global);
    if (!target) return false;
    std::uint64_t value = *target + offset.getSExtValue();
    std::memcpy(out, &value, layout.getTypeStoreSize(type));
    return true;
  }
  return false;
}

}  // namespace

bool is_device_variable(const llvm::GlobalVariable& variable) {
  unsigned space = variable.getAddressSpace();
  if (variable.isDeclaration() || !variable.hasName() || (space != as_global && space != as_constant)) return false;
  if (variable.getName().starts_with("llvm.") || variable.getName().starts_with("__cudart_")) return false;
  if (variable.isExternallyInitialized()) return true;
  return !variable.isConstant() && !only_read(variable);
}

std::optional<std::vector<char>> constant_bytes(const llvm::Constant& constant, const llvm::DataLayout& layout,
                                                const Resolve& address) {
  std::vector<char> bytes(layout.getTypeAllocSize(constant.getType()), 0);
  if (!write(constant, layout, address, bytes.data())) return std::nullopt;
  return bytes;
}

}  // namespace r3
