"""`r3llvm record` on a GPU; a shell script stands in for an application under the recording library."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from r3llvm.recording import preload
from tests.cli.conftest import Run
from tests.modules import assemble
from tests.recording.application import Application, launch_line
from tests.recording.test_gpu import DEVICE, TEXT, WORDS, some_library


@pytest.fixture
def application(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Application:
    (tmp_path / "libr3recorder.so").symlink_to(some_library())
    monkeypatch.setenv("R3LLVM_RECORDER", str(tmp_path))
    monkeypatch.setattr(preload, "has_gpu", lambda: True)
    made = Application(tmp_path, assemble(TEXT))
    monkeypatch.setenv("R3LLVM_STORE", str(made.store.root))
    image = made.fake.image()
    made.lines = [
        DEVICE,
        {"type": "image", "hash": image, "kind": "cubin", "bytes": 10},
        launch_line(made.fake.launches[0], image=image, module="", warnings=["odd word"]),
        launch_line(made.fake.launches[0], image=image, module="", index=1, warnings=["odd word"]),
        launch_line(made.fake.launches[1], image=image, parameters=WORDS),
        launch_line(made.fake.launches[1], kernel="allocates", image=image, parameters=WORDS),
        {
            "type": "count",
            "graph_launches": 1,
            "captured_launches": 2,
            "foreign": [{"kind": "managed memory", "bytes": 64}],
        },
        {"type": "other_process", "pid": 9, "launches": 3},
        {"type": "end", "launches_seen": 4},
    ]
    made.writes(*made.lines)
    return made


def test_the_summary_says_what_is_there_and_what_is_not(run: Run, application: Application) -> None:
    status, out, err = run("record", "--device", "cuda", "-o", "rec", "--", application.path)
    assert (status, out) == (0, "")
    lines = err.splitlines()
    assert lines[0].startswith("r3llvm: recorded 3 launches of 2 kernels on Fake GPU in rec (")
    assert lines[1:] == [
        "r3llvm: note: 1 kernel came without a module (image only: replayed and timed, not rebuilt); build through "
        "`r3llvm wrap` to have it",
        "r3llvm: note: 1 graph launch and 2 launches captured into graphs not recorded",
        "r3llvm: note: 1 other process launched 3 kernels, not recorded",
        "r3llvm: note: 64 B of managed memory cannot be recorded; kernels that reach it are refused",
        "r3llvm: warning: scale: odd word",
        "r3llvm: warning: count: its variable _ZL5total was not found in the program, so its value is not recorded",
        "r3llvm: warning: not recorded: allocates: it allocates on the device (malloc, new), and the device's heap is "
        "not recorded",
    ]
    status, out, _ = run("show", "rec")
    assert status == 0
    assert "on Fake GPU (compute capability 9.0)" in out
    assert "cubin, 10 B" in out
    assert "note: 1 graph launch and 2 launches captured into graphs not recorded" in out
    assert run("verify", "rec")[:2] == (0, "rec: good\n")


def _profiles(application: Application, **seconds: float) -> None:
    """The application writes a profile where one is asked for, and else a recording."""
    kernels = [
        {"kernel": name, "launches": 4, "seconds": time, "median_seconds": time / 4} for name, time in seconds.items()
    ]
    line = json.dumps({"type": "profile", "kernels": kernels, "graph_launches": 1, "captured_launches": 0})
    script = application.path.read_text().partition("\n")[2]
    application.path.write_text(
        f'#!/bin/sh\nif [ "$R3LLVM_RECORD_PROFILE" ]; then echo \'{line}\' > "$R3LLVM_RECORD_PROFILE"; exit; fi\n'
        f'echo "kernels $R3LLVM_RECORD_KERNELS"\n{script}'
    )


def test_a_profile_ranks_kernels_and_records_nothing(run: Run, application: Application, tmp_path: Path) -> None:
    _profiles(application, _Z5countPi=2e-5, _Z5scalePfi=1.5, _Z1fB5cxx11v=3e-3)
    before = set(tmp_path.iterdir())
    status, out, err = run("record", "--device", "cuda", "--profile", "--", application.path)
    assert (status, err) == (0, "")
    rows = [line.split("│")[1:-1] for line in out.splitlines() if "│" in line]
    assert [[cell.strip() for cell in row] for row in rows] == [
        ["1", "scale", "4", "1.5 s", "99.8%", "375 ms"],
        ["2", "f[abi:cxx11]", "4", "3 ms", "0.2%", "750 µs"],
        ["3", "count", "4", "20 µs", "0.0%", "5 µs"],
    ]
    assert "1 graph launch not measured" in out
    assert set(tmp_path.iterdir()) == before


def test_the_hottest_kernels_are_recorded_in_a_second_run(run: Run, application: Application) -> None:
    _profiles(application, _Z5countPi=2e-5, _Z5scalePfi=1.5, other=3e-3)
    status, out, err = run("record", "--device", "cuda", "--hottest", 2, "-o", "rec", "--", application.path)
    assert (status, out) == (0, "kernels ^(_Z5scalePfi|other)$\n")
    assert "recorded in the run that follows" in err
    assert "recorded 3 launches" in err
    status, out, _ = run(
        *("record", "--device", "cuda", "--hottest", 2, "--kernels", "count", "--force", "-o", "rec"),
        *("--", application.path),
    )
    assert (status, out) == (0, "kernels ^(_Z5countPi)$\n")
    status, _, err = run(
        "record", "--device", "cuda", "--hottest", 2, "--kernels", "none", "-o", "new", "--", application.path
    )
    assert (status, err.count("\n")) == (2, 1)
    assert "no kernel matches 'none'" in err
    assert run("record", "--device", "cuda", "--hottest", 2, "-o", "rec", "--", application.path)[0] == 2


def test_names_that_no_expression_can_hold(run: Run, application: Application) -> None:
    _profiles(application, **{letter * 40_000: 1.0 for letter in "ab"})
    assert run("record", "--device", "cuda", "--hottest", 1, "-o", "one", "--", application.path)[0] == 0
    status, _, err = run("record", "--device", "cuda", "--hottest", 2, "-o", "two", "--", application.path)
    assert status == 2
    assert err.splitlines()[-1] == (
        "r3llvm: error: the names of 2 kernels are 80,005 characters long: say a smaller --hottest"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--max-bytes", "5x", "-o", "x"], "'5x' is no size: say 500M or 8G"),
        (["--max-bytes", "0", "-o", "x"], "'0' is no size"),
        (["--launches", "1,x", "-o", "x"], "'1,x' is no list of numbers"),
        (["--ranks", "0,-1", "-o", "x"], "'0,-1' is no list of numbers"),
        (["--scope", "some", "-o", "x"], "'some' is not one of"),
        (["--every", "0", "-o", "x"], "--every"),
        ([], "name the folder to make"),
        (["--profile", "-o", "x"], "--profile records nothing"),
        (["--profile", "--hottest", "3"], "--profile records nothing"),
        (["--device", "host", "--hottest", "3", "-o", "x"], "--hottest works on a GPU only"),
        (["--device", "host", "--max-bytes", "1G", "-o", "x"], "--max-bytes works on a GPU only"),
    ],
)
def test_wrong_usage_is_told_in_one_line(run: Run, arguments: list[str], message: str) -> None:
    status, out, err = run("record", "--device", "cuda", *arguments, "--", "true")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert message in err


@pytest.mark.parametrize(
    ("given", "bytes_"), [("1000", 1000), ("2k", 2048), ("3M", 3 << 20), ("4GiB", 4 << 30), ("1TB", 1 << 40)]
)
def test_sizes_have_suffixes(run: Run, application: Application, given: str, bytes_: int) -> None:
    application.writes(*application.lines, then='echo "$R3LLVM_RECORD_BYTES"')
    status, out, _ = run("record", "--device", "cuda", "--max-bytes", given, "-o", "rec", "--", application.path)
    assert (status, out) == (0, f"{bytes_}\n")


def test_options_reach_the_recorder(run: Run, application: Application) -> None:
    application.writes(*application.lines, then="env | grep ^R3LLVM_RECORD_ | sort")
    status, out, _ = run(
        *("record", "--device", "cuda", "--kernels", "a|b", "--launches", "9,0,5", "--every", 3, "--max-launches", 2),
        *("--scope", "all", "--ranks", "1,0", "-o", "rec", "--", application.path),
    )
    assert status == 0
    assert out.splitlines() == [
        "R3LLVM_RECORD_EVERY=3",
        "R3LLVM_RECORD_KERNELS=a|b",
        "R3LLVM_RECORD_LAUNCHES=0,5,9",
        "R3LLVM_RECORD_MAX=2",
        "R3LLVM_RECORD_RANKS=0,1",
        "R3LLVM_RECORD_SCOPE=all",
    ]


def test_without_a_gpu_one_line_says_so(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preload, "has_gpu", lambda: False)
    monkeypatch.setattr(preload.toolchain, "gpus", list)
    assert run("record", "--device", "cuda", "-o", "x", "--", "true") == (
        1,
        "",
        "r3llvm: error: there is no NVIDIA GPU here: run on a machine that has one, or say --device host\n",
    )


def test_on_a_gpu_a_program_is_simply_run(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "r3llvm", "run", "--device", "cuda", "--"]
    command += ["sh", "-c", "echo $LD_LIBRARY_PATH; exit 3"]
    source = Path(preload.__file__).parents[2]
    environment = {**os.environ, "LD_LIBRARY_PATH": "/already/there", "PYTHONPATH": str(source)}
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, "/already/there\n", "")
