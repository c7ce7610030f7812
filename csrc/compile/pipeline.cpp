// LLVM's textual pass pipelines: checking, listing, running.
#include <llvm/Analysis/CGSCCPassManager.h>
#include <llvm/Analysis/LazyCallGraph.h>
#include <llvm/Analysis/LoopInfo.h>
#include <llvm/IR/PassInstrumentation.h>
#include <llvm/IR/Verifier.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/CommandLine.h>
#include <llvm/Support/JSON.h>
#include <llvm/Support/raw_ostream.h>

#include <map>
#include <set>
#include <vector>

#include "compile/child.h"
#include "compile/llvm_compat.h"
#include "compile/module.h"

namespace r3 {
namespace {

// A pass builder with every analysis, set up as `opt` does, so that a pipeline means the same here and there.
struct Passes {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  llvm::PassInstrumentationCallbacks callbacks;
  llvm::PassBuilder builder;

  explicit Passes(llvm::TargetMachine& machine)
      : builder(&machine, llvm::PipelineTuningOptions(), std::nullopt, &callbacks) {
    builder.registerModuleAnalyses(modules);
    builder.registerCGSCCAnalyses(components);
    builder.registerFunctionAnalyses(functions);
    builder.registerLoopAnalyses(loops);
    builder.crossRegisterProxies(loops, functions, components, modules);
  }

  llvm::ModulePassManager parse(const std::string& text) {
    llvm::ModulePassManager pipeline;
    if (text.empty()) return pipeline;  // LLVM's parser takes an empty pipeline for a mistake
    if (llvm::Error error = builder.parsePassPipeline(pipeline, text))
      throw PipelineError(one_line(llvm::toString(std::move(error))));
    return pipeline;
  }
};

std::string unit_name(const llvm::Any& unit) {
  if (const auto* function = llvm::any_cast<const llvm::Function*>(&unit))
    return "function " + (*function)->getName().str();
  if (const auto* loop = llvm::any_cast<const llvm::Loop*>(&unit))
    return "a loop of function " + (*loop)->getHeader()->getParent()->getName().str();
  if (const auto* component = llvm::any_cast<const llvm::LazyCallGraph::SCC*>(&unit))
    return "functions " + (*component)->getName();
  return "the module";
}

const llvm::Triple& nvptx() {
  static const llvm::Triple triple("nvptx64-nvidia-cuda");
  return triple;
}

}  // namespace

void optimize(llvm::Module& module, const std::string& text, const Target& target) {
  const auto machine = target_machine(compat::triple(module), target);
  Passes passes(*machine);
  llvm::ModulePassManager pipeline = passes.parse(text);
  passes.callbacks.registerBeforeNonSkippedPassCallback([&](llvm::StringRef pass, llvm::Any unit) {
    const llvm::StringRef name = passes.callbacks.getPassNameForClassName(pass);
    note("running " + (name.empty() ? pass : name).str() + " on " + unit_name(unit));
  });
  pipeline.run(module, passes.modules);
  note("verifying the optimised module");
  std::string broken;
  llvm::raw_string_ostream stream(broken);
  if (llvm::verifyModule(module, &stream)) throw CompileError("the pipeline made invalid IR: " + one_line(broken));
}

void check_pipeline(const std::string& text) {
  const auto machine = target_machine(nvptx(), {"sm_90", "", 3});
  Passes passes(*machine);
  if (text.empty()) throw PipelineError("the pipeline is empty");
  passes.parse(text);
}

std::string list_passes() {
  const auto machine = target_machine(nvptx(), {"sm_90", "", 3});
  Passes passes(*machine);
  std::string text;
  llvm::raw_string_ostream stream(text);
  passes.builder.printPassNames(stream);
  stream.flush();

  // "Module passes:" and "Function passes with params:" head lists of indented names.
  std::map<std::string, std::set<std::string>> plain, parameterised;
  std::set<std::string>* section = nullptr;
  llvm::SmallVector<llvm::StringRef, 0> lines;
  llvm::StringRef(text).split(lines, '\n', -1, false);
  for (llvm::StringRef line : lines) {
    if (line.starts_with(" ")) {
      if (section) section->insert(line.trim().str());
      continue;
    }
    const auto [level, kind] = line.split(' ');
    section = kind == "passes:"               ? &plain[level.lower()]
              : kind == "passes with params:" ? &parameterised[level.lower()]
                                              : nullptr;  // analyses, machine passes
  }
  // The target's own passes parse but are not printed. Their nesting differs between LLVM versions.
  const auto parses = [&](auto&& pipeline, const char* name) {
    llvm::Error error = passes.builder.parsePassPipeline(pipeline, name);
    const bool ok = !error;
    llvm::consumeError(std::move(error));
    return ok;
  };
  for (const char* name : {"generic-to-nvvm", "nvvm-reflect", "nvvm-intr-range", "nvptx-copy-byval-args",
                           "nvptx-lower-args", "nvptx-lower-alloca", "nvptx-set-byval-param-align"}) {
    if (parses(llvm::FunctionPassManager(), name)) {
      plain["function"].insert(name);
    } else if (parses(llvm::ModulePassManager(), name)) {
      plain["module"].insert(name);
    }
  }

  const auto to_json = [](const std::map<std::string, std::set<std::string>>& levels) {
    llvm::json::Object object;
    for (const auto& [level, names] : levels) object[level] = llvm::json::Array(names);
    return object;
  };
  llvm::json::Object root = to_json(plain);
  root["parameterised"] = to_json(parameterised);
  std::string json;
  llvm::raw_string_ostream(json) << llvm::json::Value(std::move(root));
  return json;
}

void set_options(const char* const* options, size_t count) {
  if (count == 0) return;
  const auto& known = llvm::cl::getRegisteredOptions();
  std::vector<const char*> arguments{"LLVM"};
  for (size_t i = 0; i < count; ++i) {
    const llvm::StringRef option(options[i]);
    const llvm::StringRef name = option.ltrim('-').split('=').first;
    if (!option.starts_with("-"))
      throw PipelineError("an LLVM option begins with '-': '" + option.str() + "' does not");
    // help, version and their like print and exit
    if (!known.contains(name) || name.starts_with("help") || name == "version")
      throw PipelineError("unknown LLVM option '-" + name.str() + "'");
    arguments.push_back(options[i]);
  }
  std::string errors;
  llvm::raw_string_ostream stream(errors);
  if (!llvm::cl::ParseCommandLineOptions(int(arguments.size()), arguments.data(), "", &stream)) {
    stream.flush();
    // What is wrong with a value goes to stderr, whoever asks for it.
    throw PipelineError(errors.empty() ? bad_option_value : one_line(errors));
  }
}

}  // namespace r3
