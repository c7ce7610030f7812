"""What this machine has: compilers, LLVM, the CUDA toolkit, our own libraries, GPUs. `r3llvm doctor` shows it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from r3llvm.capture.toolkit import Toolkit, find_toolkit

LLVM_VERSIONS = (22, 21, 20)  # the first is the one tested
PACKAGE = Path(__file__).resolve().parent
LIBRARIES = PACKAGE / "lib"

# The PTX version that each CUDA release's ptxas understands, newest first, up to the last that LLVM 22 was tested with.
_PTX_VERSIONS = (
    *(((12, 9), 88), ((12, 8), 87), ((12, 7), 86), ((12, 5), 85), ((12, 4), 84), ((12, 3), 83), ((12, 2), 82)),
    *(((12, 1), 81), ((12, 0), 80), ((11, 8), 78)),
)


@dataclass(frozen=True)
class Tool:
    """A program, library, header or Python package. path and version are empty when it is missing or does not say."""

    name: str
    path: str = ""
    version: str = ""

    @property
    def found(self) -> bool:
        return bool(self.path or self.version)


@dataclass(frozen=True)
class Gpu:
    """memory in bytes; driver: the newest CUDA version that it supports."""

    name: str
    capability: str
    memory: int
    driver: str


def find_llvm_tool(name: str) -> Path | None:
    """`opt`, `llc`, `clang++`, …: of $LLVM_CONFIG's LLVM, else the first of name-22, name-21, name-20, name on PATH."""
    config = os.environ.get("LLVM_CONFIG")
    if config and (output := _output([config, "--bindir"])):
        beside = Path(output.strip()) / name
        if beside.exists():
            return beside
    for candidate in (*(f"{name}-{version}" for version in LLVM_VERSIONS), name):
        if path := shutil.which(candidate):
            return Path(path)
    return None


def find_clang() -> Path | None:
    """The clang++ that compiles CUDA."""
    return find_llvm_tool("clang++")


def find_cuda_tool(name: str) -> Path | None:
    """`ptxas`, `fatbinary`, `nvcc`: from the toolkit that the front end uses, else from PATH."""
    toolkit = find_toolkit()
    if toolkit and (toolkit.root / "bin" / name).exists():
        return toolkit.root / "bin" / name
    path = shutil.which(name)
    return Path(path) if path else None


def find_ptxas() -> Path | None:
    """The assembler."""
    return find_cuda_tool("ptxas")


def find_libdevice(toolkit: Toolkit | None = None) -> Path | None:
    """libdevice.10.bc of the toolkit."""
    toolkit = toolkit or find_toolkit()
    path = toolkit.root / "nvvm" / "libdevice" / "libdevice.10.bc" if toolkit else None
    return path if path and path.exists() else None


@cache
def version_of(path: str | Path) -> str:
    """The first version number that `path --version` prints ("22.1.8"); "" when it prints none."""
    output = _output([str(path), "--version"])
    release = re.search(r"\bV(\d+\.\d+\.\d+)", output)  # CUDA's tools: "release 13.0, V13.0.88"
    match = release or re.search(r"(\d+\.\d+(?:\.\d+)*)", output)
    return match[1] if match else ""


def ptx_features(ptxas: Path | None = None) -> list[str]:
    """LLVM's features for the PTX versions that this ptxas understands ("+ptx88"), newest first; none without one."""
    ptxas = ptxas or find_ptxas()
    if ptxas is None:
        return []
    release = tuple(int(part) for part in version_of(ptxas).split(".")[:2] if part)
    return [f"+ptx{version}" for cuda, version in _PTX_VERSIONS if release >= cuda]


def gpus() -> list[Gpu]:
    """The GPUs that the NVIDIA driver offers.

    Asked in a process of its own: CUDA does not survive a fork, and a broken driver must not take this process down.
    """
    output = _output([sys.executable, "-c", _GPU_PROBE], seconds=30)
    return [Gpu(**gpu) for gpu in json.loads(output)] if output.strip() else []


def native_version() -> Tool:
    """r3llvm._native, with the version of the LLVM that it was built with."""
    try:
        from r3llvm import _native
    except ImportError:
        return Tool("r3llvm._native")
    return Tool("r3llvm._native", _native.__file__ or "", f"LLVM {_native.LLVM_VERSION}")


def python_package(name: str) -> Tool:
    """An installed distribution."""
    import importlib.metadata  # here, as it is slow, and compiler launchers need the rest of this module

    try:
        distribution = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return Tool(name)
    return Tool(name, str(distribution.locate_file("")), distribution.version)


def cuda_header_version(toolkit: Toolkit) -> str:
    """CUDA_VERSION of cuda.h as "13.0"; "" when there is none."""
    try:
        match = re.search(
            r"#define CUDA_VERSION (\d+)", (toolkit.root / "include" / "cuda.h").read_text(errors="replace")
        )
    except OSError:
        return ""
    return f"{int(match[1]) // 1000}.{int(match[1]) % 1000 // 10}" if match else ""


def _output(command: list[str], seconds: float = 10) -> str:
    """What the command prints; "" when it cannot be run, fails or hangs."""
    try:
        result = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=seconds)
    except (OSError, subprocess.SubprocessError):
        return ""
    return result.stdout if result.returncode == 0 else ""


_GPU_PROBE = """
import ctypes, json
cuda = ctypes.CDLL("libcuda.so.1")
count, version, result = ctypes.c_int(), ctypes.c_int(), []
if cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(count)) == 0:
    cuda.cuDriverGetVersion(ctypes.byref(version))
    for i in range(count.value):
        device, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
        memory, name = ctypes.c_size_t(), ctypes.create_string_buffer(256)
        cuda.cuDeviceGet(ctypes.byref(device), i)
        cuda.cuDeviceGetName(name, 256, device)
        cuda.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
        cuda.cuDeviceGetAttribute(ctypes.byref(major), 75, device)
        cuda.cuDeviceGetAttribute(ctypes.byref(minor), 76, device)
        result.append(dict(name=name.value.decode(), capability=f"{major.value}.{minor.value}", memory=memory.value,
                           driver=f"{version.value // 1000}.{version.value % 1000 // 10}"))
print(json.dumps(result))
"""
