// Which instruction classes a device instruction becomes. Part of the cost model: docs/cost-model.md.
#pragma once
#include "simt/kernel.h"

namespace llvm {
class BasicBlock;
class DataLayout;
class Value;
}  // namespace llvm

namespace r3 {

BlockClasses classify_block(const llvm::BasicBlock& block, const llvm::DataLayout& layout);

// The space an address is known to lie in: by its address space, or by the object it is derived from.
Space space_of(const llvm::Value& pointer);

}  // namespace r3
