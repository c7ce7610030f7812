from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from r3llvm.database import Session, Trial
from r3llvm.report import Summary, summarize, tables
from r3llvm.search import Confirmation
from tests.database.test_database import session, trial


def stored(**fields: object) -> Session:
    made = session(seconds=4.0, unit="modelled cycles", **fields)
    made.id = 3
    return made


def trials(of: Session) -> list[Trial]:
    def make(number: int, **fields: object) -> Trial:
        return trial(of, number, resources={"registers": 30 - number}, **fields)

    return [
        make(0, loss=1.0, costs=[1000.0, 400.0], asked=0, told=0),
        make(1, loss=1.0, costs=[1000.0, 400.0], duplicate_of=0),
        make(2, loss=None, costs=[], build_status="pass_crash", run_status=None),
        make(3, loss=None, costs=[], build_status="pass_crash", run_status=None, duplicate_of=2),
        make(4, loss=0.5, costs=[500.0, 200.0], told=12),
        make(5, loss=0.8, costs=[800.0, 320.0]),
        make(6, loss=None, costs=[], run_status="mismatch"),
    ]


def test_summary() -> None:
    of = stored()
    summary = summarize("recordings/x", of, trials(of), confirmation=Confirmation(True, 2.0))
    assert (summary.trials, summary.verified, summary.duplicates) == (6, 2, 2)
    assert summary.failures == {"mismatch": 1, "pass_crash": 1}
    assert summary.verified + summary.duplicates + sum(summary.failures.values()) == summary.trials
    assert summary.trials_per_second == 1.5
    assert summary.speedup == pytest.approx(2.0)
    assert summary.best and summary.best.trial == 4
    assert [(x.launch, x.baseline, x.best, x.speedup) for x in summary.launches] == [
        (0, 1000, 500, 2),
        (2, 400, 200, 2),
    ]
    # in the order they were told of: trial 4 after trial 5
    assert [(x.trial, x.speedup) for x in summary.improvements] == [(0, 1.0), (5, 1.25), (4, 2.0)]


def test_json_round_trip() -> None:
    of = stored()
    summary = summarize("recordings/x", of, trials(of))
    assert Summary.model_validate_json(summary.model_dump_json()) == summary
    assert json.loads(summary.model_dump_json())["unit"] == "modelled cycles"


def test_before_anything_was_verified() -> None:
    of = stored()
    summary = summarize("recordings/x", of, [])
    assert (summary.best, summary.speedup, summary.launches, summary.trials) == (None, None, [], 0)
    assert "none" in rendered(summary)


def rendered(summary: Summary) -> str:
    console = Console(file=io.StringIO(), width=120)
    for table in tables(summary, "kernel"):
        console.print(table)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_table_says_its_unit_and_never_a_time() -> None:
    of = stored()
    text = rendered(summarize("recordings/x", of, trials(of), confirmation=Confirmation(True, 2.0)))
    for expected in (
        "kernel on host",
        "baseline (modelled cycles)",
        "best (modelled cycles)",
        "1,000",
        "2.000x",
        "0.0%",
        "6 of 10",
        "1 mismatch, 1 pass_crash",
        "1.5",
        "30 → 26",
        "default<O3>",
        "every recorded byte equal",
    ):
        assert expected in text
    assert " ms" not in text and "seconds" not in text
    assert "NOT reproduced" in rendered(summarize("r", of, trials(of), confirmation=Confirmation(False)))


def test_times_are_shown_as_such() -> None:
    of = session(seconds=4.0, unit="s", device="NVIDIA H200")
    of.id = 3
    timed = [
        trial(of, 0, loss=1.0, costs=[12.3e-6, 0.4], asked=0, told=0),
        trial(of, 1, loss=0.5, costs=[6.15e-6, 0.2], spread=0.004),
    ]
    summary = summarize("r", of, timed, Confirmation(True, 1.98, 0.006)).model_copy(
        update={"sanitizer": ["memcheck: nothing found"]}
    )
    text = rendered(summary)
    for expected in (
        "kernel on NVIDIA H200",
        "baseline (µs)",
        "12.3",
        "400,000",
        "0.4%",
        "1.980x ± 0.6% in a fresh process",
    ):
        assert expected in text
    assert "memcheck: nothing found" in text
    assert "NOT reproduced: 0.900x ± 1.0%" in rendered(summarize("r", of, timed, Confirmation(False, 0.9, 0.01)))
