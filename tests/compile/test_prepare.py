"""_native.prepare: one kernel and what it reaches."""

from __future__ import annotations

import re
import subprocess

import pytest

from r3llvm import _native
from r3llvm.toolchain import find_llvm_tool
from tests.modules import FOLDER, assemble, bitcode, disassemble


@pytest.fixture(scope="module")
def prepared() -> str:
    return disassemble(_native.prepare(bitcode("unit"), "scale"))


def test_only_the_kernel_and_what_it_reaches_stay(prepared: str) -> None:
    defined = re.findall(r"^define [^@]*@([\w.]+)\(", prepared, re.MULTILINE)
    assert sorted(defined) == ["_Z6helperf", "_ZNK9blockIdx4dim3Ev", "scale"]
    assert re.search(r"^define (?!internal)[^@]*ptx_kernel void @scale\(", prepared, re.MULTILINE)
    assert "comdat" not in prepared


def test_state_keeps_name_shape_and_a_use(prepared: str) -> None:
    for name in ("counter", "coefficients", "history"):
        line = re.search(rf"^@{name} = .*$", prepared, re.MULTILINE)
        assert line and "externally_initialized" in line[0] and "internal" not in line[0]
    used = re.search(r"^@llvm.compiler.used = .*$", prepared, re.MULTILINE)
    assert used and all(f"@{name} " in used[0] for name in ("counter", "coefficients", "history"))
    assert "@table" not in used[0] and "@__cudart_table" not in used[0]
    assert "@only_other" not in prepared and "@tile" not in prepared


def test_no_pass_removes_or_reshapes_state() -> None:
    module = _native.prepare(bitcode("unit"), "scale")
    result = _native.compile(module, "default<O3>,globalopt,globaldce,deadargelim,globalopt")
    assert result.status == "ok", result.message
    optimised = disassemble(result.bitcode)
    assert re.search(r"^@history = .*global \[4 x i32\]", optimised, re.MULTILINE)
    assert re.search(r"^@coefficients = .*\[4 x float\]", optimised, re.MULTILINE)
    # A table that nobody writes is a pass's to fold.
    assert "@__cudart_table" not in optimised


def test_builtins_without_storage_are_gone_from_ptx() -> None:
    result = _native.compile(_native.prepare(bitcode("unit"), "scale"), "default<O1>")
    assert result.status == "ok", result.message
    assert b".extern" not in result.ptx and b"blockIdx" not in result.ptx


def test_reflection_knows_the_architecture_and_ftz(prepared: str) -> None:
    body = prepared[prepared.index("@_Z6helperf") :]
    assert "nvvm_reflect" not in prepared
    assert "llvm.nvvm.fabs.ftz.f32(float %x)" in body  # __CUDA_ARCH is 900, the module's flag says ftz
    assert "call float @llvm.nvvm.fabs.f32" not in body and "fneg" not in body  # the other sides of the branches


def test_reflection_without_ftz() -> None:
    text = (FOLDER / "unit.ll").read_bytes().replace(b'!"nvvm-reflect-ftz", i32 1', b'!"nvvm-reflect-ftz", i32 0')
    prepared = disassemble(_native.prepare(assemble(text), "scale"))
    assert "call float @llvm.nvvm.fabs.f32" in prepared and "call float @llvm.nvvm.fabs.ftz" not in prepared


def test_prepared_bitcode_is_deterministic() -> None:
    assert _native.prepare(bitcode("unit"), "scale") == _native.prepare(bitcode("unit"), "scale")


def test_a_missing_kernel_is_named_with_those_that_exist() -> None:
    with pytest.raises(RuntimeError, match=r"no kernel 'missing'; it has scale, other$"):
        _native.prepare(bitcode("unit"), "missing")


@pytest.mark.parametrize("data", [b"", b"junk", b"BC\xc0\xde", bitcode("unit")[:400]])
def test_bytes_that_are_no_bitcode(data: bytes) -> None:
    with pytest.raises(RuntimeError, match=r"^cannot prepare kernel 'scale': ") as error:
        _native.prepare(data, "scale")
    assert "\n" not in str(error.value)


def test_a_host_module_is_refused() -> None:
    host = assemble(b'target triple = "x86_64-pc-linux-gnu"\ndefine void @scale() { ret void }')
    with pytest.raises(RuntimeError, match="not a CUDA device module"):
        _native.prepare(host, "scale")


@pytest.mark.parametrize("pipeline", ["default<O3>", "default<O1>", "function(sroa,gvn),globaldce"])
def test_pipelines_mean_what_they_mean_to_opt(pipeline: str) -> None:
    module = _native.prepare(bitcode("unit"), "scale")
    ours = _native.compile(module, pipeline, features="+ptx80")
    opt = find_llvm_tool("opt")
    assert opt and ours.status == "ok"
    command = [opt, f"-passes={pipeline}", "-mcpu=sm_90", "-mattr=+ptx80", "-o", "-"]
    theirs = subprocess.run(command, input=module, capture_output=True, check=True).stdout
    assert _essence(ours.bitcode) == _essence(theirs)


def _essence(module: bytes) -> str:
    """Function bodies, without attribute group numbers and predecessor comments, whose order means nothing."""
    text = "\n".join(re.findall(r"^define .*?^}", disassemble(module), re.MULTILINE | re.DOTALL))
    return re.sub(r" #\d+|\s*; preds = .*", "", text)
