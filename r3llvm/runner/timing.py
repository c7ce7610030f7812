"""The statistics of times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """A median and the bounds of its confidence interval, in the unit of what it was made of."""

    median: float
    low: float
    high: float

    @property
    def spread(self) -> float:
        """Half the interval's width, relative to the median."""
        return (self.high - self.low) / 2 / self.median if self.median else 0.0


def median_interval(values: Sequence[float]) -> Interval:
    """The median with its 95 % confidence interval from order statistics, which assume no distribution.

    Of fewer than six values the whole range, which is less sure than that. Raises ValueError for none.
    """
    if not values:
        raise ValueError("no values have no median")
    ordered = sorted(values)
    n = len(ordered)
    rank = _rank(n)
    median = (ordered[(n - 1) // 2] + ordered[n // 2]) / 2
    return Interval(median, ordered[rank], ordered[n - 1 - rank])


@cache
def _rank(n: int) -> int:
    """The 0-based rank k such that the k-th value from either end bounds the median of n values with confidence."""
    tail, rank = 0.0, -1
    for k in range(n // 2 + 1):  # the chance that at most k values lie below the median
        tail += math.comb(n, k) / 2**n
        if tail > (1 - CONFIDENCE) / 2:
            break
        rank = k
    return max(rank, 0)
