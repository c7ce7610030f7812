"""What a kernel's memory holds, from its module."""

import llvmlite.binding as llvm
import pytest

from r3llvm.errors import R3Error
from r3llvm.ir import elements_of, to_text, without_contraction
from tests.modules import bitcode

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
    assert found.parameters == (
        *("f32", "f16", "bytes", "f64", "bytes", "f32", "bytes", "bytes", "bf16", "bytes"),
        "bytes",
    )
    assert found.variables == {"table": "f32", "scale": "f64", "counter": "bytes"}
    assert found.sums == {5}


def test_a_kernel_that_is_not_there_has_none() -> None:
    assert elements_of(module(MODULE), "other").parameters == ()
    with pytest.raises(R3Error, match="not bitcode"):
        elements_of(b"no", "k")


def test_contraction_is_taken_out_and_nothing_else() -> None:
    before, after = (to_text(code) for code in (module(MODULE), without_contraction(module(MODULE))))
    assert "contract" in before
    assert before.replace("contract ", "") == after
    unit = bitcode("unit")
    assert to_text(without_contraction(unit)) == to_text(unit).replace(" contract ", " ")
