"""A CMake project through each of the ways in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from r3llvm.toolchain import find_clang
from tests.capture.builds import WRAP, Project, needs, needs_nvcc

pytestmark = [needs_nvcc, needs("cmake", "ninja", "make"), pytest.mark.slow]

CONFIGURE = ("cmake", "-B", "build", "-DCMAKE_CUDA_ARCHITECTURES=90")
BUILD = ("cmake", "--build", "build", "-j2")


def shims(project: Project) -> None:
    project.run(*WRAP, "--", *CONFIGURE, "-GNinja")
    assert project.run(*WRAP, "--", *BUILD) == "r3llvm: 2 units captured\n"


def launchers(project: Project) -> None:
    languages = [f"-DCMAKE_{language}_COMPILER_LAUNCHER=r3llvm-cc" for language in ("CUDA", "CXX")]
    project.run(*CONFIGURE, "-GNinja", *languages)
    assert project.run(*BUILD) == ""


def as_compiler(project: Project) -> None:
    project.run(*CONFIGURE, "-GUnix Makefiles", CUDACXX="r3llvm-nvcc")
    assert project.run(*BUILD) == ""


def database(project: Project) -> None:
    project.run(*CONFIGURE, "-GUnix Makefiles", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON")
    words = (*WRAP, "--compile-commands", "build/compile_commands.json")
    assert project.run(*words) == "r3llvm: 2 units captured\n"
    project.run(*BUILD)
    assert project.run(*words) == "r3llvm: 2 units unchanged\n"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project("cmake", tmp_path_factory.mktemp("cmake"))


@pytest.fixture(scope="module")
def expected(project: Project) -> set[str]:
    """The modules as plain wrapped commands give them."""
    project.environment["R3LLVM_STORE"] = str(project.folder.parent / "expected")
    for source in ("scale.cu", "shift.cu"):
        compile_it = f"-Iinclude -std=c++17 -arch=sm_90 -x cu -c {project.folder}/{source} -o {source}.o"
        project.run("r3llvm-nvcc", *compile_it.replace("-Iinclude", f"-I{project.folder}/include").split())
    modules = {path.stem for path in (project.folder.parent / "expected").glob("modules/*.bc")}
    assert len(modules) == 2
    return modules


@pytest.mark.parametrize("way", [shims, launchers, as_compiler, database])
def test_all_ways_in_give_the_same_store(
    way: Callable[[Project], None], project: Project, expected: set[str], tmp_path: Path
) -> None:
    project.environment["R3LLVM_STORE"] = str(tmp_path / "store")
    project.store.root = tmp_path / "store"
    project.run("rm", "-rf", "build")
    way(project)
    assert set(project.modules()) == expected  # and none of CMake's probes
    assert project.sources_of("build/app") == ["scale.cu", "shift.cu"]


def test_clang_as_cmakes_cuda_compiler(project: Project, tmp_path: Path) -> None:
    project.environment["R3LLVM_STORE"] = str(tmp_path / "store")
    project.store.root = tmp_path / "store"
    project.run("rm", "-rf", "build")
    project.run(*WRAP, "--", *CONFIGURE, "-GNinja", f"-DCMAKE_CUDA_COMPILER={find_clang()}")
    assert project.run(*WRAP, "--", *BUILD) == "r3llvm: 2 units captured\n"
    assert len(project.modules()) == 2
    assert project.sources_of("build/app") == ["scale.cu", "shift.cu"]


def test_separable_compilation(tmp_path: Path) -> None:
    project = Project("separable", tmp_path)
    project.run(*WRAP, "--", *CONFIGURE, "-GNinja")
    assert project.run(*WRAP, "--", *BUILD) == "r3llvm: 3 units captured\n"
    assert project.sources_of("build/app") == ["cmake_device_link.o"]
    [linked] = [path for path in project.store.root.glob("modules/*.json") if project.store.describe(path.stem).units]
    assert len(project.store.describe(linked.stem).units) == 3
    # The kernels of the program and of a library, with what they call in another.
    bitcode = project.store.module(linked.stem)
    for name in (b"clear_kernel", b"lookup_kernel", b"_Z5entryi", b"table"):
        assert name in bitcode
