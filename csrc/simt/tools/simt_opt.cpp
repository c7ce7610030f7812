// A development tool, not installed: runs one step of the lowering on IR, and prints the result or runs it.
//
//   r3-simt-opt inline-ptx|pure-intrinsics|both [FILE]             prints the module, problems on stderr
//   r3-simt-opt missing                                            names the llvm.nvvm intrinsics without effects on
//   memory
//                                                                  that are not lowered
//   r3-simt-opt eval FILE FUNCTION INPUT_BYTES OUTPUT_BYTES        after both steps, calls void FUNCTION(ptr in, ptr
//   out) for
//                                                                  each record of INPUT_BYTES on stdin; writes the
//                                                                  outputs
#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/InstrTypes.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/Verifier.h>
#include <llvm/IRReader/IRReader.h>
#include <llvm/Support/SourceMgr.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>

#include <cstdio>
#include <vector>

#include "compile/llvm_compat.h"
#include "simt/device_math.h"
#include "simt/inline_ptx.h"
#include "simt/pure_intrinsics.h"

using namespace llvm;

namespace {

void lower_intrinsics(Module& module) {
  for (Function& function : module) {
    std::vector<CallBase*> calls;
    for (Instruction& instruction : instructions(function)) {
      if (auto* call = dyn_cast<CallBase>(&instruction)) calls.push_back(call);
    }
    for (CallBase* call : calls) r3::lower_pure_intrinsic(*call);
  }
}

bool translate_ptx(Module& module) {
  bool complete = true;
  for (const r3::InlinePtxProblem& problem : r3::translate_inline_ptx(module)) {
    errs() << problem.function->getName() << ": " << problem.instruction << "\n";
    complete = false;
  }
  return complete;
}

int evaluate(std::unique_ptr<Module> module, std::unique_ptr<LLVMContext> context, const char* name, size_t input_bytes,
             size_t output_bytes) {
  InitializeNativeTarget();
  InitializeNativeTargetAsmPrinter();
  ExitOnError exit_on_error("r3-simt-opt: ");
  auto machine = exit_on_error(orc::JITTargetMachineBuilder::detectHost());
  std::unique_ptr<orc::LLJIT> jit = exit_on_error(orc::LLJITBuilder().setJITTargetMachineBuilder(machine).create());
  module->setDataLayout(jit->getDataLayout());
  r3::compat::set_triple(*module, jit->getTargetTriple());
  orc::SymbolMap symbols;
  for (const r3::RuntimeSymbol& symbol : r3::device_math_symbols()) {
    symbols[jit->mangleAndIntern(symbol.name)] = {orc::ExecutorAddr::fromPtr(symbol.address), JITSymbolFlags::Exported};
  }
  exit_on_error(jit->getMainJITDylib().define(orc::absoluteSymbols(std::move(symbols))));
  exit_on_error(jit->addIRModule(orc::ThreadSafeModule(std::move(module), std::move(context))));
  auto function = exit_on_error(jit->lookup(name)).toPtr<void (*)(const void*, void*)>();
  // Aligned as device memory is.
  std::vector<std::max_align_t> input(input_bytes / sizeof(std::max_align_t) + 1);
  std::vector<std::max_align_t> output(output_bytes / sizeof(std::max_align_t) + 1);
  while (std::fread(input.data(), 1, input_bytes, stdin) == input_bytes) {
    function(input.data(), output.data());
    std::fwrite(output.data(), 1, output_bytes, stdout);
  }
  return 0;
}

// Calls every intrinsic of the target that neither reads nor writes memory, with the types that it is overloaded for.
int list_missing() {
  LLVMContext context;
  for (Intrinsic::ID id = 1; id < Intrinsic::num_intrinsics; ++id) {
    StringRef name = Intrinsic::getBaseName(id);
    if (!name.starts_with("llvm.nvvm.")) continue;
    std::vector<std::vector<Type*>> overloads = {{}};
    if (Intrinsic::isOverloaded(id)) {
      overloads = {{Type::getHalfTy(context)}, {Type::getFloatTy(context)}, {Type::getInt32Ty(context)}};
    }
    for (const std::vector<Type*>& types : overloads) {
      Module module("missing", context);
      if (Intrinsic::isOverloaded(id)) {
        // Only those with one overloaded type: the others take pointers.
        bool wants_float = name.contains("fabs") || name.contains("ex2");
        bool simple = wants_float || name.contains("fsh") || name.contains("flo");
        if (!simple || wants_float != types[0]->isFloatingPointTy()) continue;
      }
      Function* callee = Intrinsic::getOrInsertDeclaration(&module, id, types);
      if (!callee->doesNotAccessMemory()) continue;
      FunctionType* type = callee->getFunctionType();
      Function* function = Function::Create(FunctionType::get(Type::getVoidTy(context), type->params(), false),
                                            GlobalValue::ExternalLinkage, "f", module);
      if (any_of(type->params(), [](Type* parameter) { return parameter->isMetadataTy(); })) continue;
      IRBuilder<> builder(BasicBlock::Create(context, "entry", function));
      std::vector<Value*> arguments;
      for (unsigned i = 0; i < type->getNumParams(); ++i) {
        bool immediate = callee->hasParamAttribute(i, Attribute::ImmArg);
        arguments.push_back(immediate ? cast<Value>(Constant::getNullValue(type->getParamType(i)))
                                      : function->getArg(i));
      }
      CallInst* call = builder.CreateCall(callee, arguments);
      builder.CreateRetVoid();
      if (!r3::lower_pure_intrinsic(*call))
        outs() << callee->getName() << "\n";
      else if (verifyFunction(*function, &errs()))
        return 1;
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    errs()
        << "usage: r3-simt-opt inline-ptx|pure-intrinsics|both [FILE] | eval FILE FUNCTION INPUT_BYTES OUTPUT_BYTES\n";
    return 2;
  }
  StringRef step = argv[1];
  if (step == "missing") return list_missing();
  auto context = std::make_unique<LLVMContext>();
  SMDiagnostic diagnostic;
  std::unique_ptr<Module> module = parseIRFile(argc > 2 ? argv[2] : "-", diagnostic, *context);
  if (module == nullptr) {
    diagnostic.print(argv[0], errs());
    return 1;
  }
  bool complete = true;
  if (step != "pure-intrinsics") complete = translate_ptx(*module);
  if (step != "inline-ptx") lower_intrinsics(*module);
  if (verifyModule(*module, &errs())) return 1;
  if (step == "eval") {
    if (argc != 6 || !complete) return 2;
    return evaluate(std::move(module), std::move(context), argv[3], std::stoul(argv[4]), std::stoul(argv[5]));
  }
  module->print(outs(), nullptr);
  return 0;
}
