; What has no translation stays, and is named.
; RUN: r3-simt-opt inline-ptx %s 2>&1 | FileCheck %s

target triple = "nvptx64-nvidia-cuda"

; CHECK-DAG: matrix: mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {$0}, {$1}, {$1}, {$0}
; CHECK-DAG: tensor: cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [$0], [$1, {$2}], [$3]
; CHECK-DAG: cluster: mapa.shared::cluster.u32 $0, $1, 0
; CHECK-DAG: transaction: mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], 16
; CHECK-DAG: modifier: add.rn.surprise.f32 $0, $1, $1
; CHECK-DAG: literal: mov.f32 $0, 1
; CHECK-DAG: second: wgmma.fence.sync.aligned
; CHECK-DAG: garbage: ?!

define float @matrix(float %x) {
  ; CHECK: call float asm "mma.sync
  %r = call float asm "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {$0}, {$1}, {$1}, {$0};", "=f,f"(float %x)
  ret float %r
}

define void @tensor(i32 %a, i64 %b, i32 %c, i32 %d) {
  call void asm sideeffect "cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [$0], [$1, {$2}], [$3];", "r,l,r,r"(i32 %a, i64 %b, i32 %c, i32 %d)
  ret void
}

define i32 @cluster(i32 %x) {
  %r = call i32 asm "mapa.shared::cluster.u32 $0, $1, 0;", "=r,r"(i32 %x)
  ret i32 %r
}

define void @transaction(i32 %x) {
  call void asm sideeffect "mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], 16;", "r"(i32 %x)
  ret void
}

define float @modifier(float %x) {
  %r = call float asm "add.rn.surprise.f32 $0, $1, $1;", "=f,f"(float %x)
  ret float %r
}

define float @literal() {
  %r = call float asm "mov.f32 $0, 1;", "=f"()
  ret float %r
}

; The statements before it are not left behind.
; CHECK-LABEL: define i32 @second(
; CHECK-NEXT: call i32 asm
; CHECK-NEXT: ret i32
define i32 @second() {
  %r = call i32 asm sideeffect "mov.u32 $0, 7; wgmma.fence.sync.aligned;", "=r"()
  ret i32 %r
}

define void @garbage() {
  call void asm sideeffect "?!", ""()
  ret void
}
; CHECK-NOT: r3ptx
