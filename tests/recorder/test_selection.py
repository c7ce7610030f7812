"""Which launches are recorded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.recorder.conftest import Record


def indices(record: Record, **environment: str) -> dict[str, list[int]]:
    recorded = record("many", **environment)
    assert recorded.journal.launches_seen == 16
    kernels = ("saxpy", "write_only", "do_nothing")
    return {kernel: [launch.index for launch in recorded.launches(kernel)] for kernel in kernels}


def test_four_that_differ_by_default(record: Record) -> None:
    assert indices(record) == {"saxpy": [0, 1, 2, 3], "write_only": [0], "do_nothing": [0]}


def test_a_number(record: Record) -> None:
    assert indices(record, R3LLVM_RECORD_MAX="2")["saxpy"] == [0, 1]


def test_every_nth(record: Record) -> None:
    assert indices(record, R3LLVM_RECORD_EVERY="5")["saxpy"] == [0, 5, 10]


def test_by_index(record: Record) -> None:
    assert indices(record, R3LLVM_RECORD_LAUNCHES="2,11")["saxpy"] == [2, 11]


def test_by_name(record: Record) -> None:
    recorded = record("many", R3LLVM_RECORD_KERNELS="^write")
    assert {launch.kernel for launch in recorded.journal.launches} == {"write_only"}
    assert sorted(recorded.journal.skipped) == ["do_nothing", "saxpy"]


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("R3LLVM_RECORD_KERNELS", "("),
        ("R3LLVM_RECORD_MAX", "many"),
        ("R3LLVM_RECORD_SCOPE", "some"),
        ("R3LLVM_RECORD_BYTES", "-"),
        ("R3LLVM_RECORD_WAIT", "soon"),
    ],
)
def test_settings_that_make_no_sense(record: Record, variable: str, value: str) -> None:
    """The application runs as ever; the reason is on stderr and in `failed`."""
    recorded = record("many", **{variable: value})
    assert not recorded.journal.launches
    assert (recorded.folder / "failed").read_text().strip()
    assert "r3llvm: " in recorded.outcome.errors


@pytest.mark.parametrize(
    ("environment", "records"),
    [
        ({"OMPI_COMM_WORLD_RANK": "0"}, True),
        ({"OMPI_COMM_WORLD_RANK": "1"}, False),
        ({"PMI_RANK": "3", "R3LLVM_RECORD_RANKS": "1,3"}, True),
        ({"PMI_RANK": "2", "R3LLVM_RECORD_RANKS": "all"}, True),
        ({"SLURM_PROCID": "1", "SLURM_NTASKS": "4"}, False),
        ({"SLURM_PROCID": "1", "SLURM_NTASKS": "1"}, True),
    ],
)
def test_ranks(record: Record, environment: dict[str, str], records: bool) -> None:
    assert bool(record("many", **environment).journal.launches) == records


def test_a_profile(record: Record, tmp_path: Path) -> None:
    profile = tmp_path / "profile.json"
    recorded = record("many", R3LLVM_RECORD_PROFILE=str(profile))
    assert not recorded.journal.launches
    (line,) = profile.read_text().splitlines()
    kernels = {kernel["kernel"]: kernel for kernel in json.loads(line)["kernels"]}
    assert {name: kernel["launches"] for name, kernel in kernels.items()} == {
        "saxpy": 12,
        "write_only": 3,
        "do_nothing": 1,
    }
    assert all(kernel["seconds"] > 0 and kernel["median_seconds"] > 0 for kernel in kernels.values())
    if not recorded.gpu:  # the stand-in's launches all take the same time
        assert kernels["saxpy"]["seconds"] == pytest.approx(12 * kernels["saxpy"]["median_seconds"], rel=0.01)


@pytest.mark.parametrize(
    "application",
    [
        *("nothing", "list", "packed", "extended", "cooperative", "variables", "library", "stream_ordered", "foreign"),
        *("own_mappings", "captured", "unloads", "threads", "exhausts", "forks", "exits_running", "faults", "contexts"),
    ],
)
def test_profiling_changes_no_application(record: Record, tmp_path: Path, application: str) -> None:
    profile = tmp_path / "profile.json"
    recorded = record(application, R3LLVM_RECORD_PROFILE=str(profile))
    assert recorded.outcome.errors == recorded.plain.errors
    assert not (recorded.folder / "journal.jsonl").exists()
    assert profile.exists() == (application != "nothing")
