"""Which kernels an application spends the GPU's time in."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from r3llvm.errors import R3Error
from r3llvm.recording.journal import count, json_object, whole_lines
from r3llvm.recording.names import matches

_SPECIAL = re.compile(r"[\\^$.*+?()\[\]{}|]")


@dataclass(frozen=True)
class KernelTime:
    """GPU time of all launches of a kernel, in seconds; the median launch's."""

    kernel: str
    launches: int
    seconds: float
    median_seconds: float


@dataclass(frozen=True)
class Profile:
    """kernels: the one with the most GPU time first. Graphs' and captured launches are counted, not measured."""

    kernels: tuple[KernelTime, ...] = ()
    graph_launches: int = 0
    captured_launches: int = 0

    @property
    def seconds(self) -> float:
        return sum(kernel.seconds for kernel in self.kernels)

    def matching(self, pattern: str | None) -> Profile:
        """Without the kernels in whose mangled or C++ name the regular expression is not found."""
        if pattern is None:
            return self
        kept = tuple(kernel for kernel in self.kernels if matches(pattern, kernel.kernel))
        return Profile(kept, self.graph_launches, self.captured_launches)

    @classmethod
    def read(cls, path: Path) -> Profile:
        """Adds up what the application's processes wrote, one line each; an empty profile when none did.

        Raises R3Error for a line that is not the format's.
        """
        times: dict[str, KernelTime] = {}
        graphs = captured = 0
        for number, line in enumerate(whole_lines(path), 1):
            try:
                entry = json_object(line)
                if entry["type"] != "profile":
                    raise ValueError(f"type {entry['type']!r} is unknown")
                for kernel in map(_kernel_time, entry["kernels"]):
                    times[kernel.kernel] = _sum(times.get(kernel.kernel), kernel)
                graphs += count(entry["graph_launches"])
                captured += count(entry["captured_launches"])
            except (ValueError, TypeError, KeyError, RecursionError) as error:
                raise R3Error(f"line {number} of the recorder's profile is damaged ({error}): run again") from error
        return cls(tuple(sorted(times.values(), key=lambda time: (-time.seconds, time.kernel))), graphs, captured)


def pattern_of(kernels: Iterable[str]) -> str:
    """A regular expression (ECMAScript's and Python's) that is found in exactly these mangled names."""
    escaped = (_SPECIAL.sub(r"\\\g<0>", kernel) for kernel in kernels)
    return f"^({'|'.join(escaped)})$"


def _kernel_time(entry: Any) -> KernelTime:
    seconds, median = float(entry["seconds"]), float(entry["median_seconds"])
    if not (math.isfinite(seconds) and math.isfinite(median) and seconds >= 0 and median >= 0):
        raise ValueError(f"{seconds} is no time")
    return KernelTime(str(entry["kernel"]), count(entry["launches"]), seconds, median)


def _sum(known: KernelTime | None, more: KernelTime) -> KernelTime:
    """The median is that of the process with the most launches."""
    if known is None:
        return more
    median = max((known, more), key=lambda time: time.launches).median_seconds
    return KernelTime(known.kernel, known.launches + more.launches, known.seconds + more.seconds, median)
