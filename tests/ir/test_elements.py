"""What a kernel's memory holds, from its module."""

import llvmlite.binding as llvm
import pytest

from r3llvm.errors import R3Error
from r3llvm.ir import elements_of, to_text, without_contraction

MODULE = """
target triple = "nvptx64-nvidia-cuda"
@table = addrspace(1) global [4 x float] zeroinitializer
@scale = addrspace(4) global double 0.0
@counter = addrspace(1) global i32 0
define internal void @put(ptr %where) noinline {
  store double 1.0, ptr %where
  ret void
}
declare void @elsewhere(ptr)
define ptx_kernel void @k(ptr %plain, ptr %vector, ptr %integer, ptr %passed, ptr %both, ptr %sum, ptr %count,
                          ptr %unused, ptr %brain, ptr %away, float %a) {
entry:
  %x = load float, ptr %plain
  %product = fmul contract float %x, %a
  %result = fadd nnan contract float %product, %a
  store float %result, ptr %plain
  %next = getelementptr i8, ptr %vector, i64 16
  %global = addrspacecast ptr %next to ptr addrspace(1)
  %v = load <4 x half>, ptr addrspace(1) %global
  %i = load i32, ptr %integer
  store i64 4, ptr %both
  store float 4.0, ptr %both
  %old = atomicrmw fadd ptr %sum, float 1.0 seq_cst
  %older = atomicrmw add ptr %count, i32 1 seq_cst
  store bfloat 1.0, ptr %brain
  call void @elsewhere(ptr %away)
  br label %loop
loop:
  %at = phi ptr [ %passed, %entry ], [ %on, %loop ]
  %on = getelementptr i8, ptr %at, i64 8
  call void @put(ptr %on)
  br label %loop
}
"""


def module(text: str) -> bytes:
    return bytes(llvm.parse_assembly(text, llvm.create_context()).as_bitcode())


def test_each_parameter_has_the_type_of_its_accesses() -> None:
    found = elements_of(module(MODULE), "k")
    by_position = [found.pointers.get((position, 0)) for position in range(11)]
    assert by_position == ["f32", "f16", "bytes", "f64", "bytes", "f32", "bytes", None, "bf16", "bytes", None]
    assert found.variables == {"table": "f32", "scale": "f64", "counter": "bytes"}
    assert found.sums == {(5, 0)}


BY_VALUE = """
target triple = "nvptx64-nvidia-cuda"
%grid = type { ptr, i32, ptr, ptr }
define ptx_kernel void @k(i32 %n, ptr byval(%grid) align 8 %grid, ptr %list) {
  %first = load ptr, ptr %grid
  %at = getelementptr inbounds nuw i8, ptr %grid, i64 16
  %second = load ptr, ptr %at
  %on = getelementptr inbounds i8, ptr %at, i64 8
  %third = load ptr, ptr %on
  %count = getelementptr inbounds i8, ptr %grid, i64 8
  %m = load i32, ptr %count
  store float 1.0, ptr %first
  %old = atomicrmw fadd ptr %second, double 1.0 seq_cst
  store i32 %m, ptr %third
  %far = load ptr, ptr %list
  store double 2.0, ptr %far
  ret void
}
"""


def test_pointers_in_structures_that_are_passed_by_value() -> None:
    found = elements_of(module(BY_VALUE), "k")
    assert found.pointers == {(1, 0): "f32", (1, 16): "f64", (1, 24): "bytes", (2, 0): "bytes"}
    assert found.sums == {(1, 16)}


def test_a_kernel_that_is_not_there_has_none() -> None:
    assert elements_of(module(MODULE), "other").pointers == {}
    with pytest.raises(R3Error, match="not bitcode"):
        elements_of(b"no", "k")


def test_contraction_is_taken_out_and_nothing_else() -> None:
    before, after = (to_text(code) for code in (module(MODULE), without_contraction(module(MODULE))))
    assert "contract" in before
    product, fence = (
        "%product = fmul contract float %x, %a",
        "call float @llvm.arithmetic.fence.f32(float %product.product)",
    )
    expected = before.replace(product, f"%product.product = fmul float %x, %a\n  %product = {fence}")
    body = expected.replace("contract ", "").split("define ptx_kernel")[1].split("\n}")[0]
    assert body in after


PRODUCTS = """
target triple = "nvptx64-nvidia-cuda"
define ptx_kernel void @k(ptr %0, float %1, double %2, <2 x half> %v, ptr %wide, ptr %packed) {
  %4 = load float, ptr %0, align 4
  %5 = fmul contract float %4, %1
  %6 = fadd contract float %5, %1
  store float %6, ptr %0, align 4, !tbaa !0
  %"a b" = fmul nnan contract double %2, 3.0, !fpmath !3
  %7 = fadd contract double %"a b", %2
  store double %7, ptr %wide, align 8
  %8 = fmul contract <2 x half> %v, %v
  %9 = fsub contract <2 x half> %8, %v
  store <2 x half> %9, ptr %packed, align 4
  ret void
}
!0 = !{!1, !1, i64 0}
!1 = !{!"float", !2}
!2 = !{!"root"}
!3 = !{float 2.5}
"""


def test_nothing_is_fused_without_contraction() -> None:
    native = pytest.importorskip("r3llvm._native", reason="r3llvm's extension is not built")

    def ptx(code: bytes, *options: str) -> str:
        result = native.compile(code, "default<O3>", options=list(options))
        assert result.status == "ok", result.message
        return str(result.ptx.decode())

    assert "fma." in ptx(module(PRODUCTS))
    unfused = ptx(without_contraction(module(PRODUCTS)), "-nvptx-fma-level=0")
    assert "fma." not in unfused
    for operation in ("mul.rn.f32", "add.rn.f32", "add.rn.f64", "sub.rn.f16x2"):  # not for the assembler to fuse either
        assert operation in unfused
