#include "simt/inline_ptx_translate.h"

#include <llvm/IR/Constants.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/Module.h>

using namespace llvm;

namespace r3::ptx {

llvm::Type* Type::ir(LLVMContext& context) const {
  llvm::Type* scalar = nullptr;
  if (kind == Kind::kBfloat) {
    scalar = llvm::Type::getBFloatTy(context);
  } else if (kind == Kind::kFloat) {
    scalar = bits == 16   ? llvm::Type::getHalfTy(context)
             : bits == 32 ? llvm::Type::getFloatTy(context)
                          : llvm::Type::getDoubleTy(context);
  } else {
    scalar = IntegerType::get(context, bits);
  }
  return lanes == 1 ? scalar : FixedVectorType::get(scalar, lanes);
}

std::optional<Type> type_named(StringRef name) {
  if (name == "pred") return kPredicate;
  Type type;
  if (name.consume_front("bf")) {
    type.kind = Type::Kind::kBfloat;
  } else if (name.consume_front("b")) {
    type.kind = Type::Kind::kBits;
  } else if (name.consume_front("u")) {
    type.kind = Type::Kind::kUnsigned;
  } else if (name.consume_front("s")) {
    type.kind = Type::Kind::kSigned;
  } else if (name.consume_front("f")) {
    type.kind = Type::Kind::kFloat;
  } else {
    return std::nullopt;
  }
  if (name.consumeInteger(10, type.bits)) return std::nullopt;
  if (name == "x2") {
    type.lanes = 2;
  } else if (!name.empty()) {
    return std::nullopt;
  }
  bool known = type.kind == Type::Kind::kBfloat ? type.bits == 16
               : type.kind == Type::Kind::kFloat
                   ? type.bits == 16 || type.bits == 32 || type.bits == 64
                   : type.bits == 8 || type.bits == 16 || type.bits == 32 || type.bits == 64 || type.bits == 128;
  if (!known || (type.lanes == 2 && type.bits > 32)) return std::nullopt;
  return type;
}

Translator::Translator(Builder& builder, std::vector<Argument> arguments, AllocaInst* carry)
    : b_(builder), arguments_(std::move(arguments)), carry_(carry), scopes_(1) {}

Register Translator::make_register(Function& function, unsigned bits) {
  Builder b(&function.getEntryBlock(), function.getEntryBlock().begin());
  Register reg{b.CreateAlloca(b.getIntNTy(bits)), bits};
  // An output that no path writes reads as 0, the same in every run.
  Builder(&function.getEntryBlock(), std::next(reg.slot->getIterator())).CreateStore(b.getIntN(bits, 0), reg.slot);
  return reg;
}

void Translator::store(Builder& b, const Register& reg, Value* value, bool sign_extend) {
  unsigned bits = value->getType()->getPrimitiveSizeInBits();
  if (value->getType()->isPointerTy()) {
    value = b.CreatePtrToInt(value, b.getIntNTy(reg.bits));
    bits = reg.bits;
  } else {
    value = b.CreateBitCast(value, b.getIntNTy(bits));
  }
  if (bits != reg.bits) {
    llvm::Type* type = b.getIntNTy(reg.bits);
    value = sign_extend ? b.CreateSExtOrTrunc(value, type) : b.CreateZExtOrTrunc(value, type);
  }
  b.CreateStore(value, reg.slot);
}

bool Translator::run(const std::vector<Statement>& statements, std::string& problem) {
  if (!find_labels(statements)) {
    problem = "two labels of one name";
    return false;
  }
  for (const Statement& statement : statements) {
    bool done = true;
    switch (statement.kind) {
      case Statement::Kind::kOpenScope:
        scopes_.emplace_back();
        break;
      case Statement::Kind::kCloseScope:
        done = scopes_.size() > 1;
        if (done) scopes_.pop_back();
        break;
      case Statement::Kind::kHint:
        break;
      case Statement::Kind::kDeclaration:
        done = declare(statement);
        break;
      case Statement::Kind::kLabel:
        b_.CreateBr(labels_.at(statement.label));
        start_block(labels_.at(statement.label));
        break;
      case Statement::Kind::kInstruction:
        done = emit(statement);
        break;
    }
    if (!done || !ok_) {
      problem = statement.text;
      return false;
    }
  }
  return true;
}

bool Translator::find_labels(const std::vector<Statement>& statements) {
  Function* function = b_.GetInsertBlock()->getParent();
  for (const Statement& statement : statements) {
    if (statement.kind != Statement::Kind::kLabel) continue;
    if (labels_.contains(statement.label)) return false;
    labels_[statement.label] = BasicBlock::Create(b_.getContext(), "ptx." + statement.label, function);
  }
  return true;
}

void Translator::start_block(BasicBlock* block) { b_.SetInsertPoint(block); }

bool Translator::declare(const Statement& statement) {
  std::optional<Type> type = type_named(statement.modifiers);
  if (!type) return false;
  for (const std::string& name : statement.names) {
    scopes_.back()[name] = make_register(*b_.GetInsertBlock()->getParent(), type->width());
  }
  return true;
}

bool Translator::emit(const Statement& statement) {
  auto found = table().find(statement.opcode);
  if (found == table().end()) return false;
  Function* function = b_.GetInsertBlock()->getParent();
  BasicBlock* after = nullptr;
  if (statement.guard) {
    Value* condition = read(statement.guard->predicate, kPredicate);
    if (statement.guard->inverted) condition = b_.CreateNot(condition);
    BasicBlock* guarded = BasicBlock::Create(b_.getContext(), "ptx.guarded", function);
    after = BasicBlock::Create(b_.getContext(), "ptx.after", function);
    b_.CreateCondBr(condition, guarded, after);
    start_block(guarded);
  }
  Instruction instruction{statement, Modifiers(statement.modifiers)};
  if (!(this->*found->second)(instruction) || !instruction.mods.empty()) return false;
  if (after != nullptr) {
    b_.CreateBr(after);
    start_block(after);
  }
  return true;
}

bool Translator::branch(Instruction& i) {
  i.mods.take("uni");
  if (i.count() != 1 || i.operand(0).kind != Operand::Kind::kName) return false;
  auto label = labels_.find(i.operand(0).name);
  if (label == labels_.end()) return false;
  b_.CreateBr(label->second);
  start_block(BasicBlock::Create(b_.getContext(), "ptx.next", b_.GetInsertBlock()->getParent()));
  return true;
}

Value* Translator::fail(const Type& type) {
  ok_ = false;
  return PoisonValue::get(type.ir(b_.getContext()));
}

std::optional<Argument> Translator::find_argument(const Operand& operand) const {
  if (operand.kind != Operand::Kind::kArgument || operand.argument >= arguments_.size()) return std::nullopt;
  return arguments_[operand.argument];
}

const Register* Translator::find_register(const Operand& operand) const {
  if (operand.kind == Operand::Kind::kArgument && operand.argument < arguments_.size()) {
    const Register& reg = arguments_[operand.argument].reg;
    return reg.slot != nullptr ? &reg : nullptr;
  }
  if (operand.kind != Operand::Kind::kName) return nullptr;
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    if (auto found = scope->find(operand.name); found != scope->end()) return &found->second;
  }
  return nullptr;
}

unsigned Translator::register_bits(const Operand& operand) const {
  const Register* reg = find_register(operand);
  return reg == nullptr ? 0 : reg->bits;
}

std::optional<uint64_t> Translator::constant(const Operand& operand) const {
  if (operand.kind == Operand::Kind::kInteger) return operand.integer;
  std::optional<Argument> argument = find_argument(operand);
  if (!argument || argument->constant == nullptr) return std::nullopt;
  auto* integer = dyn_cast<ConstantInt>(argument->constant);
  if (integer == nullptr || integer->getBitWidth() > 64) return std::nullopt;
  uint64_t value = static_cast<uint64_t>(integer->getSExtValue());
  return operand.negated ? -value : value;
}

Value* Translator::read(const Operand& operand, const Type& type) {
  Value* value = nullptr;
  if (const Register* reg = find_register(operand)) {
    value = b_.CreateLoad(reg->slot->getAllocatedType(), reg->slot);
    if (reg->bits < type.width()) return fail(type);
    if (reg->bits > type.width()) value = b_.CreateTrunc(value, b_.getIntNTy(type.width()));
    value = as(value, type);
  } else if (operand.kind == Operand::Kind::kName && operand.name.starts_with("%")) {
    value = read_special(StringRef(operand.name).drop_front(), type);
  } else {
    return read_literal(operand, type);
  }
  if (operand.inverted) value = b_.CreateNot(value);
  if (operand.negated) value = type.is_float() ? b_.CreateFNeg(value) : b_.CreateNeg(value);
  return value;
}

Value* Translator::read_literal(const Operand& operand, const Type& type) {
  if (std::optional<uint64_t> integer = constant(operand)) {
    if (type.lanes != 1 && type.width() > 64) return fail(type);
    APInt bits(type.width(), *integer, true, true);
    if (operand.inverted) bits = ~bits;
    if (type.is_float() && type.lanes == 1 && type.bits > 16) return fail(type);  // an integer is no float literal
    return as(ConstantInt::get(b_.getContext(), bits), type);
  }
  if (std::optional<Argument> argument = find_argument(operand); argument && argument->constant != nullptr) {
    Constant* value = argument->constant;
    if (value->getType()->isPointerTy()) {
      if (type.width() != 64) return fail(type);
      return b_.CreatePtrToInt(value, b_.getInt64Ty());
    }
    if (value->getType()->getPrimitiveSizeInBits() != type.width()) return fail(type);
    return b_.CreateBitCast(value, type.ir(b_.getContext()));
  }
  if (operand.kind == Operand::Kind::kFloat) {
    const fltSemantics& written = operand.float_bits == 32 ? APFloat::IEEEsingle() : APFloat::IEEEdouble();
    APFloat value(written, APInt(operand.float_bits, operand.integer));
    if (type.is_float() && type.lanes == 1) {
      bool inexact;
      llvm::Type* ir = type.ir(b_.getContext());
      value.convert(ir->getFltSemantics(), APFloat::rmNearestTiesToEven, &inexact);
      return ConstantFP::get(ir, value);
    }
    if (type.width() != operand.float_bits) return fail(type);
    return as(b_.getInt(value.bitcastToAPInt()), type);
  }
  if (operand.kind == Operand::Kind::kName) {
    if (operand.name == "WARP_SZ" && type.width() == 32) return as(b_.getInt32(32), type);
    GlobalValue* global = b_.GetInsertBlock()->getModule()->getNamedValue(operand.name);
    if (isa_and_nonnull<GlobalVariable>(global) && type.width() == 64) {
      return as(b_.CreatePtrToInt(global, b_.getInt64Ty()), type);
    }
  }
  return fail(type);
}

Value* Translator::read_special(StringRef name, const Type& type) {
  if (type.is_float() || type.lanes != 1) return fail(type);
  if (name == "is_explicit_cluster") return call_intrinsic("llvm.nvvm.is_explicit_cluster", b_.getInt1Ty(), {});
  if (name == "current_graph_exec") return b_.CreateBitCast(b_.getIntN(type.bits, 0), type.ir(b_.getContext()));
  if (name == "reserved_smem_offset_1")
    return as(b_.CreateZExtOrTrunc(reserved_shared(), b_.getIntNTy(type.bits)), type);
  // Halves of 64-bit registers that have no intrinsic of their own.
  bool high = name == "clock_hi" || name == "globaltimer_hi";
  if (high) name = name == "clock_hi" ? "clock64" : "globaltimer";
  static constexpr StringRef kBases[] = {
      "tid", "ntid", "ctaid", "nctaid", "clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid",
  };
  static constexpr StringRef kNames[] = {
      "laneid",
      "warpid",
      "nwarpid",
      "smid",
      "nsmid",
      "gridid",
      "lanemask_eq",
      "lanemask_le",
      "lanemask_lt",
      "lanemask_ge",
      "lanemask_gt",
      "clock",
      "clock64",
      "globaltimer",
      "globaltimer_lo",
      "pm0",
      "pm1",
      "pm2",
      "pm3",
      "warpsize",
      "cluster_ctarank",
      "cluster_nctarank",
      "total_smem_size",
      "aggr_smem_size",
      "dynamic_smem_size",
  };
  auto [base, axis] = name.split('.');
  bool vector = is_contained(kBases, base) && axis.size() == 1 && StringRef("xyzw").contains(axis);
  StringRef number = name;
  unsigned envreg = 0;
  bool is_envreg = number.consume_front("envreg") && !number.getAsInteger(10, envreg) && envreg < 32;
  if (!vector && !is_envreg && !is_contained(kNames, name)) return fail(type);
  // Where the intrinsic's name follows the register's with dots; the shared memory sizes keep their underscores.
  std::string intrinsic = name.str();
  if (!name.ends_with("_smem_size")) std::replace(intrinsic.begin(), intrinsic.end(), '_', '.');
  bool wide = name == "clock64" || name == "globaltimer";
  Value* value = call_intrinsic("llvm.nvvm.read.ptx.sreg." + intrinsic, wide ? b_.getInt64Ty() : b_.getInt32Ty(), {});
  if (high) value = b_.CreateLShr(value, 32);
  return b_.CreateZExtOrTrunc(value, type.ir(b_.getContext()));
}

// The part of shared memory that the system keeps for cooperative groups: a shared variable like any other here.
Value* Translator::reserved_shared() {
  constexpr const char* kName = "r3.reserved_shared";
  Module* module = b_.GetInsertBlock()->getModule();
  GlobalVariable* variable = module->getNamedGlobal(kName);
  if (variable == nullptr) {
    auto* bytes = ArrayType::get(b_.getInt8Ty(), 1024);
    variable = new GlobalVariable(*module, bytes, false, GlobalValue::InternalLinkage, UndefValue::get(bytes), kName,
                                  nullptr, GlobalValue::NotThreadLocal, 3);
    variable->setAlignment(Align(128));
  }
  return b_.CreatePtrToInt(variable, b_.getInt64Ty());
}

void Translator::write(const Operand& operand, Value* value, bool sign_extend) {
  if (operand.kind == Operand::Kind::kSink) return;
  const Register* reg = find_register(operand);
  if (reg == nullptr || operand.inverted || operand.negated ||
      reg->bits < value->getType()->getPrimitiveSizeInBits().getFixedValue()) {
    ok_ = false;
    return;
  }
  store(b_, *reg, value, sign_extend);
}

// A pointer's bits. 32-bit pointers exist in the shared window only, which lies below 4 GiB.
Value* Translator::address_bits(const Operand& operand, bool may_be_32_bits) {
  if (register_bits(operand) == 32) {
    if (!may_be_32_bits) return fail(kU64);
    return b_.CreateZExt(read(operand, kU32), b_.getInt64Ty());
  }
  return read(operand, kU64);
}

Value* Translator::address(const Operand& operand, unsigned address_space) {
  if (operand.kind != Operand::Kind::kAddress) return fail(kU64);
  Value* bits = address_bits(operand.parts[0], address_space != 0 && address_space != 1);
  uint64_t offset = operand.integer;
  for (size_t part = 1; part < operand.parts.size(); ++part) {
    std::optional<uint64_t> more = constant(operand.parts[part]);
    if (!more) return fail(kU64);
    offset += *more;
  }
  if (offset != 0) bits = b_.CreateAdd(bits, b_.getInt64(offset));
  return b_.CreateIntToPtr(bits, PointerType::get(b_.getContext(), address_space));
}

Value* Translator::call_intrinsic(StringRef name, llvm::Type* result, ArrayRef<Value*> arguments) {
  Module* module = b_.GetInsertBlock()->getModule();
  if (Intrinsic::ID id = Intrinsic::lookupIntrinsicID(name); id != Intrinsic::not_intrinsic) {
    return b_.CreateCall(Intrinsic::getOrInsertDeclaration(module, id), arguments);
  }
  // A name that this LLVM has no intrinsic for: lowering goes by name.
  SmallVector<llvm::Type*> types;
  for (Value* argument : arguments) types.push_back(argument->getType());
  FunctionCallee callee = module->getOrInsertFunction(name, FunctionType::get(result, types, false));
  cast<Function>(callee.getCallee())->setConvergent();
  return b_.CreateCall(callee, arguments);
}

std::optional<Type> Translator::take_type(Instruction& i) {
  StringRef name = i.mods.back();
  std::optional<Type> type = type_named(name);
  if (type) i.mods.take_back();
  return type;
}

FloatMode Translator::take_float_mode(Instruction& i) {
  FloatMode mode;
  mode.rounding = i.mods.take_rounding().value_or(Rounding::kNearest);
  mode.flush = i.mods.take("ftz");
  mode.saturate = i.mods.take("sat");
  mode.relu = i.mods.take("relu");
  return mode;
}

bool uses_carry(const std::vector<Statement>& statements) {
  return any_of(statements, [](const Statement& statement) {
    Modifiers modifiers(statement.modifiers);
    return statement.opcode == "addc" || statement.opcode == "subc" || statement.opcode == "madc" ||
           (statement.kind == Statement::Kind::kInstruction && modifiers.take("cc"));
  });
}

const StringMap<Translator::Emit>& Translator::table() {
  using T = Translator;
  static const StringMap<Emit> emitters = {
      {"add", &T::emit_add},
      {"sub", &T::emit_sub},
      {"addc", &T::emit_addc},
      {"subc", &T::emit_subc},
      {"mul", &T::emit_mul},
      {"mad", &T::emit_mad},
      {"madc", &T::emit_madc},
      {"mul24", &T::emit_mul24},
      {"mad24", &T::emit_mad24},
      {"div", &T::emit_div},
      {"rem", &T::emit_rem},
      {"min", &T::emit_min},
      {"max", &T::emit_max},
      {"abs", &T::emit_abs},
      {"neg", &T::emit_neg},
      {"sad", &T::emit_sad},
      {"and", &T::emit_and},
      {"or", &T::emit_or},
      {"xor", &T::emit_xor},
      {"not", &T::emit_not},
      {"cnot", &T::emit_cnot},
      {"lop3", &T::emit_lop3},
      {"shl", &T::emit_shl},
      {"shr", &T::emit_shr},
      {"shf", &T::emit_shf},
      {"bfe", &T::emit_bfe},
      {"bfi", &T::emit_bfi},
      {"bfind", &T::emit_bfind},
      {"brev", &T::emit_bit_count},
      {"popc", &T::emit_bit_count},
      {"clz", &T::emit_bit_count},
      {"prmt", &T::emit_prmt},
      {"fns", &T::emit_fns},
      {"bmsk", &T::emit_bmsk},
      {"szext", &T::emit_szext},
      {"dp4a", &T::emit_dot_product},
      {"dp2a", &T::emit_dot_product},
      {"mov", &T::emit_mov},
      {"selp", &T::emit_selp},
      {"slct", &T::emit_slct},
      {"setp", &T::emit_setp},
      {"set", &T::emit_set},
      {"vadd2", &T::emit_simd_video},
      {"vadd4", &T::emit_simd_video},
      {"vsub2", &T::emit_simd_video},
      {"vsub4", &T::emit_simd_video},
      {"vavrg2", &T::emit_simd_video},
      {"vavrg4", &T::emit_simd_video},
      {"vabsdiff2", &T::emit_simd_video},
      {"vabsdiff4", &T::emit_simd_video},
      {"vmin2", &T::emit_simd_video},
      {"vmin4", &T::emit_simd_video},
      {"vmax2", &T::emit_simd_video},
      {"vmax4", &T::emit_simd_video},
      {"vset2", &T::emit_simd_video},
      {"vset4", &T::emit_simd_video},
      {"fma", &T::emit_fma},
      {"rcp", &T::emit_approximation},
      {"sqrt", &T::emit_approximation},
      {"rsqrt", &T::emit_approximation},
      {"ex2", &T::emit_approximation},
      {"lg2", &T::emit_approximation},
      {"sin", &T::emit_approximation},
      {"cos", &T::emit_approximation},
      {"tanh", &T::emit_approximation},
      {"copysign", &T::emit_copysign},
      {"testp", &T::emit_testp},
      {"cvt", &T::emit_cvt},
      {"ld", &T::emit_ld},
      {"ldu", &T::emit_ld},
      {"st", &T::emit_st},
      {"atom", &T::emit_atom},
      {"red", &T::emit_red},
      {"fence", &T::emit_fence},
      {"membar", &T::emit_fence},
      {"cp", &T::emit_cp},
      {"cvta", &T::emit_cvta},
      {"isspacep", &T::emit_isspacep},
      {"createpolicy", &T::emit_createpolicy},
      {"tex", &T::emit_tex},
      {"mbarrier", &T::emit_mbarrier},
      {"bar", &T::emit_bar},
      {"barrier", &T::emit_bar},
      {"shfl", &T::emit_shfl},
      {"vote", &T::emit_vote},
      {"match", &T::emit_match},
      {"activemask", &T::emit_activemask},
      {"redux", &T::emit_redux},
      {"elect", &T::emit_elect},
      {"nanosleep", &T::emit_nanosleep},
      {"trap", &T::emit_trap},
      {"brkpt", &T::emit_trap},
      {"exit", &T::emit_exit},
      {"bra", &T::branch},
      // Hints, and what has nothing to do here: prefetches, cache control, register counts, dependent grids.
      {"prefetch", &T::emit_nothing},
      {"prefetchu", &T::emit_nothing},
      {"discard", &T::emit_nothing},
      {"applypriority", &T::emit_nothing},
      {"griddepcontrol", &T::emit_nothing},
      {"setmaxnreg", &T::emit_nothing},
      {"pmevent", &T::emit_nothing},
  };
  return emitters;
}

bool Translator::emit_nothing(Instruction& i) {
  i.mods = Modifiers();
  return true;
}

}  // namespace r3::ptx
