// Builds IR for the integer and bit operations of PTX.
#pragma once
#include <llvm/IR/IRBuilder.h>

namespace r3 {

using Builder = llvm::IRBuilder<>;

enum class PermuteMode { kGeneric, kForward4, kBackward4, kReplicate8, kEdgeLeft, kEdgeRight, kReplicate16 };

// Each byte of the result is one of the eight bytes of y:x, chosen by `selector`.
llvm::Value* byte_permute(Builder& b, llvm::Value* x, llvm::Value* y, llvm::Value* selector, PermuteMode mode);
llvm::Value* multiply_high(Builder& b, llvm::Value* x, llvm::Value* y, bool is_signed);
llvm::Value* multiply_24(Builder& b, llvm::Value* x, llvm::Value* y, bool is_signed, bool high);
llvm::Value* absolute_difference(Builder& b, llvm::Value* x, llvm::Value* y, bool is_signed);
// c + sum of a[i] * b[i]: dp4a with four bytes each, dp2a with two halfwords of `x` and a low or high byte pair of `y`.
llvm::Value* dot_product_4(Builder& b, llvm::Value* x, llvm::Value* y, llvm::Value* z, bool x_signed, bool y_signed);
llvm::Value* dot_product_2(Builder& b, llvm::Value* x, llvm::Value* y, llvm::Value* z, bool x_signed, bool y_signed,
                           bool high);
// shf: the 32 or 64 bits of high:low shifted; `clamp` limits the amount to the width, else it wraps.
llvm::Value* funnel_shift(Builder& b, llvm::Value* low, llvm::Value* high, llvm::Value* amount, bool left, bool clamp);
// shl, shr: amounts of the width and more shift everything out. `amount` is i32.
llvm::Value* shift_left(Builder& b, llvm::Value* x, llvm::Value* amount);
llvm::Value* shift_right(Builder& b, llvm::Value* x, llvm::Value* amount, bool is_signed);
// bfind: position of the top bit that differs from the sign; 0xffffffff when there is none.
llvm::Value* find_leading(Builder& b, llvm::Value* x, bool is_signed, bool shift_amount);
llvm::Value* find_nth_set(Builder& b, llvm::Value* mask, llvm::Value* base, llvm::Value* offset);
llvm::Value* bit_mask(Builder& b, llvm::Value* position, llvm::Value* width, bool clamp);
llvm::Value* extend_bits(Builder& b, llvm::Value* x, llvm::Value* width, bool is_signed, bool clamp);
llvm::Value* extract_bits(Builder& b, llvm::Value* x, llvm::Value* position, llvm::Value* length, bool is_signed);
llvm::Value* insert_bits(Builder& b, llvm::Value* x, llvm::Value* into, llvm::Value* position, llvm::Value* length);
llvm::Value* three_input_logic(Builder& b, llvm::Value* x, llvm::Value* y, llvm::Value* z, unsigned table);

}  // namespace r3
