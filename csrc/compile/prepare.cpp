// From a translation unit's module to one kernel's: what candidates start from.
#include <llvm/IR/Constants.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/Operator.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Transforms/IPO/GlobalDCE.h>
#include <llvm/Transforms/Utils/Local.h>
#include <llvm/Transforms/Utils/ModuleUtils.h>

#include <vector>

#include "compile/llvm_compat.h"
#include "compile/module.h"

namespace r3 {
namespace {

bool is_kernel(const llvm::Function& function) {
  return !function.isDeclaration() && function.getCallingConv() == llvm::CallingConv::PTX_Kernel;
}

llvm::Function& find_kernel(llvm::Module& module, const std::string& name) {
  llvm::Function* kernel = module.getFunction(name);
  if (kernel && !kernel->isDeclaration()) return *kernel;
  std::string known;
  for (const llvm::Function& function : module)
    if (is_kernel(function)) known += (known.empty() ? "" : ", ") + function.getName().str();
  throw CompileError("the module has no kernel '" + name + "'; it has " + (known.empty() ? "none" : known));
}

// threadIdx and its kin are objects without storage: clang declares them extern_weak and passes their address to empty
// methods. A definition lets every pass fold that away, and nothing is left for the assembler to resolve.
void define_builtins(llvm::Module& module) {
  for (llvm::GlobalVariable& variable : module.globals()) {
    auto* type = llvm::dyn_cast<llvm::StructType>(variable.getValueType());
    if (!variable.hasExternalWeakLinkage() || !type || !type->hasName() || !type->getName().contains("__cuda_builtin_"))
      continue;
    variable.setInitializer(llvm::Constant::getNullValue(type));
    variable.setConstant(true);
    variable.setLinkage(llvm::GlobalValue::InternalLinkage);
  }
}

// Unlike LLVM's internalize, this takes in externally initialised variables too: those that the kernel does not reach
// go.
void internalize(llvm::Module& module, const llvm::GlobalValue& except) {
  for (llvm::GlobalValue& value : module.global_values()) {
    if (&value == &except || value.isDeclarationForLinker() || value.getName().starts_with("llvm.")) continue;
    value.setLinkage(llvm::GlobalValue::InternalLinkage);
    value.setVisibility(llvm::GlobalValue::DefaultVisibility);
  }
}

bool only_loaded(const llvm::Value& pointer) {
  for (const llvm::User* user : pointer.users()) {
    if (llvm::isa<llvm::LoadInst>(user)) continue;
    const bool derives = llvm::isa<llvm::GEPOperator, llvm::AddrSpaceCastOperator, llvm::BitCastOperator>(user);
    if (!derives || !only_loaded(*user)) return false;
  }
  return true;
}

// State that outlives a launch, which the host or a kernel writes: a recording holds it by name and size.
bool is_recorded_state(const llvm::GlobalVariable& variable) {
  constexpr unsigned global_space = 1, constant_space = 4;
  const unsigned space = variable.getAddressSpace();
  if (variable.isDeclaration() || !variable.hasName() || variable.getName().starts_with("__cudart_") ||
      (space != global_space && space != constant_space))
    return false;
  return variable.isExternallyInitialized() || (!variable.isConstant() && !only_loaded(variable));
}

void keep_state(llvm::Module& module) {
  std::vector<llvm::GlobalValue*> kept;
  for (llvm::GlobalVariable& variable : module.globals()) {
    if (!is_recorded_state(variable)) continue;
    variable.setLinkage(llvm::GlobalValue::ExternalLinkage);
    variable.setExternallyInitialized(true);
    kept.push_back(&variable);
  }
  llvm::appendToCompilerUsed(module, kept);
}

// What a folded __nvvm_reflect decided: nothing else of the control flow changes.
struct DropUnreachable : llvm::PassInfoMixin<DropUnreachable> {
  llvm::PreservedAnalyses run(llvm::Function& function, llvm::FunctionAnalysisManager&) {
    for (llvm::BasicBlock& block : function) llvm::ConstantFoldTerminator(&block);
    return llvm::removeUnreachableBlocks(function) ? llvm::PreservedAnalyses::none() : llvm::PreservedAnalyses::all();
  }
};

// __nvvm_reflect with the architecture of the module's own compilation, and what no one reaches any more. The text
// pipeline's nvvm-reflect answers 0 for __CUDA_ARCH; the one that the target adds at a pipeline's start knows it.
void reflect_and_drop(llvm::Module& module, const llvm::Function& kernel) {
  const auto attribute = [&](const char* name) { return kernel.getFnAttribute(name).getValueAsString().str(); };
  Target target{attribute("target-cpu"), attribute("target-features"), 3};
  if (target.cpu.empty()) target = {"sm_90", "", 3};
  const auto machine = target_machine(compat::triple(module), target);
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(machine.get());
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(components);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, components, modules);
  llvm::ModulePassManager passes;
  builder.invokePipelineStartEPCallbacks(passes, llvm::OptimizationLevel::O0);
  passes.addPass(llvm::createModuleToFunctionPassAdaptor(DropUnreachable()));
  passes.addPass(llvm::GlobalDCEPass());
  passes.run(module, modules);
}

}  // namespace

void prepare(llvm::Module& module, const std::string& name) {
  llvm::Function& kernel = find_kernel(module, name);
  // The used lists hold on to every kernel and variable of the translation unit; PTX knows no comdats.
  llvm::removeFromUsedLists(module, [](llvm::Constant*) { return true; });
  for (llvm::GlobalObject& object : module.global_objects()) object.setComdat(nullptr);
  define_builtins(module);
  kernel.setLinkage(llvm::GlobalValue::ExternalLinkage);
  internalize(module, kernel);
  reflect_and_drop(module, kernel);
  keep_state(module);
  if (auto* annotations = module.getNamedMetadata("nvvm.annotations")) {  // of functions that are gone
    std::vector<llvm::MDNode*> live;
    for (llvm::MDNode* node : annotations->operands())
      if (node->getNumOperands() > 0 && node->getOperand(0)) live.push_back(node);
    annotations->clearOperands();
    for (llvm::MDNode* node : live) annotations->addOperand(node);
  }
}

}  // namespace r3
