"""Every foreign program passes its check, and each of its kernels replays bit for bit or is refused by name."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.foreign.catalogue import PROGRAMS
from tests.foreign.fetch import Unreachable
from tests.foreign.program import ROOT, Outcome, exercise, summary, unexpected_refusals

pytestmark = [pytest.mark.foreign, pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def outcomes() -> Iterator[list[Outcome]]:
    """What the tests found; written as JSON at the end, to $R3LLVM_FOREIGN_RESULTS or build/foreign.json."""
    collected: list[Outcome] = []
    yield collected
    results = Path(os.environ.get("R3LLVM_FOREIGN_RESULTS", ROOT / "build" / "foreign.json"))
    results.parent.mkdir(parents=True, exist_ok=True)
    results.write_text(json.dumps(summary(collected), indent=1) + "\n")


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str, tmp_path: Path, outcomes: list[Outcome]) -> None:
    program = PROGRAMS[name]
    try:
        outcome = exercise(program, tmp_path)
    except Unreachable as error:
        pytest.skip(str(error))
    outcomes.append(outcome)
    assert not outcome.wrong
    assert not unexpected_refusals(program, outcome)
    assert outcome.bit_exact or outcome.refused
