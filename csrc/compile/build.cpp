#include "compile/build.h"

#include <llvm/TargetParser/Triple.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string_view>

#include "compile/module.h"

namespace r3 {
namespace {

// What the child sends: a letter for how far it came, then the bytes of that outcome.
enum class Stage : char { parse_error = 'p', pass_error = 'o', codegen_error = 'c', done = 'd' };

std::string reply(Stage stage, std::string_view text) { return std::string(1, char(stage)).append(text); }

void set_options(const std::vector<std::string>& texts) {
  std::vector<const char*> options;
  for (const std::string& text : texts) options.push_back(text.c_str());
  r3::set_options(options.data(), options.size());
}

std::string build_in_child(const BuildRequest& request) {
  const Target target{request.cpu, request.features, request.codegen_level};
  Stage stage = Stage::parse_error;
  ::dup2(STDERR_FILENO, STDOUT_FILENO);  // what a pass prints goes to the log
  try {
    note("reading the module");
    set_options(request.options);
    const DeviceModule module(request.bitcode);
    stage = Stage::pass_error;
    optimize(*module, request.pipeline, target);
    module.throw_diagnostics();
    const std::string bitcode = module.bitcode();  // the code generator changes the module
    stage = Stage::codegen_error;
    const std::string ptx = generate_ptx(module, target);
    const std::uint64_t size = bitcode.size();
    std::string payload = reply(Stage::done, {reinterpret_cast<const char*>(&size), sizeof size});
    return payload.append(bitcode).append(ptx);
  } catch (const PipelineError& error) {
    return reply(Stage::parse_error, error.what());
  } catch (const CompileError& error) {
    return reply(stage, error.what());
  }
}

// Where a child died, from what it said it was doing.
const char* stage_of(const std::string& note) {
  if (note.starts_with("generating")) return "codegen_crash";
  if (note.starts_with("reading") || note.starts_with("setting up")) return "parse_error";
  return "pass_crash";
}

// LLVM's own words for a bad option value are on the child's stderr.
std::string with_log(const std::string& message, const ChildOutcome& outcome) {
  return message == bad_option_value ? message + ": " + one_line(outcome.log) : message;
}

// In a child, since options are process-global and LLVM ends the process over a bad target.
void check_in_child(const std::function<void()>& check) {
  r3_compile_init();
  const ChildOutcome outcome = run_in_child({}, [&] {
    check();
    return std::string();
  });
  if (outcome.kind != ChildOutcome::Kind::ok)
    throw std::invalid_argument(with_log(one_line(describe(outcome, {})), outcome));
}

void read_reply(const ChildOutcome& outcome, BuildResult& result) {
  const std::string& payload = outcome.payload;
  const std::string_view rest = std::string_view(payload).substr(1);
  switch (Stage(payload.at(0))) {
    case Stage::parse_error:
      result.status = "parse_error";
      break;
    case Stage::pass_error:
      result.status = "pass_crash";
      break;
    case Stage::codegen_error:
      result.status = "codegen_crash";
      break;
    case Stage::done: {
      std::uint64_t size = 0;
      std::memcpy(&size, rest.data(), sizeof size);
      result.status = "ok";
      result.bitcode = rest.substr(sizeof size, size);
      result.ptx = rest.substr(sizeof size + size);
      return;
    }
  }
  result.message = with_log(std::string(rest), outcome);
}

}  // namespace

BuildResult build(const BuildRequest& request) {
  r3_compile_init();
  const auto start = std::chrono::steady_clock::now();
  ChildOutcome outcome = run_in_child(request.limits, [&] { return build_in_child(request); });
  BuildResult result;
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  switch (outcome.kind) {
    case ChildOutcome::Kind::ok:
      read_reply(outcome, result);
      break;
    case ChildOutcome::Kind::timed_out:
      result.status = "build_timeout";
      break;
    case ChildOutcome::Kind::out_of_memory:
      result.status = "build_memory";
      break;
    default:
      result.status = stage_of(outcome.note);
  }
  if (outcome.kind != ChildOutcome::Kind::ok) result.message = one_line(describe(outcome, request.limits));
  result.log = std::move(outcome.log);
  return result;
}

void check_options(const std::vector<std::string>& options) {
  check_in_child([&] { set_options(options); });
}

void check_target(const std::string& cpu, const std::string& features) {
  check_in_child([&] { target_machine(llvm::Triple("nvptx64-nvidia-cuda"), {cpu, features, 3}); });
}

std::string prepare(const std::string& bitcode, const std::string& kernel, const Limits& limits) {
  r3_compile_init();
  const ChildOutcome outcome = run_in_child(limits, [&] {
    note("preparing the module");
    const DeviceModule module(bitcode);
    prepare(*module, kernel);
    return module.bitcode();
  });
  if (outcome.kind != ChildOutcome::Kind::ok)
    throw std::runtime_error("cannot prepare kernel '" + kernel + "': " + one_line(describe(outcome, limits)));
  return outcome.payload;
}

}  // namespace r3
