from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.gpu import PROGRAMS, Folder
from benchmarks.results import ROOT
from r3llvm.errors import R3Error
from r3llvm.recording import recorder_library
from r3llvm.toolchain import gpus


@pytest.fixture(scope="session")
def folder() -> Folder:
    """The programs, on a machine that can run them."""
    if not gpus():
        pytest.skip("no NVIDIA GPU here")
    try:
        recorder_library()
    except R3Error as error:
        pytest.skip(str(error))
    pytest.importorskip("pycuda", reason="PyCUDA is missing: pip install r3llvm[cuda]")
    path = Path(os.environ.get("R3LLVM_BENCH_PROGRAMS", ROOT / "build" / "programs"))
    if not (path / PROGRAMS).exists():
        pytest.skip(f"no programs in {path}: python -m benchmarks.prepare {path}")
    return Folder.open()
