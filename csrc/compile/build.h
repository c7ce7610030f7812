// One candidate's build in one child process: bitcode and a pipeline in, optimised bitcode and PTX out.
// C++ types cross this face of libr3core; its only user is the bindings, which come from the same build.
#pragma once
#include <string>
#include <vector>

#include "compile/child.h"
#include "compile/compile.h"

namespace r3 {

struct BuildRequest {
  std::string bitcode;
  std::string pipeline;  // as `opt -passes=` takes it
  std::string cpu = "sm_90";
  std::string features;
  int codegen_level = 3;
  std::vector<std::string> options;  // LLVM command-line options
  Limits limits;
};

struct BuildResult {
  std::string status;        // "ok", "parse_error", "pass_crash", "codegen_crash", "build_timeout", "build_memory"
  std::string message;       // one line; empty when ok
  std::string log;           // the child's stderr
  std::string bitcode, ptx;  // empty unless ok
  double seconds = 0;        // wall-clock, the fork included
};

R3_API BuildResult build(const BuildRequest& request);

// Throws std::invalid_argument, with a one-line message, for an LLVM option that is unknown or ill-formed.
R3_API void check_options(const std::vector<std::string>& options);

// Throws std::invalid_argument, with a one-line message, for an architecture or feature that this LLVM does not know or
// that do not go together.
R3_API void check_target(const std::string& cpu, const std::string& features);

// r3_prepare in a child. Throws std::runtime_error with a one-line message.
R3_API std::string prepare(const std::string& bitcode, const std::string& kernel, const Limits& limits);

}  // namespace r3
