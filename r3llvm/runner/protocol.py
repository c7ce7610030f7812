"""What a CudaRunner and its worker process say to each other: one request, one reply, pickled over a socket (a
multiprocessing.connection.Connection at either end).

The worker (r3llvm.runner.worker) holds one recording's memory on one GPU. It executes; what to run, what a
result means and when to give up is the runner's business. A request that leaves the GPU's context unusable is
answered with a Fault, after which the worker ends by itself; a worker that does not answer in time is killed
with its process group.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ElementType = Literal["bytes", "f16", "bf16", "f32", "f64"]
Cache = Literal["cold", "warm"]


@dataclass(frozen=True)
class LaunchKey:
    """Which launch of the recording: its position in manifest.launches."""

    position: int


@dataclass(frozen=True)
class Binary:
    """What is run. code: a cubin, PTX or fat binary, as cuModuleLoadData takes it; name: the kernel's in it.

    grid, block, dynamic_shared: instead of the recorded ones.
    """

    code: bytes
    name: str
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    dynamic_shared: int | None = None


@dataclass(frozen=True)
class Tolerance:
    """How far an element may be from the recorded one: within `ulps` units in the last place, or `absolute`, or
    `relative` of the recorded magnitude; one of them is enough. NaN where and only where there was one; infinities
    exactly.
    """

    element: ElementType = "bytes"
    ulps: int = 0
    absolute: float = 0.0
    relative: float = 0.0

    @property
    def exact(self) -> bool:
        return self.element == "bytes" or not (self.ulps or self.absolute or self.relative)


@dataclass(frozen=True)
class Comparison:
    """One region against the recorded epilogue. differing: bytes (elements under a tolerance) out of tolerance; first:
    the first's offset in bytes, -1 for none. max_*: over all elements of the tolerance's type that are finite on
    both sides, tolerated ones included; max_relative is infinite where another number stands for a recorded 0.
    """

    differing: int
    first: int = -1
    max_ulps: int = 0
    max_absolute: float = 0.0
    max_relative: float = 0.0


@dataclass(frozen=True)
class Hello:
    """The worker's first message."""

    pid: int
    device: str
    capability: str  # "9.0"
    driver: str  # "13.0": the newest CUDA version that it supports
    memory_bytes: int


@dataclass(frozen=True)
class Load:
    """Makes the launch's memory resident: prologue on the device, epilogue in host memory. Reply: Loaded or Failure."""

    launch: LaunchKey


@dataclass(frozen=True)
class Loaded:
    """changed: bytes of each region that differ between prologue and epilogue. seconds: how long it took."""

    changed: tuple[int, ...]
    seconds: float


@dataclass(frozen=True)
class Poison:
    """From now on, restoring the launch's memory puts `pattern` (a byte) into these bytes of a region; None restores
    the recorded ones.

    where: "all" of the region, the "changed" bytes (prologue differs from epilogue), or those "written": the ones
    that the two runs since the last Poison of this region left equal to the epilogue (see Run.learn). Reply:
    Poisoned or Failure.
    """

    launch: LaunchKey
    region: int
    pattern: int | None
    where: Literal["all", "changed", "written"] = "changed"


@dataclass(frozen=True)
class Poisoned:
    """How many bytes of the region are poisoned now."""

    bytes: int


@dataclass(frozen=True)
class Run:
    """Restores everything, launches once, waits, compares. Reply: Ran or Fault.

    binary: None launches nothing, so that the comparison is what a kernel that does nothing would get.
    learn: a region that is poisoned as a whole: those of its bytes that now equal the epilogue, and in every
    earlier run with `learn` did, are "written" (see Poison); bytes that are still poison are unwritten, and any
    other byte makes Ran.consistent false.
    """

    launch: LaunchKey
    binary: Binary | None
    tolerances: tuple[Tolerance, ...] = ()  # by region; exact when empty
    learn: int | None = None


@dataclass(frozen=True)
class Ran:
    """comparisons: by region. canaries: bytes changed beside the regions. seconds: of the launch, by events, the first
    one.
    """

    comparisons: tuple[Comparison, ...]
    canaries: int
    seconds: float
    output: str = ""  # what the kernel printed
    consistent: bool = True
    resident_blocks: int = 0  # per multiprocessor
    registers: int = 0
    local_bytes: int = 0


@dataclass(frozen=True)
class Time:
    """Times single launches, each after restoring what the launch changes, with the queue kept ahead; then compares
    after the last one.

    Stops when the half-width of the median's 95 % confidence interval is below `precision` of it (after `least`
    launches), at `most` launches or `seconds` of wall clock. bound: gives up (Timed.hopeless) once the interval's
    lower end is above it, in seconds. Reply: Timed or Fault.
    """

    launch: LaunchKey
    binary: Binary
    tolerances: tuple[Tolerance, ...] = ()
    cache: Cache = "cold"
    warmup: int = 3
    least: int = 10
    most: int = 400
    precision: float = 0.01
    seconds: float = 2.0
    bound: float | None = None


@dataclass(frozen=True)
class Timed:
    """times: seconds of each launch, in order. batch: launches that one entry is the mean of (1; more for kernels
    below 2 µs).
    """

    times: tuple[float, ...]
    ran: Ran
    batch: int = 1
    hopeless: bool = False
    sm_clock_mhz: int = 0  # after the last launch; 0 when unknown


@dataclass(frozen=True)
class Fault:
    """The kernel did something wrong, or the driver refused the launch. sticky: the context is dead and the worker
    ends.
    """

    code: int  # CUresult
    name: str  # "CUDA_ERROR_ILLEGAL_ADDRESS"
    step: str  # "load", "launch" or "run"
    sticky: bool
    output: str = ""


@dataclass(frozen=True)
class Failure:
    """The worker could not do it (out of device memory, a damaged recording): one line, for the user."""

    message: str


@dataclass(frozen=True)
class Stop:
    """The worker ends. No reply."""


Request = Load | Poison | Run | Time | Stop
Reply = Loaded | Poisoned | Ran | Timed | Fault | Failure
