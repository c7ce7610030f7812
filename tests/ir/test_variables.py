"""r3llvm.ir.variables: device variables, and what no recording can hold."""

from __future__ import annotations

import pytest

from r3llvm.ir import Reach, device_variables, reach
from tests.modules import assemble

TEXT = b"""target triple = "nvptx64-nvidia-cuda"
@counter = addrspace(1) externally_initialized global i32 3, align 4
@coefficients = addrspace(4) externally_initialized constant [2 x float] zeroinitializer, align 4
@table = internal addrspace(4) constant [2 x i32] [i32 1, i32 2], align 4
@constant = internal addrspace(1) global i32 0, align 4
@"odd name\\22" = internal addrspace(1) global i32 0, align 4
@_ZL6hidden = addrspace(1) externally_initialized global i32 0, align 4
@__cudart_i2opi_f = internal addrspace(1) global [2 x i32] [i32 1, i32 2], align 4
@tile = internal addrspace(3) global [32 x float] undef, align 4
@elsewhere = external addrspace(1) global i32, align 4
@.str = private unnamed_addr constant [3 x i8] c"hi\\00", align 1
@functions = addrspace(1) externally_initialized global [1 x ptr] [ptr @square], align 8
@virtual = linkonce_odr unnamed_addr constant { [1 x ptr] } { [1 x ptr] [ptr @square] }, align 8
@where = addrspace(1) externally_initialized global ptr addrspacecast (ptr addrspace(1) @counter to ptr), align 8
@shared_with_host = addrspace(1) externally_initialized global i32 0, align 4
@llvm.compiler.used = appending global [1 x ptr] [ptr @.str], section "llvm.metadata"
!nvvm.annotations = !{!0}
!0 = !{ptr addrspace(1) @shared_with_host, !"managed", i32 1}
declare ptr @malloc(i64)
declare ptr @cudaGetParameterBufferV2(ptr, i64, i64, i64, i64, i32)
declare { float, float, float, float } @llvm.nvvm.tex.unified.1d.v4f32.s32(i64, i32)
define float @square(float %x) {
  %y = fmul float %x, %x
  ret float %y
}
define void @allocates() {
  %p = call ptr @malloc(i64 4)
  ret void
}
define void @fine() {
  ret void
}
define ptx_kernel void @plain() {
  store i32 1, ptr addrspace(1) @constant
  store i32 1, ptr addrspace(1) @_ZL6hidden
  call void @fine()
  store i32 1, ptr addrspace(1) @counter
  %x = load float, ptr addrspace(4) @coefficients
  %v = load ptr, ptr @virtual
  ret void
}
define ptx_kernel void @heap() {
  call void @allocates()
  ret void
}
define ptx_kernel void @launches() {
  %p = call ptr @cudaGetParameterBufferV2(ptr null, i64 1, i64 1, i64 1, i64 1, i32 0)
  ret void
}
define ptx_kernel void @texture(i64 %t) {
  %p = call { float, float, float, float } @llvm.nvvm.tex.unified.1d.v4f32.s32(i64 %t, i32 0)
  ret void
}
define ptx_kernel void @texture_assembly(i64 %t) {
  %p = call float asm "tex.1d.v4.f32.s32 \\09{$0, _, _, _}, [$1, {0}];", "=f,l"(i64 %t)
  ret void
}
define ptx_kernel void @surface_assembly(i64 %t) {
  call void asm sideeffect "{ @p sust.b.1d.b32.trap [$0, {0}], {0}; }", "l"(i64 %t)
  ret void
}
define float @through(ptr %f) {
  %y = call contract noundef float %f(ptr %f, float 1.0)
  ret float %y
}
define ptx_kernel void @virtual_call(ptr %p) {
  %f = load ptr, ptr %p
  %y = call float @through(ptr %f)
  ret void
}
%pair = type { i32, i32 }
declare %pair @takes(ptr, float)
define ptx_kernel void @direct_call(ptr %p) {
  %y = call %pair @takes(ptr %p, float 1.0)
  call void asm sideeffect "bar.sync %0(;", "r"(i32 1)
  ret void
}
define ptx_kernel void @calls_table() {
  %f = load ptr, ptr addrspace(1) @functions
  ret void
}
define ptx_kernel void @follows() {
  %f = load ptr, ptr addrspace(1) @where
  ret void
}
define ptx_kernel void @managed() {
  store i32 1, ptr addrspace(1) @shared_with_host
  ret void
}
"""


def test_variables_are_what_someone_may_change() -> None:
    assert device_variables(assemble(TEXT)) == (
        *("counter", "coefficients", "constant", 'odd name"', "_ZL6hidden", "functions", "where", "shared_with_host"),
    )


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        ("heap", "allocates on the device"),
        ("launches", "launches kernels from the device"),
        ("texture", "textures or surfaces"),
        ("texture_assembly", "textures or surfaces"),
        ("surface_assembly", "textures or surfaces"),
        ("calls_table", "its variable functions holds the address of function square"),
        ("follows", "its variable where holds the address of variable counter"),
        ("managed", "the managed variable shared_with_host"),
    ],
)
def test_what_no_recording_can_hold_is_named(kernel: str, reason: str) -> None:
    found = reach(assemble(TEXT), [kernel])
    assert list(found) == [kernel]
    assert reason in found[kernel].obstacle


def test_everything_else_is_no_obstacle() -> None:
    assert reach(assemble(TEXT), ["plain", "missing"]) == {"plain": Reach(("constant", "_ZL6hidden"), False, "")}


def test_calls_through_pointers() -> None:
    found = reach(assemble(TEXT), ["plain", "virtual_call", "direct_call"])
    assert {name: kernel.calls_pointers for name, kernel in found.items()} == {
        "plain": False,
        "virtual_call": True,
        "direct_call": False,
    }
