"""`r3llvm doctor`: what this machine has, what is missing, and the command that brings it."""

from __future__ import annotations

import json
import os
import platform
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from r3llvm import toolchain
from r3llvm.capture.toolkit import STUB_HEADERS, find_toolkit
from r3llvm.errors import R3Error
from r3llvm.recording import recorder_library
from r3llvm.toolchain import Tool

_PIP = "pip install "
_REINSTALL = "pip install . (in r3llvm's folder)"
_INCLUDES = (Path("/usr/include"), Path("/usr/local/include"))


@dataclass(frozen=True)
class Finding:
    """One line of the report. disables: what does not work without it; remedy: the command that brings it."""

    kind: str
    name: str
    path: str
    version: str
    found: bool
    required: bool
    disables: str
    remedy: str


def examine() -> list[Finding]:
    """Everything that r3llvm looks for, in the order of the report."""
    return [*_tools(), *_libraries(), *_headers(), *_packages(), *_devices()]


@click.command()
@click.option(
    "--json", "as_json", is_flag=True, help="One JSON object: findings, and whether all that is required is there."
)
def command(as_json: bool) -> int:
    """Show every tool, library, header and device that r3llvm uses, what each missing one disables, and how to get it.

    Exits with 1 when something required is missing.
    """
    findings = examine()
    ok = all(finding.found or not finding.required for finding in findings)
    if as_json:
        click.echo(json.dumps({"ok": ok, "findings": [asdict(finding) for finding in findings]}, indent=2))
        return int(not ok)
    # A pipe has no width to fit into: a path or a command cut in two is of no use to anyone.
    console = Console() if Console().is_terminal else Console(width=240)
    console.print(_found_table(findings))
    missing = [finding for finding in findings if not finding.found]
    if missing:
        console.print(_missing_table(missing))
    console.print("all that is required is there" if ok else "[red]something required is missing[/red]")
    return int(not ok)


def _found_table(findings: list[Finding]) -> Table:
    table = Table("kind", "found", "version", title="r3llvm doctor", title_justify="left")
    table.add_column("path", overflow="fold")
    for finding in findings:
        if finding.found:
            table.add_row(*map(escape, (finding.kind, finding.name, finding.version, finding.path)))
    return table


def _missing_table(missing: list[Finding]) -> Table:
    table = Table("missing", "disables", title="missing", title_justify="left")
    table.add_column("get it with", overflow="fold")
    for finding in missing:
        style = "red" if finding.required else None
        name = finding.name + (" (required)" if finding.required else "")
        table.add_row(*map(escape, (name, finding.disables, finding.remedy)), style=style)
    return table


def _finding(kind: str, tool: Tool, disables: str, remedy: str, required: bool = False) -> Finding:
    return Finding(kind, tool.name, tool.path, tool.version, tool.found, required, disables, remedy)


def _program(name: str, path: Path | None, disables: str, remedy: str, required: bool = False) -> Finding:
    tool = Tool(name, str(path), toolchain.version_of(path)) if path else Tool(name)
    return _finding("tool", tool, disables, remedy, required)


def _tools() -> Iterator[Finding]:
    llvm, nvcc = toolchain.find_llvm_tool, toolchain.find_cuda_tool
    yield _program("clang++", toolchain.find_clang(), "wrap", _apt("clang-22"), required=True)
    yield _program("opt", llvm("opt"), "running reproducers and best pipelines outside r3llvm", _apt("llvm-22"))
    yield _program("llc", llvm("llc"), "running reproducers outside r3llvm", _apt("llvm-22"))
    yield _program("llvm-config", llvm("llvm-config"), "building the extension", _apt("llvm-22-dev"))
    yield _program("lld", llvm("ld.lld"), "wrapping builds that link with lld", _apt("lld-22"))
    yield _program("ptxas", nvcc("ptxas"), "wrap, replay, tune", _PIP + "nvidia-cuda-nvcc", required=True)
    yield _program("fatbinary", nvcc("fatbinary"), "wrap", _PIP + "nvidia-cuda-nvcc", required=True)
    yield _program("nvcc", nvcc("nvcc"), "wrapping builds that call nvcc", _PIP + "nvidia-cuda-nvcc nvidia-nvvm")
    sanitizer = "replay --sanitize, the check of a winner on a GPU"
    yield _program(
        "compute-sanitizer",
        nvcc("compute-sanitizer"),
        sanitizer,
        _apt("cuda-sanitizer-13-0") + " (NVIDIA's repository)",
    )
    for name, package in (("g++", "g++"), ("cmake", "cmake"), ("ninja", "ninja-build")):
        yield _program(name, _which(name), "building the extension", _apt(package))


def _libraries() -> Iterator[Finding]:
    yield _finding("library", toolchain.native_version(), "replay, tune", _REINSTALL, required=True)
    for name, disables in (("libr3core.so", "running kernels on the CPU"), ("libcudart.so.13", "the host device")):
        path = toolchain.LIBRARIES / name
        yield _finding("library", Tool(name, str(path) if path.exists() else ""), disables, _REINSTALL, required=True)
    yield _recorder()
    libdevice = toolchain.find_libdevice()
    tool = Tool("libdevice", str(libdevice) if libdevice else "")
    yield _finding("library", tool, "wrap (device math)", _PIP + "nvidia-nvvm", required=True)
    toolkit = find_toolkit()
    runtime = toolkit.library_directory if toolkit else None
    yield _finding(
        "library", Tool("CUDA runtime", str(runtime or "")), "linking programs for a GPU", _PIP + "nvidia-cuda-runtime"
    )


def _recorder() -> Finding:
    try:
        tool = Tool("libr3recorder.so", str(recorder_library()))
    except R3Error:
        tool = Tool("libr3recorder.so")
    return _finding("library", tool, "record on a GPU", _REINSTALL)


def _headers() -> Iterator[Finding]:
    toolkit = find_toolkit()
    version = toolchain.cuda_header_version(toolkit) if toolkit else ""

    def header(name: str, path: Path | None, version: str = "") -> Tool:
        return Tool(name, str(path), version) if path and path.exists() else Tool(name)

    include = toolkit.root / "include" if toolkit else None
    runtime = header("cuda_runtime.h", include / "cuda_runtime.h" if include else None, version)
    yield _finding("header", runtime, "wrap", _PIP + "nvidia-cuda-runtime nvidia-cuda-crt", required=True)
    cccl = header("CCCL (Thrust, CUB)", toolkit.cccl if toolkit else None)
    yield _finding("header", cccl, "programs that use Thrust or CUB", _PIP + "nvidia-cuda-cccl")
    curand = header("cuRAND", include / "curand_kernel.h" if include else None)
    yield _finding("header", curand, "programs that use cuRAND", _PIP + "nvidia-curand")
    stub = header("stub headers", STUB_HEADERS / "curand_mtgp32_kernel.h")
    yield _finding("header", stub, "wrap where cuRAND is missing", _REINSTALL, required=True)
    for name, package in (
        ("zstd.h", "libzstd-dev"),
        ("sodium.h", "libsodium-dev"),
        ("boost/context/fiber.hpp", "libboost-context-dev"),
        ("nlohmann/json.hpp", "nlohmann-json3-dev"),
    ):
        path = next((folder / name for folder in _INCLUDES if (folder / name).exists()), None)
        yield _finding("header", header(name, path), "building the extension", _apt(package))


def _packages() -> Iterator[Finding]:
    for name, disables in (
        ("click", "everything"),
        ("rich", "everything"),
        ("pydantic", "recordings"),
        ("SQLAlchemy", "tune"),
        ("zstandard", "recordings"),
        ("numpy", "tune"),
        ("nevergrad", "tune"),
        ("llvmlite", "looking into modules"),
        ("pyelftools", "record"),
    ):
        yield _finding("package", toolchain.python_package(name), disables, _PIP + name, required=True)
    yield _finding("package", toolchain.python_package("pycuda"), "measuring on a GPU", _PIP + "'r3llvm[cuda]'")


def _devices() -> Iterator[Finding]:
    cores = len(os.sched_getaffinity(0))
    yield _finding("device", Tool("host", f"{cores} cores", platform.machine()), "", "")
    gpus = toolchain.gpus()
    for gpu in gpus:
        tool = Tool(gpu.name, f"{gpu.memory >> 20} MiB, compute capability {gpu.capability}", f"CUDA {gpu.driver}")
        yield _finding("device", tool, "", "")
    if not gpus:
        yield _finding("device", Tool("NVIDIA GPU"), "times on real hardware", "an NVIDIA GPU and its driver")


def _which(name: str) -> Path | None:
    path = shutil.which(name)
    return Path(path) if path else None


def _apt(package: str) -> str:
    return f"apt-get install {package}"
