"""Device modules for tests, from LLVM assembly in tests/modules/."""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path

from r3llvm.toolchain import find_llvm_tool

FOLDER = Path(__file__).parent / "modules"


@functools.cache
def bitcode(name: str) -> bytes:
    """modules/<name>.ll as bitcode of the LLVM that is installed."""
    return assemble((FOLDER / f"{name}.ll").read_bytes())


def assemble(text: bytes) -> bytes:
    """LLVM assembly as bitcode."""
    return _run("llvm-as", text, "-")


def disassemble(bitcode: bytes) -> str:
    """Bitcode as LLVM assembly."""
    return _run("llvm-dis", bitcode, "-").decode()


def _run(tool: str, data: bytes, *arguments: str) -> bytes:
    path = find_llvm_tool(tool)
    assert path, f"{tool} is not installed"
    return subprocess.run([path, *arguments, "-o", "-"], input=data, capture_output=True, check=True).stdout
