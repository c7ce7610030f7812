"""`r3llvm tune` and `r3llvm show-best` around the toy compiler; with the real one in tests/cli/test_tune_host.py."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from r3llvm.cli import main
from r3llvm.database import Database
from r3llvm.errors import R3Error
from r3llvm.files import content_hash
from r3llvm.recording import Launch, Manifest, Module, Recording
from tests.search.toy import OPTIMUM, ToyBuilder, ToyRunner, use_small_space

TOY, OTHER = "_Z3toyPfi", "_Z5otherPf"
MODULE = content_hash(b"bitcode")


def launch(kernel: str, index: int, grid: int) -> Launch:
    return Launch(
        kernel=kernel,
        module=MODULE,
        index=index,
        grid=(grid, 1, 1),
        block=(32, 1, 1),
        arguments="",
        parameters=(),
        regions=(),
    )


def record(folder: Path, *launches: Launch) -> Path:
    """A recording of the launches, without memory."""
    (folder / "modules").mkdir(parents=True)
    (folder / "modules" / f"{MODULE}.bc").write_bytes(b"bitcode")
    manifest = Manifest(
        r3llvm_version="0",
        created="2026-01-01T00:00:00Z",
        device="host",
        application=("./toy",),
        chunk_bytes=262144,
        modules=tuple(
            Module(hash=module, source="toy.cu", command=("clang++",), arch="sm_90")
            for module in sorted({launch.module for launch in launches})
        ),
        launches=launches,
    )
    (folder / "manifest.json").write_text(manifest.model_dump_json())
    return folder


def use_toys(patch: pytest.MonkeyPatch, seconds: float = 0.0) -> None:
    patch.setattr("r3llvm.space.space.load_catalogue", None)  # so that it is put back
    use_small_space()
    patch.setattr("r3llvm.cli.tune.open_builder", lambda *_: ToyBuilder(seconds=seconds))
    patch.setattr("r3llvm.cli.tune.open_runner", lambda *_: ToyRunner())
    patch.setattr("r3llvm.cli.tune.llvm_version", lambda: "22.1.8")


@pytest.fixture
def recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    use_toys(monkeypatch)
    return record(tmp_path / "toy", launch(TOY, 0, 1), launch(TOY, 2, 50))


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


SMALL = ("--budget", 60, "--workers", 1, "--length", 6, "--seed", 7)


def test_tune_ends_with_a_table(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, "tune", recording, *SMALL)
    assert status == 0
    for expected in (
        "toy on host",
        "baseline (modelled cycles)",
        "50,000",
        "60 of 60",
        "duplicates skipped",
        "failures",
    ):
        assert expected in out
    assert "the same cost, every recorded byte equal" in out
    lines = err.splitlines()
    assert lines[0].startswith("toy: 0 of 60 trials, best 1.000x")  # plain lines, for stderr is no terminal
    assert lines[-1].startswith("toy: 60 of 60 trials, best ")
    assert "\x1b" not in err


def test_json_tells_all_of_it(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "tune", recording, *SMALL, "--budget", 250, "--json")
    summary = json.loads(out)
    assert status == 0
    assert summary["speedup"] == pytest.approx(1 / OPTIMUM)
    assert [x["launch"] for x in summary["launches"]] == [0, 2]
    assert (summary["trials"], summary["confirmed"], summary["unit"]) == (250, True, "modelled cycles")


def test_show_best_prints_the_pipeline_alone(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, "tune", recording, *SMALL)
    _, out, _ = run(capsys, "show-best", recording, "--json")
    best = json.loads(out)["best"]["candidate"]["pipeline"]
    assert run(capsys, "show-best", recording) == (0, f"{best}\n", "")


def test_the_best_of_all_sessions_is_shown(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, "tune", recording, *SMALL)
    good = run(capsys, "show-best", recording)
    run(capsys, "tune", recording, *SMALL, "--budget", 1)
    assert run(capsys, "show-best", recording) == good


def test_resume_goes_on(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, "tune", recording, *SMALL, "--budget", 20)
    status, out, err = run(capsys, "tune", recording, "--resume", "--budget", 50, "--workers", 1, "--json")
    assert status == 0
    summary = json.loads(out)
    assert (summary["session"], summary["trials"], summary["seed"]) == (1, 50, 7)
    assert "of 50 trials" in err and "toy: 1 of" not in err
    _, whole, _ = run(capsys, "tune", recording, *SMALL, "--budget", 50, "--database", recording / "w.sqlite", "--json")
    assert json.loads(whole)["best"] == summary["best"]
    status, _, err = run(capsys, "tune", recording, "--resume", "--seed", 8)
    assert (status, err.count("\n")) == (2, 1)
    assert "cannot resume session 1: --seed was 7, now 8; leave out --resume to begin anew" in err


def test_one_kernel_must_be_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use_toys(monkeypatch)
    recording = record(tmp_path / "two", launch(TOY, 0, 1), launch(OTHER, 0, 1))
    status, _, err = run(capsys, "tune", recording)
    assert (status, err) == (
        2,
        "r3llvm: error: 2 kernels match: toy, other; name one with --kernel, or say --all-kernels\n",
    )
    assert not (recording / "trials.sqlite").exists()
    status, out, _ = run(capsys, "tune", recording, *SMALL, "--kernel", "oth", "--json")
    assert json.loads(out)["kernel"] == OTHER
    status, out, _ = run(capsys, "tune", recording, *SMALL, "--all-kernels", "--json")
    assert [json.loads(line)["kernel"] for line in out.splitlines()] == [TOY, OTHER]
    status, _, err = run(capsys, "show-best", recording)
    assert (status, err.count("\n")) == (2, 1) and "2 kernels were tuned" in err
    assert run(capsys, "show-best", recording, "--kernel", "toy")[0] == 0


def test_one_kernel_that_fails_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use_toys(monkeypatch)
    recording = record(tmp_path / "two", launch(OTHER, 0, 1), launch(TOY, 0, 1))

    def build(_: Recording, launch: Launch, *__: object) -> ToyBuilder:
        if launch.kernel == OTHER:
            raise R3Error("the module has no such kernel")
        return ToyBuilder()

    monkeypatch.setattr("r3llvm.cli.tune.open_builder", build)
    status, out, err = run(capsys, "tune", recording, *SMALL, "--all-kernels", "--json")
    assert (status, json.loads(out)["kernel"]) == (1, TOY)
    assert "r3llvm: error: other: the module has no such kernel\n" in err
    assert run(capsys, "tune", recording, *SMALL, "--kernel", "other")[0] == 1


def test_launches_of_another_module_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use_toys(monkeypatch)
    recording = record(tmp_path / "two", launch(TOY, 0, 1), launch(TOY, 4, 1).model_copy(update={"module": "f" * 32}))
    status, out, err = run(capsys, "tune", recording, *SMALL, "--json")
    assert status == 0
    assert [x["launch"] for x in json.loads(out)["launches"]] == [0]
    assert "r3llvm: toy: launches [4] left out, for they run another module's kernel; --launch names one\n" in err
    status, out, err = run(capsys, "tune", recording, *SMALL, "--json", "--launch", 4)
    assert (status, "left out" in err) == (0, False)
    assert [x["launch"] for x in json.loads(out)["launches"]] == [4]


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--kernel", "nothing"], 2, "no kernel matches 'nothing'"),
        (["--launch", 1], 2, "no launch 1 of _Z3toyPfi was recorded; there are 0, 2"),
        (["--strategy", "magic"], 2, "unknown strategy 'magic'"),
        (["--strategy", "nevergrad:Magic"], 2, "Nevergrad has no optimizer 'Magic'"),
        (["--budget", 0], 2, "Invalid value for '--budget'"),
        (["--database", "/nowhere/t.sqlite"], 1, "it cannot be opened"),
    ],
)
def test_wrong_usage_is_one_line(
    recording: Path, capsys: pytest.CaptureFixture[str], arguments: list[object], status: int, message: str
) -> None:
    found, out, err = run(capsys, "tune", recording, *arguments)
    assert (found, out, err.count("\n")) == (status, "", 1)
    assert message in err
    if (recording / "trials.sqlite").exists():
        with Database(recording / "trials.sqlite") as database:
            assert database.sessions() == []  # nothing that --resume would trip over


def test_not_a_recording(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("tune", "show-best"):
        status, out, err = run(capsys, command, tmp_path / "nothing")
        assert (status, out, err.count("\n")) == (1, "", 1)
    status, _, err = run(capsys, "show-best", tmp_path)
    assert status == 1 and "`r3llvm tune` makes them" in err


def test_a_baseline_that_fails_is_one_line(
    recording: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tests.search.toy.CRASHES", "")  # every PTX contains it
    status, out, err = run(capsys, "tune", recording, *SMALL)
    assert (status, out) == (1, "")
    assert "r3llvm: error: the baseline default<O3> does not reproduce the recording (pass_crash slsr aborted)" in err
    status, _, err = run(capsys, "show-best", recording)
    assert status == 1 and "no trial of toy was verified" in err


SLOW = """
import sys, pytest
from tests.cli.test_tune import use_toys
from r3llvm.cli import main
with pytest.MonkeyPatch.context() as patch:
    use_toys(patch, 0.02)
    main(sys.argv[1:])
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_keeps_everything(tmp_path: Path, number: signal.Signals) -> None:
    recording = record(tmp_path / "toy", launch(TOY, 0, 1))
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            SLOW,
            "tune",
            str(recording),
            "--budget",
            "5000",
            "--workers",
            "2",
            "--strategy",
            "random",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        text=True,
    )
    database = recording / "trials.sqlite"
    for _ in range(600):
        if database.exists():
            with contextlib.suppress(R3Error), Database(database) as store:  # not yet filled
                sessions = store.sessions()
                if sessions and len(store.trials(sessions[0])) > 10:
                    break
        time.sleep(0.05)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "of 5000" in out  # the table, with what there is
    assert err.splitlines()[-1] == "r3llvm: interrupted; every finished trial is kept, --resume goes on"
    with Database(database) as store:
        trials = store.trials(store.sessions()[0])
    assert f"{len(trials) - 1} of 5000" in out
    assert sorted(t.number for t in trials) == list(range(len(trials)))
