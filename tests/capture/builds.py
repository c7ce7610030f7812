"""Wrapped builds of the small projects beside this file."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from r3llvm.capture import Store
from r3llvm.capture.fatbinary import images_of
from r3llvm.files import content_hash
from r3llvm.toolchain import find_clang, find_cuda_tool

PACKAGES = Path(__file__).resolve().parents[2]
PROJECTS = Path(__file__).resolve().parent / "projects"
WRAP = (sys.executable, "-m", "r3llvm", "wrap", "--device", "cuda")

needs_nvcc = pytest.mark.skipif(
    find_cuda_tool("nvcc") is None or find_clang() is None, reason="needs nvcc and clang (pip install nvidia-cuda-nvcc)"
)


def needs(*programs: str) -> pytest.MarkDecorator:
    """Skips where a program is not on PATH."""
    missing = [program for program in programs if shutil.which(program) is None]
    return pytest.mark.skipif(bool(missing), reason=f"needs {', '.join(missing)} on PATH")


class Project:
    """A copy of a project, a store, and an environment in which compilers and our launchers are found."""

    def __init__(self, name: str, folder: Path) -> None:
        self.folder = folder / name
        shutil.copytree(PROJECTS / name, self.folder)
        self.store = Store(folder / "store")
        nvcc = find_cuda_tool("nvcc")
        assert nvcc is not None
        scripts = folder / "scripts"
        scripts.mkdir()
        for program, function in (("r3llvm-cc", "cc"), ("r3llvm-nvcc", "nvcc")):  # as the installer makes them
            script = scripts / program
            script.write_text(f"#!{sys.executable}\nfrom r3llvm.capture.launchers import {function}\n{function}()\n")
            script.chmod(0o755)
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("R3LLVM_", "CUDA", "NVCC"))},
            "PATH": os.pathsep.join([str(scripts), str(nvcc.parent), os.environ["PATH"]]),
            "CUDA_HOME": str(nvcc.parent.parent),
            "PYTHONPATH": str(PACKAGES),
            "R3LLVM_STORE": str(self.store.root),
            "R3LLVM_DEVICE": "cuda",
            "XDG_CACHE_HOME": str(folder / "cache"),
        }

    def run(self, *words: str | Path, status: int = 0, **environment: str) -> str:
        """Runs a command in the project's folder; returns what it says on stderr that is r3llvm's."""
        done = subprocess.run(
            [*map(str, words)],
            cwd=self.folder,
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
        )
        assert done.returncode == status, done.stdout + done.stderr
        return "".join(line for line in done.stderr.splitlines(keepends=True) if line.startswith("r3llvm:"))

    def modules(self) -> list[str]:
        return sorted(path.stem for path in self.store.root.glob("modules/*.bc"))

    def sources_of(self, program: str) -> list[str]:
        """For each device image of a program that the store knows: the name of its source."""
        owners = [self.store.image(content_hash(image)) for image in images_of(self.folder / program)]
        return sorted(Path(self.store.describe(owner).source).name for owner in owners if owner)
