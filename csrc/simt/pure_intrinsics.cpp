#include "simt/pure_intrinsics.h"

#include <llvm/ADT/StringMap.h>
#include <llvm/Analysis/ValueTracking.h>
#include <llvm/IR/InstrTypes.h>
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/Module.h>

#include "simt/bit_ops.h"
#include "simt/float_ops.h"
#include "simt/modifiers.h"

using namespace llvm;

namespace r3 {
namespace {

// One call being lowered. `parts` is what follows the operation's name: roundings, flags, type suffixes.
struct Lowering {
  Builder& b;
  CallBase& call;
  Modifiers parts;

  Value* operand(unsigned i) const { return call.getArgOperand(i); }
  Type* type() const { return call.getType(); }

  FloatMode take_mode() {
    FloatMode mode;
    mode.rounding = parts.take_rounding().value_or(Rounding::kNearest);
    mode.flush = parts.take("ftz");
    mode.saturate = parts.take("sat");
    mode.relu = parts.take("relu");
    return mode;
  }
  // Types are known from the operands; their names say nothing new.
  bool only_types_left() {
    while (!parts
                .take_any(
                    {"f", "d", "f16", "f16x2", "bf16", "bf16x2", "f32", "f64", "v2f16", "v2bf16", "i16", "i32", "i64"})
                .empty()) {
    }
    return parts.empty();
  }
};

// Each returns the result, or null when it does not know the variant.
using Lower = Value* (*)(Lowering&);

template <FloatOp op>
Value* lower_arithmetic(Lowering& l) {
  FloatMode mode = l.take_mode();
  return l.only_types_left() ? float_arithmetic(l.b, op, l.operand(0), l.operand(1), mode) : nullptr;
}

Value* lower_div(Lowering& l) {
  bool approximate = l.parts.take("approx");
  bool full = l.parts.take("full");
  FloatMode mode = l.take_mode();
  if (!l.only_types_left()) return nullptr;
  if (approximate) return float_divide_approx(l.b, l.operand(0), l.operand(1), mode.flush);
  (void)full;  // div.full: a correctly rounded quotient is within its 2 ulp
  return float_arithmetic(l.b, FloatOp::kDiv, l.operand(0), l.operand(1), mode);
}

Value* lower_fma(Lowering& l) {
  FloatMode mode = l.take_mode();
  return l.only_types_left() ? float_fma(l.b, l.operand(0), l.operand(1), l.operand(2), mode) : nullptr;
}

// The low word of an approximate binary64 result is 0 in hardware.
Value* clear_low_word(Builder& b, Value* x) {
  Value* bits = b.CreateBitCast(canonical_nan(b, x), b.getInt64Ty());
  return b.CreateBitCast(b.CreateAnd(bits, uint64_t{0xffffffff00000000}), x->getType());
}

template <Approximation function>
Value* lower_approximation(Lowering& l) {
  bool approximate = l.parts.take("approx");
  FloatMode mode = l.take_mode();
  if (!l.only_types_left()) return nullptr;
  Value* x = l.operand(0);
  if (approximate) {
    Value* result = float_approximation(l.b, function, x, mode.flush);
    bool gross = mode.flush && l.type()->isDoubleTy();
    return gross ? clear_low_word(l.b, result) : result;
  }
  if (function == Approximation::kSqrt) return float_sqrt(l.b, x, mode);
  if (function == Approximation::kRcp) {
    return float_arithmetic(l.b, FloatOp::kDiv, ConstantFP::get(x->getType(), 1.0), x, mode);
  }
  return nullptr;
}

template <bool is_max>
Value* lower_min_max(Lowering& l) {
  bool flush = l.parts.take("ftz");
  bool nan = l.parts.take("nan");
  bool xorsign = l.parts.take("xorsign") && l.parts.take("abs");
  if (!l.only_types_left()) return nullptr;
  return float_min_max(l.b, is_max, l.operand(0), l.operand(1), flush, nan, xorsign);
}

template <Rounding rounding>
Value* lower_to_integral(Lowering& l) {
  bool flush = l.parts.take("ftz");
  if (!l.only_types_left()) return nullptr;
  Value* x = flush ? flush_subnormals(l.b, l.operand(0)) : l.operand(0);
  return float_to_integral(l.b, x, rounding);
}

Value* lower_fabs(Lowering& l) {
  bool flush = l.parts.take("ftz");
  if (!l.only_types_left()) return nullptr;
  Value* x = flush ? flush_subnormals(l.b, l.operand(0)) : l.operand(0);
  return float_abs(l.b, x);
}

Value* lower_neg(Lowering& l) { return l.only_types_left() ? float_negate(l.b, l.operand(0)) : nullptr; }

Value* lower_saturate(Lowering& l) {
  bool flush = l.parts.take("ftz");
  if (!l.only_types_left()) return nullptr;
  Value* x = flush ? flush_subnormals(l.b, l.operand(0)) : l.operand(0);
  return saturate(l.b, x);
}

// Suffixes s, i, ll and us, ui, ull: the width, known from the operands, and the sign.
bool is_unsigned_suffix(StringRef suffix) { return suffix.starts_with("u"); }

Value* lower_mulhi(Lowering& l) {
  return multiply_high(l.b, l.operand(0), l.operand(1), !is_unsigned_suffix(l.parts.front()));
}

Value* lower_mul24(Lowering& l) {
  return multiply_24(l.b, l.operand(0), l.operand(1), !is_unsigned_suffix(l.parts.front()), false);
}

Value* lower_sad(Lowering& l) {
  Value* difference = absolute_difference(l.b, l.operand(0), l.operand(1), !is_unsigned_suffix(l.parts.front()));
  return l.b.CreateAdd(difference, l.operand(2));
}

Value* lower_prmt(Lowering& l) {
  StringRef mode = l.parts.take_front();
  Value* zero = l.b.getInt32(0);
  if (mode.empty()) return byte_permute(l.b, l.operand(0), l.operand(1), l.operand(2), PermuteMode::kGeneric);
  if (mode == "f4e") return byte_permute(l.b, l.operand(0), l.operand(1), l.operand(2), PermuteMode::kForward4);
  if (mode == "b4e") return byte_permute(l.b, l.operand(0), l.operand(1), l.operand(2), PermuteMode::kBackward4);
  if (mode == "rc8") return byte_permute(l.b, l.operand(0), zero, l.operand(1), PermuteMode::kReplicate8);
  if (mode == "ecl") return byte_permute(l.b, l.operand(0), zero, l.operand(1), PermuteMode::kEdgeLeft);
  if (mode == "ecr") return byte_permute(l.b, l.operand(0), zero, l.operand(1), PermuteMode::kEdgeRight);
  if (mode == "rc16") return byte_permute(l.b, l.operand(0), zero, l.operand(1), PermuteMode::kReplicate16);
  return nullptr;
}

Value* lower_idp4a(Lowering& l) {
  bool x_signed = l.parts.take_front() == "s";
  bool y_signed = l.parts.take_front() == "s";
  return dot_product_4(l.b, l.operand(0), l.operand(1), l.operand(2), x_signed, y_signed);
}

Value* lower_idp2a(Lowering& l) {
  bool x_signed = l.parts.take_front() == "s";
  bool y_signed = l.parts.take_front() == "s";
  bool high = cast<ConstantInt>(l.operand(2))->isOne();
  return dot_product_2(l.b, l.operand(0), l.operand(1), l.operand(3), x_signed, y_signed, high);
}

template <bool left>
Value* lower_funnel_clamp(Lowering& l) {
  if (!l.parts.take("clamp")) return nullptr;
  return funnel_shift(l.b, l.operand(1), l.operand(0), l.operand(2), left, true);
}

Value* lower_flo(Lowering& l) {
  bool is_signed = l.parts.take_front() == "s";
  return find_leading(l.b, l.operand(0), is_signed, cast<ConstantInt>(l.operand(1))->isOne());
}

template <bool is_signed>
Value* lower_extend(Lowering& l) {
  return extend_bits(l.b, l.operand(0), l.operand(1), is_signed, l.parts.front() == "clamp");
}

Value* lower_bmsk(Lowering& l) { return bit_mask(l.b, l.operand(0), l.operand(1), l.parts.front() == "clamp"); }

Value* lower_fns(Lowering& l) { return find_nth_set(l.b, l.operand(0), l.operand(1), l.operand(2)); }

Value* lower_lohi(Lowering& l) {
  Value* low = l.b.CreateZExt(l.operand(0), l.b.getInt64Ty());
  Value* high = l.b.CreateShl(l.b.CreateZExt(l.operand(1), l.b.getInt64Ty()), 32);
  return l.b.CreateBitCast(l.b.CreateOr(low, high), l.b.getDoubleTy());
}

template <bool is_signed>
Value* lower_float_to_integer(Lowering& l) {
  Value* x = l.operand(0);
  if (bool high = l.parts.take("hi"); high || l.parts.take("lo")) {  // d2i.hi, d2i.lo
    Value* bits = l.b.CreateBitCast(x, l.b.getInt64Ty());
    return l.b.CreateTrunc(high ? l.b.CreateLShr(bits, 32) : bits, l.b.getInt32Ty());
  }
  std::optional<Rounding> rounding = l.parts.take_rounding();
  if (l.parts.take("ftz")) x = flush_subnormals(l.b, x);
  if (!rounding || !l.parts.empty()) return nullptr;
  return float_to_integer(l.b, x, cast<IntegerType>(l.type()), is_signed, *rounding);
}

template <bool is_signed>
Value* lower_integer_to_float(Lowering& l) {
  std::optional<Rounding> rounding = l.parts.take_rounding();
  if (!rounding || !l.parts.empty()) return nullptr;
  return integer_to_float(l.b, l.operand(0), is_signed, l.type(), *rounding);
}

// f2f16, f2bf16, f2h, bf2h, d2f: one value to a smaller type, perhaps returned as its bits.
template <char target>
Value* lower_narrowing(Lowering& l) {
  Type* type = target == 'h' ? l.b.getHalfTy() : l.type();
  FloatMode mode = l.take_mode();
  bool finite = l.parts.take("satfinite");
  if (!l.parts.empty()) return nullptr;
  Value* x = mode.flush ? flush_subnormals(l.b, l.operand(0)) : l.operand(0);
  Value* result = float_to_float(l.b, x, type, mode.rounding, finite);
  if (mode.flush && type->isFloatTy()) result = flush_tiny(l.b, result, x);
  if (mode.relu) result = apply_relu(l.b, result);
  return l.b.CreateBitCast(result, l.type());
}

// ff2f16x2, ff2bf16x2: the first operand becomes the upper half.
Value* lower_pack(Lowering& l) {
  FloatMode mode = l.take_mode();
  bool finite = l.parts.take("satfinite");
  if (!l.parts.empty()) return nullptr;
  Value* pair = PoisonValue::get(FixedVectorType::get(l.b.getFloatTy(), 2));
  pair = l.b.CreateInsertElement(pair, l.operand(1), uint64_t{0});
  pair = l.b.CreateInsertElement(pair, l.operand(0), uint64_t{1});
  Value* result = float_to_float(l.b, pair, l.type(), mode.rounding, finite);
  return mode.relu ? apply_relu(l.b, result) : result;
}

Value* relu_of_nan_kept(Builder& b, Value* x) {
  Value* zero = ConstantFP::get(x->getType(), 0.0);
  return b.CreateSelect(b.CreateFCmpUGT(x, zero), x, zero);
}

Value* lower_tf32(Lowering& l) {
  std::optional<Rounding> rounding = l.parts.take_rounding();
  bool relu = l.parts.take("relu");
  bool finite = l.parts.take("satfinite");
  if (!rounding || !l.parts.empty()) return nullptr;
  Value* x = relu ? relu_of_nan_kept(l.b, l.operand(0)) : l.operand(0);
  return float_to_tf32(l.b, x, *rounding, finite);
}

// ff.to.FORMAT, f16x2.to.FORMAT, bf16x2.to.FORMAT: two values to the two parts of 16 bits, or 8 for e2m1.
Value* lower_to_packed(Lowering& l) {
  if (!l.parts.take("to")) return nullptr;
  std::optional<FloatFormat> format = packed_format(l.parts.take_front());
  std::optional<Rounding> rounding = l.parts.take_rounding();
  bool relu = l.parts.take("relu");
  bool finite = l.parts.take("satfinite");
  if (!format || !rounding || !l.parts.empty()) return nullptr;
  if (*format != FloatFormat::kUe8m0) finite = true;
  Value* low;
  Value* high;
  if (l.call.arg_size() == 2) {
    high = l.operand(0);
    low = l.operand(1);
  } else {
    low = l.b.CreateExtractElement(l.operand(0), uint64_t{0});
    high = l.b.CreateExtractElement(l.operand(0), uint64_t{1});
  }
  if (relu) {
    low = relu_of_nan_kept(l.b, low);
    high = relu_of_nan_kept(l.b, high);
  }
  low = float_to_format(l.b, low, *format, *rounding, finite);
  high = float_to_format(l.b, high, *format, *rounding, finite);
  return l.b.CreateTrunc(l.b.CreateOr(low, l.b.CreateShl(high, packed_width(*format))), l.type());
}

// FORMAT.to.f16x2, ue8m0x2.to.bf16x2.
template <FloatFormat format>
Value* lower_from_packed(Lowering& l) {
  l.parts.take("to");
  l.parts.take_any({"f16x2", "bf16x2"});
  l.parts.take("rn");
  bool relu = l.parts.take("relu");
  if (!l.parts.empty()) return nullptr;
  Value* bits = l.b.CreateZExt(l.operand(0), l.b.getInt32Ty());
  unsigned width = packed_width(format);
  Value* result = PoisonValue::get(l.type());
  for (unsigned lane = 0; lane < 2; ++lane) {
    Value* part = l.b.CreateAnd(l.b.CreateLShr(bits, width * lane), (1u << width) - 1);
    Value* value = format_to_float(l.b, part, format);
    value = float_to_float(l.b, value, l.type()->getScalarType(), Rounding::kNearest);
    result = l.b.CreateInsertElement(result, value, lane);
  }
  return relu ? apply_relu(l.b, result) : result;
}

Value* lower_load(Lowering& l) {
  Align alignment = cast<ConstantInt>(l.operand(1))->getMaybeAlignValue().valueOrOne();
  return l.b.CreateAlignedLoad(l.type(), l.operand(0), alignment);
}

Value* lower_identity(Lowering& l) {
  Value* x = l.operand(0);
  return x->getType() == l.type() ? x : l.b.CreateAddrSpaceCast(x, l.type());
}

Value* lower_bitcast(Lowering& l) { return l.b.CreateBitCast(l.operand(0), l.type()); }

// __nvvm_reflect that the NVVMReflect pass did not see: answered as that pass does.
Value* lower_reflect(Lowering& l) {
  StringRef name;
  getConstantStringInfo(l.operand(0), name);
  unsigned result = 0;
  if (name == "__CUDA_ARCH") {
    StringRef cpu = l.call.getFunction()->getFnAttribute("target-cpu").getValueAsString();
    unsigned arch = 0;
    if (cpu.consume_front("sm_") && !cpu.consumeInteger(10, arch)) result = arch * 10;
  } else if (name == "__CUDA_FTZ") {
    auto* flag = mdconst::extract_or_null<ConstantInt>(l.call.getModule()->getModuleFlag("nvvm-reflect-ftz"));
    result = flag == nullptr ? 0 : static_cast<unsigned>(flag->getZExtValue());
  }
  return ConstantInt::get(l.type(), result);
}

const StringMap<Lower>& table() {
  static const StringMap<Lower> lowerings = {
      {"add", lower_arithmetic<FloatOp::kAdd>},
      {"mul", lower_arithmetic<FloatOp::kMul>},
      {"div", lower_div},
      {"fma", lower_fma},
      {"rcp", lower_approximation<Approximation::kRcp>},
      {"sqrt", lower_approximation<Approximation::kSqrt>},
      {"rsqrt", lower_approximation<Approximation::kRsqrt>},
      {"ex2", lower_approximation<Approximation::kEx2>},
      {"lg2", lower_approximation<Approximation::kLg2>},
      {"sin", lower_approximation<Approximation::kSin>},
      {"cos", lower_approximation<Approximation::kCos>},
      {"tanh", lower_approximation<Approximation::kTanh>},
      {"fmin", lower_min_max<false>},
      {"fmax", lower_min_max<true>},
      {"floor", lower_to_integral<Rounding::kDown>},
      {"ceil", lower_to_integral<Rounding::kUp>},
      {"trunc", lower_to_integral<Rounding::kTowardZero>},
      {"round", lower_to_integral<Rounding::kNearest>},  // cvt.rni: ties to even
      {"fabs", lower_fabs},
      {"neg", lower_neg},
      {"saturate", lower_saturate},
      {"mulhi", lower_mulhi},
      {"mul24", lower_mul24},
      {"sad", lower_sad},
      {"prmt", lower_prmt},
      {"idp4a", lower_idp4a},
      {"idp2a", lower_idp2a},
      {"fshl", lower_funnel_clamp<true>},
      {"fshr", lower_funnel_clamp<false>},
      {"flo", lower_flo},
      {"sext", lower_extend<true>},
      {"zext", lower_extend<false>},
      {"bmsk", lower_bmsk},
      {"fns", lower_fns},
      {"lohi", lower_lohi},
      {"f2i", lower_float_to_integer<true>},
      {"f2ui", lower_float_to_integer<false>},
      {"f2ll", lower_float_to_integer<true>},
      {"f2ull", lower_float_to_integer<false>},
      {"d2i", lower_float_to_integer<true>},
      {"d2ui", lower_float_to_integer<false>},
      {"d2ll", lower_float_to_integer<true>},
      {"d2ull", lower_float_to_integer<false>},
      {"i2f", lower_integer_to_float<true>},
      {"ui2f", lower_integer_to_float<false>},
      {"ll2f", lower_integer_to_float<true>},
      {"ull2f", lower_integer_to_float<false>},
      {"i2d", lower_integer_to_float<true>},
      {"ui2d", lower_integer_to_float<false>},
      {"ll2d", lower_integer_to_float<true>},
      {"ull2d", lower_integer_to_float<false>},
      {"d2f", lower_narrowing<'f'>},
      {"f2h", lower_narrowing<'h'>},
      {"bf2h", lower_narrowing<'h'>},
      {"f2f16", lower_narrowing<'f'>},
      {"f2bf16", lower_narrowing<'f'>},
      {"ff2f16x2", lower_pack},
      {"ff2bf16x2", lower_pack},
      {"f2tf32", lower_tf32},
      {"ff", lower_to_packed},
      {"f16x2", lower_to_packed},
      {"bf16x2", lower_to_packed},
      {"e4m3x2", lower_from_packed<FloatFormat::kE4m3>},
      {"e5m2x2", lower_from_packed<FloatFormat::kE5m2>},
      {"e2m3x2", lower_from_packed<FloatFormat::kE2m3>},
      {"e3m2x2", lower_from_packed<FloatFormat::kE3m2>},
      {"e2m1x2", lower_from_packed<FloatFormat::kE2m1>},
      {"ue8m0x2", lower_from_packed<FloatFormat::kUe8m0>},
      {"ldu", lower_load},
      {"ldg", lower_load},
      {"move", lower_identity},
      {"internal", lower_identity},  // internal.addrspace.wrap
      {"bitcast", lower_bitcast},
      {"reflect", lower_reflect},
  };
  return lowerings;
}

void replace(CallBase& call, Value* result) {
  if (result != nullptr) call.replaceAllUsesWith(result);
  call.eraseFromParent();
}

}  // namespace

bool lower_pure_intrinsic(CallBase& call) {
  const Function* callee = call.getCalledFunction();
  if (callee == nullptr) return false;
  Builder b(&call);
  if (callee->getIntrinsicID() == Intrinsic::fma || callee->getIntrinsicID() == Intrinsic::fmuladd) {
    Type* scalar = call.getType()->getScalarType();
    if (!scalar->isHalfTy() && !scalar->isBFloatTy()) return false;
    replace(call, float_fma(b, call.getArgOperand(0), call.getArgOperand(1), call.getArgOperand(2), {}));
    return true;
  }
  StringRef name = callee->getName();
  if (!name.consume_front("llvm.nvvm.")) return false;
  if (name.starts_with("compiler.warn")) {
    replace(call, nullptr);
    return true;
  }
  auto [operation, rest] = name.split('.');
  auto found = table().find(operation);
  if (found == table().end()) return false;
  Lowering lowering{b, call, Modifiers(rest)};
  Value* result = found->second(lowering);
  if (result == nullptr) return false;
  replace(call, result);
  return true;
}

}  // namespace r3
