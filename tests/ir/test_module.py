"""r3llvm.ir: what a module's bitcode tells."""

from __future__ import annotations

import pytest

from r3llvm.errors import R3Error
from r3llvm.ir import instruction_counts, read_kernels, to_text
from tests.modules import assemble, bitcode


def test_kernels_in_the_order_of_the_module() -> None:
    assert [kernel.name for kernel in read_kernels(bitcode("unit"))] == ["scale", "other"]


def test_a_kernel_with_what_it_reaches() -> None:
    scale, other = read_kernels(bitcode("unit"))
    assert scale.functions == ("scale", "_ZNK9blockIdx4dim3Ev", "_Z6helperf")
    assert scale.max_threads == 16 * 4 * 2
    assert scale.features == {"atomic"}
    assert scale.instructions["atomicrmw"] == 1 and scale.instructions["fneg"] == 1  # the latter in the helper
    assert [(p.type, p.is_pointer, p.by_value) for p in scale.parameters] == [
        ("ptr", True, False),
        ("i32", False, False),
    ]
    assert other.functions == ("other",) and other.max_threads == 0
    assert other.features == {"barrier", "inline_asm", "shared"}


def test_features_and_aggregates() -> None:
    text = b"""target triple = "nvptx64-nvidia-cuda"
    %pair = type { double, ptr }
    declare i32 @vprintf(ptr, ptr)
    declare i32 @llvm.nvvm.shfl.sync.down.i32(i32, i32, i32, i32)
    declare void @llvm.trap()
    declare double @__nv_sin(double)
    define void @visited(ptr %f) {
      call void %f()
      call void @visited(ptr %f)
      ret void
    }
    define ptx_kernel void @k(ptr byval(%pair) align 8 %p, double %d) {
      %s = call double @__nv_sin(double %d)
      %l = call i32 @llvm.nvvm.shfl.sync.down.i32(i32 -1, i32 0, i32 1, i32 31)
      %n = call i32 @vprintf(ptr null, ptr null)
      call void @visited(ptr @visited)
      call void @llvm.trap()
      unreachable
    }"""
    (kernel,) = read_kernels(assemble(text))
    assert kernel.features == {"printf", "shuffle", "trap", "device_math", "indirect_call", "fp64"}
    assert kernel.functions == ("k", "visited")
    assert kernel.parameters[0].by_value and not kernel.parameters[0].is_pointer
    assert "byval(%pair)" in kernel.parameters[0].attributes


def test_counts_and_text_of_the_whole_module() -> None:
    counts = instruction_counts(bitcode("unit"))
    assert counts["atomicrmw"] == 1 and counts["ret"] == 7
    assert sum(counts.values()) > sum(read_kernels(bitcode("unit"))[0].instructions.values())
    assert "define ptx_kernel void @scale(" in to_text(bitcode("unit"))


def test_reading_again_gives_the_same_text() -> None:
    """A shared context would rename %struct.… at each reading."""
    assert to_text(bitcode("unit")) == to_text(bitcode("unit"))


@pytest.mark.parametrize("data", [b"", b"junk", bitcode("unit")[:200]])
def test_what_is_no_bitcode(data: bytes) -> None:
    with pytest.raises(R3Error, match=r"^not bitcode that LLVM"):
        read_kernels(data)
