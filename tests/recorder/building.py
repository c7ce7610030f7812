"""Compiles the programs that the tests run."""

from __future__ import annotations

import subprocess
from pathlib import Path

from r3llvm.capture.toolkit import find_toolkit
from r3llvm.toolchain import find_clang

PROGRAMS = Path(__file__).resolve().parent / "programs"


def build(source: str, output: Path, *options: str) -> Path:
    """For tests that have the fixture `fakecuda`, which sees to it that there are a compiler and CUDA's headers."""
    toolkit, clang = find_toolkit(), find_clang()
    assert toolkit and clang
    include = ["-isystem", toolkit.root / "include"]
    subprocess.run([clang, "-std=c++20", *include, PROGRAMS / source, "-o", output, *options], check=True)
    return output
