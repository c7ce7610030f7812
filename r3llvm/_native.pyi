"""libr3core: LLVM pipelines, PTX and replays on the CPU, each in a child process of its own.

Limits: `seconds` is wall-clock time, `memory_bytes` the growth of the child's address space (0: no limit).
"""

from collections.abc import Sequence
from typing import Literal, TypedDict

LLVM_VERSION: str  # "22.1.8"
CHECK: int  # replay flag: diagnose out-of-bounds and misaligned accesses
COUNT: int  # replay flag: count instructions and memory transactions

def init() -> None:
    """Registers LLVM's targets. The calls below do it by themselves."""

def check_pipeline(passes: str) -> None:
    """Raises ValueError, with LLVM's words, when `opt -passes=` would refuse this text."""

def check_options(options: Sequence[str]) -> None:
    """Raises ValueError for an LLVM option ("-unroll-threshold=400") that is unknown or has a bad value."""

def check_target(cpu: str, features: str = "") -> None:
    """Raises ValueError for an architecture or feature that this LLVM does not know, or that do not go together."""

def list_passes() -> str:
    """JSON: {"module": [name…], "function": […], "loop": […], …, "parameterised": {"function": ["gvn<…>"…], …}}."""

def prepare(bitcode: bytes, kernel: str, seconds: float = ..., memory_bytes: int = ...) -> bytes:
    """The module with nothing but `kernel` and what it reaches. Raises RuntimeError, in one line, when it cannot."""

class BuildResult:
    """message: one line, empty when ok; log: the child's stderr; bitcode and ptx: empty unless ok."""

    @property
    def status(
        self,
    ) -> Literal["ok", "parse_error", "pass_crash", "codegen_crash", "build_timeout", "build_memory"]: ...
    @property
    def message(self) -> str: ...
    @property
    def log(self) -> str: ...
    @property
    def bitcode(self) -> bytes: ...
    @property
    def ptx(self) -> bytes: ...
    @property
    def seconds(self) -> float: ...

def compile(
    bitcode: bytes,
    pipeline: str,
    cpu: str = "sm_90",
    features: str = "",
    codegen_level: int = 3,
    options: Sequence[str] = (),
    seconds: float = ...,
    memory_bytes: int = ...,
) -> BuildResult:
    """Runs the pipeline and lowers to PTX in one child. Never raises for what a pass or the code generator does."""

class ReplayResult(TypedDict):
    """status: "ok", "mismatch", or how the kernel or the child failed, as in r3llvm.runner.measurement.RunStatus.

    differences: (index into regions, differing bytes, first differing offset).
    counts: warp-level issues by instruction class ("int", "global_load", …), and the other fields of r3simt_counts.
    """

    status: str
    message: str
    warning: str
    output: str
    differences: list[tuple[int, int, int]]
    counts: dict[str, int]
    load_seconds: float
    run_seconds: float

def replay(
    *,
    bitcode: bytes,
    kernel: str,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    arguments: bytes,
    spans: Sequence[tuple[int, int, int]],
    regions: Sequence[tuple[int, int, str]],
    prologue_fd: int,
    epilogue_fd: int,
    dynamic_shared: int = 0,
    passes: str = "",
    cpu: str = "sm_90",
    features: str = "",
    flags: int = ...,
    workers: int = 1,
    cooperative: bool = False,
    seconds: float = ...,
    memory_bytes: int = ...,
) -> ReplayResult:
    """Runs a kernel on the CPU on recorded memory and compares every recorded byte.

    spans: (address, length, offset), page-aligned, into both image files; regions: (base, size, variable name or "").
    """
