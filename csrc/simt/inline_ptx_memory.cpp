// Loads, stores, atomics, fences, asynchronous copies and mbarriers.
#include <llvm/IR/Constants.h>
#include <llvm/IR/Intrinsics.h>

#include "simt/inline_ptx_translate.h"

using namespace llvm;

namespace r3::ptx {
namespace {

constexpr unsigned kGeneric = 0, kGlobal = 1, kShared = 3, kConstant = 4, kLocal = 5;

std::optional<unsigned> take_space(Modifiers& mods) {
  StringRef name = mods.take_any(
      {"global", "shared", "shared::cta", "const", "local", "shared::cluster", "param", "param::entry", "param::func"});
  if (name.empty()) return kGeneric;
  if (name == "global") return kGlobal;
  if (name == "shared" || name == "shared::cta") return kShared;
  if (name == "const") return kConstant;
  if (name == "local") return kLocal;
  // The whole cluster is this block: launches with larger clusters do not run here.
  if (name == "shared::cluster") return kShared;
  return std::nullopt;
}

void take_scope(Modifiers& mods) { mods.take_any({"cta", "cluster", "gpu", "sys"}); }

// Cache operators and hints say nothing about values. True when the instruction has a cache policy as its last operand.
bool take_hints(Modifiers& mods) {
  bool has_policy = mods.take("L2::cache_hint");
  mods.take_prefixed("L1::");
  mods.take_prefixed("L2::");
  mods.take("level::eviction_priority");
  return has_policy;
}

std::optional<AtomicOrdering> take_ordering(Modifiers& mods) {
  StringRef name = mods.take_any({"relaxed", "acquire", "release", "acq_rel", "sc"});
  if (name.empty()) return std::nullopt;
  if (name == "acquire") return AtomicOrdering::Acquire;
  if (name == "release") return AtomicOrdering::Release;
  if (name == "acq_rel") return AtomicOrdering::AcquireRelease;
  if (name == "sc") return AtomicOrdering::SequentiallyConsistent;
  return AtomicOrdering::Monotonic;
}

AtomicRMWInst::BinOp atomic_operation(StringRef name, const Type& type) {
  if (name == "add") return type.is_float() ? AtomicRMWInst::FAdd : AtomicRMWInst::Add;
  if (name == "min") return type.is_signed() ? AtomicRMWInst::Min : AtomicRMWInst::UMin;
  if (name == "max") return type.is_signed() ? AtomicRMWInst::Max : AtomicRMWInst::UMax;
  if (name == "and") return AtomicRMWInst::And;
  if (name == "or") return AtomicRMWInst::Or;
  if (name == "xor") return AtomicRMWInst::Xor;
  if (name == "inc") return AtomicRMWInst::UIncWrap;
  if (name == "dec") return AtomicRMWInst::UDecWrap;
  return AtomicRMWInst::Xchg;
}

}  // namespace

std::optional<Translator::Access> Translator::take_access(Instruction& i) {
  Access access;
  access.is_volatile = i.mods.take("volatile");
  i.mods.take("weak");
  if (i.mods.take("mmio")) access.is_volatile = true;
  if (std::optional<AtomicOrdering> ordering = take_ordering(i.mods)) access.ordering = *ordering;
  take_scope(i.mods);
  std::optional<unsigned> space = take_space(i.mods);
  if (!space) return std::nullopt;
  access.address_space = *space;
  StringRef cache = i.mods.take_any({"ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc"});
  if (cache == "cv" || cache == "wt") access.is_volatile = true;  // not cached: another processor may change it
  if (cache == "nc") i.mods.take_any({"ca", "cg", "cs"});
  return access;
}

bool Translator::emit_ld(Instruction& i) {
  std::optional<Type> type = take_type(i);
  bool has_policy = take_hints(i.mods);
  std::optional<Access> access = take_access(i);
  StringRef vector = i.mods.take_any({"v2", "v4", "v8"});
  if (!type || !access || type->lanes != 1 || i.count() != (has_policy ? 3u : 2u)) return false;
  unsigned lanes = vector.empty() ? 1 : static_cast<unsigned>(vector[1] - '0');
  const Operand& to = i.operand(0);
  if (lanes > 1 && (to.kind != Operand::Kind::kVector || to.parts.size() != lanes)) return false;
  if (lanes == 1 && to.kind == Operand::Kind::kVector) return false;
  Value* pointer = address(i.operand(1), access->address_space);
  llvm::Type* scalar = b_.getIntNTy(type->bits);
  unsigned bytes = type->bits / 8;

  if (lanes > 1 && access->ordering == AtomicOrdering::NotAtomic) {
    auto* wide = FixedVectorType::get(scalar, lanes);
    Value* value = b_.CreateAlignedLoad(wide, pointer, Align(bytes * lanes), access->is_volatile);
    for (unsigned lane = 0; lane < lanes; ++lane) {
      write(to.parts[lane], b_.CreateExtractElement(value, lane), type->is_signed());
    }
    return true;
  }
  for (unsigned lane = 0; lane < lanes; ++lane) {
    Value* place = lane == 0 ? pointer : b_.CreateConstInBoundsGEP1_64(scalar, pointer, lane);
    LoadInst* load = b_.CreateAlignedLoad(scalar, place, Align(bytes), access->is_volatile);
    load->setOrdering(access->ordering);
    write(lanes == 1 ? to : to.parts[lane], load, type->is_signed());
  }
  return true;
}

bool Translator::emit_st(Instruction& i) {
  std::optional<Type> type = take_type(i);
  if (i.mods.take("async") || i.mods.take("bulk")) return false;
  bool has_policy = take_hints(i.mods);
  std::optional<Access> access = take_access(i);
  StringRef vector = i.mods.take_any({"v2", "v4", "v8"});
  if (!type || !access || type->lanes != 1 || i.count() != (has_policy ? 3u : 2u)) return false;
  unsigned lanes = vector.empty() ? 1 : static_cast<unsigned>(vector[1] - '0');
  const Operand& from = i.operand(1);
  if (lanes > 1 && (from.kind != Operand::Kind::kVector || from.parts.size() != lanes)) return false;
  if (lanes == 1 && from.kind == Operand::Kind::kVector) return false;
  Value* pointer = address(i.operand(0), access->address_space);
  llvm::Type* scalar = b_.getIntNTy(type->bits);
  unsigned bytes = type->bits / 8;
  auto source = [&](unsigned lane) {
    return b_.CreateBitCast(read(lanes == 1 ? from : from.parts[lane], *type), scalar);
  };
  if (lanes > 1 && access->ordering == AtomicOrdering::NotAtomic) {
    Value* value = PoisonValue::get(FixedVectorType::get(scalar, lanes));
    for (unsigned lane = 0; lane < lanes; ++lane) value = b_.CreateInsertElement(value, source(lane), lane);
    b_.CreateAlignedStore(value, pointer, Align(bytes * lanes), access->is_volatile);
    return true;
  }
  for (unsigned lane = 0; lane < lanes; ++lane) {
    Value* place = lane == 0 ? pointer : b_.CreateConstInBoundsGEP1_64(scalar, pointer, lane);
    StoreInst* store = b_.CreateAlignedStore(source(lane), place, Align(bytes), access->is_volatile);
    store->setOrdering(access->ordering);
  }
  return true;
}

// atom{.sem}{.scope}{.space}.op{.vec}.type d, [a], b{, c}; red is the same without d. Of a vector, each element is
// atomic by itself, as on the device.
bool Translator::emit_atomic(Instruction& i, bool has_result) {
  std::optional<Type> type = take_type(i);
  bool has_policy = take_hints(i.mods);
  AtomicOrdering ordering = take_ordering(i.mods).value_or(AtomicOrdering::Monotonic);
  take_scope(i.mods);
  std::optional<unsigned> space = take_space(i.mods);
  StringRef op = i.mods.take_any({"add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec"});
  i.mods.take("noftz");
  StringRef vector = i.mods.take_any({"v2", "v4", "v8"});
  size_t first = has_result ? 1 : 0;
  size_t expected = first + (op == "cas" ? 3 : 2) + (has_policy ? 1 : 0);
  if (!type || !space || op.empty() || i.count() != expected) return false;
  if (type->is_float() ? op != "add" && op != "exch" && op != "cas" : !vector.empty()) return false;
  if ((op == "min" || op == "max") && !type->is_integer()) return false;
  Value* pointer = address(i.operand(first), *space);
  Align alignment(type->width() / 8);
  if (op == "cas") {
    llvm::Type* bits = b_.getIntNTy(type->width());
    Value* expected_value = b_.CreateBitCast(read(i.operand(first + 1), *type), bits);
    Value* desired = b_.CreateBitCast(read(i.operand(first + 2), *type), bits);
    AtomicOrdering failure = AtomicCmpXchgInst::getStrongestFailureOrdering(ordering);
    Value* pair = b_.CreateAtomicCmpXchg(pointer, expected_value, desired, alignment, ordering, failure);
    if (has_result) write(i.operand(0), b_.CreateExtractValue(pair, 0));
    return true;
  }
  AtomicRMWInst::BinOp kind = atomic_operation(op, *type);
  unsigned lanes = vector.empty() ? 1 : static_cast<unsigned>(vector[1] - '0');
  const Operand& from = i.operand(first + 1);
  if (lanes > 1) {
    bool vectors = from.kind == Operand::Kind::kVector && from.parts.size() == lanes;
    if (has_result) vectors &= i.operand(0).kind == Operand::Kind::kVector && i.operand(0).parts.size() == lanes;
    if (!vectors) return false;
  }
  llvm::Type* element = type->ir(b_.getContext());
  for (unsigned lane = 0; lane < lanes; ++lane) {
    Value* place = lane == 0 ? pointer : b_.CreateConstInBoundsGEP1_64(element, pointer, lane);
    Value* operand = read(lanes == 1 ? from : from.parts[lane], *type);
    Value* old = b_.CreateAtomicRMW(kind, place, operand, alignment, ordering);
    if (has_result) write(lanes == 1 ? i.operand(0) : i.operand(0).parts[lane], old);
  }
  return true;
}

bool Translator::emit_fence(Instruction& i) {
  AtomicOrdering ordering = AtomicOrdering::AcquireRelease;
  if (i.mods.take("proxy") || i.mods.take("mbarrier_init")) {  // all proxies are one memory here
    i.mods = Modifiers();
  } else if (i.statement.opcode == "membar") {
    if (i.mods.take_any({"cta", "gl", "sys"}).empty()) return false;
    ordering = AtomicOrdering::SequentiallyConsistent;
  } else {
    ordering = take_ordering(i.mods).value_or(AtomicOrdering::SequentiallyConsistent);
    i.mods.take_prefixed("sync_restrict::");
    take_scope(i.mods);
  }
  b_.CreateFence(ordering);
  return true;
}

// cp.async: done at once, so that groups and waits have nothing left to do.
bool Translator::emit_cp(Instruction& i) {
  if (!i.mods.take("async")) return false;
  if (i.mods.take("commit_group") || i.mods.take("wait_all") || i.mods.take("wait_group")) return true;
  if (i.mods.take("mbarrier")) {
    // The copies before it are complete, so its arrive happens now. Without .noinc it raises the pending count first,
    // which its arrive takes back.
    bool arrives = i.mods.take("arrive") && i.mods.take("noinc");
    i.mods.take_any({"shared", "shared::cta"});
    if (!i.mods.take("b64") || i.count() != 1) return false;
    if (arrives) mbarrier_arrive(address(i.operand(0), kShared), b_.getInt64(1), false);
    return true;
  }
  bool has_policy = take_hints(i.mods);
  if (i.mods.take_any({"ca", "cg"}).empty() || i.mods.take_any({"shared", "shared::cta"}).empty() ||
      !i.mods.take("global") || !i.mods.empty()) {
    return false;
  }
  size_t count = i.count() - (has_policy ? 1 : 0);
  if (count < 3 || count > 4) return false;
  std::optional<uint64_t> size = constant(i.operand(2));
  if (!size || (*size != 4 && *size != 8 && *size != 16)) return false;
  Value* to = address(i.operand(0), kShared);
  Value* from = address(i.operand(1), kGlobal);
  llvm::Type* unit = *size == 16 ? static_cast<llvm::Type*>(FixedVectorType::get(b_.getInt32Ty(), 4))
                                 : b_.getIntNTy(static_cast<unsigned>(*size) * 8);
  Align alignment(*size);
  auto copy = [&] { b_.CreateAlignedStore(b_.CreateAlignedLoad(unit, from, alignment), to, alignment); };
  auto clear = [&] { b_.CreateAlignedStore(Constant::getNullValue(unit), to, alignment); };
  std::optional<uint64_t> known = count == 4 ? constant(i.operand(3)) : *size;
  if (known) {
    if (*known > *size) return false;
    if (*known == *size) {
      copy();
    } else {
      clear();
      b_.CreateMemCpy(to, alignment, from, alignment, *known);
    }
    return true;
  }
  // The fourth operand is the number of bytes to read, the rest being 0, or a predicate that asks for all zeros.
  Function* function = b_.GetInsertBlock()->getParent();
  auto new_block = [&] { return BasicBlock::Create(b_.getContext(), "ptx.copy", function); };
  BasicBlock *whole = new_block(), *part = new_block(), *done = new_block();
  bool is_predicate = register_bits(i.operand(3)) == 1;
  Value* bytes = is_predicate ? nullptr : read(i.operand(3), kU32);
  Value* all = is_predicate ? b_.CreateNot(read(i.operand(3), kPredicate))
                            : b_.CreateICmpEQ(bytes, b_.getInt32(static_cast<uint32_t>(*size)));
  b_.CreateCondBr(all, whole, part);
  start_block(whole);
  copy();
  b_.CreateBr(done);
  start_block(part);
  clear();
  if (!is_predicate) b_.CreateMemCpy(to, alignment, from, alignment, b_.CreateZExt(bytes, b_.getInt64Ty()));
  b_.CreateBr(done);
  start_block(done);
  return true;
}

// Windows of the generic space are the generic space: a conversion changes no bits.
bool Translator::emit_cvta(Instruction& i) {
  std::optional<Type> type = take_type(i);
  i.mods.take("to");
  bool param = i.mods.take("param");
  std::optional<unsigned> space = take_space(i.mods);
  if (!type || !space || (*space == kGeneric) != param || i.count() != 2) return false;
  if (type->bits == 32) {
    write(i.operand(0), read(i.operand(1), kU32));
  } else if (type->bits == 64) {
    write(i.operand(0), address_bits(i.operand(1), *space == kShared));
  } else {
    return false;
  }
  return true;
}

bool Translator::emit_isspacep(Instruction& i) {
  StringRef space = i.mods.take_any({"const", "global", "local", "shared", "shared::cta", "shared::cluster"});
  if (space.empty() || i.count() != 2) return false;
  StringRef name = space == "shared::cta" ? "shared" : space == "shared::cluster" ? "shared.cluster" : space;
  Value* pointer = b_.CreateIntToPtr(address_bits(i.operand(1), true), b_.getPtrTy());
  write(i.operand(0), call_intrinsic(("llvm.nvvm.isspacep." + name).str(), b_.getInt1Ty(), {pointer}));
  return true;
}

// A cache policy is a value that only hints read.
bool Translator::emit_createpolicy(Instruction& i) {
  i.mods = Modifiers();
  if (i.count() == 0) return false;
  write(i.operand(0), b_.getInt64(0));
  return true;
}

// An mbarrier is opaque to programs. Here: pending arrivals in bits 0 to 19, expected ones in bits 20 to 39, the
// phase's parity in bit 40. A block runs on one host thread, so its threads need no atomic operations on it; waiting
// loads are volatile, because they are what a waiting loop repeats. Transactions (expect_tx and what completes them)
// are not modelled.
namespace {
constexpr uint64_t kCountMask = 0xfffff;
constexpr unsigned kExpectedShift = 20, kPhaseShift = 40;
}  // namespace

Value* Translator::mbarrier_arrive(Value* pointer, Value* count, bool drop) {
  Value* old = b_.CreateAlignedLoad(b_.getInt64Ty(), pointer, Align(8), true);
  Value* next = b_.CreateSub(old, count);
  if (drop) next = b_.CreateSub(next, b_.CreateShl(count, kExpectedShift));
  Value* complete = b_.CreateICmpEQ(b_.CreateAnd(next, kCountMask), b_.getInt64(0));
  Value* expected = b_.CreateAnd(b_.CreateLShr(next, kExpectedShift), kCountMask);
  Value* flipped = b_.CreateXor(b_.CreateOr(next, expected), uint64_t{1} << kPhaseShift);
  b_.CreateAlignedStore(b_.CreateSelect(complete, flipped, next), pointer, Align(8), true);
  return old;
}

bool Translator::emit_mbarrier(Instruction& i) {
  StringRef op = i.mods.take_any({"init", "inval", "arrive", "arrive_drop", "test_wait", "try_wait", "pending_count"});
  if (!i.mods.take("b64") || op.empty()) return false;
  if (op == "pending_count") {
    if (i.count() != 2) return false;
    Value* state = b_.CreateAnd(read(i.operand(1), kU64), kCountMask);
    write(i.operand(0), b_.CreateTrunc(state, b_.getInt32Ty()));
    return true;
  }
  bool parity = i.mods.take("parity");
  i.mods.take("noComplete");
  i.mods.take_any({"acquire", "release", "relaxed"});
  take_scope(i.mods);
  i.mods.take_any({"shared", "shared::cta"});
  auto place = [&](size_t operand) { return address(i.operand(operand), kShared); };
  auto wide = [&](size_t operand) { return b_.CreateZExt(read(i.operand(operand), kU32), b_.getInt64Ty()); };
  if (op == "init") {
    if (i.count() != 2) return false;
    Value* count = wide(1);
    Value* state = b_.CreateOr(count, b_.CreateShl(count, kExpectedShift));
    b_.CreateAlignedStore(state, place(0), Align(8), true);
  } else if (op == "inval") {
    return i.count() == 1;
  } else if (op == "arrive" || op == "arrive_drop") {
    if (i.count() < 2 || i.count() > 3) return false;
    Value* count = i.count() == 3 ? wide(2) : b_.getInt64(1);
    write(i.operand(0), mbarrier_arrive(place(1), count, op == "arrive_drop"));
  } else {
    if (i.count() != 3 && !(op == "try_wait" && i.count() == 4)) return false;  // the fourth is a time limit
    Value* now = b_.CreateAlignedLoad(b_.getInt64Ty(), place(1), Align(8), true);
    Value* current = b_.CreateAnd(b_.CreateLShr(now, kPhaseShift), 1);
    Value* awaited =
        parity ? b_.CreateAnd(wide(2), 1) : b_.CreateAnd(b_.CreateLShr(read(i.operand(2), kU64), kPhaseShift), 1);
    write(i.operand(0), b_.CreateICmpNE(current, awaited));
  }
  return true;
}

}  // namespace r3::ptx
