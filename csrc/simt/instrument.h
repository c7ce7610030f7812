// Adds execution counters and access hooks to device IR, before it is lowered.
#pragma once
#include "simt/context.h"
#include "simt/kernel.h"

namespace r3 {

// R3SIMT_COUNT: a counter a basic block, into properties.blocks.
void count_blocks(llvm::Module& module, ContextAccess& context, KernelProperties& properties);

// R3SIMT_CHECK, R3SIMT_COUNT: a call of r3rt_access before every access that may leave the thread's own memory.
void hook_accesses(llvm::Module& module, KernelProperties& properties);

}  // namespace r3
