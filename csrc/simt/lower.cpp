#include "simt/lower.h"

#include <llvm/ADT/SmallVector.h>
#include <llvm/ADT/StringExtras.h>
#include <llvm/IR/Constants.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/IR/Operator.h>
#include <llvm/IR/ReplaceConstant.h>

#include <map>

#include "simt/classify.h"
#include "simt/collectives.h"
#include "simt/globals.h"
#include "simt/inline_ptx.h"
#include "simt/instrument.h"
#include "simt/pure_intrinsics.h"
#include "simt/spin.h"

namespace r3 {
namespace {

constexpr std::uint64_t base_stack = 128 * 1024;

// Functions the device runtime provides, and what they are called here.
const std::map<llvm::StringRef, llvm::StringRef> runtime_names = {
    {"vprintf", "r3rt_vprintf"},
    {"__assertfail", "r3rt_assertfail"},
    {"__cxa_pure_virtual", "r3rt_trap"},
};

// Host library functions that device code may end up calling.
bool is_host_function(llvm::StringRef name) {
  return name.starts_with("r3rt_") || name.starts_with("r3m_") || name == "memcpy" || name == "memmove" ||
         name == "memset" || name == "memcmp" || name == "strlen" || name == "strcmp";
}

bool is_memory_intrinsic(llvm::StringRef name) {
  return name.consume_front("llvm.nvvm.") && (name.starts_with("atomic.") || name.starts_with("cp.async.") ||
                                              name.starts_with("ldg.") || name.starts_with("ldu."));
}

std::string why_refused(llvm::StringRef name) {
  if (name == "malloc" || name == "free" || name == "_Znwm" || name == "_Znam" || name == "_ZdlPv" || name == "_ZdaPv")
    return "allocates memory on the device (" + name.str() + ")";
  if (name.starts_with("cudaLaunchDevice") || name.starts_with("cudaGetParameterBuffer") ||
      name.starts_with("cudaDevice"))
    return "launches kernels from the device (" + name.str() + ")";
  if (name.contains("nvvm.tex") || name.contains("nvvm.tld4") || name.contains("nvvm.suld") ||
      name.contains("nvvm.sust") || name.contains("nvvm.txq") || name.contains("nvvm.suq"))
    return "uses textures or surfaces (" + name.str() + ")";
  if (name.starts_with("llvm.")) return "uses " + name.str() + ", which has no translation for the CPU";
  return "calls " + name.str() + ", which no captured module defines";
}

class Lowering {
 public:
  Lowering(llvm::Module& module, const std::string& kernel, const LowerOptions& options)
      : module_(module), options_(options), kernel_(module.getFunction(kernel)), context_(module) {}

  KernelProperties run() {
    if (!kernel_ || kernel_->isDeclaration()) {
      refuse("is not defined in its module");
      return std::move(properties_);
    }
    drop_used_lists();
    for (const InlinePtxProblem& problem : translate_inline_ptx(module_))
      refuse("uses inline PTX that has no translation for the CPU: " + problem.instruction);
    if (!properties_.refusal.empty()) return std::move(properties_);
    lower_intrinsics(/*memory_only=*/true);  // so that what follows sees plain accesses
    insert_spin_points(module_, *kernel_, properties_);
    if (options_.flags & (R3SIMT_CHECK | R3SIMT_COUNT)) hook_accesses(module_, properties_);
    if (options_.flags & R3SIMT_COUNT) count_blocks(module_, context_, properties_);
    lower_intrinsics(/*memory_only=*/false);
    if (!properties_.refusal.empty()) return std::move(properties_);
    place_shared();
    place_data();
    if (!properties_.refusal.empty()) return std::move(properties_);
    make_host_like();
    add_entry();
    check_declarations();
    return std::move(properties_);
  }

 private:
  // The first reason counts.
  void refuse(const std::string& reason) {
    if (properties_.refusal.empty()) properties_.refusal = reason;
  }

  void drop_used_lists() {
    for (const char* name : {"llvm.used", "llvm.compiler.used"})
      if (llvm::GlobalVariable* list = module_.getGlobalVariable(name)) list->eraseFromParent();
  }

  void lower_intrinsics(bool memory_only) {
    CollectiveLowering collectives(module_, context_, properties_);
    llvm::SmallVector<llvm::CallBase*> calls;
    for (llvm::Function& function : module_)
      for (llvm::Instruction& instruction : llvm::instructions(function))
        if (auto* call = llvm::dyn_cast<llvm::CallBase>(&instruction))
          if (const llvm::Function* callee = call->getCalledFunction(); callee && callee->isDeclaration())
            calls.push_back(call);
    for (llvm::CallBase* call : calls) {
      llvm::StringRef name = call->getCalledFunction()->getName();
      if (memory_only && !is_memory_intrinsic(name)) continue;
      if (name.starts_with("llvm.nvvm.") || name.starts_with("llvm.trap") || name == "__nvvm_reflect" ||
          name.starts_with("llvm.debugtrap") || name.starts_with("llvm.ubsantrap")) {
        if (collectives.lower(*call) || lower_pure_intrinsic(*call)) continue;
        refuse(why_refused(name));
        return;
      }
      if (name.starts_with("llvm.fma.") || name.starts_with("llvm.fmuladd."))
        lower_pure_intrinsic(*call);  // of 16 bits
    }
    for (auto [from, to] : runtime_names)
      if (llvm::Function* function = module_.getFunction(from); function && function->isDeclaration())
        function->setName(to);
  }

  // Shared variables become offsets into the block's shared memory, dynamic ones behind all others.
  void place_shared() {
    const llvm::DataLayout& layout = module_.getDataLayout();
    llvm::SmallVector<llvm::GlobalVariable*> fixed, dynamic;
    for (llvm::GlobalVariable& variable : module_.globals()) {
      if (variable.getAddressSpace() != as_shared) continue;
      (variable.isDeclaration() ? dynamic : fixed).push_back(&variable);
    }
    std::map<llvm::GlobalVariable*, std::uint64_t> offsets;
    std::uint64_t size = 0;
    for (llvm::GlobalVariable* variable : fixed) {
      llvm::Align alignment = layout.getPreferredAlign(variable);
      size = llvm::alignTo(size, alignment);
      offsets[variable] = size;
      size += layout.getTypeAllocSize(variable->getValueType());
    }
    llvm::Align alignment(16);
    for (llvm::GlobalVariable* variable : dynamic) alignment = std::max(alignment, variable->getAlign().valueOrOne());
    if (!dynamic.empty()) size = llvm::alignTo(size, alignment);
    for (llvm::GlobalVariable* variable : dynamic) offsets[variable] = size;
    properties_.static_shared = static_cast<std::uint32_t>(size);

    llvm::SmallVector<llvm::Constant*> constants;
    for (auto& [variable, offset] : offsets) constants.push_back(variable);
    llvm::convertUsersOfConstantsToInstructions(constants);
    for (auto& [variable, offset] : offsets) {
      std::map<llvm::Function*, llvm::Value*> addresses;
      for (llvm::Use& use : llvm::make_early_inc_range(variable->uses())) {
        auto* user = llvm::dyn_cast<llvm::Instruction>(use.getUser());
        if (!user) continue;
        llvm::Function* function = user->getFunction();
        llvm::Value*& address = addresses[function];
        if (!address) {
          auto* anchor = llvm::cast<llvm::Instruction>(context_.context(*function));
          llvm::IRBuilder<> builder(anchor->getParent(), std::next(anchor->getIterator()));
          llvm::Value* base = context_.field(builder, offsetof(ThreadContext, shared), builder.getInt64Ty());
          address = builder.CreateIntToPtr(builder.CreateAdd(base, builder.getInt64(offset)), variable->getType());
        }
        use.set(address);
      }
      if (variable->use_empty()) variable->eraseFromParent();
    }
  }

  // Every other variable gets an address now: its fixed one, or one in this kernel's own constants.
  void place_data() {
    const llvm::DataLayout& layout = module_.getDataLayout();
    std::map<const llvm::GlobalValue*, std::uint64_t> addresses;
    llvm::SmallVector<llvm::GlobalVariable*> own;
    for (llvm::GlobalVariable& variable : module_.globals()) {
      if (variable.use_empty() || variable.getName().starts_with("llvm.")) continue;
      if (std::optional<std::uint64_t> address = options_.variable(variable.getName().str())) {
        addresses[&variable] = *address;
      } else if (variable.isDeclaration()) {
        refuse("uses the variable " + variable.getName().str() + ", which no captured module defines");
        return;
      } else {
        std::uint64_t size = std::max<std::uint64_t>(1, layout.getTypeAllocSize(variable.getValueType()));
        std::uint64_t alignment = std::max<std::uint64_t>(16, layout.getPreferredAlign(&variable).value());
        properties_.constants.push_back(std::make_unique<char[]>(size + alignment));
        std::uint64_t address =
            llvm::alignTo(reinterpret_cast<std::uint64_t>(properties_.constants.back().get()), alignment);
        properties_.constant_ranges.push_back({address, address + size});
        addresses[&variable] = address;
        own.push_back(&variable);
      }
    }
    auto resolve = [&](const llvm::GlobalValue& global) -> std::optional<std::uint64_t> {
      auto found = addresses.find(&global);
      if (found == addresses.end()) return std::nullopt;
      return found->second;
    };
    for (llvm::GlobalVariable* variable : own) {
      std::optional<std::vector<char>> bytes = constant_bytes(*variable->getInitializer(), layout, resolve);
      if (bytes) {
        std::copy(bytes->begin(), bytes->end(), reinterpret_cast<char*>(addresses[variable]));
      } else {  // holds addresses of functions: the JIT has to link it
        addresses.erase(variable);
        properties_.leftover_data = true;
      }
    }
    for (auto [global, address] : addresses) {
      auto* variable = const_cast<llvm::GlobalVariable*>(llvm::cast<llvm::GlobalVariable>(global));
      auto* number = llvm::ConstantInt::get(llvm::Type::getInt64Ty(module_.getContext()), address);
      variable->replaceAllUsesWith(llvm::ConstantExpr::getIntToPtr(number, variable->getType()));
    }
    for (auto [global, address] : addresses)
      const_cast<llvm::GlobalVariable*>(llvm::cast<llvm::GlobalVariable>(global))->eraseFromParent();
  }

  void make_host_like() {
    for (llvm::Function& function : module_) {
      for (const char* attribute : {"target-cpu", "target-features", "tune-cpu"}) function.removeFnAttr(attribute);
      function.removeFnAttr(llvm::Attribute::OptimizeNone);
      function.setCallingConv(llvm::CallingConv::C);
      function.setComdat(nullptr);
      if (!function.isDeclaration()) {
        function.setLinkage(llvm::GlobalValue::InternalLinkage);
        function.setVisibility(llvm::GlobalValue::DefaultVisibility);
      }
      for (llvm::Instruction& instruction : llvm::make_early_inc_range(llvm::instructions(function))) {
        if (auto* call = llvm::dyn_cast<llvm::CallBase>(&instruction)) call->setCallingConv(llvm::CallingConv::C);
        if (auto* alloca = llvm::dyn_cast<llvm::AllocaInst>(&instruction)) {
          if (std::optional<llvm::TypeSize> size = alloca->getAllocationSize(module_.getDataLayout()))
            properties_.stack_bytes += *size;
        }
        // The results must not depend on what the host's code generator may fuse or reassociate.
        if (llvm::isa<llvm::FPMathOperator>(instruction)) instruction.copyFastMathFlags(llvm::FastMathFlags());
        if (!guard_division(instruction)) saturate(instruction);
      }
    }
    properties_.stack_bytes += base_stack;
    for (llvm::GlobalVariable& variable : module_.globals()) variable.setComdat(nullptr);
    for (const char* name : {"nvvm.annotations", "nvvmir.version", "llvm.module.flags", "llvm.dbg.cu"})
      if (llvm::NamedMDNode* node = module_.getNamedMetadata(name)) node->eraseFromParent();
  }

  // A device division by zero yields all ones and goes on; the host's faults.
  bool guard_division(llvm::Instruction& instruction) {
    auto* division = llvm::dyn_cast<llvm::BinaryOperator>(&instruction);
    if (!division || !division->isIntDivRem() || llvm::isa<llvm::Constant>(division->getOperand(1))) return false;
    llvm::IRBuilder<> builder(division);
    llvm::Type* type = division->getType();
    llvm::Value* dividend = builder.CreateFreeze(division->getOperand(0));
    llvm::Value* divisor = builder.CreateFreeze(division->getOperand(1));
    llvm::Value* by_zero = builder.CreateICmpEQ(divisor, llvm::Constant::getNullValue(type));
    llvm::Value* unsafe = by_zero;
    unsigned opcode = division->getOpcode();
    if (opcode == llvm::Instruction::SDiv || opcode == llvm::Instruction::SRem) {
      auto* lowest = llvm::ConstantInt::get(type, llvm::APInt::getSignedMinValue(type->getScalarSizeInBits()));
      unsafe = builder.CreateOr(
          unsafe, builder.CreateAnd(builder.CreateICmpEQ(dividend, lowest),
                                    builder.CreateICmpEQ(divisor, llvm::Constant::getAllOnesValue(type))));
    }
    llvm::Value* safe = builder.CreateSelect(unsafe, llvm::ConstantInt::get(type, 1), divisor);
    llvm::Value* result = builder.CreateBinOp(llvm::Instruction::BinaryOps(opcode), dividend, safe);
    bool is_remainder = opcode == llvm::Instruction::URem || opcode == llvm::Instruction::SRem;
    result = builder.CreateSelect(by_zero, is_remainder ? dividend : llvm::Constant::getAllOnesValue(type), result);
    division->replaceAllUsesWith(result);
    division->eraseFromParent();
    return true;
  }

  // PTX conversions to integers saturate; the host's do not.
  void saturate(llvm::Instruction& instruction) {
    llvm::Intrinsic::ID id = llvm::isa<llvm::FPToSIInst>(instruction)   ? llvm::Intrinsic::fptosi_sat
                             : llvm::isa<llvm::FPToUIInst>(instruction) ? llvm::Intrinsic::fptoui_sat
                                                                        : llvm::Intrinsic::not_intrinsic;
    if (id == llvm::Intrinsic::not_intrinsic) return;
    llvm::IRBuilder<> builder(&instruction);
    llvm::Value* source = instruction.getOperand(0);
    instruction.replaceAllUsesWith(builder.CreateIntrinsic(id, {instruction.getType(), source->getType()}, {source}));
    instruction.eraseFromParent();
  }

  // void r3_entry(const void* parameters): unpacks the parameter buffer and calls the kernel.
  void add_entry() {
    const llvm::DataLayout& layout = module_.getDataLayout();
    llvm::LLVMContext& context = module_.getContext();
    properties_.entry = "r3_entry";
    auto* entry = llvm::Function::Create(
        llvm::FunctionType::get(llvm::Type::getVoidTy(context), {llvm::PointerType::get(context, 0)}, false),
        llvm::GlobalValue::ExternalLinkage, properties_.entry, module_);
    llvm::IRBuilder<> builder(llvm::BasicBlock::Create(context, "", entry));
    std::uint64_t offset = 0;
    llvm::SmallVector<llvm::Value*> arguments;
    for (llvm::Argument& argument : kernel_->args()) {
      llvm::Type* type = argument.hasByValAttr() ? argument.getParamByValType() : argument.getType();
      llvm::Align alignment = layout.getABITypeAlign(type);
      if (argument.hasByValAttr()) alignment = std::max(alignment, argument.getParamAlign().valueOrOne());
      offset = llvm::alignTo(offset, alignment);
      llvm::Value* address = builder.CreateConstInBoundsGEP1_64(builder.getInt8Ty(), entry->getArg(0), offset);
      arguments.push_back(argument.hasByValAttr() ? builder.CreateAddrSpaceCast(address, argument.getType())
                                                  : builder.CreateLoad(type, address));
      offset += layout.getTypeAllocSize(type);
    }
    llvm::CallInst* call = builder.CreateCall(kernel_, arguments);
    call->setAttributes(kernel_->getAttributes());
    builder.CreateRetVoid();
  }

  void check_declarations() {
    for (llvm::Function& function : module_) {
      if (!function.isDeclaration() || function.use_empty() || is_host_function(function.getName())) continue;
      if (function.isIntrinsic() && !function.getName().starts_with("llvm.nvvm.")) continue;
      refuse(why_refused(function.getName()));
      return;
    }
  }

  llvm::Module& module_;
  const LowerOptions& options_;
  llvm::Function* kernel_;
  ContextAccess context_;
  KernelProperties properties_;
};

}  // namespace

KernelProperties lower_kernel(llvm::Module& module, const std::string& kernel, const LowerOptions& options) {
  return Lowering(module, kernel, options).run();
}

}  // namespace r3
