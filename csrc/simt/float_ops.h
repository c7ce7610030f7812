// Builds IR for the floating point operations of PTX, with its roundings and modifiers. Operands are half, bfloat,
// float or double, or vectors of them.
#pragma once
#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/STLFunctionalExtras.h>
#include <llvm/ADT/StringRef.h>
#include <llvm/IR/IRBuilder.h>

#include <optional>

#include "simt/device_math.h"

namespace r3 {

using Builder = llvm::IRBuilder<>;

// A NaN result has the payload that the host gives it, except in 16-bit formats, where it is PTX's canonical NaN.

// The modifiers that most instructions share.
struct FloatMode {
  Rounding rounding = Rounding::kNearest;
  bool flush = false;     // .ftz: subnormal operands and results become zero, with their sign
  bool saturate = false;  // .sat: clamped to [0, 1]; NaN becomes 0
  bool relu = false;      // .relu: negative results become 0
};

enum class FloatOp { kAdd, kSub, kMul, kDiv };
enum class Approximation { kEx2, kLg2, kSin, kCos, kTanh, kRcp, kRsqrt, kSqrt };

// A call of an r3m_* function.
llvm::Value* call_runtime(Builder& b, const llvm::Twine& name, llvm::Type* result,
                          llvm::ArrayRef<llvm::Value*> arguments);

// Applies `operation` to each lane when the arguments are vectors, else to the arguments.
llvm::Value* per_lane(Builder& b, llvm::ArrayRef<llvm::Value*> arguments,
                      llvm::function_ref<llvm::Value*(llvm::ArrayRef<llvm::Value*>)> operation);

llvm::Value* flush_subnormals(Builder& b, llvm::Value* value);
// Hardware decides before rounding what is subnormal: a result that rounds up to the smallest normal number is flushed
// too.
llvm::Value* flush_tiny(Builder& b, llvm::Value* result, llvm::Value* exact);
llvm::Value* saturate(Builder& b, llvm::Value* value);
llvm::Value* canonical_nan(Builder& b, llvm::Value* value);  // a NaN becomes PTX's canonical one

llvm::Value* float_arithmetic(Builder& b, FloatOp op, llvm::Value* x, llvm::Value* y, const FloatMode& mode);
llvm::Value* float_fma(Builder& b, llvm::Value* x, llvm::Value* y, llvm::Value* z, const FloatMode& mode);
llvm::Value* float_sqrt(Builder& b, llvm::Value* x, const FloatMode& mode);
llvm::Value* float_approximation(Builder& b, Approximation function, llvm::Value* x, bool flush);
llvm::Value* float_divide_approx(Builder& b, llvm::Value* x, llvm::Value* y, bool flush);
llvm::Value* float_abs(Builder& b, llvm::Value* x);
llvm::Value* float_negate(Builder& b, llvm::Value* x);
// -0 is less than +0. A NaN operand loses against a number, unless `nan`. `xorsign`: of magnitudes, signed by both
// signs.
llvm::Value* float_min_max(Builder& b, bool is_max, llvm::Value* x, llvm::Value* y, bool flush, bool nan, bool xorsign);

llvm::Value* float_to_integral(Builder& b, llvm::Value* x, Rounding rounding);
// Out-of-range values saturate. NaN becomes 0 for at most 32 bits on both sides, else the top bit alone.
llvm::Value* float_to_integer(Builder& b, llvm::Value* x, llvm::IntegerType* type, bool is_signed, Rounding rounding);
llvm::Value* integer_to_float(Builder& b, llvm::Value* x, bool is_signed, llvm::Type* type, Rounding rounding);
// Between half, bfloat, float and double. `finite`: overflow gives the largest finite value.
llvm::Value* float_to_float(Builder& b, llvm::Value* x, llvm::Type* type, Rounding rounding, bool finite = false);
// To and from the formats that LLVM has no type for, as i32 bits.
llvm::Value* float_to_format(Builder& b, llvm::Value* x, FloatFormat format, Rounding rounding, bool finite);
llvm::Value* float_to_tf32(Builder& b, llvm::Value* x, Rounding rounding, bool finite);
llvm::Value* format_to_float(Builder& b, llvm::Value* bits, FloatFormat format);
// The format of a pair as PTX names it ("e4m3x2"), and the bits of one of the pair.
std::optional<FloatFormat> packed_format(llvm::StringRef name);
unsigned packed_width(FloatFormat format);
llvm::Value* apply_relu(Builder& b, llvm::Value* value);

}  // namespace r3
