#include "simt/jit.h"

#include <llvm/Analysis/CGSCCPassManager.h>
#include <llvm/ExecutionEngine/Orc/AbsoluteSymbols.h>
#include <llvm/ExecutionEngine/Orc/ExecutionUtils.h>
#include <llvm/ExecutionEngine/Orc/JITTargetMachineBuilder.h>
#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/Verifier.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/Error.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>

#include <stdexcept>

#include "simt/runtime.h"

namespace r3 {
namespace {

namespace orc = llvm::orc;

// Cleans up what lowering left; nothing here may change a floating-point result.
constexpr const char* host_passes = "function(sroa,early-cse<memssa>,simplifycfg)";

template <typename T>
T take(llvm::Expected<T> value) {
  if (!value) throw std::runtime_error(llvm::toString(value.takeError()));
  return std::move(*value);
}

void take(llvm::Error error) {
  if (error) throw std::runtime_error(llvm::toString(std::move(error)));
}

// The host's machine description; made once, since asking for the processor's name and features takes a while.
orc::JITTargetMachineBuilder host() {
  static const orc::JITTargetMachineBuilder builder = [] {
    orc::JITTargetMachineBuilder made = take(orc::JITTargetMachineBuilder::detectHost());
    made.setCodeGenOptLevel(llvm::CodeGenOptLevel::Default);
    made.getOptions().AllowFPOpFusion = llvm::FPOpFusion::Strict;
    made.setRelocationModel(llvm::Reloc::PIC_);
    return made;
  }();
  return builder;
}

llvm::TargetMachine& host_machine() {
  static const std::unique_ptr<llvm::TargetMachine> machine = take(host().createTargetMachine());
  return *machine;
}

void clean_up(llvm::Module& module) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(&host_machine());
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(components);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, components, modules);
  llvm::ModulePassManager passes;
  take(builder.parsePassPipeline(passes, host_passes));
  passes.run(module, modules);
}

}  // namespace

struct CompiledKernel::State {
  std::unique_ptr<orc::LLJIT> jit;
};

void retarget_to_host(llvm::Module& module) {
  module.setTargetTriple(host().getTargetTriple());
  module.setDataLayout(host_machine().createDataLayout());
}

CompiledKernel::CompiledKernel(std::unique_ptr<llvm::LLVMContext> context, std::unique_ptr<llvm::Module> module,
                               const std::string& entry)
    : state_(std::make_unique<State>()) {
  std::string problem;
  llvm::raw_string_ostream stream(problem);
  if (llvm::verifyModule(*module, &stream))
    throw std::runtime_error("lowering broke the module: " + problem.substr(0, problem.find('\n')));
  clean_up(*module);
  state_->jit = take(
      orc::LLJITBuilder().setJITTargetMachineBuilder(host()).setPlatformSetUp(orc::setUpInactivePlatform).create());
  orc::LLJIT& jit = *state_->jit;
  orc::SymbolMap symbols;
  auto define = [&](const RuntimeSymbol& symbol) {
    symbols[jit.mangleAndIntern(symbol.name)] = {orc::ExecutorAddr::fromPtr(symbol.address),
                                                 llvm::JITSymbolFlags::Exported | llvm::JITSymbolFlags::Callable};
  };
  for (const RuntimeSymbol& symbol : runtime_symbols()) define(symbol);
  for (const RuntimeSymbol& symbol : device_math_symbols()) define(symbol);
  take(jit.getMainJITDylib().define(orc::absoluteSymbols(std::move(symbols))));
  jit.getMainJITDylib().addGenerator(
      take(orc::DynamicLibrarySearchGenerator::GetForCurrentProcess(jit.getDataLayout().getGlobalPrefix())));
  take(jit.addIRModule(orc::ThreadSafeModule(std::move(module), std::move(context))));
  entry_ = take(jit.lookup(entry)).toPtr<EntryPoint>();
}

CompiledKernel::~CompiledKernel() = default;

}  // namespace r3
