#include "compile/compile.h"

#include <llvm/Config/llvm-config.h>
#include <llvm/Support/TargetSelect.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "compile/child.h"
#include "compile/module.h"

namespace {

void give(const std::string& text, r3_bytes* bytes) {
  if (!bytes) return;
  bytes->data = static_cast<char*>(std::malloc(text.size() + 1));
  bytes->size = bytes->data ? text.size() : 0;
  if (bytes->data) std::memcpy(bytes->data, text.c_str(), text.size() + 1);
}

// The one place where exceptions end: `step` gives a result, or its message goes to *error.
int guarded(r3_bytes* result, r3_bytes* error, const std::function<std::string()>& step) {
  if (result) *result = {nullptr, 0};
  if (error) *error = {nullptr, 0};
  try {
    const std::string text = step();
    give(text, result);
    return 0;
  } catch (const std::exception& failure) {
    give(r3::one_line(failure.what()), error);
  } catch (...) {
    give("unknown failure", error);
  }
  return 1;
}

r3::Target target_of(const r3_target* target) {
  return {target->cpu ? target->cpu : "", target->features ? target->features : "", target->codegen_level};
}

}  // namespace

void r3_bytes_free(r3_bytes* bytes) {
  if (!bytes) return;
  std::free(bytes->data);
  *bytes = {nullptr, 0};
}

const char* r3_llvm_version(void) { return LLVM_VERSION_STRING; }

void r3_compile_init(void) {
  static std::once_flag once;
  std::call_once(once, [] {
    const auto lock = r3::parent_lock();
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    llvm::InitializeNativeTargetAsmParser();
  });
}

int r3_check_pipeline(const char* passes, r3_bytes* error) {
  return guarded(nullptr, error, [&] {
    r3_compile_init();
    const auto lock = r3::parent_lock();
    r3::check_pipeline(passes);
    return std::string();
  });
}

int r3_list_passes(r3_bytes* json, r3_bytes* error) {
  return guarded(json, error, [&] {
    r3_compile_init();
    const auto lock = r3::parent_lock();
    return r3::list_passes();
  });
}

int r3_prepare(const char* bitcode, size_t size, const char* kernel, r3_bytes* prepared, r3_bytes* error) {
  return guarded(prepared, error, [&] {
    const r3::DeviceModule module({bitcode, size});
    r3::prepare(*module, kernel);
    return module.bitcode();
  });
}

int r3_optimize(const char* bitcode, size_t size, const char* passes, const r3_target* target,
                const char* const* options, size_t n_options, r3_bytes* optimized, r3_bytes* error) {
  return guarded(optimized, error, [&] {
    r3::set_options(options, n_options);
    const r3::DeviceModule module({bitcode, size});
    r3::optimize(*module, passes, target_of(target));
    module.throw_diagnostics();
    return module.bitcode();
  });
}

int r3_codegen(const char* bitcode, size_t size, const r3_target* target, const char* const* options, size_t n_options,
               r3_bytes* ptx, r3_bytes* error) {
  return guarded(ptx, error, [&] {
    r3::set_options(options, n_options);
    const r3::DeviceModule module({bitcode, size});
    return r3::generate_ptx(module, target_of(target));
  });
}
