"""nvcc command lines, and what clang's device front end is told of them."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from r3llvm.capture import Store, Wrap
from r3llvm.capture.command import Mode
from r3llvm.capture.fatbinary import images_of
from r3llvm.capture.nvcc import NvccCommand, quote_value, split_list
from r3llvm.errors import UsageError
from r3llvm.files import content_hash
from r3llvm.toolchain import find_clang, find_cuda_tool


def parse(text: str) -> NvccCommand:
    return NvccCommand.parse(["nvcc", *shlex.split(text)])


def front_end(text: str) -> list[str]:
    return parse(text).for_clang("clang++", "sm_90").words


@pytest.mark.parametrize(
    ("text", "mode", "sources"),
    [
        ("-c a.cu", Mode.OBJECT, ["a.cu"]),
        ("a.cu b.cpp c.o -o app", Mode.LINK, ["a.cu"]),
        ("-x cu a.cpp -o app", Mode.LINK, ["a.cpp"]),
        ("--x=cu -dc a.cpp", Mode.OBJECT, ["a.cpp"]),
        ("-odir out -c a.cu b.cu", Mode.OBJECT, ["a.cu", "b.cu"]),
        ("-E a.cu", Mode.OTHER, ["a.cu"]),
        ("-M a.cu", Mode.OTHER, ["a.cu"]),
        ("-cubin a.cu", Mode.OTHER, ["a.cu"]),
        ("--dryrun a.cu", Mode.OTHER, ["a.cu"]),
        ("-dlink a.o", Mode.OTHER, []),
        ("-v __cmake_determine_cuda", Mode.LINK, []),
        ("--version", Mode.OTHER, []),
    ],
)
def test_what_a_command_asks_for(text: str, mode: Mode, sources: list[str]) -> None:
    command = parse(text)
    assert (command.mode, command.cuda_sources) == (mode, sources)


@pytest.mark.parametrize(
    ("text", "archs"),
    [
        ("-arch=sm_80", ["sm_80"]),
        ("-arch sm_90a", ["sm_90a"]),
        ("--gpu-architecture=compute_75 --gpu-code=sm_75,compute_75", ["sm_75"]),
        ("-gencode arch=compute_80,code=sm_80 -gencode=arch=compute_90,code=[sm_90,compute_90]", ["sm_80", "sm_90"]),
        ("--generate-code arch=compute_90,code=sm_90", ["sm_90"]),
        ("-arch=native", []),
        ("-arch=all-major", []),
    ],
)
def test_every_spelling_of_an_architecture(text: str, archs: list[str]) -> None:
    assert parse(f"{text} a.cu").archs == archs


def test_the_architecture_to_capture() -> None:
    several = parse("-gencode arch=compute_80,code=sm_80 -gencode arch=compute_100,code=sm_100 a.cu")
    assert several.arch("sm_80") == "sm_80"
    assert several.arch("sm_90") == "sm_100"
    assert parse("a.cu").arch("sm_90") == "sm_90"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"'-DPAIR=1\,2'", "-DPAIR=1,2"),
        ("-D A=1 --define-macro B", "-DB"),
        ("-Iinclude", "-Iinclude"),
        ("-I include,more", "-Imore"),
        ("--include-path=include", "-Iinclude"),
        ("-std=c++17", "-std=c++17"),
        ("--std c++20", "-std=c++20"),
        ("-use_fast_math", "-fgpu-approx-transcendentals"),
        ("--use_fast_math", "-fgpu-flush-denormals-to-zero"),
        ("-ftz=true", "-fgpu-flush-denormals-to-zero"),
        ("-fmad=false", "-ffp-contract=off"),
        ("-default-stream per-thread", "-DCUDA_API_PER_THREAD_DEFAULT_STREAM=1"),
        ("-Xcompiler -DFROM_HOST,-Wall", "-DFROM_HOST"),
        (r"-Xcompiler ,\"-fPIC\",\"-DX\"", "-DX"),
        ("--no-exceptions", "-fno-exceptions"),
        ("-forward-unknown-to-host-compiler -fno-rtti", "-fno-rtti"),
    ],
)
def test_what_the_device_front_end_is_told(text: str, expected: str) -> None:
    assert expected in front_end(f"{text} -c a.cu")


@pytest.mark.parametrize(
    "text",
    [
        *("-Xcompiler -O3,-fPIC,-march=native", "-Xlinker -rpath,/lib", "-Xptxas -v", "-lineinfo", "-G", "-g", "-O3"),
        *("--extended-lambda", "--expt-relaxed-constexpr", "-t 4", "-t4", "--threads=0", "-m64", "-lm -L/lib", "-w"),
        *("-ccbin g++", "-cudart shared", "--keep --keep-dir out", "-Xcudafe --diag_suppress=1", "-MD -MF a.d"),
    ],
)
def test_what_means_nothing_to_the_device_front_end(text: str) -> None:
    assert front_end(f"{text} a.cu") == front_end("a.cu")
    assert parse(f"{text} a.cu").unknown == []


def test_the_assembler_and_the_code_generator_do_as_the_build_asked() -> None:
    command = parse("-maxrregcount 64 -Xptxas -v,-O2,-dlcm=ca --ptxas-options=-warn-spills -prec-div=false a.cu")
    assert command.assembler == ["-maxrregcount=64", "-O2", "-dlcm=ca"]
    assert command.codegen == ["-nvptx-prec-divf32=1"]
    assert parse("-use_fast_math a.cu").codegen == ["-nvptx-prec-divf32=0", "-nvptx-prec-sqrtf32=0"]
    assert parse("-use_fast_math -prec-sqrt=true a.cu").codegen == ["-nvptx-prec-divf32=0"]
    assert parse("-fmad=false a.cu").codegen == ["-nvptx-fma-level=0"]
    assert parse("a.cu").codegen == []


def test_relocatable_device_code() -> None:
    assert parse("-dc a.cu").relocatable
    assert parse("-rdc=true a.cu").relocatable
    assert parse("--relocatable-device-code true a.cu").relocatable
    assert not parse("-rdc=false a.cu").relocatable
    assert not parse("a.cu").relocatable


def test_option_files(tmp_path: Path) -> None:
    (tmp_path / "more.rsp").write_text('-I"with space" -DINNER')
    command = parse(f"--options-file {tmp_path}/more.rsp -c a.cu")
    assert command.values("include-path") == ["with space"]
    assert command.values("define-macro") == ["INNER"]
    with pytest.raises(UsageError, match=r"missing\.rsp"):
        parse("--options-file missing.rsp -c a.cu")
    (tmp_path / "loop.rsp").write_text(f"-optf {tmp_path}/loop.rsp")
    with pytest.raises(UsageError, match="without end"):
        parse(f"-optf {tmp_path}/loop.rsp")


def test_what_the_environment_adds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NVCC_PREPEND_FLAGS", "-DX='a b' -arch=sm_80")
    monkeypatch.setenv("NVCC_APPEND_FLAGS", "-DY")
    command = parse("-DZ -c a.cu")
    assert command.values("define-macro") == ["X=a b", "Z", "Y"]
    assert command.archs == ["sm_80"]
    # nvcc adds them again by itself.
    assert command.object_words("a.cu", Path("a.o"))[:3] == ["nvcc", "--define-macro", "Z"]
    monkeypatch.setenv("NVCC_APPEND_FLAGS", "'")
    with pytest.raises(UsageError, match="NVCC_APPEND_FLAGS"):
        parse("-c a.cu")


@given(st.lists(st.text(st.characters(codec="ascii", exclude_characters="\"'"), min_size=1)))
def test_lists_survive_quoting(values: list[str]) -> None:
    assert split_list(",".join(map(quote_value, values))) == values


@given(st.lists(st.text(max_size=8), max_size=6))
def test_any_words_are_taken_apart(words: list[str]) -> None:
    try:
        command = NvccCommand.parse(["nvcc", *words])
    except UsageError:
        return
    assert len(command.inputs) <= len(words)


nvcc = find_cuda_tool("nvcc")
needs_nvcc = pytest.mark.skipif(nvcc is None or find_clang() is None, reason="needs nvcc and clang")

PROGRAM = """
#include <cstdio>
__device__ int counter;
static __global__ void hidden(int* p) { *p = 1; }
namespace { __global__ void anonymous(int* p) { atomicAdd(&counter, *p); } }
__global__ void plain(float* p, float x) { *p = x / 3.0f; }
void launch(int* p, float* q) { hidden<<<1, 1>>>(p); anonymous<<<1, 1>>>(p); plain<<<1, 1>>>(q, 2); }
"""


@needs_nvcc
@pytest.mark.parametrize("arguments", ["-c a.cu -o a.o", "a.cu main.cpp -o app", "-use_fast_math -c -x cu a.cu -o a.o"])
def test_nvcc_builds_as_told_and_the_modules_are_stored(
    arguments: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.cu").write_text(PROGRAM)
    Path("main.cpp").write_text("int main() {}")
    words = [str(nvcc), "-arch=sm_90", *shlex.split(arguments)]
    subprocess.run(words, check=True)
    output = Path(words[-1])
    plain = images_of(output)
    notes: list[str] = []
    store = Store(tmp_path / "store")
    assert Wrap(store, clang=find_clang(), strict=True, note=notes.append).run(words) == 0
    assert images_of(output) == plain  # the rest differs from one nvcc run to the next
    assert notes == []
    owners = [owner for image in images_of(output) if (owner := store.image(content_hash(image)))]
    assert len(owners) == 1
    assert b"plain" in store.module(owners[0])
    assert store.describe(owners[0]).command == tuple(words)
    fast = "-use_fast_math" in words
    assert store.describe(owners[0]).options == (("-nvptx-prec-divf32=0", "-nvptx-prec-sqrtf32=0") if fast else ())


@needs_nvcc
def test_what_nvcc_refuses_ends_as_it_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.cu").write_text("__global__ void k() { nonsense; }")
    assert Wrap(Store(tmp_path / "store"), clang=find_clang()).run([str(nvcc), "-c", "a.cu"]) != 0
    assert not Path("a.o").exists()
    assert not Path("store").exists()


def test_queries_pass_through(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    fake = tmp_path / "nvcc"
    fake.write_text('#!/bin/sh\necho "asked $@"\nexit 3\n')
    fake.chmod(0o755)
    assert Wrap(Store(tmp_path / "store")).run([str(fake), "-v", "__cmake_determine_cuda"]) == 3
    assert capfd.readouterr().out == "asked -v __cmake_determine_cuda\n"
    assert shutil.which(str(fake))
