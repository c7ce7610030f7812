#include "compile/module.h"

#include <llvm/Bitcode/BitcodeReader.h>
#include <llvm/Bitcode/BitcodeWriter.h>
#include <llvm/IR/DiagnosticHandler.h>
#include <llvm/IR/DiagnosticInfo.h>
#include <llvm/IR/DiagnosticPrinter.h>
#include <llvm/MC/MCSubtargetInfo.h>
#include <llvm/Support/CommandLine.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetOptions.h>
#include <llvm/TargetParser/SubtargetFeature.h>

#include "compile/child.h"
#include "compile/llvm_compat.h"

namespace r3 {
namespace {

class Collector : public llvm::DiagnosticHandler {
 public:
  explicit Collector(std::string& text) : text_(text) {}
  bool handleDiagnostics(const llvm::DiagnosticInfo& info) override {
    if (info.getSeverity() == llvm::DS_Error && text_.empty()) {
      llvm::raw_string_ostream stream(text_);
      llvm::DiagnosticPrinterRawOStream printer(stream);
      info.print(printer);
    }
    return true;  // nothing goes to stderr, and errors do not exit
  }

 private:
  std::string& text_;
};

}  // namespace

std::string one_line(std::string_view text) {
  std::string line;
  for (const char c : text) {
    const bool space = c == '\n' || c == '\t' || c == '\r' || c == ' ';
    if (!space) {
      line += c;
    } else if (!line.empty() && line.back() != ' ') {
      line += ' ';
    }
  }
  while (!line.empty() && line.back() == ' ') line.pop_back();
  return line;
}

DeviceModule::DeviceModule(std::string_view bitcode) {
  context_.setDiagnosticHandler(std::make_unique<Collector>(diagnostics_));
  const llvm::MemoryBufferRef buffer(llvm::StringRef(bitcode.data(), bitcode.size()), "module");
  auto module = llvm::parseBitcodeFile(buffer, context_);
  if (!module) throw CompileError("cannot read the bitcode: " + one_line(llvm::toString(module.takeError())));
  throw_diagnostics();
  module_ = std::move(*module);
  if (!compat::triple(*module_).isNVPTX())
    throw CompileError("not a CUDA device module: its target is '" + compat::triple(*module_).str() + "'");
}

std::string DeviceModule::bitcode() const {
  std::string bytes;
  llvm::raw_string_ostream stream(bytes);
  llvm::WriteBitcodeToFile(*module_, stream);
  stream.flush();
  return bytes;
}

void DeviceModule::throw_diagnostics() const {
  if (!diagnostics_.empty()) throw CompileError(one_line(diagnostics_));
}

namespace {

// As clang does for CUDA: libdevice's functions carry no `contract` flags, and are contracted all the same. Where a
// build asked for none (-ffp-contract=off), -nvptx-fma-level=0 says so, and only the module's own flags count.
llvm::FPOpFusion::FPOpFusionMode contraction() {
  const auto& options = llvm::cl::getRegisteredOptions();
  const auto found = options.find("nvptx-fma-level");
  if (found == options.end() || found->second->getNumOccurrences() == 0) return llvm::FPOpFusion::Fast;
  const auto* level = static_cast<const llvm::cl::opt<unsigned>*>(found->second);
  return level->getValue() == 0 ? llvm::FPOpFusion::Standard : llvm::FPOpFusion::Fast;
}

}  // namespace

std::unique_ptr<llvm::TargetMachine> target_machine(const llvm::Triple& triple, const Target& target) {
  note("setting up the target " + target.cpu + " " + target.features);
  std::string error;
  const llvm::Target* backend = compat::lookup_target(triple, error);
  if (!backend) throw CompileError("this LLVM cannot generate code for " + triple.str() + ": " + one_line(error));
  constexpr llvm::CodeGenOptLevel levels[] = {llvm::CodeGenOptLevel::None, llvm::CodeGenOptLevel::Less,
                                              llvm::CodeGenOptLevel::Default, llvm::CodeGenOptLevel::Aggressive};
  if (target.codegen_level < 0 || target.codegen_level > 3)
    throw PipelineError("the code generation level is 0 to 3, not " + std::to_string(target.codegen_level));
  llvm::TargetOptions options;
  options.AllowFPOpFusion = contraction();
  auto machine =
      compat::create_machine(*backend, triple, target.cpu, target.features, options, levels[target.codegen_level]);
  if (!machine) throw CompileError("LLVM made no target machine for " + triple.str());
  // LLVM only prints a line about what it does not know, and goes on without.
  const llvm::MCSubtargetInfo& known = *machine->getMCSubtargetInfo();
  if (!known.isCPUStringValid(target.cpu)) throw PipelineError("unknown GPU architecture '" + target.cpu + "'");
  const llvm::SubtargetFeatures features(target.features);
  for (const std::string& feature : features.getFeatures())
    if (llvm::none_of(known.getAllProcessorFeatures(),
                      [&](const auto& entry) { return llvm::StringRef(feature).ltrim("+-") == entry.Key; }))
      throw PipelineError("unknown target feature '" + feature + "'");
  return machine;
}

}  // namespace r3
