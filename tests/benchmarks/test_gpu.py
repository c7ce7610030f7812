"""What the GPU benchmarks compute, without a GPU."""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from benchmarks import gpu_faults, gpu_fidelity, interposition, prepare, recorder_overhead, replay_rate
from benchmarks.gpu import (
    PROGRAMS,
    Catalogue,
    Clock,
    Done,
    Folder,
    Program,
    RowFailed,
    device_name,
    guarded,
    rows_of,
    run,
)
from r3llvm.runner import RunStatus
from r3llvm.toolchain import Gpu

ENVIRONMENT = dict(os.environ)


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """A Clock takes SIGTERM."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """A folder with a program that doubles its input."""
    script = tmp_path / "programs" / "double.py"
    (tmp_path / "programs" / "cases" / "double").mkdir(parents=True)
    (tmp_path / "programs" / "cases" / "double" / "input").write_text("21")
    script.write_text(
        "import os, pathlib\n"
        "pathlib.Path('output').write_text(str(2 * int(pathlib.Path('input').read_text())))\n"
        "print('doubled', os.environ.get('EXTRA', ''))\n"
    )
    program = Program(
        name="double",
        build="clang",
        command=("{python}", "{folder}/double.py"),
        inputs="double",
        floats={"noise": 10},
        outputs=("output",),
    )
    catalogue = Catalogue(programs=(program,), missing={"absent": "it does not build"})
    (tmp_path / "programs" / PROGRAMS).write_text(catalogue.model_dump_json())
    monkeypatch.setenv("R3LLVM_BENCH_PROGRAMS", str(tmp_path / "programs"))
    return Folder.open()


def test_a_program_runs_where_its_inputs_lie(folder: Folder, tmp_path: Path) -> None:
    program = folder.program("double")
    where = folder.lay(program, tmp_path / "run")
    done = folder.run(program, where, 60, {"EXTRA": "yes"})
    assert (done.status, done.output) == (0, "doubled yes\n")
    assert (where / "output").read_text() == "42"
    assert (where / "noise").stat().st_size == 40
    with pytest.raises(RowFailed, match="it does not build"):
        folder.program("absent")


def test_without_programs_one_line_says_how_to_make_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("R3LLVM_BENCH_PROGRAMS", str(tmp_path))
    with pytest.raises(SystemExit, match=r"python -m benchmarks\.prepare"):
        Folder.open()


def test_a_command_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    marker = tmp_path / "pid"
    code = (
        "import os, subprocess, sys, time, pathlib\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"pathlib.Path({str(marker)!r}).write_text(str(child.pid))\n"
        "time.sleep(600)\n"
    )
    done = run([sys.executable, "-c", code], tmp_path, ENVIRONMENT, 5)
    assert done.status == 124
    with pytest.raises(RowFailed, match="it took too long"):
        done.check("it")
    pid = int(marker.read_text())
    for _ in range(100):
        if not Path(f"/proc/{pid}").exists() or " Z " in Path(f"/proc/{pid}/stat").read_text():
            break
        time.sleep(0.1)
    else:
        pytest.fail("the child lives on")


def test_a_failure_says_what_was_said_last(tmp_path: Path) -> None:
    done = run([sys.executable, "-c", "import sys; sys.exit('no such thing')"], tmp_path, ENVIRONMENT, 60)
    with pytest.raises(RowFailed, match=r"app exited with 1: no such thing"):
        done.check("app")
    assert run([str(tmp_path / "nothing")], tmp_path, ENVIRONMENT, 1).status == 127
    assert Done(0, "fine", "", 0.1).check("app") == "fine"


def test_rows_that_fail_and_rows_that_time_forbids(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()

    def fail(name: str) -> list[dict[str, Any]]:
        raise RowFailed("broken") if name == "a" else KeyError("gone")

    assert [*rows_of(clock, ["a", "b"], fail)] == [
        {"program": "a", "error": "broken"},
        {"program": "b", "error": "KeyError: 'gone'"},
    ]
    assert guarded(clock, "a", lambda name: [{"program": name, "value": 1}]) == [{"program": "a", "value": 1}]
    monkeypatch.setenv("R3LLVM_BENCH_SECONDS", "0")
    monkeypatch.setenv("R3LLVM_BENCH_ONLY", "^b")
    assert [*rows_of(Clock(), ["a", "b"], fail)] == [{"program": "b", "error": "left out: the time was up"}]


def test_what_there_is_when_it_is_told_to_end() -> None:
    def make(name: str) -> list[dict[str, Any]]:
        if name == "b":
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(60)
        return [{"program": name}]

    assert [*rows_of(Clock(), ["a", "b", "c"], make)] == [
        {"program": "a"},
        {"program": "b", "error": "cut short: the benchmark was told to end"},
        {"program": "c", "error": "left out: the time was up"},
    ]


def test_names_of_devices() -> None:
    assert device_name(Gpu("NVIDIA H200", "9.0", 1, "13.0")) == "h200"
    assert device_name(Gpu("NVIDIA RTX A6000", "8.6", 1, "13.0")) == "rtx-a6000"


def kernel(exact: bool = True, error: float | None = 1.0, counted: bool = True, **more: Any) -> dict[str, Any]:
    row = {
        "deterministic": True,
        "checkable": True,
        "bit_exact": exact,
        "time_error_percent": error,
        "counted": counted,
    }
    return {**row, **more}


def values(module: ModuleType, rows: list[dict[str, Any]]) -> dict[str, float]:
    json.dumps(rows)
    return {name: metric.value for name, metric in module.metrics(rows).items()}


def test_fidelity_counts_deterministic_kernels() -> None:
    rows = [
        kernel(error=-2.5),
        kernel(exact=False, error=0.5),
        kernel(error=30.0, counted=False),
        kernel(deterministic=False, exact=False, error=50.0),
        kernel(checkable=False, exact=False, error=None, counted=False),
        {"program": "a", "refused": "textures"},
        {"program": "b", "error": "broken"},
    ]
    assert values(gpu_fidelity, rows) == {
        "kernels": 3,
        "bit_exact": 2,
        "max_time_error_percent": 2.5,
        "median_time_error_percent": 1.5,
    }
    assert values(gpu_fidelity, []) == {"kernels": 0, "bit_exact": 0}


def test_overhead_is_the_median_of_pairs_and_the_worst_of_sizes() -> None:
    rows = [
        {"program": recorder_overhead.SHORT, "wall_percent": [9.0], "launch_us": [0.3, 0.1, 0.2]},
        {"program": recorder_overhead.REAL, "wall_percent": [0.5, -0.1, 0.2]},
        {"program": "copied_launch", "mib": 64, "ratio": [1.1, 1.9, 1.2]},
        {"program": "copied_launch", "mib": 512, "ratio": [1.4, 1.3, 1.5]},
    ]
    found = recorder_overhead.metrics(rows)
    assert {name: metric.value for name, metric in found.items()} == {
        "idle_us_per_launch": 0.2,
        "idle_percent": 0.2,
        "copy_ratio": 1.4,
    }
    assert (found["copy_ratio"].low, found["copy_ratio"].high, found["copy_ratio"].n) == (1.3, 1.5, 3)
    assert recorder_overhead.metrics([{"program": "x", "error": "y"}]) == {}


def test_faults_mix_every_kind_with_good_ones() -> None:
    available = frozenset(gpu_faults.EXPECTED)
    chosen = gpu_faults.candidates(gpu_faults.ALL, available)
    assert chosen == gpu_faults.candidates(gpu_faults.ALL, available)
    counts = Counter(chosen)
    assert counts.keys() == available
    assert sum(counts[name] for name in available - set(gpu_faults.GOOD)) == 200
    assert len(chosen) == gpu_faults.ALL
    assert len(gpu_faults.candidates(26, available)) == 26
    assert "trap" not in gpu_faults.candidates(260, available - {"trap"})
    assert set(gpu_faults.SHARES) | set(gpu_faults.GOOD) == available == prepare.FAULTS.keys()
    assert all(statuses <= set(RunStatus) for statuses in gpu_faults.EXPECTED.values())


def test_faults_that_touch_good_candidates_are_counted() -> None:
    rows = [
        {"variant": "good", "right": True},
        {"variant": "good_unrolled", "right": False},
        {"variant": "trap", "right": True},
        {"variant": "endless", "right": False},
    ]
    assert values(gpu_faults, rows) == {"candidates": 4, "right_status": 2, "good_affected": 1}


def test_interposition_counts_binaries() -> None:
    rows = [{"recorded": True, "replayed": True}, {"recorded": True, "replayed": False}, {"error": "no torch"}]
    assert values(interposition, rows) == {"binaries": 3, "recorded": 2, "replayed": 1}


def test_replay_rate() -> None:
    rows = [{"trials_per_second": 90.0}, {"ratio": 0.8}, {"ratio": 0.7}, {"ratio": 0.9}]
    assert values(replay_rate, rows) == {"trials_per_second": 90.0, "replay_bandwidth_ratio": 0.8}


@pytest.mark.parametrize("name", ["gpu_faults", "gpu_fidelity", "interposition", "recorder_overhead", "replay_rate"])
def test_they_run_on_a_gpu(name: str) -> None:
    assert importlib.import_module(f"benchmarks.{name}").DEVICES == ("gpu",)
