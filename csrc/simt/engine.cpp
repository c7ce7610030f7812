// The C interface of simt.h.
#include <llvm/Bitcode/BitcodeReader.h>
#include <llvm/Bitcode/BitcodeWriter.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>
#include <llvm/Support/Error.h>
#include <llvm/Support/MemoryBuffer.h>

#include <cstring>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "simt/globals.h"
#include "simt/jit.h"
#include "simt/lower.h"
#include "simt/scheduler.h"
#include "simt/simt.h"

namespace r3 {
namespace {

std::unique_ptr<llvm::Module> parse(llvm::StringRef bitcode, llvm::LLVMContext& context) {
  auto module = llvm::parseBitcodeFile(llvm::MemoryBufferRef(bitcode, "module"), context);
  if (!module) throw std::runtime_error("not device bitcode: " + llvm::toString(module.takeError()));
  return std::move(*module);
}

std::string take_bytes(r3_bytes& bytes) {
  std::string text(bytes.data ? bytes.data : "", bytes.size);
  r3_bytes_free(&bytes);
  return text;
}

void give_error(r3_bytes* error, const std::string& text) {
  if (!error) return;
  error->data = static_cast<char*>(std::malloc(text.size() + 1));
  std::memcpy(error->data, text.c_str(), text.size() + 1);
  error->size = text.size();
}

struct Kernel {
  r3simt_kernel_info info{};
  std::vector<r3simt_parameter> parameters;
  KernelProperties properties;
  std::unique_ptr<CompiledKernel> compiled;
  bool ready = false;
};

}  // namespace
}  // namespace r3

struct r3simt_module {
  std::string bitcode, passes, cpu, features;
  int codegen_level = 3;
  unsigned flags = 0;
  std::map<std::string, std::uint64_t> variables;
  std::map<std::string, r3::Kernel> kernels;
  std::mutex mutex;

  void describe(const llvm::Function& function, const llvm::DataLayout& layout);
  void place_variables(const llvm::Module& module, const r3simt_load_options& options);
  void compile(const std::string& name, r3::Kernel& kernel);
};

void r3simt_module::describe(const llvm::Function& function, const llvm::DataLayout& layout) {
  r3::Kernel& kernel = kernels[function.getName().str()];
  std::uint64_t offset = 0;
  for (const llvm::Argument& argument : function.args()) {
    llvm::Type* type = argument.hasByValAttr() ? argument.getParamByValType() : argument.getType();
    llvm::Align alignment = layout.getABITypeAlign(type);
    if (argument.hasByValAttr()) alignment = std::max(alignment, argument.getParamAlign().valueOrOne());
    offset = llvm::alignTo(offset, alignment);
    std::uint64_t size = layout.getTypeAllocSize(type);
    kernel.parameters.push_back({static_cast<std::uint32_t>(offset), static_cast<std::uint32_t>(size),
                                 static_cast<std::uint32_t>(alignment.value()),
                                 argument.hasByValAttr()     ? 2u
                                 : type->isPointerTy()       ? 1u
                                 : type->isSingleValueType() ? 0u
                                                             : 2u});
    offset += size;
  }
  kernel.info.n_parameters = static_cast<std::uint32_t>(kernel.parameters.size());
  kernel.info.parameters = kernel.parameters.data();
  kernel.info.parameter_bytes = static_cast<std::uint32_t>(offset);
  kernel.info.max_threads = 1024;
  std::uint64_t threads = 1;
  llvm::StringRef bounds = function.getFnAttribute("nvvm.maxntid").getValueAsString();
  for (llvm::StringRef rest = bounds; !rest.empty();) {
    auto [head, tail] = rest.split(',');
    unsigned n = 0;
    if (!head.trim().getAsInteger(10, n)) threads *= n;
    rest = tail;
  }
  if (!bounds.empty()) kernel.info.max_threads = static_cast<std::uint32_t>(threads);
}

void r3simt_module::place_variables(const llvm::Module& module, const r3simt_load_options& options) {
  const llvm::DataLayout& layout = module.getDataLayout();
  auto resolve = [&](const llvm::GlobalValue& global) -> std::optional<std::uint64_t> {
    auto found = variables.find(global.getName().str());
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
  std::vector<const llvm::GlobalVariable*> waiting;
  for (const llvm::GlobalVariable& variable : module.globals())
    if (r3::is_device_variable(variable)) waiting.push_back(&variable);
  // Those whose initialiser refers to another variable come after it.
  while (!waiting.empty()) {
    std::vector<const llvm::GlobalVariable*> later;
    for (const llvm::GlobalVariable* variable : waiting) {
      auto bytes = r3::constant_bytes(*variable->getInitializer(), layout, resolve);
      if (!bytes) {
        later.push_back(variable);
        continue;
      }
      std::string name = variable->getName().str();
      std::uint64_t address =
          options.place_variable(options.user, name.c_str(), bytes->size(), layout.getPreferredAlign(variable).value(),
                                 variable->isConstant(), bytes->data());
      if (address) variables[name] = address;
    }
    if (later.size() == waiting.size()) break;  // refers to functions: stays private to each kernel
    waiting = std::move(later);
  }
}

void r3simt_module::compile(const std::string& name, r3::Kernel& kernel) {
  kernel.ready = true;
  try {
    std::string device = bitcode;
    if (!passes.empty()) {
      r3_bytes prepared{}, optimized{}, error{};
      if (r3_prepare(device.data(), device.size(), name.c_str(), &prepared, &error))
        throw std::runtime_error(r3::take_bytes(error));
      device = r3::take_bytes(prepared);
      r3_target target{cpu.c_str(), features.c_str(), codegen_level};
      if (r3_optimize(device.data(), device.size(), passes.c_str(), &target, nullptr, 0, &optimized, &error))
        throw std::runtime_error(r3::take_bytes(error));
      device = r3::take_bytes(optimized);
    }
    auto context = std::make_unique<llvm::LLVMContext>();
    std::unique_ptr<llvm::Module> module = r3::parse(device, *context);
    r3::LowerOptions options;
    options.flags = flags;
    options.variable = [this](const std::string& variable) -> std::optional<std::uint64_t> {
      auto found = variables.find(variable);
      if (found == variables.end()) return std::nullopt;
      return found->second;
    };
    kernel.properties = r3::lower_kernel(*module, name, options);
    if (kernel.properties.refusal.empty()) {
      r3::retarget_to_host(*module);
      kernel.compiled =
          std::make_unique<r3::CompiledKernel>(std::move(context), std::move(module), kernel.properties.entry);
    }
  } catch (const std::exception& error) {
    kernel.properties.refusal = error.what();
  }
  kernel.info.static_shared = kernel.properties.static_shared;
  kernel.info.refusal = kernel.properties.refusal.empty() ? nullptr : kernel.properties.refusal.c_str();
}

extern "C" {

int r3simt_load(const char* bitcode, size_t size, const r3simt_load_options* options, r3simt_module** module,
                r3_bytes* error) {
  try {
    r3_compile_init();
    auto loaded = std::make_unique<r3simt_module>();
    loaded->bitcode.assign(bitcode, size);
    loaded->passes = options->passes ? options->passes : "";
    loaded->cpu = options->target.cpu ? options->target.cpu : "";
    loaded->features = options->target.features ? options->target.features : "";
    loaded->codegen_level = options->target.codegen_level;
    loaded->flags = options->flags;
    llvm::LLVMContext context;
    std::unique_ptr<llvm::Module> parsed = r3::parse(loaded->bitcode, context);
    for (const llvm::Function& function : *parsed)
      if (!function.isDeclaration() && function.getCallingConv() == llvm::CallingConv::PTX_Kernel)
        loaded->describe(function, parsed->getDataLayout());
    if (options->place_variable) loaded->place_variables(*parsed, *options);
    *module = loaded.release();
    return 0;
  } catch (const std::exception& failure) {
    r3::give_error(error, failure.what());
    return 1;
  }
}

void r3simt_unload(r3simt_module* module) { delete module; }

const r3simt_kernel_info* r3simt_kernel(r3simt_module* module, const char* name) {
  std::lock_guard lock(module->mutex);
  auto found = module->kernels.find(name);
  if (found == module->kernels.end()) return nullptr;
  if (!found->second.ready) module->compile(found->first, found->second);
  return &found->second.info;
}

const char* r3simt_class_name(int instruction_class) {
  static const char* const names[R3SIMT_CLASSES] = {
      "int",      "fp32",    "fp64",        "fp16",         "sfu",         "convert",      "int_slow",
      "fp_slow",  "control", "global_load", "global_store", "shared_load", "shared_store", "local",
      "constant", "atomic",  "barrier",     "warp",         "call"};
  return instruction_class >= 0 && instruction_class < R3SIMT_CLASSES ? names[instruction_class] : "";
}

r3simt_status r3simt_run(r3simt_module* module, const r3simt_launch* launch, r3simt_result* result) {
  std::memset(result, 0, sizeof *result);
  const r3simt_kernel_info* info = r3simt_kernel(module, launch->kernel);
  auto say = [&](r3simt_status status, const std::string& text) {
    result->status = status;
    std::snprintf(result->message, sizeof result->message, "kernel %s %s", launch->kernel, text.c_str());
    return status;
  };
  if (!info) return say(R3SIMT_UNSUPPORTED, "is not in the module");
  if (info->refusal) return say(R3SIMT_UNSUPPORTED, info->refusal);
  if (1ull * launch->block[0] * launch->block[1] * launch->block[2] > info->max_threads)
    return say(R3SIMT_INVALID_LAUNCH, "is bounded to " + std::to_string(info->max_threads) + " threads a block");
  r3::Kernel& kernel = module->kernels.at(launch->kernel);
  r3::run_launch(kernel.properties, kernel.compiled->entry(), *launch, module->flags, launch->kernel, *result);
  return result->status;
}

}  // extern "C"
