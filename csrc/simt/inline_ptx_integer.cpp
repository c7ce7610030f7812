// Integer, logic, bit-field, comparison and move instructions.
#include <llvm/IR/Constants.h>
#include <llvm/IR/Intrinsics.h>

#include "simt/bit_ops.h"
#include "simt/inline_ptx_translate.h"

using namespace llvm;

namespace r3::ptx {
namespace {

Constant* constant_like(Value* like, uint64_t value) { return ConstantInt::get(like->getType(), value); }

Value* widen(Builder& b, Value* x, bool is_signed) {
  llvm::Type* type = b.getIntNTy(2 * x->getType()->getIntegerBitWidth());
  return is_signed ? b.CreateSExt(x, type) : b.CreateZExt(x, type);
}

Value* min_max(Builder& b, Value* x, Value* y, bool is_signed, bool is_max) {
  Intrinsic::ID id =
      is_signed ? (is_max ? Intrinsic::smax : Intrinsic::smin) : (is_max ? Intrinsic::umax : Intrinsic::umin);
  return b.CreateBinaryIntrinsic(id, x, y);
}

// A divisor that the host's instruction does not trap on. By zero, quotient and remainder are all ones, as on the
// device.
struct SafeDivision {
  Value* divisor;
  Value* by_zero;

  SafeDivision(Builder& b, Value* x, Value* y, bool is_signed) {
    by_zero = b.CreateICmpEQ(y, constant_like(y, 0));
    Value* unsafe = by_zero;
    if (is_signed) {
      unsigned bits = x->getType()->getIntegerBitWidth();
      Value* lowest = b.CreateICmpEQ(x, ConstantInt::get(x->getContext(), APInt::getSignedMinValue(bits)));
      // The lowest value by -1 overflows to itself, which is what dividing by 1 gives; the remainder is 0 both ways.
      unsafe = b.CreateOr(unsafe, b.CreateAnd(lowest, b.CreateICmpEQ(y, Constant::getAllOnesValue(y->getType()))));
    }
    divisor = b.CreateSelect(unsafe, constant_like(y, 1), y);
  }
};

}  // namespace

Value* Translator::add_with_carry(Value* x, Value* y, bool carry_in, bool carry_out, bool subtract) {
  Intrinsic::ID id = subtract ? Intrinsic::usub_with_overflow : Intrinsic::uadd_with_overflow;
  Value* first = b_.CreateBinaryIntrinsic(id, x, y);
  Value* result = b_.CreateExtractValue(first, 0);
  Value* carry = b_.CreateExtractValue(first, 1);
  if (carry_in) {
    Value* in = b_.CreateZExt(b_.CreateLoad(b_.getInt1Ty(), carry_), x->getType());
    Value* second = b_.CreateBinaryIntrinsic(id, result, in);
    result = b_.CreateExtractValue(second, 0);
    carry = b_.CreateOr(carry, b_.CreateExtractValue(second, 1));
  }
  if (carry_out) b_.CreateStore(carry, carry_);
  return result;
}

bool Translator::emit_add(Instruction& i) {
  std::optional<Type> type = take_type(i);
  if (!type || i.count() != 3) return false;
  if (type->is_float()) return emit_float_arithmetic(i, FloatOp::kAdd, *type);
  Value* x = read(i.operand(1), *type);
  Value* y = read(i.operand(2), *type);
  if (i.mods.take("cc")) {
    write(i.operand(0), add_with_carry(x, y, false, true, false));
  } else if (i.mods.take("sat")) {
    write(i.operand(0), b_.CreateBinaryIntrinsic(type->is_signed() ? Intrinsic::sadd_sat : Intrinsic::uadd_sat, x, y));
  } else {
    write(i.operand(0), b_.CreateAdd(x, y));
  }
  return true;
}

bool Translator::emit_sub(Instruction& i) {
  std::optional<Type> type = take_type(i);
  if (!type || i.count() != 3) return false;
  if (type->is_float()) return emit_float_arithmetic(i, FloatOp::kSub, *type);
  Value* x = read(i.operand(1), *type);
  Value* y = read(i.operand(2), *type);
  if (i.mods.take("cc")) {
    write(i.operand(0), add_with_carry(x, y, false, true, true));
  } else if (i.mods.take("sat")) {
    write(i.operand(0), b_.CreateBinaryIntrinsic(type->is_signed() ? Intrinsic::ssub_sat : Intrinsic::usub_sat, x, y));
  } else {
    write(i.operand(0), b_.CreateSub(x, y));
  }
  return true;
}

bool Translator::emit_addc(Instruction& i) {
  std::optional<Type> type = take_type(i);
  if (!type || type->is_float() || i.count() != 3) return false;
  bool out = i.mods.take("cc");
  write(i.operand(0), add_with_carry(read(i.operand(1), *type), read(i.operand(2), *type), true, out, false));
  return true;
}

bool Translator::emit_subc(Instruction& i) {
  std::optional<Type> type = take_type(i);
  if (!type || type->is_float() || i.count() != 3) return false;
  bool out = i.mods.take("cc");
  write(i.operand(0), add_with_carry(read(i.operand(1), *type), read(i.operand(2), *type), true, out, true));
  return true;
}

bool Translator::emit_mul(Instruction& i) {
  std::optional<Type> type = take_type(i);
  if (!type || i.count() != 3) return false;
  if (type->is_float()) return emit_float_arithmetic(i, FloatOp::kMul, *type);
  StringRef part = i.mods.take_any({"lo", "hi", "wide"});
  if (part.empty() || type->lanes != 1) return false;
  Value* x = read(i.operand(1), *type);
  Value* y = read(i.operand(2), *type);
  if (part == "lo") {
    write(i.operand(0), b_.CreateMul(x, y));
  } else if (part == "hi") {
    write(i.operand(0), multiply_high(b_, x, y, type->is_signed()));
  } else {
    write(i.operand(0), b_.CreateMul(widen(b_, x, type->is_signed()), widen(b_, y, type->is_signed())));
  }
  return true;
}

bool Translator::multiply_add(Instruction& i, bool carry_in) {
  std::optional<Type> type = take_type(i);
  if (!type || i.count() != 4) return false;
  if (type->is_float()) {
    if (carry_in) return false;
    FloatMode mode = take_float_mode(i);
    write(i.operand(0),
          float_fma(b_, read(i.operand(1), *type), read(i.operand(2), *type), read(i.operand(3), *type), mode));
    return true;
  }
  StringRef part = i.mods.take_any({"lo", "hi", "wide"});
  if (part.empty() || type->lanes != 1) return false;
  bool carry_out = i.mods.take("cc");
  bool saturating = i.mods.take("sat");
  Value* x = read(i.operand(1), *type);
  Value* y = read(i.operand(2), *type);
  if (part == "wide") {
    if (carry_in || carry_out || saturating) return false;
    Value* product = b_.CreateMul(widen(b_, x, type->is_signed()), widen(b_, y, type->is_signed()));
    write(i.operand(0), b_.CreateAdd(product, read(i.operand(3), {type->kind, 2 * type->bits, 1})));
    return true;
  }
  Value* product = part == "lo" ? b_.CreateMul(x, y) : multiply_high(b_, x, y, type->is_signed());
  Value* addend = read(i.operand(3), *type);
  if (saturating) {
    if (part != "hi" || !type->is_signed()) return false;
    write(i.operand(0), b_.CreateBinaryIntrinsic(Intrinsic::sadd_sat, product, addend));
  } else if (carry_in || carry_out) {
    write(i.operand(0), add_with_carry(product, addend, carry_in, carry_out, false));
  } else {
    write(i.operand(0), b_.CreateAdd(product, addend));
  }
  return true;
}

bool Translator::emit_mad(Instruction& i) { return multiply_add(i, false); }
bool Translator::emit_madc(Instruction& i) { return multiply_add(i, true); }

bool Translator::emit_mul24(Instruction& i) {
  std::optional<Type> type = take_type(i);
  StringRef part = i.mods.take_any({"lo", "hi"});
  if (!type || type->bits != 32 || !type->is_integer() || part.empty() || i.count() != 3) return false;
  Value* x = read(i.operand(1), *type);
  write(i.operand(0), multiply_24(b_, x, read(i.operand(2), *type), type->is_signed(), part == "hi"));
  return true;
}

bool Translator::emit_mad24(Instruction& i) {
  std::optional<Type> type = take_type(i);
  StringRef part = i.mods.take_any({"lo", "hi"});
  if (!type || type->bits != 32 || !type->is_integer() || part.empty() || i.count() != 4) return false;
  bool saturating = i.mods.take("sat");
  Value* x = read(i.operand(1), *type);
  Value* product = multiply_24(b_, x, read(i.operand(2), *type), type->is_signed(), part == "hi");
  Value* addend = read(i.operand(3), *type);
  write(i.operand(0),
        saturating ? b_.CreateBinaryIntrinsic(Intrinsic::sadd_sat, product, addend) : b_.CreateAdd(product, addend));
  return true;
}

bool Translator::emit_div(Instruction& i) {
  std::optional<Type> type = take_type(i);
  if (!type || i.count() != 3) return false;
  if (type->is_float()) return emit_float_div(i, *type);
  Value* x = read(i.operand(1), *type);
  SafeDivision safe(b_, x, read(i.operand(2), *type), type->is_signed());
  Value* quotient = type->is_signed() ? b_.CreateSDiv(x, safe.divisor) : b_.CreateUDiv(x, safe.divisor);
  write(i.operand(0), b_.CreateSelect(safe.by_zero, Constant::getAllOnesValue(x->getType()), quotient));
  return true;
}

bool Translator::emit_rem(Instruction& i) {
  std::optional<Type> type = take_type(i);
  if (!type || type->is_float() || i.count() != 3) return false;
  Value* x = read(i.operand(1), *type);
  SafeDivision safe(b_, x, read(i.operand(2), *type), type->is_signed());
  Value* rest = type->is_signed() ? b_.CreateSRem(x, safe.divisor) : b_.CreateURem(x, safe.divisor);
  write(i.operand(0), b_.CreateSelect(safe.by_zero, Constant::getAllOnesValue(x->getType()), rest));
  return true;
}

bool Translator::emit_min_max(Instruction& i, bool is_max) {
  bool relu = i.mods.take("relu");  // before the type or after it
  std::optional<Type> type = take_type(i);
  if (!type || i.count() < 3) return false;
  if (type->is_float()) return !relu && emit_float_min_max(i, is_max, *type);
  if (i.count() != 3 || !type->is_integer() || (relu && !type->is_signed())) return false;
  Value* result = min_max(b_, read(i.operand(1), *type), read(i.operand(2), *type), type->is_signed(), is_max);
  if (relu) result = b_.CreateBinaryIntrinsic(Intrinsic::smax, result, Constant::getNullValue(result->getType()));
  write(i.operand(0), result);
  return true;
}

bool Translator::emit_abs(Instruction& i) {
  std::optional<Type> type = take_type(i);
  if (!type || i.count() != 2) return false;
  Value* x = read(i.operand(1), *type);
  if (type->is_float()) {
    if (i.mods.take("ftz")) x = flush_subnormals(b_, x);
    write(i.operand(0), float_abs(b_, x));
  } else {
    write(i.operand(0), b_.CreateBinaryIntrinsic(Intrinsic::abs, x, b_.getFalse()));
  }
  return true;
}

bool Translator::emit_neg(Instruction& i) {
  std::optional<Type> type = take_type(i);
  if (!type || i.count() != 2) return false;
  Value* x = read(i.operand(1), *type);
  if (type->is_float() && i.mods.take("ftz")) x = flush_subnormals(b_, x);
  write(i.operand(0), type->is_float() ? float_negate(b_, x) : b_.CreateNeg(x));
  return true;
}

bool Translator::emit_sad(Instruction& i) {
  std::optional<Type> type = take_type(i);
  if (!type || !type->is_integer() || i.count() != 4) return false;
  Value* x = read(i.operand(1), *type);
  Value* difference = absolute_difference(b_, x, read(i.operand(2), *type), type->is_signed());
  write(i.operand(0), b_.CreateAdd(difference, read(i.operand(3), *type)));
  return true;
}

bool Translator::emit_logic(Instruction& i, llvm::Instruction::BinaryOps op) {
  std::optional<Type> type = take_type(i);
  if (!type || type->is_float() || i.count() != 3) return false;
  Value* x = read(i.operand(1), *type);
  write(i.operand(0), b_.CreateBinOp(op, x, read(i.operand(2), *type)));
  return true;
}

bool Translator::emit_not(Instruction& i) {
  std::optional<Type> type = take_type(i);
  if (!type || type->is_float() || i.count() != 2) return false;
  write(i.operand(0), b_.CreateNot(read(i.operand(1), *type)));
  return true;
}

bool Translator::emit_cnot(Instruction& i) {
  std::optional<Type> type = take_type(i);
  if (!type || type->is_float() || i.count() != 2) return false;
  Value* x = read(i.operand(1), *type);
  write(i.operand(0), b_.CreateZExt(b_.CreateICmpEQ(x, constant_like(x, 0)), x->getType()));
  return true;
}

bool Translator::emit_lop3(Instruction& i) {
  if (!i.mods.take("b32") || i.count() < 5) return false;
  std::optional<uint64_t> lut = constant(i.operand(4));
  if (!lut || *lut > 255) return false;
  Value* result = three_input_logic(b_, read(i.operand(1), kU32), read(i.operand(2), kU32), read(i.operand(3), kU32),
                                    static_cast<unsigned>(*lut));
  StringRef op = i.mods.take_any({"or", "and"});
  if (op.empty()) {
    if (i.count() != 5) return false;
    write(i.operand(0), result);
    return true;
  }
  // lop3.or d|p, a, b, c, lut, q: p = (d != 0) or q
  if (i.count() != 6 || i.operand(0).kind != Operand::Kind::kPair) return false;
  Value* set = b_.CreateICmpNE(result, b_.getInt32(0));
  Value* other = read(i.operand(5), kPredicate);
  write(i.operand(0).parts[0], result);
  write(i.operand(0).parts[1], op == "or" ? b_.CreateOr(set, other) : b_.CreateAnd(set, other));
  return true;
}

bool Translator::emit_shl(Instruction& i) {
  std::optional<Type> type = take_type(i);
  if (!type || type->is_float() || i.count() != 3) return false;
  write(i.operand(0), shift_left(b_, read(i.operand(1), *type), read(i.operand(2), kU32)));
  return true;
}

bool Translator::emit_shr(Instruction& i) {
  std::optional<Type> type = take_type(i);
  if (!type || type->is_float() || i.count() != 3) return false;
  write(i.operand(0), shift_right(b_, read(i.operand(1), *type), read(i.operand(2), kU32), type->is_signed()),
        type->is_signed());
  return true;
}

bool Translator::emit_shf(Instruction& i) {
  StringRef direction = i.mods.take_any({"l", "r"});
  StringRef mode = i.mods.take_any({"clamp", "wrap"});
  if (!i.mods.take("b32") || direction.empty() || mode.empty() || i.count() != 4) return false;
  Value* low = read(i.operand(1), kU32);
  Value* high = read(i.operand(2), kU32);
  write(i.operand(0), funnel_shift(b_, low, high, read(i.operand(3), kU32), direction == "l", mode == "clamp"));
  return true;
}

bool Translator::emit_bfe(Instruction& i) {
  std::optional<Type> type = take_type(i);
  if (!type || !type->is_integer() || i.count() != 4) return false;
  Value* x = read(i.operand(1), *type);
  Value* position = read(i.operand(2), kU32);
  write(i.operand(0), extract_bits(b_, x, position, read(i.operand(3), kU32), type->is_signed()), type->is_signed());
  return true;
}

bool Translator::emit_bfi(Instruction& i) {
  std::optional<Type> type = take_type(i);
  if (!type || type->is_float() || i.count() != 5) return false;
  Value* x = read(i.operand(1), *type);
  Value* into = read(i.operand(2), *type);
  Value* position = read(i.operand(3), kU32);
  write(i.operand(0), insert_bits(b_, x, into, position, read(i.operand(4), kU32)));
  return true;
}

bool Translator::emit_bfind(Instruction& i) {
  std::optional<Type> type = take_type(i);
  if (!type || !type->is_integer() || i.count() != 2) return false;
  bool shift_amount = i.mods.take("shiftamt");
  write(i.operand(0), find_leading(b_, read(i.operand(1), *type), type->is_signed(), shift_amount));
  return true;
}

bool Translator::emit_bit_count(Instruction& i) {
  std::optional<Type> type = take_type(i);
  if (!type || type->kind != Type::Kind::kBits || i.count() != 2) return false;
  Value* x = read(i.operand(1), *type);
  const std::string& opcode = i.statement.opcode;
  if (opcode == "brev") {
    write(i.operand(0), b_.CreateUnaryIntrinsic(Intrinsic::bitreverse, x));
    return true;
  }
  Value* count = opcode == "popc" ? b_.CreateUnaryIntrinsic(Intrinsic::ctpop, x)
                                  : b_.CreateBinaryIntrinsic(Intrinsic::ctlz, x, b_.getFalse());
  write(i.operand(0), b_.CreateTrunc(count, b_.getInt32Ty()));
  return true;
}

bool Translator::emit_prmt(Instruction& i) {
  if (!i.mods.take("b32") || i.count() != 4) return false;
  StringRef name = i.mods.take_any({"f4e", "b4e", "rc8", "ecl", "ecr", "rc16"});
  PermuteMode mode = name == "f4e"    ? PermuteMode::kForward4
                     : name == "b4e"  ? PermuteMode::kBackward4
                     : name == "rc8"  ? PermuteMode::kReplicate8
                     : name == "ecl"  ? PermuteMode::kEdgeLeft
                     : name == "ecr"  ? PermuteMode::kEdgeRight
                     : name == "rc16" ? PermuteMode::kReplicate16
                                      : PermuteMode::kGeneric;
  Value* x = read(i.operand(1), kU32);
  Value* y = read(i.operand(2), kU32);
  write(i.operand(0), byte_permute(b_, x, y, read(i.operand(3), kU32), mode));
  return true;
}

bool Translator::emit_fns(Instruction& i) {
  if (!i.mods.take("b32") || i.count() != 4) return false;
  Value* mask = read(i.operand(1), kU32);
  Value* base = read(i.operand(2), kU32);
  write(i.operand(0), find_nth_set(b_, mask, base, read(i.operand(3), kU32)));
  return true;
}

bool Translator::emit_bmsk(Instruction& i) {
  StringRef mode = i.mods.take_any({"clamp", "wrap"});
  if (!i.mods.take("b32") || mode.empty() || i.count() != 3) return false;
  Value* position = read(i.operand(1), kU32);
  write(i.operand(0), bit_mask(b_, position, read(i.operand(2), kU32), mode == "clamp"));
  return true;
}

bool Translator::emit_szext(Instruction& i) {
  StringRef mode = i.mods.take_any({"clamp", "wrap"});
  std::optional<Type> type = take_type(i);
  if (!type || type->bits != 32 || !type->is_integer() || mode.empty() || i.count() != 3) return false;
  Value* x = read(i.operand(1), *type);
  write(i.operand(0), extend_bits(b_, x, read(i.operand(2), kU32), type->is_signed(), mode == "clamp"));
  return true;
}

bool Translator::emit_dot_product(Instruction& i) {
  bool four = i.statement.opcode == "dp4a";
  std::optional<Type> y_type = take_type(i);
  std::optional<Type> x_type = take_type(i);
  if (!x_type || !y_type || x_type->bits != 32 || y_type->bits != 32 || i.count() != 4) return false;
  Value* x = read(i.operand(1), *x_type);
  Value* y = read(i.operand(2), *y_type);
  Value* z = read(i.operand(3), kU32);
  if (four) {
    write(i.operand(0), dot_product_4(b_, x, y, z, x_type->is_signed(), y_type->is_signed()));
    return true;
  }
  StringRef half = i.mods.take_any({"lo", "hi"});
  if (half.empty()) return false;
  write(i.operand(0), dot_product_2(b_, x, y, z, x_type->is_signed(), y_type->is_signed(), half == "hi"));
  return true;
}

bool Translator::emit_mov(Instruction& i) {
  std::optional<Type> type = take_type(i);
  if (!type || type->lanes != 1 || i.count() != 2) return false;
  const Operand& to = i.operand(0);
  const Operand& from = i.operand(1);
  if (from.kind == Operand::Kind::kVector) {  // pack, the first part lowest
    unsigned bits = type->width() / static_cast<unsigned>(from.parts.size());
    Value* packed = b_.getIntN(type->width(), 0);
    for (size_t part = 0; part < from.parts.size(); ++part) {
      Value* value = b_.CreateZExt(read(from.parts[part], bits_type(bits)), packed->getType());
      packed = b_.CreateOr(packed, b_.CreateShl(value, bits * part));
    }
    write(to, packed);
    return type->width() % from.parts.size() == 0;
  }
  if (to.kind == Operand::Kind::kVector) {
    unsigned bits = type->width() / static_cast<unsigned>(to.parts.size());
    Value* packed = read(from, bits_type(type->width()));
    for (size_t part = 0; part < to.parts.size(); ++part) {
      write(to.parts[part], b_.CreateTrunc(b_.CreateLShr(packed, bits * part), b_.getIntNTy(bits)));
    }
    return type->width() % to.parts.size() == 0;
  }
  write(to, read(from, *type));
  return true;
}

bool Translator::emit_selp(Instruction& i) {
  std::optional<Type> type = take_type(i);
  if (!type || i.count() != 4) return false;
  Value* x = read(i.operand(1), *type);
  Value* y = read(i.operand(2), *type);
  write(i.operand(0), b_.CreateSelect(read(i.operand(3), kPredicate), x, y));
  return true;
}

// slct: the first source when the third is >= 0, else the second.
bool Translator::emit_slct(Instruction& i) {
  std::optional<Type> selector = take_type(i);
  std::optional<Type> type = take_type(i);
  if (!type || !selector || i.count() != 4) return false;
  Value* x = read(i.operand(1), *type);
  Value* y = read(i.operand(2), *type);
  Value* by = read(i.operand(3), *selector);
  Value* condition = nullptr;
  if (selector->is_float()) {
    if (i.mods.take("ftz")) by = flush_subnormals(b_, by);
    condition = b_.CreateFCmpOGE(by, ConstantFP::get(by->getType(), 0.0));
  } else {
    condition = b_.CreateICmpSGE(by, constant_like(by, 0));
  }
  write(i.operand(0), b_.CreateSelect(condition, x, y));
  return true;
}

Value* Translator::compare(StringRef op, const Type& type, Value* x, Value* y) {
  struct Comparison {
    StringRef name;
    CmpInst::Predicate real, is_signed, is_unsigned;
  };
  constexpr CmpInst::Predicate kNone = CmpInst::BAD_ICMP_PREDICATE;
  static constexpr Comparison kComparisons[] = {
      {"eq", CmpInst::FCMP_OEQ, CmpInst::ICMP_EQ, CmpInst::ICMP_EQ},
      {"ne", CmpInst::FCMP_ONE, CmpInst::ICMP_NE, CmpInst::ICMP_NE},
      {"lt", CmpInst::FCMP_OLT, CmpInst::ICMP_SLT, CmpInst::ICMP_ULT},
      {"le", CmpInst::FCMP_OLE, CmpInst::ICMP_SLE, CmpInst::ICMP_ULE},
      {"gt", CmpInst::FCMP_OGT, CmpInst::ICMP_SGT, CmpInst::ICMP_UGT},
      {"ge", CmpInst::FCMP_OGE, CmpInst::ICMP_SGE, CmpInst::ICMP_UGE},
      {"lo", kNone, kNone, CmpInst::ICMP_ULT},
      {"ls", kNone, kNone, CmpInst::ICMP_ULE},
      {"hi", kNone, kNone, CmpInst::ICMP_UGT},
      {"hs", kNone, kNone, CmpInst::ICMP_UGE},
      {"equ", CmpInst::FCMP_UEQ, kNone, kNone},
      {"neu", CmpInst::FCMP_UNE, kNone, kNone},
      {"ltu", CmpInst::FCMP_ULT, kNone, kNone},
      {"leu", CmpInst::FCMP_ULE, kNone, kNone},
      {"gtu", CmpInst::FCMP_UGT, kNone, kNone},
      {"geu", CmpInst::FCMP_UGE, kNone, kNone},
      {"num", CmpInst::FCMP_ORD, kNone, kNone},
      {"nan", CmpInst::FCMP_UNO, kNone, kNone},
  };
  for (const Comparison& comparison : kComparisons) {
    if (comparison.name != op) continue;
    CmpInst::Predicate predicate = type.is_float()    ? comparison.real
                                   : type.is_signed() ? comparison.is_signed
                                                      : comparison.is_unsigned;
    if (predicate == kNone) return fail(kPredicate);
    return b_.CreateCmp(predicate, x, y);
  }
  return fail(kPredicate);
}

// setp.CMP{.BOOL}{.ftz}.type p{|q}, a, b{, c}: p = (a CMP b) BOOL c, q = !(a CMP b) BOOL c; of a pair of halves, p is
// the low one's and q the high one's.
bool Translator::emit_setp(Instruction& i) {
  std::optional<Type> type = take_type(i);
  if (!type || i.count() < 3 || i.count() > 4) return false;
  StringRef op = i.mods.take_front();
  bool flush = i.mods.take("ftz");
  StringRef boolean = i.mods.take_any({"and", "or", "xor"});
  if ((i.count() == 4) != !boolean.empty()) return false;
  Value* x = read(i.operand(1), *type);
  Value* y = read(i.operand(2), *type);
  if (flush) {
    x = flush_subnormals(b_, x);
    y = flush_subnormals(b_, y);
  }
  Value* result = compare(op, *type, x, y);
  if (!ok_) return false;
  Value* first = type->lanes == 2 ? b_.CreateExtractElement(result, uint64_t{0}) : result;
  Value* second = type->lanes == 2 ? b_.CreateExtractElement(result, uint64_t{1}) : b_.CreateNot(result);
  if (!boolean.empty()) {
    Value* other = read(i.operand(3), kPredicate);
    auto op_kind = boolean == "and"  ? llvm::Instruction::And
                   : boolean == "or" ? llvm::Instruction::Or
                                     : llvm::Instruction::Xor;
    first = b_.CreateBinOp(op_kind, first, other);
    second = b_.CreateBinOp(op_kind, second, other);
  }
  const Operand& to = i.operand(0);
  if (to.kind == Operand::Kind::kPair) {
    write(to.parts[0], first);
    write(to.parts[1], second);
  } else {
    if (type->lanes == 2) return false;
    write(to, first);
  }
  return true;
}

// set.CMP{.BOOL}{.ftz}.dtype.stype d, a, b{, c}: 1.0 for a floating point result, else all ones.
bool Translator::emit_set(Instruction& i) {
  std::optional<Type> from = take_type(i);
  std::optional<Type> to = take_type(i);
  if (!from || !to || i.count() < 3 || i.count() > 4) return false;
  StringRef op = i.mods.take_front();
  bool flush = i.mods.take("ftz");
  StringRef boolean = i.mods.take_any({"and", "or", "xor"});
  if ((i.count() == 4) != !boolean.empty()) return false;
  Value* x = read(i.operand(1), *from);
  Value* y = read(i.operand(2), *from);
  if (flush) {
    x = flush_subnormals(b_, x);
    y = flush_subnormals(b_, y);
  }
  Value* result = compare(op, *from, x, y);
  if (!ok_) return false;
  if (!boolean.empty()) {
    Value* other = read(i.operand(3), kPredicate);
    if (from->lanes == 2) other = b_.CreateVectorSplat(2, other);
    auto op_kind = boolean == "and"  ? llvm::Instruction::And
                   : boolean == "or" ? llvm::Instruction::Or
                                     : llvm::Instruction::Xor;
    result = b_.CreateBinOp(op_kind, result, other);
  }
  if (to->is_float()) {
    if (to->lanes != from->lanes) return false;
    llvm::Type* type = to->ir(b_.getContext());
    write(i.operand(0), b_.CreateSelect(result, ConstantFP::get(type, 1.0), ConstantFP::get(type, 0.0)));
  } else {
    // A mask a lane: of a pair of halves, 16 bits each.
    if (from->lanes == 2 && to->width() != 32) return false;
    llvm::Type* mask = from->lanes == 2 ? FixedVectorType::get(b_.getInt16Ty(), 2) : to->ir(b_.getContext());
    write(i.operand(0), b_.CreateSExt(result, mask));
  }
  return true;
}

// vadd4 and its kin: op.dtype.atype.btype{.sat|.add} d, a, b, c on four bytes or two halfwords. With .add, d = c + the
// sum of the lanes; else c gives the lanes that are not written, and all are.
bool Translator::emit_simd_video(Instruction& i) {
  StringRef opcode = i.statement.opcode;
  unsigned lanes = opcode.back() == '4' ? 4 : 2;
  unsigned bits = 32 / lanes;
  StringRef op = opcode.drop_back();
  StringRef comparison;
  if (op == "vset") comparison = i.mods.take_any({"eq", "ne", "lt", "le", "gt", "ge"});
  bool accumulate = i.mods.take("add");
  bool saturating = i.mods.take("sat");
  std::optional<Type> y_type = take_type(i);
  std::optional<Type> x_type = take_type(i);
  // vset has two types only in the PTX ISA; compilers write three for all.
  std::optional<Type> type = i.mods.empty() ? x_type : take_type(i);
  if (!type || !x_type || !y_type || i.count() != 4 || (op == "vset") != !comparison.empty()) return false;
  for (const Type* t : {&*type, &*x_type, &*y_type}) {
    if (t->width() != 32 || !t->is_integer()) return false;
  }
  Value* x = read(i.operand(1), kU32);
  Value* y = read(i.operand(2), kU32);
  Value* result = accumulate ? read(i.operand(3), kU32) : b_.getInt32(0);
  auto lane_of = [&](Value* from, unsigned lane, bool is_signed) {
    Value* part = b_.CreateTrunc(b_.CreateLShr(from, bits * lane), b_.getIntNTy(bits));
    return is_signed ? b_.CreateSExt(part, b_.getInt32Ty()) : b_.CreateZExt(part, b_.getInt32Ty());
  };
  bool either_signed = x_type->is_signed() || y_type->is_signed();
  for (unsigned lane = 0; lane < lanes; ++lane) {
    Value* p = lane_of(x, lane, x_type->is_signed());
    Value* q = lane_of(y, lane, y_type->is_signed());
    Value* value = nullptr;  // fits 32 bits with its sign, whatever the operands' signs
    if (op == "vadd") {
      value = b_.CreateAdd(p, q);
    } else if (op == "vsub") {
      value = b_.CreateSub(p, q);
    } else if (op == "vabsdiff") {
      value = absolute_difference(b_, p, q, true);
    } else if (op == "vmin" || op == "vmax") {
      value = min_max(b_, p, q, true, op == "vmax");
    } else if (op == "vavrg") {
      // Rounded away from zero.
      Value* sum = b_.CreateAdd(p, q);
      Value* up =
          either_signed ? b_.CreateZExt(b_.CreateICmpSGE(sum, b_.getInt32(0)), b_.getInt32Ty()) : b_.getInt32(1);
      value = b_.CreateAShr(b_.CreateAdd(sum, up), 1);
    } else {
      value = b_.CreateZExt(compare(comparison, {Type::Kind::kSigned, 32, 1}, p, q), b_.getInt32Ty());
    }
    if (saturating) {
      int64_t low = type->is_signed() ? -(int64_t{1} << (bits - 1)) : 0;
      int64_t high = type->is_signed() ? (int64_t{1} << (bits - 1)) - 1 : (int64_t{1} << bits) - 1;
      value = min_max(b_, value, b_.getInt32(static_cast<uint32_t>(low)), true, true);
      value = min_max(b_, value, b_.getInt32(static_cast<uint32_t>(high)), true, false);
    }
    if (accumulate) {
      result = b_.CreateAdd(result, value);
    } else {
      Value* part = b_.CreateAnd(value, (uint64_t{1} << bits) - 1);
      result = b_.CreateOr(result, b_.CreateShl(part, bits * lane));
    }
  }
  write(i.operand(0), result);
  return true;
}

}  // namespace r3::ptx
