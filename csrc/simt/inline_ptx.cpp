#include "simt/inline_ptx.h"

#include <llvm/ADT/DenseMap.h>
#include <llvm/IR/Constants.h>
#include <llvm/IR/Dominators.h>
#include <llvm/IR/InlineAsm.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/Verifier.h>
#include <llvm/Transforms/Utils/Cloning.h>
#include <llvm/Transforms/Utils/Local.h>
#include <llvm/Transforms/Utils/PromoteMemToReg.h>

#include "simt/inline_ptx_translate.h"

using namespace llvm;

namespace r3 {
namespace {

// The width of the register that a constraint asks for; 0 for an immediate.
std::optional<unsigned> constraint_bits(StringRef code) {
  if (code.size() != 1) return std::nullopt;
  switch (code[0]) {
    case 'b':
      return 1;
    case 'h':
    case 'c':
      return 16;
    case 'r':
    case 'f':
      return 32;
    case 'l':
    case 'd':
      return 64;
    case 'q':
      return 128;
    case 'n':
    case 'i':
    case 'C':
      return 0;
    default:
      return std::nullopt;
  }
}

// Builds, for one inline-assembly call, a function that does what it does; calls are then inlined. A call that cannot
// be translated leaves nothing behind.
class CallTranslation {
 public:
  CallTranslation(CallInst& call, AllocaInst*& carry) : call_(call), carry_(carry) {}

  // True when the call is replaced; else `problem` says what was not understood.
  bool run(std::string& problem) {
    const auto* assembly = cast<InlineAsm>(call_.getCalledOperand());
    std::string source(assembly->getAsmString());
    std::optional<std::vector<ptx::Statement>> statements = ptx::parse(source, problem);
    if (!statements) return false;
    bool nothing = statements->empty();
    if (nothing && call_.getType()->isVoidTy()) {  // a compiler barrier
      call_.eraseFromParent();
      return true;
    }
    uses_carry_ = ptx::uses_carry(*statements);
    if (!create_function(*assembly, problem)) return false;
    if (!fill(*statements, problem)) {
      function_->eraseFromParent();
      return false;
    }
    replace_call();
    return true;
  }

 private:
  bool create_function(const InlineAsm& assembly, std::string& problem) {
    SmallVector<llvm::Type*> types;
    for (Value* argument : call_.args()) types.push_back(argument->getType());
    if (uses_carry_) types.push_back(PointerType::getUnqual(call_.getContext()));
    auto* type = FunctionType::get(call_.getType(), types, false);
    function_ = Function::Create(type, GlobalValue::InternalLinkage, "r3ptx", call_.getModule());
    BasicBlock::Create(call_.getContext(), "entry", function_);

    unsigned input = 0;
    for (const InlineAsm::ConstraintInfo& constraint : assembly.ParseConstraints()) {
      if (constraint.Type == InlineAsm::isClobber) continue;
      bool is_output = constraint.Type == InlineAsm::isOutput;
      std::optional<unsigned> bits;
      if (!constraint.Codes.empty()) bits = constraint_bits(constraint.Codes[0]);
      bool tied = !is_output && !constraint.Codes.empty() && isDigit(constraint.Codes[0][0]);
      if (constraint.isIndirect || constraint.Type == InlineAsm::isLabel || (!bits && !tied)) {
        problem = "operand constraint of: " + std::string(assembly.getAsmString());
        function_->eraseFromParent();
        return false;
      }
      ptx::Argument argument;
      if (is_output) {
        argument.reg = ptx::Translator::make_register(*function_, *bits);
        outputs_.push_back(argument.reg);
      } else {
        Value* value = call_.getArgOperand(input);
        if (tied) {
          unsigned output = 0;
          StringRef(constraint.Codes[0]).getAsInteger(10, output);
          argument.reg = arguments_.at(output).reg;
          initial_.emplace_back(argument.reg, input);
        } else if (auto* known = dyn_cast<Constant>(value);
                   known != nullptr && (*bits == 0 || isa<ConstantInt>(known))) {
          argument.constant = known;
          // An unsigned narrow value in a wider register reads as the register does.
          if (auto* integer = dyn_cast<ConstantInt>(known); integer != nullptr && *bits > integer->getBitWidth()) {
            argument.constant = ConstantInt::get(call_.getContext(), integer->getValue().zext(*bits));
          }
        } else if (*bits == 0) {
          problem = "an immediate operand that is not constant: " + std::string(assembly.getAsmString());
          function_->eraseFromParent();
          return false;
        } else {
          argument.reg = ptx::Translator::make_register(*function_, *bits);
          initial_.emplace_back(argument.reg, input);
        }
        ++input;
      }
      arguments_.push_back(argument);
    }
    return true;
  }

  bool fill(const std::vector<ptx::Statement>& statements, std::string& problem) {
    LLVMContext& context = call_.getContext();
    BasicBlock& entry = function_->getEntryBlock();
    Builder b(&entry);
    for (auto& [reg, input] : initial_) ptx::Translator::store(b, reg, function_->getArg(input), false);
    AllocaInst* carry = nullptr;
    Value* outer_carry = uses_carry_ ? function_->getArg(function_->arg_size() - 1) : nullptr;
    if (uses_carry_) {
      carry = ptx::Translator::make_register(*function_, 1).slot;
      b.CreateStore(b.CreateLoad(b.getInt1Ty(), outer_carry), carry);
    }
    BasicBlock* body = BasicBlock::Create(context, "ptx", function_);
    b.SetInsertPoint(body);
    ptx::Translator translator(b, arguments_, carry);
    if (!translator.run(statements, problem)) return false;
    if (uses_carry_) b.CreateStore(b.CreateLoad(b.getInt1Ty(), carry), outer_carry);
    create_return(b);
    BranchInst::Create(body, &entry);
    removeUnreachableBlocks(*function_);
    promote(*function_);
    if (verifyFunction(*function_)) {
      problem = statements.front().text;
      return false;
    }
    return true;
  }

  void create_return(Builder& b) {
    llvm::Type* type = call_.getType();
    auto value_of = [&](const ptx::Register& reg, llvm::Type* wanted) -> Value* {
      Value* value = b.CreateLoad(reg.slot->getAllocatedType(), reg.slot);
      if (wanted->isPointerTy()) return b.CreateIntToPtr(value, wanted);
      return b.CreateBitCast(b.CreateZExtOrTrunc(value, b.getIntNTy(wanted->getPrimitiveSizeInBits())), wanted);
    };
    if (type->isVoidTy()) {
      b.CreateRetVoid();
    } else if (outputs_.size() == 1 && !type->isStructTy()) {
      b.CreateRet(value_of(outputs_[0], type));
    } else {
      Value* result = PoisonValue::get(type);
      for (unsigned n = 0; n < outputs_.size(); ++n) {
        result = b.CreateInsertValue(result, value_of(outputs_[n], type->getStructElementType(n)), n);
      }
      b.CreateRet(result);
    }
  }

  static void promote(Function& function) {
    SmallVector<AllocaInst*> slots;
    for (llvm::Instruction& instruction : function.getEntryBlock()) {
      if (auto* slot = dyn_cast<AllocaInst>(&instruction); slot != nullptr && isAllocaPromotable(slot))
        slots.push_back(slot);
    }
    DominatorTree tree(function);
    PromoteMemToReg(slots, tree);
  }

  void replace_call() {
    Builder b(&call_);
    SmallVector<Value*> arguments(call_.args());
    if (uses_carry_) {
      // The condition code outlives one statement: it belongs to the thread, which runs the calling function.
      if (carry_ == nullptr) carry_ = ptx::Translator::make_register(*call_.getFunction(), 1).slot;
      arguments.push_back(carry_);
    }
    CallInst* replacement = b.CreateCall(function_, arguments);
    replacement->setDebugLoc(call_.getDebugLoc());
    call_.replaceAllUsesWith(replacement);
    call_.eraseFromParent();
    InlineFunctionInfo info;
    InlineFunction(*replacement, info);
    function_->eraseFromParent();
  }

  CallInst& call_;
  AllocaInst*& carry_;
  Function* function_ = nullptr;
  bool uses_carry_ = false;
  std::vector<ptx::Argument> arguments_;
  std::vector<ptx::Register> outputs_;
  std::vector<std::pair<ptx::Register, unsigned>> initial_;  // registers that start with a value: the input's number
};

// Pointers that went through a register leave conversions behind that nothing needs.
void remove_dead_code(Function& function) {
  for (BasicBlock& block : function) {
    for (llvm::Instruction& instruction : make_early_inc_range(reverse(block))) {
      if (isInstructionTriviallyDead(&instruction)) instruction.eraseFromParent();
    }
  }
}

}  // namespace

std::vector<InlinePtxProblem> translate_inline_ptx(Module& module) {
  std::vector<InlinePtxProblem> problems;
  SmallVector<Function*> functions;
  for (Function& function : module) functions.push_back(&function);
  for (Function* function : functions) {
    SmallVector<CallInst*> calls;
    for (llvm::Instruction& instruction : instructions(*function)) {
      auto* call = dyn_cast<CallInst>(&instruction);
      if (call != nullptr && call->isInlineAsm()) calls.push_back(call);
    }
    AllocaInst* carry = nullptr;
    bool failed = false;
    for (CallInst* call : calls) {
      std::string problem;
      if (CallTranslation(*call, carry).run(problem) || failed) continue;
      failed = true;
      problems.push_back({function, problem});
    }
    if (carry != nullptr) {
      DominatorTree tree(*function);
      PromoteMemToReg({carry}, tree);
    }
    if (!calls.empty()) remove_dead_code(*function);
  }
  return problems;
}

}  // namespace r3
