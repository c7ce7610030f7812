#pragma once

namespace llvm {
class CallBase;
}

namespace r3 {

// Lowers one call of an intrinsic without side effects (maths, conversion, bit manipulation, byte permute, ldu loads)
// to IR or to a call of an r3m_* function, and erases it; false when it is not one of them. Covers llvm.nvvm.* and
// llvm.fma on half and bfloat, which code generation would round twice.
bool lower_pure_intrinsic(llvm::CallBase& call);

}  // namespace r3
