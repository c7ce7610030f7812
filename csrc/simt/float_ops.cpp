#include "simt/float_ops.h"

#include <llvm/ADT/APFloat.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/Module.h>
#include <llvm/Support/ModRef.h>

#include <cmath>

using namespace llvm;

namespace r3 {
namespace {

Type* integer_like(Type* type) {
  Type* bits = IntegerType::get(type->getContext(), type->getScalarSizeInBits());
  if (auto* vector = dyn_cast<FixedVectorType>(type)) return FixedVectorType::get(bits, vector->getNumElements());
  return bits;
}

uint64_t exponent_mask(Type* scalar) {
  if (scalar->isHalfTy()) return 0x7c00;
  if (scalar->isBFloatTy()) return 0x7f80;
  if (scalar->isFloatTy()) return 0x7f800000;
  return 0x7ff0000000000000;
}

uint64_t canonical_nan_bits(Type* scalar) {
  if (scalar->isHalfTy() || scalar->isBFloatTy()) return 0x7fff;
  if (scalar->isFloatTy()) return 0x7fffffff;
  return 0x7fffffffffffffff;
}

const char* suffix(Rounding rounding) {
  switch (rounding) {
    case Rounding::kTowardZero:
      return "_rz";
    case Rounding::kDown:
      return "_rm";
    case Rounding::kUp:
      return "_rp";
    default:
      return "";
  }
}

const char* type_name(Type* type) { return type->isDoubleTy() ? "_f64" : "_f32"; }

bool is_small(Type* type) { return type->getScalarType()->isHalfTy() || type->getScalarType()->isBFloatTy(); }

FloatFormat format_of(Type* type) {
  return type->isHalfTy() ? FloatFormat::kF16 : type->isBFloatTy() ? FloatFormat::kBf16 : FloatFormat::kF32;
}

Value* in_double(Builder& b, Value* x) {
  Type* type = b.getDoubleTy();
  if (auto* vector = dyn_cast<FixedVectorType>(x->getType()))
    type = FixedVectorType::get(type, vector->getNumElements());
  return x->getType() == type ? x : b.CreateFPExt(x, type);
}

// `exact` is the result before it was rounded to its format, or close enough to tell which side of a limit it lies on;
// null where no rounding happens near the subnormals.
Value* finish(Builder& b, Value* result, Value* exact, const FloatMode& mode) {
  if (mode.flush && exact == nullptr) result = flush_subnormals(b, result);
  if (mode.flush && exact != nullptr) result = flush_tiny(b, result, exact);
  if (mode.saturate) result = saturate(b, result);
  if (mode.relu) result = apply_relu(b, result);
  return result;
}

Value* to_format_bits(Builder& b, Value* x, FloatFormat format, Rounding rounding, bool finite) {
  if (!x->getType()->isDoubleTy()) x = b.CreateFPExt(x, b.getDoubleTy());
  return call_runtime(
      b, "r3m_narrow", b.getInt32Ty(),
      {x, b.getInt32(static_cast<uint32_t>(format)), b.getInt32(static_cast<uint32_t>(rounding)), b.getInt32(finite)});
}

Value* from_bits(Builder& b, Value* bits, Type* type) {
  return b.CreateBitCast(b.CreateTrunc(bits, b.getIntNTy(type->getScalarSizeInBits())), type);
}

Value* is_nan(Builder& b, Value* x) { return b.CreateFCmpUNO(x, x); }

}  // namespace

Value* call_runtime(Builder& b, const Twine& name, Type* result, ArrayRef<Value*> arguments) {
  SmallVector<Type*> types;
  for (Value* argument : arguments) types.push_back(argument->getType());
  Module* module = b.GetInsertBlock()->getModule();
  FunctionCallee callee = module->getOrInsertFunction(name.str(), FunctionType::get(result, types, false));
  auto* function = cast<Function>(callee.getCallee());
  function->setDoesNotThrow();
  function->setWillReturn();
  function->setMemoryEffects(MemoryEffects::none());
  return b.CreateCall(callee, arguments);
}

Value* per_lane(Builder& b, ArrayRef<Value*> arguments, function_ref<Value*(ArrayRef<Value*>)> operation) {
  auto* vector = dyn_cast<FixedVectorType>(arguments[0]->getType());
  if (vector == nullptr) return operation(arguments);
  Value* result = nullptr;
  for (unsigned lane = 0; lane < vector->getNumElements(); ++lane) {
    SmallVector<Value*> scalars;
    for (Value* argument : arguments) scalars.push_back(b.CreateExtractElement(argument, lane));
    Value* value = operation(scalars);
    if (result == nullptr) result = PoisonValue::get(FixedVectorType::get(value->getType(), vector->getNumElements()));
    result = b.CreateInsertElement(result, value, lane);
  }
  return result;
}

Value* flush_subnormals(Builder& b, Value* value) {
  Type* type = value->getType();
  Type* bits_type = integer_like(type);
  Value* bits = b.CreateBitCast(value, bits_type);
  uint64_t sign = uint64_t{1} << (type->getScalarSizeInBits() - 1);
  Value* exponent = b.CreateAnd(bits, ConstantInt::get(bits_type, exponent_mask(type->getScalarType())));
  Value* zero = b.CreateAnd(bits, ConstantInt::get(bits_type, sign));
  Value* tiny = b.CreateICmpEQ(exponent, ConstantInt::get(bits_type, 0));
  return b.CreateBitCast(b.CreateSelect(tiny, zero, bits), type);
}

Value* flush_tiny(Builder& b, Value* result, Value* exact) {
  exact = in_double(b, exact);
  const fltSemantics& format = result->getType()->getScalarType()->getFltSemantics();
  double limit = std::ldexp(1.0, APFloat::semanticsMinExponent(format));
  Value* tiny =
      b.CreateFCmpOLT(b.CreateUnaryIntrinsic(Intrinsic::fabs, exact), ConstantFP::get(exact->getType(), limit));
  Value* zero = b.CreateBinaryIntrinsic(Intrinsic::copysign, ConstantFP::get(result->getType(), 0.0), result);
  return b.CreateSelect(tiny, zero, result);
}

Value* saturate(Builder& b, Value* value) {
  Type* type = value->getType();
  Value* zero = ConstantFP::get(type, 0.0);
  Value* one = ConstantFP::get(type, 1.0);
  Value* capped = b.CreateSelect(b.CreateFCmpOLT(value, one), value, one);
  return b.CreateSelect(b.CreateFCmpOGT(value, zero), capped, zero);
}

Value* canonical_nan(Builder& b, Value* value) {
  Type* type = value->getType();
  Constant* nan = ConstantInt::get(integer_like(type), canonical_nan_bits(type->getScalarType()));
  return b.CreateSelect(is_nan(b, value), ConstantExpr::getBitCast(nan, type), value);
}

Value* apply_relu(Builder& b, Value* value) {
  Value* zero = ConstantFP::get(value->getType(), 0.0);
  return canonical_nan(b, b.CreateSelect(b.CreateFCmpUGT(value, zero), value, zero));
}

Value* float_arithmetic(Builder& b, FloatOp op, Value* x, Value* y, const FloatMode& mode) {
  if (mode.flush) {
    x = flush_subnormals(b, x);
    y = flush_subnormals(b, y);
  }
  Value* result = nullptr;
  Value* exact = nullptr;  // sums that are subnormal are exact themselves
  if (mode.flush && op == FloatOp::kMul) exact = b.CreateFMul(in_double(b, x), in_double(b, y));
  if (mode.flush && op == FloatOp::kDiv) exact = b.CreateFDiv(in_double(b, x), in_double(b, y));
  if (mode.rounding == Rounding::kNearest) {
    // Of 16-bit operands, code generation computes in binary32 and rounds again, which is exact: 24 >= 2 * 11 + 2.
    switch (op) {
      case FloatOp::kAdd:
        result = b.CreateFAdd(x, y);
        break;
      case FloatOp::kSub:
        result = b.CreateFSub(x, y);
        break;
      case FloatOp::kMul:
        result = b.CreateFMul(x, y);
        break;
      case FloatOp::kDiv:
        result = b.CreateFDiv(x, y);
        break;
    }
  } else {
    const char* name = op == FloatOp::kMul ? "mul" : op == FloatOp::kDiv ? "div" : "add";
    if (op == FloatOp::kSub) y = b.CreateFNeg(y);
    result = per_lane(b, {x, y}, [&](ArrayRef<Value*> lane) {
      Type* type = lane[0]->getType();
      return call_runtime(b, Twine("r3m_") + name + type_name(type) + suffix(mode.rounding), type, lane);
    });
  }
  if (is_small(result->getType())) result = canonical_nan(b, result);
  return finish(b, result, exact, mode);
}

Value* float_fma(Builder& b, Value* x, Value* y, Value* z, const FloatMode& mode) {
  if (mode.flush) {
    x = flush_subnormals(b, x);
    y = flush_subnormals(b, y);
    z = flush_subnormals(b, z);
  }
  Value* result = per_lane(b, {x, y, z}, [&](ArrayRef<Value*> lane) -> Value* {
    Type* type = lane[0]->getType();
    if (is_small(type)) {
      SmallVector<Value*> arguments;
      for (Value* value : lane) arguments.push_back(b.CreateFPExt(value, b.getDoubleTy()));
      arguments.push_back(b.getInt32(static_cast<uint32_t>(format_of(type))));
      return from_bits(b, call_runtime(b, "r3m_fma_narrow", b.getInt32Ty(), arguments), type);
    }
    if (mode.rounding == Rounding::kNearest) return b.CreateIntrinsic(Intrinsic::fma, {type}, lane);
    return call_runtime(b, Twine("r3m_fma") + type_name(type) + suffix(mode.rounding), type, lane);
  });
  Value* exact = nullptr;
  if (mode.flush) {
    exact = b.CreateIntrinsic(Intrinsic::fma, {in_double(b, x)->getType()},
                              {in_double(b, x), in_double(b, y), in_double(b, z)});
  }
  return finish(b, result, exact, mode);
}

Value* float_sqrt(Builder& b, Value* x, const FloatMode& mode) {
  if (mode.flush) x = flush_subnormals(b, x);
  Type* type = x->getType();
  Value* result = mode.rounding == Rounding::kNearest
                      ? b.CreateUnaryIntrinsic(Intrinsic::sqrt, x)
                      : call_runtime(b, Twine("r3m_sqrt") + type_name(type) + suffix(mode.rounding), type, {x});
  return finish(b, result, nullptr, mode);
}

Value* float_approximation(Builder& b, Approximation function, Value* x, bool flush) {
  if (flush) x = flush_subnormals(b, x);
  Value* result = per_lane(b, {x}, [&](ArrayRef<Value*> lane) -> Value* {
    Type* type = lane[0]->getType();
    Type* computed = is_small(type) ? b.getFloatTy() : type;
    Value* operand = is_small(type) ? b.CreateFPExt(lane[0], computed) : lane[0];
    Value* value = nullptr;
    auto call = [&](const char* name) {
      return call_runtime(b, Twine("r3m_") + name + type_name(computed), computed, {operand});
    };
    switch (function) {
      case Approximation::kEx2:
        value = call("ex2");
        break;
      case Approximation::kLg2:
        value = call("lg2");
        break;
      case Approximation::kSin:
        value = call("sin");
        break;
      case Approximation::kCos:
        value = call("cos");
        break;
      case Approximation::kTanh:
        value = call("tanh");
        break;
      case Approximation::kRcp:
        value = b.CreateFDiv(ConstantFP::get(computed, 1.0), operand);
        break;
      case Approximation::kRsqrt:
        value = call("rsqrt");
        break;
      case Approximation::kSqrt:
        value = b.CreateUnaryIntrinsic(Intrinsic::sqrt, operand);
        break;
    }
    return is_small(type) ? float_to_float(b, value, type, Rounding::kNearest) : value;
  });
  return flush ? flush_subnormals(b, result) : result;
}

Value* float_divide_approx(Builder& b, Value* x, Value* y, bool flush) {
  Value* quotient = float_arithmetic(b, FloatOp::kDiv, x, y, {.flush = flush});
  // div.approx returns 0, or NaN for an infinite dividend, where 2^126 < |y| < 2^128.
  Value* magnitude = b.CreateUnaryIntrinsic(Intrinsic::fabs, y);
  Value* infinity = ConstantFP::getInfinity(y->getType());
  Value* huge = b.CreateAnd(b.CreateFCmpOGT(magnitude, ConstantFP::get(y->getType(), 0x1p126)),
                            b.CreateFCmpOLT(magnitude, infinity));
  Value* zero = b.CreateBinaryIntrinsic(Intrinsic::copysign, ConstantFP::get(y->getType(), 0.0), y);
  return b.CreateSelect(huge, b.CreateFMul(x, zero), quotient);
}

Value* float_abs(Builder& b, Value* x) {
  x = b.CreateUnaryIntrinsic(Intrinsic::fabs, x);
  return is_small(x->getType()) ? canonical_nan(b, x) : x;
}

Value* float_negate(Builder& b, Value* x) {
  x = b.CreateFNeg(x);
  return is_small(x->getType()) ? canonical_nan(b, x) : x;
}

Value* float_to_tf32(Builder& b, Value* x, Rounding rounding, bool finite) {
  Value* bits = b.CreateShl(float_to_format(b, x, FloatFormat::kTf32, rounding, finite), 13);
  // NaN as hardware gives it: the low 13 bits are not part of the format.
  Value* nan = rounding == Rounding::kNearestAway ? b.CreateAnd(b.CreateBitCast(x, b.getInt32Ty()), 0xffffe000)
                                                  : static_cast<Value*>(b.getInt32(0x7fffe000));
  return b.CreateSelect(is_nan(b, x), nan, bits);
}

Value* float_min_max(Builder& b, bool is_max, Value* x, Value* y, bool flush, bool nan, bool xorsign) {
  if (flush) {
    x = flush_subnormals(b, x);
    y = flush_subnormals(b, y);
  }
  Type* type = x->getType();
  Type* bits_type = integer_like(type);
  Value* sign = nullptr;
  if (xorsign) {
    Value* both = b.CreateXor(b.CreateBitCast(x, bits_type), b.CreateBitCast(y, bits_type));
    sign = b.CreateAnd(both, ConstantInt::get(bits_type, uint64_t{1} << (type->getScalarSizeInBits() - 1)));
    x = b.CreateUnaryIntrinsic(Intrinsic::fabs, x);
    y = b.CreateUnaryIntrinsic(Intrinsic::fabs, y);
  }
  // Equal operands differ at most in the sign of zero: the minimum has either sign bit, the maximum both.
  Value* x_bits = b.CreateBitCast(x, bits_type);
  Value* y_bits = b.CreateBitCast(y, bits_type);
  Value* equal = b.CreateBitCast(is_max ? b.CreateAnd(x_bits, y_bits) : b.CreateOr(x_bits, y_bits), type);
  Value* first = is_max ? b.CreateFCmpOGT(x, y) : b.CreateFCmpOLT(x, y);
  Value* result = b.CreateSelect(b.CreateFCmpOEQ(x, y), equal, b.CreateSelect(first, x, y));
  Value* x_nan = is_nan(b, x);
  Value* y_nan = is_nan(b, y);
  result = nan ? b.CreateSelect(x_nan, x, b.CreateSelect(y_nan, y, result))
               : b.CreateSelect(x_nan, y, b.CreateSelect(y_nan, x, result));
  if (xorsign) result = b.CreateBitCast(b.CreateOr(b.CreateBitCast(result, bits_type), sign), type);
  return canonical_nan(b, result);
}

Value* float_to_integral(Builder& b, Value* x, Rounding rounding) {
  switch (rounding) {
    case Rounding::kNearest:
      return b.CreateUnaryIntrinsic(Intrinsic::roundeven, x);
    case Rounding::kTowardZero:
      return b.CreateUnaryIntrinsic(Intrinsic::trunc, x);
    case Rounding::kDown:
      return b.CreateUnaryIntrinsic(Intrinsic::floor, x);
    case Rounding::kUp:
      return b.CreateUnaryIntrinsic(Intrinsic::ceil, x);
    case Rounding::kNearestAway:
      return b.CreateUnaryIntrinsic(Intrinsic::round, x);
  }
  llvm_unreachable("a rounding");
}

Value* float_to_integer(Builder& b, Value* x, IntegerType* type, bool is_signed, Rounding rounding) {
  bool zero_for_nan = x->getType()->getScalarSizeInBits() <= 32 && type->getBitWidth() <= 32;
  if (is_small(x->getType())) x = b.CreateFPExt(x, b.getFloatTy());
  Value* integral = float_to_integral(b, x, rounding);
  Value* result =
      b.CreateIntrinsic(is_signed ? Intrinsic::fptosi_sat : Intrinsic::fptoui_sat, {type, x->getType()}, {integral});
  if (zero_for_nan) return result;
  Constant* nan_result = ConstantInt::get(type, APInt::getSignMask(type->getBitWidth()));
  return b.CreateSelect(is_nan(b, x), nan_result, result);
}

Value* integer_to_float(Builder& b, Value* x, bool is_signed, Type* type, Rounding rounding) {
  unsigned bits = x->getType()->getIntegerBitWidth();
  if (is_small(type)) {
    // Through binary64 up to 53 bits, exactly; wider integers overflow half anyway, and for bfloat are rounded to odd
    // first.
    if (bits > 32) {
      Value* nearest = integer_to_float(b, x, is_signed, b.getDoubleTy(), Rounding::kTowardZero);
      Value* back = is_signed ? b.CreateFPToSI(nearest, x->getType()) : b.CreateFPToUI(nearest, x->getType());
      Value* inexact = b.CreateZExt(b.CreateICmpNE(back, x), b.getInt64Ty());
      Value* odd = b.CreateOr(b.CreateBitCast(nearest, b.getInt64Ty()), inexact);
      return float_to_float(b, b.CreateBitCast(odd, b.getDoubleTy()), type, rounding);
    }
    Value* exact = is_signed ? b.CreateSIToFP(x, b.getDoubleTy()) : b.CreateUIToFP(x, b.getDoubleTy());
    return float_to_float(b, exact, type, rounding);
  }
  bool exact = bits < (type->isDoubleTy() ? 53u : 24u);
  if (rounding == Rounding::kNearest || exact) return is_signed ? b.CreateSIToFP(x, type) : b.CreateUIToFP(x, type);
  Value* negative = b.getInt32(0);
  if (is_signed) {
    Value* below = b.CreateICmpSLT(x, ConstantInt::get(x->getType(), 0));
    x = b.CreateSelect(below, b.CreateNeg(x), x);
    negative = b.CreateZExt(below, b.getInt32Ty());
  }
  return call_runtime(b, Twine("r3m_integer_to") + type_name(type), type,
                      {b.CreateZExt(x, b.getInt64Ty()), negative, b.getInt32(static_cast<uint32_t>(rounding))});
}

Value* float_to_float(Builder& b, Value* x, Type* type, Rounding rounding, bool finite) {
  return per_lane(b, {x}, [&](ArrayRef<Value*> lane) -> Value* {
    Value* value = lane[0];
    Type* scalar = type->getScalarType();
    Type* source = value->getType();
    if (source == scalar) return value;
    bool widening = source->getScalarSizeInBits() < scalar->getScalarSizeInBits();
    if (widening) return b.CreateFPExt(value, scalar);
    if (is_small(source)) value = b.CreateFPExt(value, b.getFloatTy());  // between half and bfloat
    if (rounding == Rounding::kNearest && !finite) {
      Value* narrowed = b.CreateFPTrunc(value, scalar);
      return is_small(scalar) ? canonical_nan(b, narrowed) : narrowed;
    }
    return from_bits(b, to_format_bits(b, value, format_of(scalar), rounding, finite), scalar);
  });
}

Value* float_to_format(Builder& b, Value* x, FloatFormat format, Rounding rounding, bool finite) {
  return to_format_bits(b, x, format, rounding, finite);
}

Value* format_to_float(Builder& b, Value* bits, FloatFormat format) {
  return call_runtime(b, "r3m_widen", b.getFloatTy(), {bits, b.getInt32(static_cast<uint32_t>(format))});
}

std::optional<FloatFormat> packed_format(StringRef name) {
  if (name == "e4m3x2") return FloatFormat::kE4m3;
  if (name == "e5m2x2") return FloatFormat::kE5m2;
  if (name == "e2m3x2") return FloatFormat::kE2m3;
  if (name == "e3m2x2") return FloatFormat::kE3m2;
  if (name == "e2m1x2") return FloatFormat::kE2m1;
  if (name == "ue8m0x2") return FloatFormat::kUe8m0;
  return std::nullopt;
}

unsigned packed_width(FloatFormat format) { return format == FloatFormat::kE2m1 ? 4 : 8; }

}  // namespace r3
