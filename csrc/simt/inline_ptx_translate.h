// Translates the statements of one inline assembly into the body of a function that computes what it computes.
#pragma once
#include <llvm/ADT/StringMap.h>
#include <llvm/IR/Function.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Instructions.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "simt/float_ops.h"
#include "simt/inline_ptx_parse.h"
#include "simt/modifiers.h"

namespace r3::ptx {

// A PTX instruction type: .u32, .f16x2, .pred …
struct Type {
  enum class Kind { kBits, kUnsigned, kSigned, kFloat, kBfloat, kPredicate };
  Kind kind = Kind::kBits;
  unsigned bits = 0;  // of one lane
  unsigned lanes = 1;

  unsigned width() const { return bits * lanes; }
  bool is_float() const { return kind == Kind::kFloat || kind == Kind::kBfloat; }
  bool is_signed() const { return kind == Kind::kSigned; }
  bool is_integer() const { return kind == Kind::kUnsigned || kind == Kind::kSigned; }
  Type lane() const { return {kind, bits, 1}; }
  llvm::Type* ir(llvm::LLVMContext& context) const;
};

inline Type bits_type(unsigned bits) { return {Type::Kind::kBits, bits, 1}; }
inline constexpr Type kU32{Type::Kind::kUnsigned, 32, 1};
inline constexpr Type kU64{Type::Kind::kUnsigned, 64, 1};
inline constexpr Type kPredicate{Type::Kind::kPredicate, 1, 1};

std::optional<Type> type_named(llvm::StringRef name);

struct Register {
  llvm::AllocaInst* slot = nullptr;  // holds an integer of `bits` bits
  unsigned bits = 0;
};

// What $N of the assembly stands for.
struct Argument {
  Register reg;                        // when it is a register
  llvm::Constant* constant = nullptr;  // when it is an immediate
};

class Translator {
 public:
  // Emits at the builder's insertion point, which is in a block that follows the function's entry block. `carry` holds
  // the condition code, an i1.
  Translator(Builder& builder, std::vector<Argument> arguments, llvm::AllocaInst* carry);

  // False when a statement is not understood; `problem` is its text then.
  bool run(const std::vector<Statement>& statements, std::string& problem);

  // A register of `bits` bits in the function's entry block, set to 0.
  static Register make_register(llvm::Function& function, unsigned bits);
  static void store(Builder& b, const Register& reg, llvm::Value* value, bool sign_extend);

 private:
  struct Instruction {
    const Statement& statement;
    Modifiers mods;
    const Operand& operand(size_t i) const { return statement.operands[i]; }
    size_t count() const { return statement.operands.size(); }
  };
  using Emit = bool (Translator::*)(Instruction&);
  static const llvm::StringMap<Emit>& table();

  bool emit(const Statement& statement);
  bool declare(const Statement& statement);
  bool branch(Instruction& i);
  void start_block(llvm::BasicBlock* block);
  bool find_labels(const std::vector<Statement>& statements);

  // Operands. A failed read or write clears `ok_` and goes on with any value, so that the callers stay straight.
  llvm::Value* fail(const Type& type);
  const Register* find_register(const Operand& operand) const;
  std::optional<Argument> find_argument(const Operand& operand) const;
  llvm::Value* read(const Operand& operand, const Type& type);
  llvm::Value* read_literal(const Operand& operand, const Type& type);
  llvm::Value* read_special(llvm::StringRef name, const Type& type);
  llvm::Value* reserved_shared();
  llvm::Value* as(llvm::Value* bits, const Type& type) { return b_.CreateBitCast(bits, type.ir(b_.getContext())); }
  void write(const Operand& operand, llvm::Value* value, bool sign_extend = false);
  unsigned register_bits(const Operand& operand) const;  // 0 when it is no register
  std::optional<uint64_t> constant(const Operand& operand) const;
  llvm::Value* address(const Operand& operand, unsigned address_space);
  llvm::Value* address_bits(const Operand& operand, bool may_be_32_bits);

  llvm::Value* call_intrinsic(llvm::StringRef name, llvm::Type* result, llvm::ArrayRef<llvm::Value*> arguments);
  std::optional<Type> take_type(Instruction& i);  // from the last modifier
  FloatMode take_float_mode(Instruction& i);

  // Integers and bits.
  bool emit_add(Instruction& i);
  bool emit_sub(Instruction& i);
  bool emit_addc(Instruction& i);
  bool emit_subc(Instruction& i);
  bool emit_mul(Instruction& i);
  bool emit_mad(Instruction& i);
  bool emit_madc(Instruction& i);
  bool emit_mul24(Instruction& i);
  bool emit_mad24(Instruction& i);
  bool emit_div(Instruction& i);
  bool emit_rem(Instruction& i);
  bool emit_min(Instruction& i) { return emit_min_max(i, false); }
  bool emit_max(Instruction& i) { return emit_min_max(i, true); }
  bool emit_min_max(Instruction& i, bool is_max);
  bool emit_abs(Instruction& i);
  bool emit_neg(Instruction& i);
  bool emit_sad(Instruction& i);
  bool emit_and(Instruction& i) { return emit_logic(i, llvm::Instruction::And); }
  bool emit_or(Instruction& i) { return emit_logic(i, llvm::Instruction::Or); }
  bool emit_xor(Instruction& i) { return emit_logic(i, llvm::Instruction::Xor); }
  bool emit_logic(Instruction& i, llvm::Instruction::BinaryOps op);
  bool emit_not(Instruction& i);
  bool emit_cnot(Instruction& i);
  bool emit_lop3(Instruction& i);
  bool emit_shl(Instruction& i);
  bool emit_shr(Instruction& i);
  bool emit_shf(Instruction& i);
  bool emit_bfe(Instruction& i);
  bool emit_bfi(Instruction& i);
  bool emit_bfind(Instruction& i);
  bool emit_bit_count(Instruction& i);
  bool emit_prmt(Instruction& i);
  bool emit_fns(Instruction& i);
  bool emit_bmsk(Instruction& i);
  bool emit_szext(Instruction& i);
  bool emit_dot_product(Instruction& i);
  bool emit_mov(Instruction& i);
  bool emit_selp(Instruction& i);
  bool emit_slct(Instruction& i);
  bool emit_setp(Instruction& i);
  bool emit_set(Instruction& i);
  llvm::Value* compare(llvm::StringRef op, const Type& type, llvm::Value* x, llvm::Value* y);
  bool emit_simd_video(Instruction& i);
  llvm::Value* add_with_carry(llvm::Value* x, llvm::Value* y, bool carry_in, bool carry_out, bool subtract);
  bool multiply_add(Instruction& i, bool carry_in);

  // Floating point and conversions.
  bool emit_float_arithmetic(Instruction& i, FloatOp op, const Type& type);
  bool emit_fma(Instruction& i);
  bool emit_float_div(Instruction& i, const Type& type);
  bool emit_float_min_max(Instruction& i, bool is_max, const Type& type);
  bool emit_approximation(Instruction& i);
  bool emit_copysign(Instruction& i);
  bool emit_testp(Instruction& i);
  bool emit_cvt(Instruction& i);
  bool convert_packed(Instruction& i, const FloatMode& mode, bool finite, llvm::StringRef to, llvm::StringRef from);
  bool convert_integer(Instruction& i, const Type& to, const Type& from, bool saturating);

  // Memory.
  struct Access {
    unsigned address_space = 0;
    bool is_volatile = false;
    llvm::AtomicOrdering ordering = llvm::AtomicOrdering::NotAtomic;
  };
  std::optional<Access> take_access(Instruction& i);
  bool emit_ld(Instruction& i);
  bool emit_st(Instruction& i);
  bool emit_atom(Instruction& i) { return emit_atomic(i, true); }
  bool emit_red(Instruction& i) { return emit_atomic(i, false); }
  bool emit_atomic(Instruction& i, bool has_result);
  bool emit_fence(Instruction& i);
  bool emit_cp(Instruction& i);
  bool emit_cvta(Instruction& i);
  bool emit_isspacep(Instruction& i);
  bool emit_createpolicy(Instruction& i);
  bool emit_tex(Instruction& i);
  bool emit_mbarrier(Instruction& i);
  llvm::Value* mbarrier_arrive(llvm::Value* pointer, llvm::Value* count, bool drop);

  // Barriers, warps, control.
  bool emit_bar(Instruction& i);
  bool emit_shfl(Instruction& i);
  bool emit_vote(Instruction& i);
  bool emit_match(Instruction& i);
  bool emit_activemask(Instruction& i);
  bool emit_redux(Instruction& i);
  bool emit_elect(Instruction& i);
  bool emit_nanosleep(Instruction& i);
  bool emit_trap(Instruction& i);
  bool emit_exit(Instruction& i);
  bool emit_nothing(Instruction& i);

  Builder& b_;
  std::vector<Argument> arguments_;
  llvm::AllocaInst* carry_;
  std::vector<std::map<std::string, Register>> scopes_;
  std::map<std::string, llvm::BasicBlock*> labels_;
  bool ok_ = true;
};

// Whether the condition code is read or written.
bool uses_carry(const std::vector<Statement>& statements);

}  // namespace r3::ptx
