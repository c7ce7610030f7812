"""ptxas: PTX → cubin, and what the kernel uses."""

from __future__ import annotations

import re
import resource
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from r3llvm.builder.artifact import BuildStatus, Resources
from r3llvm.errors import R3Error
from r3llvm.toolchain import find_ptxas


@dataclass(frozen=True)
class Assembled:
    """cubin and resources are set when status is OK; message is one line otherwise."""

    status: BuildStatus
    message: str = ""
    cubin: bytes = b""
    resources: Resources = field(default_factory=Resources)


class Assembler:
    """Runs ptxas. seconds: wall-clock time it may take; memory_bytes: its address space. Thread-safe.

    Raises R3Error when no ptxas is found.
    """

    def __init__(self, ptxas: Path | None = None, seconds: float = 60.0, memory_bytes: int = 8 << 30) -> None:
        found = ptxas or find_ptxas()
        if found is None:
            raise R3Error("no ptxas found: `pip install nvidia-cuda-nvcc`, or put a CUDA toolkit's bin folder on PATH")
        self.ptxas = found
        self._seconds = seconds
        self._memory_bytes = memory_bytes

    def command(self, arch: str, options: tuple[str, ...] = ()) -> list[str]:
        """The command line, for a folder that holds kernel.ptx."""
        return [str(self.ptxas), "-arch", arch, "-v", *options, "kernel.ptx", "-o", "kernel.cubin"]

    def assemble(self, ptx: bytes, kernel: str, arch: str, options: tuple[str, ...] = ()) -> Assembled:
        """Assembles one kernel's PTX. What is wrong with the PTX or the options comes back as a status."""
        with tempfile.TemporaryDirectory(prefix="r3llvm-") as folder:
            # Always the same names, seen from inside: neither messages nor the cubin depend on where the folder is.
            (Path(folder) / "kernel.ptx").write_bytes(ptx)
            command = self.command(arch, options)
            with subprocess.Popen(
                command,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            ) as process:
                self._confine(process.pid)
                try:
                    report, _ = process.communicate(timeout=self._seconds)
                except subprocess.TimeoutExpired:
                    process.kill()
                    return Assembled(BuildStatus.TIMEOUT, f"ptxas not finished after {self._seconds:g} s")
                except BaseException:
                    process.kill()
                    raise
            if process.returncode:
                return self._failure(process.returncode, report)
            cubin = Path(folder) / "kernel.cubin"
            if not cubin.exists():
                return Assembled(BuildStatus.ASSEMBLER_ERROR, "ptxas wrote no cubin")
            return Assembled(BuildStatus.OK, "", cubin.read_bytes(), parse_resources(report, kernel))

    def _confine(self, pid: int) -> None:
        try:
            resource.prlimit(pid, resource.RLIMIT_AS, (self._memory_bytes, self._memory_bytes))
            resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
        except ProcessLookupError:
            pass  # it has ended already

    def _failure(self, status: int, report: str) -> Assembled:
        lines = [line.strip() for line in report.splitlines() if line.strip()]
        errors = [line for line in lines if re.search(r"\b(error|fatal)\b", line)]
        message = (errors or lines or [""])[0]
        if re.search(r"out of memory|bad_alloc|Memory allocation failure", report):
            return Assembled(
                BuildStatus.MEMORY, f"ptxas out of memory (limit {self._memory_bytes >> 20} MiB): {message}"
            )
        how = f"killed by signal {-status}" if status < 0 else f"exited with status {status}"
        return Assembled(BuildStatus.ASSEMBLER_ERROR, message or f"ptxas {how}")


def parse_resources(report: str, kernel: str) -> Resources:
    """What `ptxas -v` says about `kernel`; zeros for what it does not mention."""
    own = re.search(
        rf"Compiling entry function '{re.escape(kernel)}'.*?(?=Compiling entry function|\Z)", report, re.DOTALL
    )
    # Device functions that were not inlined follow with properties of their own.
    properties = rf"Function properties for {re.escape(kernel)}\n(?P<frame>[^\n]*)"
    text = own[0] if own else ""
    frame = re.search(properties, text)
    used = re.search(r"Used [^\n]*", text)

    def number(pattern: str, line: re.Match[str] | None) -> int:
        match = re.search(pattern, line[0]) if line else None
        return int(match[1]) if match else 0

    return Resources(
        registers=number(r"Used (\d+) registers", used),
        barriers=number(r"used (\d+) barriers", used),
        shared=number(r"(\d+) bytes smem", used),
        constant=sum(int(n) for n in re.findall(r"(\d+) bytes cmem\[\d+\]", used[0])) if used else 0,
        stack=max(number(r"(\d+) bytes cumulative stack size", used), number(r"(\d+) bytes stack frame", frame)),
        spill_stores=number(r"(\d+) bytes spill stores", frame),
        spill_loads=number(r"(\d+) bytes spill loads", frame),
    )
