"""The catalogue against the LLVM that is installed."""

from __future__ import annotations

import importlib.util
import random
import shutil
from pathlib import Path
from types import ModuleType

import pytest

from r3llvm.space import Action, PipelineSpace, load_catalogue, parse_pipeline

OPT = shutil.which("opt-22") or ""
pytestmark = pytest.mark.skipif(not OPT, reason="opt-22 is not installed")


@pytest.fixture(scope="module")
def check() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check", Path(__file__).parents[2] / "passes" / "check.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_catalogue_and_llvm_agree(check: ModuleType) -> None:
    assert check.problems(OPT) == []


def test_every_neighbour_parses(check: ModuleType) -> None:
    """Each ordered pair of nestings and each action, in a few long pipelines."""
    actions = list(load_catalogue().actions(aggressive=True))
    for seed in range(5):
        random.Random(seed).shuffle(actions)
        assert check.parse_error(OPT, actions) == ""


def test_wrong_entries_are_named(check: ModuleType) -> None:
    assert "unknown function pass 'inline'" in check.parse_error(OPT, [Action("function", "inline")])
    assert "invalid" in check.parse_error(OPT, [Action("function", "gvn", "bogus")])
    assert "requires MemorySSA" in check.parse_error(OPT, [Action("loop", "licm")])  # it parses


def test_named_pipelines_run(check: ModuleType) -> None:
    space = PipelineSpace()
    for point in space.seeds():
        assert check.parse_error(OPT, parse_pipeline(space.candidate(point).pipeline)) == ""
