; RUN: r3-simt-opt pure-intrinsics %s | FileCheck %s

target triple = "nvptx64-nvidia-cuda"

declare float @llvm.nvvm.add.rn.f(float, float)
declare float @llvm.nvvm.add.rz.f(float, float)
declare float @llvm.nvvm.fma.rn.f(float, float, float)
declare i32 @llvm.nvvm.f2i.rz(float)
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare i32 @llvm.nvvm.shfl.sync.idx.i32(i32, i32, i32, i32)
declare float @llvm.nvvm.ldu.global.f.f32.p1(ptr addrspace(1), i32)

; CHECK-LABEL: define float @arithmetic(
; CHECK-NEXT: %[[SUM:.*]] = fadd float %x, %y
; CHECK-NEXT: %[[DOWN:.*]] = call float @r3m_add_f32_rz(float %[[SUM]], float %y)
; CHECK-NEXT: %[[FUSED:.*]] = call float @llvm.fma.f32(float %[[DOWN]], float %x, float %y)
; CHECK-NEXT: ret float %[[FUSED]]
define float @arithmetic(float %x, float %y) {
  %a = call float @llvm.nvvm.add.rn.f(float %x, float %y)
  %b = call float @llvm.nvvm.add.rz.f(float %a, float %y)
  %c = call float @llvm.nvvm.fma.rn.f(float %b, float %x, float %y)
  ret float %c
}

; CHECK-LABEL: define i32 @conversion(
; CHECK-NEXT: %[[WHOLE:.*]] = call float @llvm.trunc.f32(float %x)
; CHECK-NEXT: %[[RESULT:.*]] = call i32 @llvm.fptosi.sat.i32.f32(float %[[WHOLE]])
; CHECK-NEXT: ret i32 %[[RESULT]]
define i32 @conversion(float %x) {
  %r = call i32 @llvm.nvvm.f2i.rz(float %x)
  ret i32 %r
}

; CHECK-LABEL: define float @load(
; CHECK-NEXT: load float, ptr addrspace(1) %p, align 8
define float @load(ptr addrspace(1) %p) {
  %r = call float @llvm.nvvm.ldu.global.f.f32.p1(ptr addrspace(1) %p, i32 8)
  ret float %r
}

; Registers and warp-wide operations are not this step's.
; CHECK-LABEL: define i32 @others(
; CHECK-NEXT: call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
; CHECK-NEXT: call i32 @llvm.nvvm.shfl.sync.idx.i32(
define i32 @others() {
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %r = call i32 @llvm.nvvm.shfl.sync.idx.i32(i32 -1, i32 %t, i32 0, i32 31)
  ret i32 %r
}

; CHECK-DAG: declare float @r3m_add_f32_rz(float, float) #[[PURE:[0-9]+]]
; CHECK-DAG: attributes #[[PURE]] = { nounwind willreturn memory(none) }
