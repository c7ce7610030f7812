// Barriers, warp-wide operations and control: calls of the intrinsics that have their meaning.
#include <llvm/IR/Constants.h>
#include <llvm/IR/Intrinsics.h>

#include "simt/inline_ptx_translate.h"

using namespace llvm;

namespace r3::ptx {

// bar, barrier{.cta}: sync a{, b}; arrive a, b; red.OP p, a{, b}, c; warp.sync mask.
bool Translator::emit_bar(Instruction& i) {
  if (i.mods.take("warp")) {
    if (!i.mods.take("sync") || i.count() != 1) return false;
    call_intrinsic("llvm.nvvm.bar.warp.sync", b_.getVoidTy(), {read(i.operand(0), kU32)});
    return true;
  }
  i.mods.take("cta");
  // bar is barrier.aligned.
  bool aligned = i.mods.take("aligned") || i.statement.opcode == "bar";
  StringRef op = i.mods.take_any({"sync", "arrive", "red"});
  std::string name = aligned ? ".aligned" : "";
  if (op == "red") {
    StringRef reduction = i.mods.take_any({"popc", "and", "or"});
    i.mods.take_any({"u32", "pred"});
    if (reduction.empty() || i.count() < 3 || i.count() > 4) return false;
    SmallVector<Value*> arguments = {read(i.operand(1), kU32)};
    if (i.count() == 4) arguments.push_back(read(i.operand(2), kU32));
    arguments.push_back(read(i.operand(i.count() - 1), kPredicate));
    llvm::Type* result = reduction == "popc" ? b_.getInt32Ty() : b_.getInt1Ty();
    name = ("llvm.nvvm.barrier.cta.red." + reduction + name + (i.count() == 4 ? ".count" : ".all")).str();
    write(i.operand(0), call_intrinsic(name, result, arguments));
    return true;
  }
  if (op.empty() || i.count() < 1 || i.count() > 2 || (op == "arrive" && i.count() != 2)) return false;
  SmallVector<Value*> arguments;
  for (const Operand& operand : i.statement.operands) arguments.push_back(read(operand, kU32));
  name = ("llvm.nvvm.barrier.cta." + op + name + (i.count() == 2 ? ".count" : ".all")).str();
  call_intrinsic(name, b_.getVoidTy(), arguments);
  return true;
}

// shfl.sync.MODE.b32 d{|p}, a, b, c, mask
bool Translator::emit_shfl(Instruction& i) {
  StringRef mode = i.mods.take_any({"up", "down", "bfly", "idx"});
  if (!i.mods.take("sync") || !i.mods.take("b32") || mode.empty() || i.count() != 5) return false;
  const Operand& to = i.operand(0);
  bool pair = to.kind == Operand::Kind::kPair;
  Value* value = read(i.operand(1), kU32);
  Value* lane = read(i.operand(2), kU32);
  Value* bounds = read(i.operand(3), kU32);
  Value* mask = read(i.operand(4), kU32);
  llvm::Type* result = b_.getInt32Ty();
  if (pair) result = StructType::get(b_.getInt32Ty(), b_.getInt1Ty());
  std::string name = ("llvm.nvvm.shfl.sync." + mode + (pair ? ".i32p" : ".i32")).str();
  Value* shuffled = call_intrinsic(name, result, {mask, value, lane, bounds});
  if (pair) {
    write(to.parts[0], b_.CreateExtractValue(shuffled, 0));
    write(to.parts[1], b_.CreateExtractValue(shuffled, 1));
  } else {
    write(to, shuffled);
  }
  return true;
}

bool Translator::emit_vote(Instruction& i) {
  StringRef op = i.mods.take_any({"all", "any", "uni", "ballot"});
  if (!i.mods.take("sync") || op.empty() || i.count() != 3) return false;
  if (!i.mods.take(op == "ballot" ? "b32" : "pred")) return false;
  Value* predicate = read(i.operand(1), kPredicate);
  Value* mask = read(i.operand(2), kU32);
  llvm::Type* result = op == "ballot" ? b_.getInt32Ty() : b_.getInt1Ty();
  write(i.operand(0), call_intrinsic(("llvm.nvvm.vote." + op + ".sync").str(), result, {mask, predicate}));
  return true;
}

bool Translator::emit_match(Instruction& i) {
  StringRef op = i.mods.take_any({"any", "all"});
  std::optional<Type> type = take_type(i);
  if (!type || !i.mods.take("sync") || op.empty() || i.count() != 3) return false;
  if (type->bits != 32 && type->bits != 64) return false;
  const Operand& to = i.operand(0);
  Value* value = read(i.operand(1), bits_type(type->bits));
  Value* mask = read(i.operand(2), kU32);
  std::string name = ("llvm.nvvm.match." + op + ".sync.i" + Twine(type->bits)).str();
  if (op == "any") {
    write(to, call_intrinsic(name, b_.getInt32Ty(), {mask, value}));
    return true;
  }
  llvm::Type* pair = StructType::get(b_.getInt32Ty(), b_.getInt1Ty());
  Value* result = call_intrinsic(name + "p", pair, {mask, value});
  bool wants_predicate = to.kind == Operand::Kind::kPair;
  write(wants_predicate ? to.parts[0] : to, b_.CreateExtractValue(result, 0));
  if (wants_predicate) write(to.parts[1], b_.CreateExtractValue(result, 1));
  return true;
}

bool Translator::emit_activemask(Instruction& i) {
  if (!i.mods.take("b32") || i.count() != 1) return false;
  write(i.operand(0), call_intrinsic("llvm.nvvm.activemask", b_.getInt32Ty(), {}));
  return true;
}

bool Translator::emit_redux(Instruction& i) {
  std::optional<Type> type = take_type(i);
  std::string op = i.mods.take_any({"add", "min", "max", "and", "or", "xor"}).str();
  if (!type || type->width() != 32 || !i.mods.take("sync") || op.empty() || i.count() != 3) return false;
  Value* value = read(i.operand(1), *type);
  Value* mask = read(i.operand(2), kU32);
  if (type->is_float()) {
    if (op != "min" && op != "max") return false;
    op = "f" + op;
    if (i.mods.take("abs")) op += ".abs";
    if (i.mods.take("NaN")) op += ".NaN";
  } else if ((op == "min" || op == "max") && !type->is_signed()) {
    op = "u" + op;
  }
  write(i.operand(0), call_intrinsic("llvm.nvvm.redux.sync." + op, value->getType(), {value, mask}));
  return true;
}

bool Translator::emit_elect(Instruction& i) {
  if (!i.mods.take("sync") || i.count() != 2 || i.operand(0).kind != Operand::Kind::kPair) return false;
  llvm::Type* pair = StructType::get(b_.getInt32Ty(), b_.getInt1Ty());
  Value* result = call_intrinsic("llvm.nvvm.elect.sync", pair, {read(i.operand(1), kU32)});
  write(i.operand(0).parts[0], b_.CreateExtractValue(result, 0));
  write(i.operand(0).parts[1], b_.CreateExtractValue(result, 1));
  return true;
}

bool Translator::emit_nanosleep(Instruction& i) {
  if (!i.mods.take("u32") || i.count() != 1) return false;
  call_intrinsic("llvm.nvvm.nanosleep", b_.getVoidTy(), {read(i.operand(0), kU32)});
  return true;
}

bool Translator::emit_trap(Instruction& i) {
  if (i.count() != 0) return false;
  b_.CreateIntrinsic(Intrinsic::trap, ArrayRef<llvm::Type*>(), ArrayRef<Value*>());
  b_.CreateUnreachable();
  start_block(BasicBlock::Create(b_.getContext(), "ptx.next", b_.GetInsertBlock()->getParent()));
  return true;
}

bool Translator::emit_exit(Instruction& i) {
  if (i.count() != 0) return false;
  call_intrinsic("llvm.nvvm.exit", b_.getVoidTy(), {});
  b_.CreateUnreachable();
  start_block(BasicBlock::Create(b_.getContext(), "ptx.next", b_.GetInsertBlock()->getParent()));
  return true;
}

}  // namespace r3::ptx
