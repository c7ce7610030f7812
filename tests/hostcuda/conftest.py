"""The runtime under test, a stand-in for the engine, and the programs that are linked with them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from r3llvm.capture.toolkit import find_toolkit, hostcuda_library
from r3llvm.errors import R3Error
from r3llvm.files import content_hash

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CAPTURED_IMAGE = b"\x50\xed\x55\xba\x01\x00\x10\x00" + (16).to_bytes(8, "little") + b"captured image\0\0"
MODULE = b"variable counter 4 0\nvariable table 64 9\nvariable managed 4 5\n"


@dataclass(frozen=True)
class Outcome:
    status: int
    output: str
    errors: str


@dataclass(frozen=True)
class Program:
    """A test program, to be run with one check's name."""

    path: Path
    environment: dict[str, str]

    def checks(self) -> list[str]:
        return self.run().output.split()

    def run(self, *check: str, **environment: str) -> Outcome:
        done = subprocess.run(
            [self.path, *check],
            env={**os.environ, **self.environment, **environment},
            capture_output=True,
            text=True,
            timeout=60,
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    def passes(self, *check: str, **environment: str) -> Outcome:
        """Runs a check that must hold."""
        outcome = self.run(*check, **environment)
        assert outcome.status == 0, outcome.errors
        return outcome


def compiler() -> str:
    for name in ("clang++-22", "clang++-21", "clang++-20", "clang++", "g++"):
        if shutil.which(name):
            return name
    pytest.skip("no C++ compiler here: install clang-22")


@pytest.fixture(scope="session")
def library() -> Path:
    """Our libcudart.so.13."""
    try:
        return hostcuda_library()
    except R3Error as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def cuda_include() -> Path:
    toolkit = find_toolkit()
    if toolkit is None:
        pytest.skip("no CUDA headers here: pip install nvidia-cuda-runtime nvidia-cuda-crt")
    return toolkit.root / "include"


@pytest.fixture(scope="session")
def build(library: Path, cuda_include: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Program]:
    """Compiles one of the programs here and links it with the library."""
    folder = tmp_path_factory.mktemp("programs")

    def build(source: str) -> Program:
        program = folder / Path(source).stem
        subprocess.run(
            [compiler(), "-std=c++20", "-isystem", cuda_include, HERE / source, "-o", program, library, "-pthread"],
            check=True,
        )
        return Program(program, {"LD_LIBRARY_PATH": str(library.parent)})

    return build


@pytest.fixture(scope="session")
def fake_core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    core = tmp_path_factory.mktemp("core") / "libr3core.so"
    subprocess.run(
        [compiler(), "-std=c++20", "-shared", "-fPIC", f"-I{ROOT / 'csrc'}", HERE / "fake_core.cpp", "-o", core],
        check=True,
    )
    return core


def fill_store(root: Path, module: bytes = MODULE) -> Path:
    """A store as `r3llvm wrap` leaves it, with the module of launch.cpp's first image."""
    name = content_hash(module)
    for folder in ("images", "modules"):
        (root / folder).mkdir(parents=True)
    (root / "images" / content_hash(CAPTURED_IMAGE)).write_text(f"{name}\n")
    (root / "modules" / f"{name}.bc").write_bytes(module)
    (root / "modules" / f"{name}.json").write_text(json.dumps({"hash": name, "arch": "sm_90"}))
    return root


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return fill_store(tmp_path / "store")


@pytest.fixture(scope="session")
def launcher_program(build: Callable[[str], Program]) -> Program:
    return build("launch.cpp")


@pytest.fixture
def launcher(launcher_program: Program, fake_core: Path, store: Path) -> Program:
    """launch.cpp, on the stand-in for the engine and with its module in the store."""
    more = {"R3LLVM_CORE": str(fake_core), "R3LLVM_STORE": str(store)}
    return Program(launcher_program.path, {**launcher_program.environment, **more})
