from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from r3llvm.errors import UsageError
from r3llvm.space import Action, PipelineSpace, parse_pipeline

SPACE = PipelineSpace(length=24)


def test_seeds_start_with_o3() -> None:
    seeds = [SPACE.candidate(point).pipeline for point in SPACE.seeds()]
    assert seeds[0] == "default<O3>"
    assert len(seeds) == len(set(seeds)) == len(SPACE.catalogue.pipelines)
    assert [SPACE.candidate(point).pipeline for point in PipelineSpace(length=2).seeds()] == seeds[:2]


@settings(deadline=None)
@given(st.lists(st.sampled_from(SPACE.actions[1:]), max_size=24))
def test_sequences_and_points_convert(actions: list[Action]) -> None:
    point = SPACE.point(actions)
    assert len(point) == 24
    assert parse_pipeline(SPACE.candidate(point).pipeline) == tuple(actions)


@settings(deadline=None)
@given(st.lists(st.integers(0, len(SPACE.actions) - 1), min_size=24, max_size=24))
def test_empty_slots_do_not_matter(slots: list[int]) -> None:
    moved = [slot for slot in slots if slot] + [0] * slots.count(0)
    assert SPACE.candidate(tuple(slots)) == SPACE.candidate(tuple(moved))


def test_random_points_lie_in_the_space() -> None:
    rng = random.Random(5)
    points = [SPACE.random(rng) for _ in range(300)]
    assert {len(point) for point in points} == {24}
    assert {sum(slot > 0 for slot in point) for point in points} == set(range(1, 25))
    assert points == [SPACE.random(again) for again in [random.Random(5)] for _ in range(300)]


def test_nevergrad_draws_points() -> None:
    space = PipelineSpace(length=3)
    parametrization = space.parametrization()
    parametrization.random_state.seed(1)
    for _ in range(5):
        point = parametrization.sample().value
        assert len(point) == 3
        parse_pipeline(space.candidate(point).pipeline)
    child = parametrization.spawn_child(new_value=(1, 0, len(space.actions) - 1))
    assert tuple(child.value) == (1, 0, len(space.actions) - 1)


def test_fingerprints_tell_spaces_apart() -> None:
    spaces = [PipelineSpace(24), PipelineSpace(23), PipelineSpace(24, aggressive=True)]
    assert len({space.fingerprint for space in spaces}) == 3
    assert PipelineSpace(24).fingerprint == SPACE.fingerprint


def test_what_does_not_fit_is_refused() -> None:
    gvn = Action("function", "gvn")
    with pytest.raises(UsageError, match="3 passes do not fit a space of length 2; raise --length"):
        PipelineSpace(2).point([gvn] * 3)
    with pytest.raises(UsageError, match="too risky or no listed variant"):
        SPACE.point([Action("function", "newgvn")])
    with pytest.raises(UsageError, match="may not be used"):
        SPACE.point([Action("function", "lower-atomic")])
    with pytest.raises(UsageError, match="give a length of 1 or more"):
        PipelineSpace(0)
