"""The statistics of times."""

import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from r3llvm.runner.timing import Interval, median_interval


@given(st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=60))
def test_the_median_lies_within_its_interval(values: list[float]) -> None:
    interval = median_interval(values)
    assert interval.median == pytest.approx(statistics.median(values))
    assert min(values) <= interval.low <= interval.median <= interval.high <= max(values)


def test_known_ranks() -> None:
    # Ranks of the 95 % interval of a median, 1-based: 1 of 6, 2 of 10, 6 of 20, 40 of 100.
    for n, rank in ((6, 1), (10, 2), (20, 6), (100, 40)):
        interval = median_interval(range(1, n + 1))
        assert (interval.low, interval.high) == (rank, n + 1 - rank)


def test_few_values_have_their_whole_range() -> None:
    assert median_interval([3.0]) == Interval(3.0, 3.0, 3.0)
    assert median_interval([1.0, 5.0, 2.0]) == Interval(2.0, 1.0, 5.0)
    with pytest.raises(ValueError, match="no values"):
        median_interval([])


def test_the_interval_holds_the_true_median_as_often_as_it_says() -> None:
    rng = random.Random(1)
    held = 0
    for _ in range(1000):
        interval = median_interval([rng.gauss(10, 1) for _ in range(25)])
        held += interval.low <= 10 <= interval.high
    assert held >= 935


def test_the_spread_is_half_the_width_over_the_median() -> None:
    assert Interval(10.0, 9.0, 11.0).spread == pytest.approx(0.1)
    assert Interval(0.0, 0.0, 0.0).spread == 0.0
