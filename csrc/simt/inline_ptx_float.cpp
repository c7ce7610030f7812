// Floating point arithmetic and conversions.
#include <llvm/IR/Constants.h>
#include <llvm/IR/Intrinsics.h>

#include "simt/inline_ptx_translate.h"

using namespace llvm;

namespace r3::ptx {
namespace {

Value* pair_of(Builder& b, Value* low, Value* high) {
  Value* pair = PoisonValue::get(FixedVectorType::get(low->getType(), 2));
  return b.CreateInsertElement(b.CreateInsertElement(pair, low, uint64_t{0}), high, uint64_t{1});
}

}  // namespace

bool Translator::emit_float_arithmetic(Instruction& i, FloatOp op, const Type& type) {
  FloatMode mode = take_float_mode(i);
  Value* x = read(i.operand(1), type);
  write(i.operand(0), float_arithmetic(b_, op, x, read(i.operand(2), type), mode));
  return true;
}

bool Translator::emit_fma(Instruction& i) {
  std::optional<Type> type = take_type(i);
  if (!type || !type->is_float() || i.count() != 4) return false;
  FloatMode mode = take_float_mode(i);
  Value* x = read(i.operand(1), *type);
  Value* y = read(i.operand(2), *type);
  write(i.operand(0), float_fma(b_, x, y, read(i.operand(3), *type), mode));
  return true;
}

bool Translator::emit_float_div(Instruction& i, const Type& type) {
  bool approximate = i.mods.take("approx");
  i.mods.take("full");  // a correctly rounded quotient is within its 2 ulp
  FloatMode mode = take_float_mode(i);
  Value* x = read(i.operand(1), type);
  Value* y = read(i.operand(2), type);
  write(i.operand(0),
        approximate ? float_divide_approx(b_, x, y, mode.flush) : float_arithmetic(b_, FloatOp::kDiv, x, y, mode));
  return true;
}

bool Translator::emit_float_min_max(Instruction& i, bool is_max, const Type& type) {
  bool flush = i.mods.take("ftz");
  bool nan = i.mods.take("NaN");
  bool xorsign = i.mods.take("xorsign");
  bool magnitudes = i.mods.take("abs");
  if (i.count() > 4 || xorsign != magnitudes || (xorsign && i.count() == 4)) return false;
  Value* result = read(i.operand(1), type);
  for (size_t source = 2; source < i.count(); ++source) {
    result = float_min_max(b_, is_max, result, read(i.operand(source), type), flush, nan, xorsign);
  }
  write(i.operand(0), result);
  return true;
}

bool Translator::emit_approximation(Instruction& i) {
  static const StringMap<Approximation> functions = {
      {"rcp", Approximation::kRcp}, {"sqrt", Approximation::kSqrt}, {"rsqrt", Approximation::kRsqrt},
      {"ex2", Approximation::kEx2}, {"lg2", Approximation::kLg2},   {"sin", Approximation::kSin},
      {"cos", Approximation::kCos}, {"tanh", Approximation::kTanh},
  };
  Approximation function = functions.at(i.statement.opcode);
  std::optional<Type> type = take_type(i);
  if (!type || !type->is_float() || i.count() != 2) return false;
  bool approximate = i.mods.take("approx");
  FloatMode mode = take_float_mode(i);
  Value* x = read(i.operand(1), *type);
  bool exact_form = function == Approximation::kSqrt || function == Approximation::kRcp;
  if (!approximate && !exact_form) return false;
  bool elementary = !exact_form && function != Approximation::kRsqrt;
  if (elementary && type->bits == 64) return false;
  Value* result = nullptr;
  if (approximate) {
    result = float_approximation(b_, function, x, mode.flush);
    if (mode.flush && type->bits == 64) {  // the gross approximations leave the low word 0
      Value* bits = b_.CreateBitCast(canonical_nan(b_, result), b_.getInt64Ty());
      result = b_.CreateAnd(bits, uint64_t{0xffffffff00000000});
    }
  } else if (function == Approximation::kSqrt) {
    result = float_sqrt(b_, x, mode);
  } else {
    result = float_arithmetic(b_, FloatOp::kDiv, ConstantFP::get(x->getType(), 1.0), x, mode);
  }
  write(i.operand(0), result);
  return true;
}

// copysign d, a, b: the magnitude of b with the sign of a.
bool Translator::emit_copysign(Instruction& i) {
  std::optional<Type> type = take_type(i);
  if (!type || !type->is_float() || i.count() != 3) return false;
  Value* sign = read(i.operand(1), *type);
  write(i.operand(0), b_.CreateBinaryIntrinsic(Intrinsic::copysign, read(i.operand(2), *type), sign));
  return true;
}

bool Translator::emit_testp(Instruction& i) {
  std::optional<Type> type = take_type(i);
  if (!type || !type->is_float() || i.count() != 2) return false;
  StringRef test = i.mods.take_front();
  FPClassTest classes = test == "finite"       ? fcFinite
                        : test == "infinite"   ? fcInf
                        : test == "number"     ? ~fcNan
                        : test == "notanumber" ? fcNan
                        : test == "normal"     ? fcNormal | fcZero
                        : test == "subnormal"  ? fcSubnormal
                                               : fcNone;
  if (classes == fcNone) return false;
  Value* x = read(i.operand(1), *type);
  write(i.operand(0), b_.CreateIntrinsic(Intrinsic::is_fpclass, {x->getType()}, {x, b_.getInt32(classes)}));
  return true;
}

bool Translator::convert_integer(Instruction& i, const Type& to, const Type& from, bool saturating) {
  Value* x = read(i.operand(1), from);
  if (saturating) {
    // Clamped in 128 bits, which hold every value of either type.
    llvm::Type* wide = b_.getIntNTy(128);
    x = from.is_signed() ? b_.CreateSExt(x, wide) : b_.CreateZExt(x, wide);
    APInt low = to.is_signed() ? APInt::getSignedMinValue(to.bits).sext(128) : APInt(128, 0);
    APInt high = to.is_signed() ? APInt::getSignedMaxValue(to.bits).zext(128) : APInt::getMaxValue(to.bits).zext(128);
    x = b_.CreateBinaryIntrinsic(Intrinsic::smax, x, ConstantInt::get(wide, low));
    x = b_.CreateBinaryIntrinsic(Intrinsic::smin, x, ConstantInt::get(wide, high));
  }
  llvm::Type* type = to.ir(b_.getContext());
  x = from.is_signed() ? b_.CreateSExtOrTrunc(x, type) : b_.CreateZExtOrTrunc(x, type);
  write(i.operand(0), x, to.is_signed());
  return true;
}

// To and from pairs of small formats: two sources (the first becomes the upper half), or one that is a pair itself.
bool Translator::convert_packed(Instruction& i, const FloatMode& mode, bool finite, StringRef to, StringRef from) {
  if (std::optional<FloatFormat> source = packed_format(from)) {
    std::optional<Type> type = type_named(to);
    if (!type || !type->is_float() || type->bits != 16 || type->lanes != 2 || i.count() != 2) return false;
    unsigned width = packed_width(*source);
    Value* bits = b_.CreateZExt(read(i.operand(1), bits_type(2 * width)), b_.getInt32Ty());
    Value* lanes[2];
    for (unsigned lane = 0; lane < 2; ++lane) {
      Value* part = b_.CreateAnd(b_.CreateLShr(bits, width * lane), (1u << width) - 1);
      lanes[lane] =
          float_to_float(b_, format_to_float(b_, part, *source), type->lane().ir(b_.getContext()), Rounding::kNearest);
    }
    Value* result = pair_of(b_, lanes[0], lanes[1]);
    write(i.operand(0), mode.relu ? apply_relu(b_, result) : result);
    return true;
  }
  std::optional<Type> source = type_named(from);
  if (!source || !source->is_float()) return false;
  Value* pair = nullptr;
  if (i.count() == 3 && source->lanes == 1) {
    Value* high = read(i.operand(1), *source);
    pair = pair_of(b_, read(i.operand(2), *source), high);
  } else if (i.count() == 2 && source->lanes == 2) {
    pair = read(i.operand(1), *source);
  } else {
    return false;
  }
  if (mode.relu) {
    Value* zero = ConstantFP::get(pair->getType(), 0.0);
    pair = b_.CreateSelect(b_.CreateFCmpUGT(pair, zero), pair, zero);
  }
  if (std::optional<FloatFormat> format = packed_format(to)) {
    if (!finite && *format != FloatFormat::kUe8m0) return false;
    Value* packed = b_.getInt32(0);
    unsigned width = packed_width(*format);
    for (unsigned lane = 0; lane < 2; ++lane) {
      Value* bits = float_to_format(b_, b_.CreateExtractElement(pair, lane), *format, mode.rounding, finite);
      packed = b_.CreateOr(packed, b_.CreateShl(bits, width * lane));
    }
    write(i.operand(0), b_.CreateTrunc(packed, b_.getIntNTy(2 * width)));
    return true;
  }
  std::optional<Type> type = type_named(to);
  if (!type || !type->is_float() || type->bits != 16 || type->lanes != 2) return false;
  write(i.operand(0), float_to_float(b_, pair, type->ir(b_.getContext()), mode.rounding, finite));
  return true;
}

bool Translator::emit_cvt(Instruction& i) {
  StringRef from_name = i.mods.back();
  i.mods.take_back();
  StringRef to_name = i.mods.back();
  if (to_name.empty()) return false;
  i.mods.take_back();
  StringRef integral = i.mods.take_any({"rni", "rzi", "rmi", "rpi"});
  FloatMode mode = take_float_mode(i);
  bool finite = i.mods.take("satfinite");
  if (i.count() < 2) return false;

  if (to_name == "tf32") {
    if (from_name != "f32" || i.count() != 2) return false;
    Value* x = read(i.operand(1), {Type::Kind::kFloat, 32, 1});
    if (mode.relu)
      x = b_.CreateSelect(b_.CreateFCmpUGT(x, ConstantFP::get(x->getType(), 0.0)), x,
                          ConstantFP::get(x->getType(), 0.0));
    write(i.operand(0), float_to_tf32(b_, x, mode.rounding, finite));
    return true;
  }
  std::optional<Type> to = type_named(to_name);
  std::optional<Type> from = type_named(from_name);
  if (packed_format(to_name) || packed_format(from_name) || (to && to->lanes == 2)) {
    if (!integral.empty() || mode.flush || mode.saturate) return false;
    return convert_packed(i, mode, finite, to_name, from_name);
  }
  if (!to || !from || from->lanes != 1 || i.count() != 2) return false;
  bool numbers = (to->is_float() || to->is_integer()) && (from->is_float() || from->is_integer());
  if (!numbers) return false;
  Rounding to_integral = integral == "rni"   ? Rounding::kNearest
                         : integral == "rmi" ? Rounding::kDown
                         : integral == "rpi" ? Rounding::kUp
                                             : Rounding::kTowardZero;
  if (!to->is_float() && !from->is_float()) return convert_integer(i, *to, *from, mode.saturate);

  Value* x = read(i.operand(1), *from);
  llvm::Type* type = to->ir(b_.getContext());
  if (from->is_float() && mode.flush && from->bits == 32) x = flush_subnormals(b_, x);
  if (!to->is_float()) {  // a result out of range saturates, with .sat or without
    if (integral.empty()) return false;
    write(i.operand(0), float_to_integer(b_, x, cast<IntegerType>(type), to->is_signed(), to_integral),
          to->is_signed());
    return true;
  }
  if (from->is_float()) {
    if (!integral.empty()) {
      if (to->kind != from->kind || to->bits != from->bits) return false;
      x = float_to_integral(b_, x, to_integral);
    }
    Value* exact = x;
    x = float_to_float(b_, x, type, mode.rounding, finite);
    if (mode.flush && to->bits == 32) x = flush_tiny(b_, x, exact);
  } else {
    x = integer_to_float(b_, x, from->is_signed(), type, mode.rounding);
  }
  if (mode.saturate) x = saturate(b_, x);
  if (mode.relu) x = apply_relu(b_, x);
  write(i.operand(0), x);
  return true;
}

}  // namespace r3::ptx
