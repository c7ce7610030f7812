// Runs work in a forked child under a time and a memory limit, so that no pass, assembler or kernel can take the session down.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

namespace r3 {

struct Limits {
  double seconds = 30;                          // wall-clock; the child is killed after it
  std::uint64_t memory_bytes = 4ull << 30;      // address space growth above the parent's own (RLIMIT_AS); 0: none
};

struct ChildOutcome {
  enum class Kind { ok, failed, exited, signalled, timed_out, out_of_memory };
  Kind kind = Kind::ok;
  int code = 0;          // exit status or signal number
  std::string payload;   // what the child wrote before it ended
  std::string log;       // the tail of its stderr (64 KiB at most)
};

// `work` runs in the child and returns the payload; throwing means Kind::failed with what() as payload.
// The child shares nothing but memory contents at the fork: it never returns into the caller's code.
// PR_SET_PDEATHSIG ends it when the parent dies. Safe to call from several threads of a parent that runs no LLVM itself.
ChildOutcome run_in_child(const Limits& limits, const std::function<std::string()>& work);

}  // namespace r3
