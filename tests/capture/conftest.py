"""A compiler, a toolkit and a CUDA runtime to link with."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from r3llvm.capture.toolkit import Toolkit, find_toolkit


@pytest.fixture(scope="session")
def clang() -> str:
    for name in ("clang++-22", "clang++-21", "clang++-20", "clang++"):
        if shutil.which(name):
            return name
    pytest.skip("no clang++ here: install clang-22")


@pytest.fixture(scope="session")
def toolkit() -> Toolkit:
    found = find_toolkit()
    if found is None:
        pytest.skip(
            "no CUDA toolkit here: pip install nvidia-cuda-nvcc nvidia-cuda-runtime nvidia-cuda-crt nvidia-nvvm"
        )
    return found


@pytest.fixture
def runtime(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty libcudart.so.13 in the place of the host device's."""
    library = tmp_path_factory.mktemp("runtime") / "libcudart.so.13"
    subprocess.run(
        ["cc", "-shared", "-Wl,-soname,libcudart.so.13", "-o", str(library), "-x", "c", "/dev/null"], check=True
    )
    monkeypatch.setenv("R3LLVM_HOSTCUDA", str(library.parent))
    return library
