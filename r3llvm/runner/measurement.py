"""What the runner makes of an artifact."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field


class RunStatus(str, enum.Enum):
    """How a replay ended. Only OK carries a cost."""

    OK = "ok"
    MISMATCH = "mismatch"  # a recorded byte differs
    ASSERT = "assert"
    TRAP = "trap"
    ILLEGAL_ADDRESS = "illegal_address"
    MISALIGNED = "misaligned"
    DEADLOCK = "deadlock"
    STACK_OVERFLOW = "stack_overflow"
    UNSUPPORTED = "unsupported"
    INVALID_LAUNCH = "invalid_launch"
    TIMEOUT = "run_timeout"
    MEMORY = "run_memory"
    CRASH = "crash"


@dataclass(frozen=True)
class Difference:
    """Where a region of memory differs from the recorded epilogue."""

    region: str  # "allocation 0x300000000000" or "variable counter"
    bytes: int
    first_offset: int


@dataclass(frozen=True)
class Measurement:
    """cost: on `host`, modelled cycles (never a time); on `cuda`, seconds.

    counts: what the run executed (see docs/cost-model.md), empty where the device does not count.
    spread: relative spread of the cost over repetitions; 0.0 on `host`, which is deterministic.
    """

    status: RunStatus
    cost: float | None = None
    unit: str = "modelled cycles"
    spread: float = 0.0
    message: str = ""
    warning: str = ""
    output: str = ""
    differences: tuple[Difference, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
