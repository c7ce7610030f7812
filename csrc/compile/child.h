// Runs work in a forked child under a time and a memory limit, so that no pass, assembler or kernel can take the
// session down.
#pragma once
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>

namespace r3 {

struct Limits {
  double seconds = 30;                      // wall-clock; the child is killed after it
  std::uint64_t memory_bytes = 4ull << 30;  // address space growth above the parent's own (RLIMIT_AS); 0: none
};

struct ChildOutcome {
  enum class Kind { ok, failed, exited, signalled, timed_out, out_of_memory };
  Kind kind = Kind::ok;
  int code = 0;         // exit status or signal number
  std::string payload;  // what `work` returned, or what() of what it threw; empty for every other kind
  std::string log;      // the tail of its stderr (64 KiB at most)
  std::string note;     // the last note() of the child: what it was doing when it ended
};

// `work` runs in the child and returns the payload; throwing means Kind::failed with what() as payload.
// The child shares nothing but memory contents at the fork: it never returns into the caller's code.
// PR_SET_PDEATHSIG ends it when the parent dies. Safe to call from several threads of a parent that runs no LLVM
// itself, or runs it under parent_lock(). Throws std::system_error when no child can be made.
ChildOutcome run_in_child(const Limits& limits, const std::function<std::string()>& work);

// In a child: says what it does now, for the message after a crash or a timeout. Elsewhere: does nothing.
void note(std::string_view text);

// Hold it while LLVM runs in the parent: no child is forked meanwhile, so none inherits a lock of LLVM's that nobody
// frees.
std::unique_lock<std::mutex> parent_lock();

// One line for a person: "killed by SIGSEGV while running licm on function f: LLVM ERROR: …".
std::string describe(const ChildOutcome& outcome, const Limits& limits);

}  // namespace r3
