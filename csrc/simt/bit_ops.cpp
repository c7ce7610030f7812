#include "simt/bit_ops.h"

#include <llvm/IR/Intrinsics.h>

#include "simt/float_ops.h"

using namespace llvm;

namespace r3 {
namespace {

Constant* constant(Value* like, uint64_t value) {
  return ConstantInt::get(like->getContext(), APInt(like->getType()->getIntegerBitWidth(), value, false, true));
}

unsigned width_of(Value* x) { return x->getType()->getScalarSizeInBits(); }

Value* extend(Builder& b, Value* x, Type* type, bool is_signed) {
  return is_signed ? b.CreateSExt(x, type) : b.CreateZExt(x, type);
}

Value* at_most(Builder& b, Value* x, uint64_t limit) {
  return b.CreateBinaryIntrinsic(Intrinsic::umin, x, constant(x, limit));
}

// Low 8 or 16 bits of `x` at `offset`, extended to i32.
Value* field(Builder& b, Value* x, unsigned offset, unsigned bits, bool is_signed) {
  Value* part = b.CreateTrunc(b.CreateLShr(x, offset), b.getIntNTy(bits));
  return extend(b, part, b.getInt32Ty(), is_signed);
}

// Shifts by an i32 amount of any size; `x` may be of any width.
Value* shift_out(Builder& b, Instruction::BinaryOps op, Value* x, Value* amount) {
  unsigned width = width_of(x);
  Value* inside = b.CreateICmpULT(amount, b.getInt32(width));
  Value* safe = b.CreateZExtOrTrunc(b.CreateSelect(inside, amount, b.getInt32(0)), x->getType());
  return b.CreateSelect(inside, b.CreateBinOp(op, x, safe), constant(x, 0));
}

}  // namespace

Value* byte_permute(Builder& b, Value* x, Value* y, Value* selector, PermuteMode mode) {
  Type* i64 = b.getInt64Ty();
  Value* bytes = b.CreateOr(b.CreateZExt(x, i64), b.CreateShl(b.CreateZExt(y, i64), 32));
  Value* result = b.getInt32(0);
  Value* control = b.CreateAnd(selector, 3);
  for (unsigned i = 0; i < 4; ++i) {
    Value* index = nullptr;
    switch (mode) {
      case PermuteMode::kGeneric:
        index = b.CreateAnd(b.CreateLShr(selector, 4 * i), 7);
        break;
      case PermuteMode::kForward4:
        index = b.CreateAdd(control, b.getInt32(i));
        break;
      case PermuteMode::kBackward4:
        index = b.CreateAnd(b.CreateSub(control, b.getInt32(i)), 7);
        break;
      case PermuteMode::kReplicate8:
        index = control;
        break;
      case PermuteMode::kEdgeLeft:
        index = b.CreateBinaryIntrinsic(Intrinsic::umax, control, b.getInt32(i));
        break;
      case PermuteMode::kEdgeRight:
        index = b.CreateBinaryIntrinsic(Intrinsic::umin, control, b.getInt32(i));
        break;
      case PermuteMode::kReplicate16:
        index = b.CreateOr(b.CreateShl(b.CreateAnd(control, 1), 1), b.getInt32(i & 1));
        break;
    }
    Value* shift = b.CreateZExt(b.CreateShl(index, 3), i64);
    Value* byte = b.CreateTrunc(b.CreateLShr(bytes, shift), b.getInt8Ty());
    if (mode == PermuteMode::kGeneric) {
      // The selector's top bit asks for the byte's sign, replicated.
      Value* replicate = b.CreateICmpNE(b.CreateAnd(selector, 8u << (4 * i)), b.getInt32(0));
      byte = b.CreateSelect(replicate, b.CreateAShr(byte, 7), byte);
    }
    result = b.CreateOr(result, b.CreateShl(b.CreateZExt(byte, b.getInt32Ty()), 8 * i));
  }
  return result;
}

Value* multiply_high(Builder& b, Value* x, Value* y, bool is_signed) {
  unsigned width = width_of(x);
  Type* wide = b.getIntNTy(2 * width);
  Value* product = b.CreateMul(extend(b, x, wide, is_signed), extend(b, y, wide, is_signed));
  return b.CreateTrunc(b.CreateLShr(product, width), x->getType());
}

Value* multiply_24(Builder& b, Value* x, Value* y, bool is_signed, bool high) {
  auto low_24 = [&](Value* value) {
    Value* wide = extend(b, b.CreateTrunc(value, b.getIntNTy(24)), b.getInt64Ty(), is_signed);
    return wide;
  };
  Value* product = b.CreateMul(low_24(x), low_24(y));
  return b.CreateTrunc(high ? b.CreateLShr(product, 16) : product, b.getInt32Ty());
}

Value* absolute_difference(Builder& b, Value* x, Value* y, bool is_signed) {
  Value* below = is_signed ? b.CreateICmpSLT(x, y) : b.CreateICmpULT(x, y);
  return b.CreateSelect(below, b.CreateSub(y, x), b.CreateSub(x, y));
}

Value* dot_product_4(Builder& b, Value* x, Value* y, Value* z, bool x_signed, bool y_signed) {
  for (unsigned i = 0; i < 4; ++i) {
    z = b.CreateAdd(z, b.CreateMul(field(b, x, 8 * i, 8, x_signed), field(b, y, 8 * i, 8, y_signed)));
  }
  return z;
}

Value* dot_product_2(Builder& b, Value* x, Value* y, Value* z, bool x_signed, bool y_signed, bool high) {
  for (unsigned i = 0; i < 2; ++i) {
    Value* byte = field(b, y, 8 * i + (high ? 16 : 0), 8, y_signed);
    z = b.CreateAdd(z, b.CreateMul(field(b, x, 16 * i, 16, x_signed), byte));
  }
  return z;
}

Value* funnel_shift(Builder& b, Value* low, Value* high, Value* amount, bool left, bool clamp) {
  unsigned width = width_of(low);
  Type* wide = b.getIntNTy(2 * width);
  amount = b.CreateZExtOrTrunc(amount, low->getType());
  amount = clamp ? at_most(b, amount, width) : b.CreateAnd(amount, width - 1);
  Value* both = b.CreateOr(b.CreateZExt(low, wide), b.CreateShl(b.CreateZExt(high, wide), width));
  Value* shift = b.CreateZExt(amount, wide);
  Value* shifted = left ? b.CreateLShr(b.CreateShl(both, shift), width) : b.CreateLShr(both, shift);
  return b.CreateTrunc(shifted, low->getType());
}

Value* shift_left(Builder& b, Value* x, Value* amount) { return shift_out(b, Instruction::Shl, x, amount); }

Value* shift_right(Builder& b, Value* x, Value* amount, bool is_signed) {
  if (!is_signed) return shift_out(b, Instruction::LShr, x, amount);
  Value* limited = at_most(b, amount, width_of(x) - 1);
  return b.CreateAShr(x, b.CreateZExtOrTrunc(limited, x->getType()));
}

Value* find_leading(Builder& b, Value* x, bool is_signed, bool shift_amount) {
  unsigned width = width_of(x);
  if (is_signed) x = b.CreateXor(x, b.CreateAShr(x, width - 1));
  Value* zeros = b.CreateIntrinsic(Intrinsic::ctlz, {x->getType()}, {x, b.getFalse()});
  zeros = b.CreateTrunc(zeros, b.getInt32Ty());
  Value* position = shift_amount ? zeros : b.CreateSub(b.getInt32(width - 1), zeros);
  return b.CreateSelect(b.CreateICmpEQ(x, constant(x, 0)), b.getInt32(0xffffffff), position);
}

Value* find_nth_set(Builder& b, Value* mask, Value* base, Value* offset) {
  return call_runtime(b, "r3m_find_nth_set", b.getInt32Ty(), {mask, base, offset});
}

Value* bit_mask(Builder& b, Value* position, Value* width, bool clamp) {
  auto limited = [&](Value* x) { return b.CreateZExt(clamp ? at_most(b, x, 32) : b.CreateAnd(x, 31), b.getInt64Ty()); };
  Value* ones = b.CreateSub(b.CreateShl(b.getInt64(1), limited(width)), b.getInt64(1));
  return b.CreateTrunc(b.CreateShl(ones, limited(position)), b.getInt32Ty());
}

Value* extend_bits(Builder& b, Value* x, Value* width, bool is_signed, bool clamp) {
  width = clamp ? at_most(b, width, 32) : b.CreateAnd(width, 31);
  // In two steps each way, so that no step shifts by the whole 64 bits when the width is 0.
  Value* unused = b.CreateZExt(b.CreateSub(b.getInt32(32), width), b.getInt64Ty());
  Value* top = b.CreateShl(b.CreateShl(b.CreateZExt(x, b.getInt64Ty()), 32), unused);
  Value* down = is_signed ? b.CreateAShr(b.CreateAShr(top, unused), 32) : b.CreateLShr(b.CreateLShr(top, unused), 32);
  return b.CreateTrunc(down, b.getInt32Ty());
}

Value* extract_bits(Builder& b, Value* x, Value* position, Value* length, bool is_signed) {
  unsigned width = width_of(x);
  position = b.CreateAnd(position, 0xff);
  length = b.CreateAnd(length, 0xff);
  Value* shifted = shift_right(b, x, position, is_signed);
  Value* unused = b.CreateSub(b.getInt32(width), at_most(b, length, width));
  // A field of no bits shifts everything out, to the left; for the signed case as well.
  return shift_right(b, shift_left(b, shifted, unused), unused, is_signed);
}

Value* insert_bits(Builder& b, Value* x, Value* into, Value* position, Value* length) {
  position = b.CreateAnd(position, 0xff);
  length = b.CreateAnd(length, 0xff);
  Value* ones = b.CreateNot(shift_left(b, constant(x, ~uint64_t{0}), length));
  Value* mask = shift_left(b, ones, position);
  return b.CreateOr(b.CreateAnd(shift_left(b, x, position), mask), b.CreateAnd(into, b.CreateNot(mask)));
}

Value* three_input_logic(Builder& b, Value* x, Value* y, Value* z, unsigned table) {
  Value* result = constant(x, 0);
  for (unsigned row = 0; row < 8; ++row) {
    if ((table >> row & 1) == 0) continue;
    Value* matches = b.CreateAnd(row & 4 ? x : b.CreateNot(x), row & 2 ? y : b.CreateNot(y));
    result = b.CreateOr(result, b.CreateAnd(matches, row & 1 ? z : b.CreateNot(z)));
  }
  return result;
}

}  // namespace r3
