; RUN: r3-simt-opt inline-ptx %s | FileCheck %s

target triple = "nvptx64-nvidia-cuda"

; CHECK-LABEL: define void @barrier_of_the_compiler(
; CHECK-NEXT: ret void
define void @barrier_of_the_compiler() {
  call void asm sideeffect "", "~{memory}"()
  call void asm sideeffect "// only a remark", "~{memory}"()
  call void asm sideeffect ".pragma \22nounroll\22;", ""()
  ret void
}

; Volatile, relaxed and acquire loads stay what a spin loop can be recognised by.
; CHECK-LABEL: define i32 @loads(
; CHECK: load volatile i32, ptr addrspace(1) %{{.*}}, align 4
; CHECK: load atomic i32, ptr %{{.*}} monotonic, align 4
; CHECK: load atomic i32, ptr addrspace(1) %{{.*}} acquire, align 4
; CHECK: load <4 x i32>, ptr addrspace(1) %{{.*}}, align 16
; CHECK-NOT: asm
define i32 @loads(ptr %p) {
  %a = call i32 asm sideeffect "ld.volatile.global.u32 $0, [$1];", "=r,l"(ptr %p)
  %b = call i32 asm sideeffect "ld.relaxed.gpu.u32 $0, [$1+4];", "=r,l"(ptr %p)
  %c = call i32 asm sideeffect "ld.acquire.sys.global.b32 $0, [$1+$2];", "=r,l,n"(ptr %p, i32 8)
  %d = call { i32, i32, i32, i32 } asm "ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {$0,$1,$2,$3}, [$4];", "=r,=r,=r,=r,l"(ptr %p)
  %e = extractvalue { i32, i32, i32, i32 } %d, 3
  %s = add i32 %a, %b
  %t = add i32 %s, %c
  %u = add i32 %t, %e
  ret i32 %u
}

; 32-bit shared addresses are widened with zeros.
; CHECK-LABEL: define void @shared(
; CHECK: %[[WIDE:.*]] = zext i32 %{{.*}} to i64
; CHECK: %[[SUM:.*]] = add i64 %[[WIDE]], 16
; CHECK: %[[POINTER:.*]] = inttoptr i64 %[[SUM]] to ptr addrspace(3)
; CHECK: store i32 %v, ptr addrspace(3) %[[POINTER]], align 4
define void @shared(i32 %address, i32 %v) {
  call void asm sideeffect "st.shared.u32 [$0+16], $1;", "r,r"(i32 %address, i32 %v)
  ret void
}

; CHECK-LABEL: define i32 @atomics(
; CHECK: atomicrmw add ptr addrspace(1) %{{.*}}, i32 %v monotonic, align 4
; CHECK: atomicrmw fadd ptr %{{.*}}, <2 x half> %{{.*}} monotonic, align 4
; CHECK: cmpxchg ptr %{{.*}}, i64 %w, i64 0 acq_rel acquire, align 8
; CHECK: atomicrmw uinc_wrap ptr addrspace(3) %{{.*}}, i32 %v monotonic, align 4
; CHECK: fence seq_cst
; CHECK: fence acq_rel
define i32 @atomics(ptr %p, i32 %v, i64 %w) {
  %a = call i32 asm sideeffect "atom.global.add.u32 $0, [$1], $2;", "=r,l,r,~{memory}"(ptr %p, i32 %v)
  call void asm sideeffect "red.relaxed.gpu.add.noftz.f16x2 [$0], $1;", "l,r,~{memory}"(ptr %p, i32 %v)
  %b = call i64 asm sideeffect "atom.acq_rel.sys.cas.b64 $0,[$1],$2,$3;", "=l,l,l,l"(ptr %p, i64 %w, i64 0)
  %c = call i32 asm sideeffect "atom.shared::cta.inc.u32 $0, [$1], $2;", "=r,r,r"(i32 %v, i32 %v)
  call void asm sideeffect "fence.sc.gpu; fence.acq_rel.cta;", "~{memory}"()
  ret i32 %a
}

; CHECK-LABEL: define i32 @collectives(
; CHECK: call { i32, i1 } @llvm.nvvm.shfl.sync.up.i32p(i32 -1, i32 %v, i32 1, i32 0)
; CHECK: call i32 @llvm.nvvm.vote.ballot.sync(i32 -1, i1 %{{.*}})
; CHECK: call void @llvm.nvvm.barrier.cta.sync.aligned.count(i32 1, i32 %v)
; CHECK: call void @llvm.nvvm.barrier.cta.sync.all(i32 0)
; CHECK: call i1 @llvm.nvvm.barrier.cta.red.or.aligned.all(i32 0, i1 %{{.*}})
; CHECK: call void @llvm.nvvm.bar.warp.sync(i32 15)
; CHECK: call i32 @llvm.nvvm.redux.sync.umax(i32 %v, i32 -1)
; CHECK: call i32 @llvm.nvvm.match.any.sync.i64(i32 -1, i64 5)
; CHECK: call { i32, i1 } @llvm.nvvm.elect.sync(i32 -1)
; CHECK: call i32 @llvm.nvvm.read.ptx.sreg.lanemask.lt()
; CHECK: call i32 @llvm.nvvm.read.ptx.sreg.dynamic_smem_size()
; CHECK: call i64 @llvm.nvvm.read.ptx.sreg.globaltimer()
define i32 @collectives(i32 %v) {
  %a = call { i32, i32 } asm sideeffect "{ .reg .pred p; shfl.sync.up.b32 $0|p, $2, 0x1, 0x0, -1; selp.u32 $1, 1, 0, p; }", "=r,=r,r"(i32 %v)
  %b = call i32 asm sideeffect "{ .reg .pred q; setp.ne.u32 q, $1, 0; vote.sync.ballot.b32 $0, q, 0xffffffff; }", "=r,r"(i32 %v)
  call void asm sideeffect "bar.sync 1, $0;", "r"(i32 %v)
  call void asm sideeffect "barrier.sync 0;", ""()
  %c = call i32 asm sideeffect "{ .reg .pred p, q; setp.gt.s32 p, $1, 3; bar.red.or.pred q, 0, p; selp.b32 $0, 1, 0, q; }", "=r,r"(i32 %v)
  call void asm sideeffect "bar.warp.sync 15;", ""()
  %d = call i32 asm sideeffect "redux.sync.max.u32 $0, $1, -1;", "=r,r"(i32 %v)
  %e = call i32 asm sideeffect "match.any.sync.b64 $0, $1, 0xffffffff;", "=r,l"(i64 5)
  %f = call i32 asm sideeffect "{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 $0, 1, 0, p; }", "=r"()
  %g = call i32 asm "mov.u32 $0, %lanemask_lt;", "=r"()
  %h = call i32 asm "mov.u32 $0, %dynamic_smem_size;", "=r"()
  %i = call i64 asm sideeffect "mov.u64 $0, %globaltimer;", "=l"()
  %x = extractvalue { i32, i32 } %a, 1
  %y = add i32 %g, %h
  %z = add i32 %x, %y
  ret i32 %z
}

; CHECK-LABEL: define void @control(
; CHECK: call void @llvm.nvvm.nanosleep(i32 20)
; CHECK: br i1
; CHECK: call void @llvm.nvvm.exit()
; CHECK-NEXT: unreachable
; CHECK: br i1
; CHECK: call void @llvm.trap()
; CHECK-NEXT: unreachable
define void @control(i32 %v) {
  call void asm sideeffect "nanosleep.u32 20;", ""()
  call void asm sideeffect "{ .reg .pred p; setp.eq.s32 p, $0, 0; @p exit; }", "r"(i32 %v)
  call void asm sideeffect "{ .reg .pred p; setp.eq.s32 p, $0, 1; @!p bra LATER; trap; LATER: }", "r"(i32 %v)
  ret void
}

; A condition code set by one statement is read by the next one.
; CHECK-LABEL: define i32 @carry(
; CHECK: %[[FIRST:.*]] = call { i32, i1 } @llvm.uadd.with.overflow.i32(i32 %a, i32 %b)
; CHECK: %[[CARRY:.*]] = extractvalue { i32, i1 } %[[FIRST]], 1
; CHECK: zext i1 %[[CARRY]] to i32
define i32 @carry(i32 %a, i32 %b) {
  %low = call i32 asm sideeffect "add.cc.u32 $0, $1, $2;", "=r,r,r"(i32 %a, i32 %b)
  %high = call i32 asm sideeffect "addc.u32 $0, $1, 0;", "=r,r"(i32 %a)
  %sum = add i32 %low, %high
  ret i32 %sum
}

; CHECK-LABEL: define void @copies(
; CHECK: load <4 x i32>, ptr addrspace(1) %{{.*}}, align 16
; CHECK-NEXT: store <4 x i32> %{{.*}}, ptr addrspace(3) %{{.*}}, align 16
; CHECK: br i1
; CHECK: store i32 0, ptr addrspace(3) %{{.*}}, align 4
; CHECK: call void @llvm.memcpy.p3.p1.i64(ptr addrspace(3) align 4 %{{.*}}, ptr addrspace(1) align 4 %{{.*}}, i64 %{{.*}}, i1 false)
; CHECK-NOT: asm
define void @copies(i32 %to, ptr %from, i32 %bytes) {
  call void asm sideeffect "cp.async.cg.shared.global.L2::128B [$0], [$1], 16;", "r,l"(i32 %to, ptr %from)
  call void asm sideeffect "cp.async.ca.shared::cta.global [$0], [$1], 4, $2;", "r,l,r"(i32 %to, ptr %from, i32 %bytes)
  call void asm sideeffect "cp.async.commit_group;\0Acp.async.wait_group 0;", "~{memory}"()
  ret void
}
