// Reading, writing and targeting LLVM modules: what every step of compile/ shares.
#pragma once
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>
#include <llvm/Target/TargetMachine.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

#include "compile/compile.h"

namespace r3 {

// What a user's bytes or text got wrong, in one line.
struct CompileError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// The pipeline text or an option was refused before anything ran.
struct PipelineError : CompileError {
  using CompileError::CompileError;
};

// A module in a context of its own. LLVM's error diagnostics are collected rather than printed.
class DeviceModule {
 public:
  explicit DeviceModule(std::string_view bitcode);  // throws CompileError
  llvm::Module& operator*() const { return *module_; }
  llvm::Module* operator->() const { return module_.get(); }
  std::string bitcode() const;
  void throw_diagnostics() const;  // throws CompileError when LLVM reported an error since the module was read

 private:
  llvm::LLVMContext context_;
  std::string diagnostics_;
  std::unique_ptr<llvm::Module> module_;
};

struct Target {
  std::string cpu, features;
  int codegen_level = 3;
};

std::unique_ptr<llvm::TargetMachine> target_machine(const llvm::Triple& triple, const Target& target);

// What the C face wraps; all throw CompileError.
void prepare(llvm::Module& module, const std::string& kernel);
void optimize(llvm::Module& module, const std::string& passes, const Target& target);
std::string generate_ptx(const DeviceModule& module, const Target& target);
void check_pipeline(const std::string& passes);
std::string list_passes();
// Process-global: call it once, in a child. LLVM prints on stderr what is wrong with a value.
inline constexpr char bad_option_value[] = "an LLVM option has a bad value";
void set_options(const char* const* options, size_t count);

std::string one_line(std::string_view text);

}  // namespace r3
