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
    ILLEGAL_INSTRUCTION = "illegal_instruction"
    MISALIGNED = "misaligned"
    DEADLOCK = "deadlock"
    STACK_OVERFLOW = "stack_overflow"
    UNSUPPORTED = "unsupported"
    INVALID_LAUNCH = "invalid_launch"
    TIMEOUT = "run_timeout"
    MEMORY = "run_memory"
    CRASH = "crash"
    UNCHECKABLE = "uncheckable"  # no check of this launch would tell right from wrong


@dataclass(frozen=True)
class Difference:
    """Where a region of memory differs from the recorded epilogue."""

    region: str  # "allocation 0x300000000000" or "variable counter"
    bytes: int  # out of tolerance
    first_offset: int


@dataclass(frozen=True)
class Measurement:
    """cost: on `host`, modelled cycles (never a time); on `cuda`, seconds: the median of `times`, in terms of the
    session's baseline (see docs/runner.md).

    counts: what the run executed (see docs/cost-model.md), empty where the device does not count.
    spread: relative half-width of the cost's 95 % confidence interval; 0.0 on `host`, which is deterministic.
    times: seconds of each launch that was timed. seconds: spent on the replay. exact: every recorded byte is equal.
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
    times: tuple[float, ...] = ()
    exact: bool = False
