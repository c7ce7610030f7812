"""Real kernels from the compiler to the result: captured, executed by the engine, recorded."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from r3llvm.capture import Store
from r3llvm.capture.fatbinary import images_of
from r3llvm.capture.toolkit import find_toolkit
from r3llvm.capture.wrap import Wrap
from r3llvm.files import content_hash
from tests.hostcuda.conftest import HERE, Program
from tests.hostcuda.test_recorder import Recorded

SOURCE = HERE / "kernels.cu"
CHECKS = re.findall(r"^TEST\((\w+)\)", SOURCE.read_text().partition("#if defined(__NVCC__)")[0], re.MULTILINE)
FATAL = {
    "failed_assertion": "assertion `value == 1' failed in block",
    "illegal_address": "access at 0x10 in block (0,0,0), thread (0,0,0)",
    "trapped": "trap in block (0,0,0), thread (0,0,0)",
}


@pytest.fixture(scope="session")
def core(library: Path) -> Path:
    path = Path(os.environ.get("R3LLVM_CORE", library.parent / "libr3core.so"))
    if not path.exists():
        pytest.skip(f"no execution engine here: {path} is not built")
    return path


@pytest.fixture(scope="module")
def clang() -> str:
    for name in ("clang++-22", "clang++-21", "clang++-20"):
        if shutil.which(name):
            return name
    pytest.skip("no clang++ here: install clang-22")


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def kernels(
    library: Path, core: Path, clang: str, captured: Store, tmp_path_factory: pytest.TempPathFactory
) -> Program:
    """kernels.cu, built by clang through the wrapper."""
    program = tmp_path_factory.mktemp("clang") / "kernels"
    command = [clang, "-x", "cuda", "-std=c++20", "--cuda-gpu-arch=sm_90", str(SOURCE), "-o", str(program), "-lcudart"]
    assert Wrap(captured, device="host", strict=True).run(command) == 0
    return Program(program, _environment(library, core, captured))


@pytest.fixture(scope="module")
def kernels_of_nvcc(
    kernels: Program, library: Path, core: Path, captured: Store, tmp_path_factory: pytest.TempPathFactory
) -> Program:
    """kernels.cu, built by nvcc for NVIDIA's shared runtime; it runs the module that clang captured."""
    toolkit = find_toolkit()
    nvcc = toolkit and toolkit.root / "bin" / "nvcc"
    folder = toolkit and toolkit.library_directory
    if not nvcc or not nvcc.exists() or not folder:
        pytest.skip("no nvcc and libcudart here: pip install nvidia-cuda-nvcc nvidia-cuda-runtime")
    program = tmp_path_factory.mktemp("nvcc") / "kernels"
    options = ["-arch=sm_90", "-std=c++20", "-w", "-cudart", "shared", f"-L{folder}"]
    subprocess.run([nvcc, *options, SOURCE, "-o", program], check=True)
    module = captured.image(content_hash(images_of(kernels.path)[0]))
    assert module is not None
    for image in images_of(program):
        captured.add_image(content_hash(image), module)
    return Program(program, _environment(library, core, captured))


def _environment(library: Path, core: Path, store: Store) -> dict[str, str]:
    return {"LD_LIBRARY_PATH": str(library.parent), "R3LLVM_CORE": str(core), "R3LLVM_STORE": str(store.root)}


def _holds(program: Program, check: str) -> None:
    # An access that the processor can do is diagnosed only when asked to.
    environment = {"R3LLVM_CHECK": "1"} if check == "misaligned_address" else {}
    errors = program.passes(check, **environment).errors
    if check in FATAL:
        assert FATAL[check] in errors
        assert errors.count("\n") == 1
    elif check == "misaligned_address":
        assert "misaligned store of 4 bytes" in errors
    else:
        assert errors == ""


@pytest.mark.parametrize("check", CHECKS)
def test_check_holds(kernels: Program, check: str) -> None:
    _holds(kernels, check)


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS)
def test_check_holds_in_a_program_of_nvcc(kernels_of_nvcc: Program, check: str) -> None:
    _holds(kernels_of_nvcc, check)


def test_output_of_host_and_kernel_keeps_its_order(kernels: Program) -> None:
    assert kernels.passes("print").output == "before\nblock 0 says 42\nafter\n"


def test_every_address_is_checked_when_asked_to(kernels: Program) -> None:
    assert kernels.passes("vector_addition", R3LLVM_CHECK="1").errors == ""
    assert kernels.passes("memory_that_the_host_shares", R3LLVM_CHECK="1").errors == ""


def test_a_launch_is_recorded(kernels: Program, captured: Store, tmp_path: Path) -> None:
    kernels.passes("vector_addition", R3LLVM_RECORD=str(tmp_path))
    recording = Recorded(tmp_path)
    (launch,) = recording.launches()
    assert launch.kernel == "_Z3addIfEvPKT_S2_PS0_i"
    assert captured.describe(launch.module).source == str(SOURCE)
    assert [parameter.kind for parameter in launch.parameters] == ["pointer", "pointer", "pointer", "scalar"]
    assert (launch.grid, launch.block) == ((8, 1, 1), (128, 1, 1))
    a, b, c = (region for region in launch.regions if region.kind == "allocation")
    assert a.prologue == a.epilogue
    assert b.prologue == b.epilogue
    assert recording.memory(c.prologue) == bytes(4000)
    assert memoryview(recording.memory(c.epilogue)).cast("f").tolist() == [2 * i + 1 for i in range(1000)]


def test_a_failed_launch_is_refused(kernels: Program, tmp_path: Path) -> None:
    kernels.passes("trapped", R3LLVM_RECORD=str(tmp_path))
    recording = Recorded(tmp_path)
    assert recording.launches() == []
    assert "trap in block" in recording.refusals()["_Z4trapv"]


def test_kernels_of_one_name_in_two_files_are_two(
    clang: str, captured: Store, library: Path, core: Path, tmp_path: Path
) -> None:
    kernel = "static __global__ void same(int* p) {{ *p += {}; }}\n"
    (tmp_path / "a.cu").write_text(kernel.format(1) + "void a(int* p) { same<<<1, 1>>>(p); }\n")
    (tmp_path / "b.cu").write_text(
        kernel.format(10)
        + "void a(int*);\nint main() { int* p; int h = 0; cudaMalloc(&p, 4); cudaMemset(p, 0, 4); a(p);\n"
        + "same<<<1, 1>>>(p); cudaMemcpy(&h, p, 4, cudaMemcpyDeviceToHost); return h != 11; }\n"
    )
    sources = [str(tmp_path / name) for name in ("a.cu", "b.cu")]
    program = tmp_path / "program"
    assert Wrap(captured, device="host", strict=True).run([clang, "-x", "cuda", *sources, "-o", str(program)]) == 0
    Program(program, _environment(library, core, captured)).passes(R3LLVM_RECORD=str(tmp_path))
    first, second = Recorded(tmp_path).launches()
    assert first.kernel == second.kernel
    assert (first.index, second.index) == (0, 1)
    assert first.module != second.module
