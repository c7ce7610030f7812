"""libr3core: LLVM pipelines, PTX and replays on the CPU, each in a child process. csrc/device: replays on a GPU.

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

# csrc/device. All of it works in the context that is current when a Device is made, and holds no lock: one thread at a
# time. Addresses are device addresses, sizes bytes, times seconds.

class DriverError(RuntimeError):
    """The CUDA driver refused something. step: "load", "launch" or "run" where a candidate is to blame, else empty."""

    code: int
    name: str
    step: str

def synchronize() -> int:
    """Waits for the current context. The CUresult: not 0 when the context is dead."""

def flush_output() -> None:
    """Writes out what the process's C streams hold, where the driver prints what kernels print."""

def median_interval(times: Sequence[float]) -> tuple[float, float, float]:
    """The median between the ends of its 95 % confidence interval, which are infinite for fewer than six times."""

class Device:
    """Reserves the recorder's addresses. Raises RuntimeError when they are not to be had."""

    def __init__(self) -> None: ...
    def keep(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Gives back the memory that is mapped where none of the (base, size) ranges lies."""

class DeviceModule:
    """A cubin, PTX or fat binary, loaded. Raises DriverError, as all that follows does."""

    def __init__(self, code: bytes) -> None: ...
    def variable(self, name: str) -> tuple[int, int] | None:
        """Address and size."""

class DeviceLaunch:
    """A kernel, ready to be launched. offsets: of its parameters in `arguments`; attributes: (id, value's bytes)."""

    def __init__(
        self,
        module: DeviceModule,
        name: str,
        *,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        dynamic_shared: int = 0,
        cooperative: bool = False,
        shared_carveout: int = -1,
        arguments: bytes = b"",
        offsets: Sequence[int] = (),
        attributes: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...
    @property
    def resident_blocks(self) -> int: ...
    @property
    def registers(self) -> int: ...
    @property
    def local_bytes(self) -> int: ...

class DeviceComparison:
    """See r3llvm.runner.protocol.Comparison."""

    @property
    def differing(self) -> int: ...
    @property
    def first(self) -> int: ...
    @property
    def max_ulps(self) -> int: ...
    @property
    def max_absolute(self) -> float: ...
    @property
    def max_relative(self) -> float: ...

class DeviceComparisons:
    """canaries: bytes that were changed beside the regions."""

    @property
    def regions(self) -> list[DeviceComparison]: ...
    @property
    def canaries(self) -> int: ...

class DeviceTiming:
    """See r3llvm.runner.protocol.Timed. first: seconds of the first launch of all."""

    @property
    def times(self) -> list[float]: ...
    @property
    def batch(self) -> int: ...
    @property
    def hopeless(self) -> bool: ...
    @property
    def first(self) -> float: ...
    @property
    def sm_clock_mhz(self) -> int: ...

class DeviceReplay:
    """One launch's memory. regions: (base, size, whether it is a variable).

    To load it: begin, put each chunk of each region (epilogue None: as the prologue), finish. Tolerances, by region,
    are (element, ulps, absolute, relative); none: exact.
    """

    def __init__(self, device: Device, regions: Sequence[tuple[int, int, bool]], chunk_bytes: int) -> None: ...
    def begin(self) -> None: ...
    def put(self, region: int, offset: int, prologue: bytes, epilogue: bytes | None) -> None: ...
    def finish(self) -> None: ...
    def drop(self) -> None:
        """Gives its device memory back, but for what the recorder's addresses map."""

    @property
    def resident(self) -> bool: ...
    @property
    def ranges(self) -> list[tuple[int, int]]:
        """(base, size) of what is not a variable."""

    @property
    def changed_bytes(self) -> list[int]:
        """By region: how many differ between prologue and epilogue."""

    @property
    def restored_bytes(self) -> int:
        """Between two timed launches."""

    def bind(self, region: int, address: int | None) -> None:
        """Where the loaded module has a variable; None: nowhere, so that it is neither restored nor compared."""

    def poison(
        self, region: int, pattern: int | None, where: Literal["all", "changed", "written"] = "changed"
    ) -> int: ...
    def learn(self, region: int) -> bool: ...
    def restore(self) -> None: ...
    def run(self, launch: DeviceLaunch) -> float: ...
    def compare(self, tolerances: Sequence[tuple[str, int, float, float]] = ()) -> DeviceComparisons: ...
    def time(
        self,
        launch: DeviceLaunch,
        *,
        tolerances: Sequence[tuple[str, int, float, float]] = (),
        cold: bool = True,
        warmup: int = 3,
        least: int = 10,
        most: int = 400,
        precision: float = 0.01,
        seconds: float = 2.0,
        bound: float | None = None,
    ) -> DeviceTiming: ...
