#include "simt/collectives.h"

#include <llvm/ADT/StringSwitch.h>
#include <llvm/IR/Constants.h>
#include <llvm/IR/Instructions.h>

#include "simt/globals.h"

namespace r3 {
namespace {

constexpr int none = -1;

// A sync operation that yields nothing still has to be told from "not mine": any non-null value says so.
llvm::Value* done(llvm::IRBuilder<>& builder) { return builder.getTrue(); }

}  // namespace

llvm::Value* CollectiveLowering::runtime(llvm::IRBuilder<>& builder, llvm::StringRef name, llvm::Type* result,
                                         llvm::ArrayRef<llvm::Value*> arguments) {
  llvm::SmallVector<llvm::Type*> types;
  for (llvm::Value* argument : arguments) types.push_back(argument->getType());
  llvm::FunctionCallee callee = module_.getOrInsertFunction(name, llvm::FunctionType::get(result, types, false));
  return builder.CreateCall(callee, arguments);
}

bool CollectiveLowering::lower(llvm::CallBase& call) {
  llvm::StringRef name = call.getCalledFunction()->getName();
  llvm::IRBuilder<> builder(&call);
  llvm::Value* value = lowered(call, name, builder);
  if (!value) return false;
  if (!call.getType()->isVoidTy()) call.replaceAllUsesWith(value);
  call.eraseFromParent();
  return true;
}

llvm::Value* CollectiveLowering::lowered(llvm::CallBase& call, llvm::StringRef full, llvm::IRBuilder<>& builder) {
  llvm::Type* i1 = builder.getInt1Ty();
  llvm::Type* i32 = builder.getInt32Ty();
  llvm::Type* i64 = builder.getInt64Ty();
  if (full.starts_with("llvm.trap") || full.starts_with("llvm.debugtrap") || full.starts_with("llvm.ubsantrap")) {
    runtime(builder, "r3rt_trap", builder.getVoidTy(), {});
    return done(builder);
  }
  if (full == "__nvvm_reflect") return builder.getInt32(0);
  llvm::StringRef name = full;
  if (!name.consume_front("llvm.nvvm.")) return nullptr;
  if (name.consume_front("read.ptx.sreg.")) return special_register(name, builder, call.getType());
  if (name.starts_with("barrier") || name == "bar.sync") return barrier(call, name, builder);
  if (name.starts_with("shfl.sync.")) return shuffle(call, name, builder);
  if (name.starts_with("atomic.")) return atomic(call, name, builder);
  if (name.starts_with("membar") || name.starts_with("fence.")) {
    builder.CreateFence(llvm::AtomicOrdering::SequentiallyConsistent);
    return done(builder);
  }
  if (name == "is_explicit_cluster") return builder.getFalse();
  if (name == "exit") {
    runtime(builder, "r3rt_exit", builder.getVoidTy(), {});
    properties_.needs_fibres = true;
    return done(builder);
  }
  if (name == "nanosleep") {
    properties_.needs_fibres = true;
    runtime(builder, "r3rt_spin", builder.getVoidTy(), {});
    return done(builder);
  }
  if (name == "bar.warp.sync") {
    warp(builder, WarpOp::sync, call.getArgOperand(0), builder.getInt64(0));
    return done(builder);
  }
  if (name == "activemask") {
    properties_.needs_fibres = true;
    return runtime(builder, "r3rt_converge", i32, {site(builder)});
  }
  if (name.consume_front("vote.")) {
    bool sync = name.consume_back(".sync");
    WarpOp op = llvm::StringSwitch<WarpOp>(name)
                    .Case("all", WarpOp::vote_all)
                    .Case("any", WarpOp::vote_any)
                    .Case("uni", WarpOp::vote_uni)
                    .Default(WarpOp::ballot);
    properties_.needs_fibres = true;
    llvm::Value* mask = sync ? call.getArgOperand(0) : runtime(builder, "r3rt_converge", i32, {site(builder)});
    llvm::Value* result = warp(builder, op, mask, builder.CreateZExt(call.getArgOperand(sync ? 1 : 0), i64));
    return builder.CreateTrunc(result, op == WarpOp::ballot ? i32 : i1);
  }
  if (name.consume_front("match.")) {
    bool all = name.starts_with("all");
    llvm::Value* value = builder.CreateZExt(call.getArgOperand(1), i64);
    llvm::Value* found = builder.CreateTrunc(
        warp(builder, all ? WarpOp::match_all : WarpOp::match_any, call.getArgOperand(0), value), i32);
    if (!all) return found;
    llvm::Value* pair = builder.CreateInsertValue(llvm::PoisonValue::get(call.getType()), found, 0);
    return builder.CreateInsertValue(pair, builder.CreateICmpNE(found, builder.getInt32(0)), 1);
  }
  if (name.consume_front("redux.sync.")) {
    int op = llvm::StringSwitch<int>(name)
                 .Case("add", int(WarpOp::reduce_add))
                 .Case("min", int(WarpOp::reduce_min))
                 .Case("max", int(WarpOp::reduce_max))
                 .Case("umin", int(WarpOp::reduce_umin))
                 .Case("umax", int(WarpOp::reduce_umax))
                 .Case("and", int(WarpOp::reduce_and))
                 .Case("or", int(WarpOp::reduce_or))
                 .Case("xor", int(WarpOp::reduce_xor))
                 .Case("fmin", int(WarpOp::reduce_fmin))
                 .Case("fmax", int(WarpOp::reduce_fmax))
                 .Case("fmin.NaN", int(WarpOp::reduce_fmin_nan))
                 .Case("fmax.NaN", int(WarpOp::reduce_fmax_nan))
                 .Case("fmin.abs", int(WarpOp::reduce_fmin_abs))
                 .Case("fmax.abs", int(WarpOp::reduce_fmax_abs))
                 .Case("fmin.abs.NaN", int(WarpOp::reduce_fmin_abs_nan))
                 .Case("fmax.abs.NaN", int(WarpOp::reduce_fmax_abs_nan))
                 .Default(none);
    if (op == none) return nullptr;
    llvm::Value* value = call.getArgOperand(0);
    bool is_float = value->getType()->isFloatTy();
    if (is_float) value = builder.CreateBitCast(value, i32);
    llvm::Value* result =
        builder.CreateTrunc(warp(builder, WarpOp(op), call.getArgOperand(1), builder.CreateZExt(value, i64)), i32);
    return is_float ? builder.CreateBitCast(result, builder.getFloatTy()) : result;
  }
  if (name == "elect.sync") {
    llvm::Value* leader =
        builder.CreateTrunc(warp(builder, WarpOp::elect, call.getArgOperand(0), builder.getInt64(0)), i32);
    llvm::Value* lane = context_.field(builder, offsetof(ThreadContext, lane), i32);
    llvm::Value* pair = builder.CreateInsertValue(llvm::PoisonValue::get(call.getType()), leader, 0);
    return builder.CreateInsertValue(pair, builder.CreateICmpEQ(leader, lane), 1);
  }
  if (name.consume_front("isspacep.")) {
    llvm::Value* address = builder.CreatePtrToInt(call.getArgOperand(0), i64);
    unsigned space = llvm::StringSwitch<unsigned>(name)
                         .Case("global", as_global)
                         .Case("const", as_constant)
                         .Case("local", as_local)
                         .Default(as_shared);
    return builder.CreateTrunc(runtime(builder, "r3rt_is_space", i32, {address, builder.getInt32(space)}), i1);
  }
  if (name.starts_with("internal.addrspace.wrap"))
    return builder.CreateAddrSpaceCast(call.getArgOperand(0), call.getType());
  if (name.starts_with("ptr.")) return builder.CreateAddrSpaceCast(call.getArgOperand(0), call.getType());
  if (name.consume_front("cp.async.")) {
    if (name.starts_with("commit.group") || name.starts_with("wait.")) return done(builder);
    unsigned bytes = 0;
    bool partial = name.consume_back(".s");
    if (!(name.consume_front("ca.shared.global.") || name.consume_front("cg.shared.global.")) ||
        name.getAsInteger(10, bytes))
      return nullptr;
    // Copied at once: a wait that comes later finds it done.
    llvm::Value* to = call.getArgOperand(0);
    if (partial) {  // the rest is filled with zeros
      builder.CreateMemSet(to, builder.getInt8(0), bytes, llvm::MaybeAlign(4));
      llvm::Value* length = builder.CreateZExt(call.getArgOperand(2), i64);
      builder.CreateMemCpy(to, llvm::MaybeAlign(4), call.getArgOperand(1), llvm::MaybeAlign(1), length);
    } else {
      builder.CreateMemCpy(to, llvm::MaybeAlign(bytes), call.getArgOperand(1), llvm::MaybeAlign(bytes), bytes);
    }
    return done(builder);
  }
  if (name.starts_with("prefetch") || name.starts_with("pm.event") || name.starts_with("griddepcontrol") ||
      name.starts_with("setmaxnreg") || name.starts_with("compiler.warn") || name.starts_with("discard") ||
      name.starts_with("applypriority"))
    return done(builder);
  return nullptr;
}

llvm::Value* CollectiveLowering::special_register(llvm::StringRef name, llvm::IRBuilder<>& builder, llvm::Type* type) {
  llvm::Type* i32 = builder.getInt32Ty();
  llvm::Type* i64 = builder.getInt64Ty();
  auto triple = [&](llvm::StringRef prefix, std::size_t offset, unsigned w) -> llvm::Value* {
    llvm::StringRef rest = name;
    if (!rest.consume_front(prefix) || rest.size() != 1) return nullptr;
    if (rest == "w") return builder.getInt32(w);
    return context_.field(builder, offset + 4 * (rest[0] - 'x'), i32);
  };
  if (llvm::Value* value = triple("tid.", offsetof(ThreadContext, tid), 0)) return value;
  if (llvm::Value* value = triple("ctaid.", offsetof(ThreadContext, ctaid), 0)) return value;
  if (llvm::Value* value = triple("clusterid.", offsetof(ThreadContext, ctaid), 0))
    return value;  // clusters of one block
  if (llvm::Value* value = triple("ntid.", offsetof(ThreadContext, ntid), 1)) return value;
  if (llvm::Value* value = triple("nctaid.", offsetof(ThreadContext, nctaid), 1)) return value;
  if (llvm::Value* value = triple("nclusterid.", offsetof(ThreadContext, nctaid), 1)) return value;
  if (name.starts_with("cluster.ctaid") || name.starts_with("cluster.ctarank")) return builder.getInt32(0);
  if (name.starts_with("cluster.nctaid") || name.starts_with("cluster.nctarank")) return builder.getInt32(1);
  llvm::Value* lane = name.starts_with("lane") ? context_.field(builder, offsetof(ThreadContext, lane), i32) : nullptr;
  if (name == "laneid") return lane;
  if (name.consume_front("lanemask.")) {
    llvm::Value* bit = builder.CreateShl(builder.getInt32(1), lane);
    llvm::Value* below = builder.CreateSub(bit, builder.getInt32(1));
    if (name == "eq") return bit;
    if (name == "lt") return below;
    if (name == "le") return builder.CreateOr(below, bit);
    if (name == "ge") return builder.CreateNot(below);
    if (name == "gt") return builder.CreateNot(builder.CreateOr(below, bit));
    return nullptr;
  }
  if (name == "warpid") return context_.field(builder, offsetof(ThreadContext, warp), i32);
  if (name == "warpsize") return builder.getInt32(warp_size);
  if (name == "nwarpid") return builder.getInt32(64);
  if (name == "smid") return builder.getInt32(0);
  if (name == "nsmid") return builder.getInt32(1);
  if (name == "gridid") return llvm::ConstantInt::get(type, 1);
  if (name == "dynamic_smem_size") return context_.field(builder, offsetof(ThreadContext, dynamic_shared), i32);
  if (name == "total_smem_size" || name == "aggr_smem_size")
    return context_.field(builder, offsetof(ThreadContext, total_shared), i32);
  if (name == "envreg1" || name == "envreg2") {
    llvm::Value* workspace = context_.field(builder, offsetof(ThreadContext, grid_workspace), i64);
    return builder.CreateTrunc(builder.CreateLShr(workspace, name == "envreg1" ? 32 : 0), i32);
  }
  if (name.starts_with("envreg") || name.starts_with("pm")) return llvm::ConstantInt::get(type, 0);
  if (name.starts_with("clock") || name.starts_with("globaltimer"))
    return builder.CreateTrunc(runtime(builder, "r3rt_clock", i64, {}), type);
  return nullptr;
}

llvm::Value* CollectiveLowering::barrier(llvm::CallBase& call, llvm::StringRef name, llvm::IRBuilder<>& builder) {
  llvm::Type* i32 = builder.getInt32Ty();
  llvm::Value* zero = builder.getInt32(0);
  properties_.needs_fibres = true;
  auto emit = [&](BarrierOp op, llvm::Value* id, llvm::Value* count, llvm::Value* predicate) {
    return runtime(builder, "r3rt_barrier", i32, {builder.getInt32(unsigned(op)), id, count, predicate, site(builder)});
  };
  auto as_predicate = [&](llvm::Value* value) -> llvm::Value* {
    return value->getType()->isIntegerTy(1)
               ? builder.CreateZExt(value, i32)
               : builder.CreateZExt(builder.CreateICmpNE(value, llvm::ConstantInt::get(value->getType(), 0)), i32);
  };
  if (name.starts_with("barrier.cluster.")) {  // a cluster is one block here
    if (name.contains("wait")) emit(BarrierOp::sync, builder.getInt32(16), zero, zero);
    return done(builder);
  }
  if (name.consume_front("barrier.cta.")) {
    bool counted = name.ends_with(".count");
    llvm::Value* id = call.getArgOperand(0);
    llvm::Value* count = counted ? call.getArgOperand(1) : zero;
    if (name.starts_with("sync")) return emit(BarrierOp::sync, id, count, zero);
    if (name.starts_with("arrive")) return emit(BarrierOp::arrive, id, count, zero);
    if (!name.consume_front("red.")) return nullptr;
    llvm::Value* predicate = as_predicate(call.getArgOperand(counted ? 2 : 1));
    BarrierOp op = name.starts_with("popc")  ? BarrierOp::popc
                   : name.starts_with("and") ? BarrierOp::all
                                             : BarrierOp::any;
    llvm::Value* result = emit(op, id, count, predicate);
    return call.getType()->isIntegerTy(1) ? builder.CreateICmpNE(result, zero) : result;
  }
  // The names before LLVM 22.
  if (name == "barrier0") return emit(BarrierOp::sync, zero, zero, zero);
  if (name.consume_front("barrier0.")) {
    BarrierOp op = name == "popc" ? BarrierOp::popc : name == "and" ? BarrierOp::all : BarrierOp::any;
    return emit(op, zero, zero, as_predicate(call.getArgOperand(0)));
  }
  llvm::Value* count = call.arg_size() > 1 ? call.getArgOperand(1) : zero;
  return emit(BarrierOp::sync, call.getArgOperand(0), count, zero);
}

llvm::Value* CollectiveLowering::shuffle(llvm::CallBase& call, llvm::StringRef name, llvm::IRBuilder<>& builder) {
  llvm::Type* i32 = builder.getInt32Ty();
  properties_.needs_fibres = true;
  name.consume_front("shfl.sync.");
  WarpOp op = llvm::StringSwitch<WarpOp>(name.split('.').first)
                  .Case("up", WarpOp::shuffle_up)
                  .Case("down", WarpOp::shuffle_down)
                  .Case("bfly", WarpOp::shuffle_bfly)
                  .Default(WarpOp::shuffle_idx);
  bool is_float = name.contains("f32");
  bool with_predicate = name.ends_with("p");
  llvm::Value* value = call.getArgOperand(1);
  if (is_float) value = builder.CreateBitCast(value, i32);
  llvm::Value* packed = runtime(
      builder, "r3rt_shuffle", builder.getInt64Ty(),
      {builder.getInt32(unsigned(op)), call.getArgOperand(0), value, call.getArgOperand(2), call.getArgOperand(3)});
  llvm::Value* result = builder.CreateTrunc(packed, i32);
  if (is_float) result = builder.CreateBitCast(result, builder.getFloatTy());
  if (!with_predicate) return result;
  llvm::Value* predicate = builder.CreateTrunc(builder.CreateLShr(packed, 32), builder.getInt1Ty());
  llvm::Value* pair = builder.CreateInsertValue(llvm::PoisonValue::get(call.getType()), result, 0);
  return builder.CreateInsertValue(pair, predicate, 1);
}

llvm::Value* CollectiveLowering::warp(llvm::IRBuilder<>& builder, WarpOp op, llvm::Value* mask, llvm::Value* value) {
  properties_.needs_fibres = true;
  return runtime(builder, "r3rt_warp", builder.getInt64Ty(), {builder.getInt32(unsigned(op)), mask, value});
}

// llvm.nvvm.atomic.OP.gen.{i,f}.SCOPE: the atomics with a scope that IR's own instructions lack in older versions.
llvm::Value* CollectiveLowering::atomic(llvm::CallBase& call, llvm::StringRef name, llvm::IRBuilder<>& builder) {
  name.consume_front("atomic.");
  auto [operation, rest] = name.split('.');
  bool is_float = rest.contains(".f.") || call.getType()->isFloatingPointTy();
  llvm::Value* pointer = call.getArgOperand(0);
  constexpr auto order = llvm::AtomicOrdering::SequentiallyConsistent;
  if (operation == "cas") {
    llvm::Value* pair = builder.CreateAtomicCmpXchg(pointer, call.getArgOperand(1), call.getArgOperand(2),
                                                    llvm::MaybeAlign(), order, order);
    return builder.CreateExtractValue(pair, 0);
  }
  using Op = llvm::AtomicRMWInst::BinOp;
  int op = llvm::StringSwitch<int>(operation)
               .Case("add", is_float ? Op::FAdd : Op::Add)
               .Case("exch", Op::Xchg)
               .Case("max", Op::Max)
               .Case("min", Op::Min)
               .Case("inc", Op::UIncWrap)
               .Case("dec", Op::UDecWrap)
               .Case("and", Op::And)
               .Case("or", Op::Or)
               .Case("xor", Op::Xor)
               .Default(none);
  if (op == none) return nullptr;
  return builder.CreateAtomicRMW(Op(op), pointer, call.getArgOperand(1), llvm::MaybeAlign(), order);
}

}  // namespace r3
