from __future__ import annotations

import math

import pytest

from r3llvm import _native


@pytest.mark.parametrize(
    ("n", "low"),  # of n sorted times, how many lie below the interval: binomial tables, 2.5 % at either side
    [(6, 0), (8, 0), (9, 1), (10, 1), (20, 5), (50, 17), (100, 39), (400, 179)],
)
def test_median_interval(n: int, low: int) -> None:
    times = [float(n - i) for i in range(n)]
    assert _native.median_interval(times) == (low + 1.0, (n + 1) / 2, float(n - low))


@pytest.mark.parametrize("n", [1, 5])
def test_few_times_have_no_interval(n: int) -> None:
    assert _native.median_interval([3.0] * n) == (-math.inf, 3.0, math.inf)


def test_many_times() -> None:
    low, median, high = _native.median_interval([float(i) for i in range(10_001)])
    assert median == 5000.0
    assert (5000.0 - low, high - 5000.0) == (pytest.approx(98, abs=1), pytest.approx(98, abs=1))
