// A kernel after lowering: host IR plus what the scheduler must know about it.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "simt/abi.h"
#include "simt/simt.h"

namespace llvm {
class LLVMContext;
class Module;
}  // namespace llvm

namespace r3 {

// How often each instruction class occurs in a basic block; times its execution count gives the issues.
struct BlockClasses {
  std::uint16_t issues[R3SIMT_CLASSES] = {};
};

struct KernelProperties {
  std::string entry;                               // symbol of void entry(const void* parameters)
  std::string refusal;                             // why it cannot run; empty when it can
  std::uint32_t static_shared = 0;                 // bytes before the dynamic part
  std::uint64_t stack_bytes = 0;                   // what one thread's local memory may need
  bool needs_fibres = false;                       // has barriers, warp operations or spin loops
  bool order_sensitive = false;                    // its result depends on the order in which blocks run
  bool leftover_data = false;                      // some data (vtables) lies where access checks cannot know it
  std::vector<BlockClasses> blocks;                // R3SIMT_COUNT
  std::vector<AccessSite> sites;                   // R3SIMT_CHECK or R3SIMT_COUNT
  std::vector<std::unique_ptr<char[]>> constants;  // constant data that lowered code refers to by address
  std::vector<std::pair<std::uint64_t, std::uint64_t>> constant_ranges;
};

using EntryPoint = void (*)(const void* parameters);

}  // namespace r3
