"""r3llvm.ir.layout: how parameters are packed."""

from __future__ import annotations

import pytest

from r3llvm.errors import R3Error
from r3llvm.ir import Slot, parameter_layouts
from tests.modules import assemble, bitcode

TEXT = b"""target datalayout = "e-p6:32:32-i64:64-i128:128-i256:256-v16:16-v32:32-n16:32:64"
target triple = "nvptx64-nvidia-cuda"
%struct.pair = type { double, i8 }
%"struct.(anonymous namespace)::three" = type { float, float, float }
%struct.empty = type { i8 }
declare ptx_kernel void @elsewhere(ptr)
define ptx_kernel void @mixed(ptr noundef %a, ptr byval(%struct.pair) align 8 %b,
    ptr byval(%"struct.(anonymous namespace)::three") align 4 %c, i8 signext %d, i16 %e, i1 zeroext %f, half %g,
    ptr byval({ [2 x i32] }) align 16 %h, i128 %i, ptr byval(%struct.empty) align 1 %j, ptr addrspace(1) %k) {
  ret void
}
define ptx_kernel void @none() {
  ret void
}
"""


def test_parameters_lie_as_ptx_has_them() -> None:
    layouts = parameter_layouts(assemble(TEXT), ["mixed", "none", "elsewhere", "missing"])
    assert layouts == {
        "mixed": (
            Slot(0, 8, 8, "pointer"),
            Slot(8, 16, 8, "aggregate"),
            Slot(24, 12, 4, "aggregate"),
            Slot(36, 1, 1, "scalar"),
            Slot(38, 2, 2, "scalar"),
            Slot(40, 1, 1, "scalar"),
            Slot(42, 2, 2, "scalar"),
            Slot(48, 8, 16, "aggregate"),
            Slot(64, 16, 16, "scalar"),
            Slot(80, 1, 1, "aggregate"),
            Slot(88, 8, 8, "pointer"),
        ),
        "none": (),
    }


def test_a_module_of_the_builders_tests() -> None:
    assert parameter_layouts(bitcode("unit"), ["scale"]) == {
        "scale": (Slot(0, 8, 8, "pointer"), Slot(8, 4, 4, "scalar"))
    }


def test_what_is_no_bitcode() -> None:
    with pytest.raises(R3Error, match=r"^not bitcode that LLVM"):
        parameter_layouts(b"junk", ["k"])
