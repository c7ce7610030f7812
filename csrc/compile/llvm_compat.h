// What differs between the LLVM versions we build with (20 to 22), in one place.
#pragma once
#include <llvm/Config/llvm-config.h>
#include <llvm/IR/Module.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Support/CodeGen.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/TargetParser/Triple.h>

#include <memory>
#include <optional>
#include <string>

namespace r3::compat {

#if LLVM_VERSION_MAJOR >= 21
inline llvm::Triple triple(const llvm::Module& module) { return module.getTargetTriple(); }
inline void set_triple(llvm::Module& module, const llvm::Triple& triple) { module.setTargetTriple(triple); }
#else
inline llvm::Triple triple(const llvm::Module& module) { return llvm::Triple(module.getTargetTriple()); }
inline void set_triple(llvm::Module& module, const llvm::Triple& triple) { module.setTargetTriple(triple.str()); }
#endif

inline const llvm::Target* lookup_target(const llvm::Triple& triple, std::string& error) {
#if LLVM_VERSION_MAJOR >= 22
  return llvm::TargetRegistry::lookupTarget(triple, error);
#else
  return llvm::TargetRegistry::lookupTarget(triple.str(), error);
#endif
}

inline std::unique_ptr<llvm::TargetMachine> create_machine(const llvm::Target& target, const llvm::Triple& triple,
                                                           llvm::StringRef cpu, llvm::StringRef features,
                                                           const llvm::TargetOptions& options,
                                                           llvm::CodeGenOptLevel level) {
#if LLVM_VERSION_MAJOR >= 21
  const llvm::Triple& name = triple;
#else
  const std::string& name = triple.str();
#endif
  return std::unique_ptr<llvm::TargetMachine>(
      target.createTargetMachine(name, cpu, features, options, std::nullopt, std::nullopt, level));
}

}  // namespace r3::compat
