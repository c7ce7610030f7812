"""The commands that read recordings, and how the command line tells what is wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

import r3llvm
from r3llvm.errors import R3Error, UsageError
from r3llvm.recording import Recording
from r3llvm.recording.recording import chunk_name
from tests.cli.conftest import Run


def test_every_command_is_found_and_has_help(run: Run) -> None:
    status, out, _ = run("--help")
    assert status == 0
    for name in ("wrap", "run", "record", "replay", "list", "show", "verify", "export", "import"):
        assert f"\n  {name} " in out
        assert run(name, "--help")[0] == 0
    assert run("--version") == (0, f"r3llvm, version {r3llvm.__version__}\n", "")


def test_wrong_usage_is_one_line_and_status_two(run: Run) -> None:
    for arguments in (
        ["nonsense"],
        ["verify"],
        ["show", "a", "b"],
        ["--nonsense"],
        ["record", "-o", "x"],
        ["replay", "--launch", "x", "y"],
        ["replay", "--workers", 10**13, "y"],
        ["record", "--max-launches", 2**32, "-o", "x", "true"],
        ["tune", "--seed", 2**32, "y"],
        ["tune", "--budget", 10**24, "y"],
        ["tune", "--memory", 10**24, "y"],
        ["tune", "--timeout", "nan", "y"],
        ["tune", "--timeout", "inf", "y"],
        ["tune", "--timeout", "0", "y"],
    ):
        status, out, err = run(*arguments)
        assert (status, out) == (2, "")
        assert err.startswith("r3llvm: error: ")
        assert err.count("\n") == 1
        assert "--help" in err


def test_list(run: Run, recording: Path, tmp_path: Path) -> None:
    (tmp_path / "no-recording").mkdir()
    (tmp_path / "name.partial-12").mkdir()
    status, out, err = run("list", tmp_path)
    assert (status, err) == (0, "")
    assert "small" in out
    assert "partial" not in out
    status, out, _ = run("list", "--json", recording)
    assert (json.loads(out)["launches"], json.loads(out)["device"]) == (3, "host")
    (recording / "manifest.json").write_text("{")
    status, _, err = run("list", tmp_path)
    assert status == 1
    assert "is not a recording" in err
    assert run("list", tmp_path / "missing")[0] == 1
    (tmp_path / "recordings").mkdir()
    assert run("list") == (0, "", "no recordings; make one with `r3llvm record`\n")


def test_list_without_recordings_folder(run: Run) -> None:
    assert run("list") == (0, "", "no recordings; make one with `r3llvm record`\n")


def test_show(run: Run, recording: Path) -> None:
    status, out, err = run("show", recording)
    assert (status, err) == (0, "")
    assert "./app 10" in out
    assert "scale" in out
    assert "4x2" in out
    assert "128" in out
    status, out, _ = run("show", "--json", recording)
    assert json.loads(out)["launches"][1]["index"] == 7


def test_verify_and_export(run: Run, recording: Path, tmp_path: Path) -> None:
    assert run("verify", recording) == (0, f"{recording}: good\n", "")
    assert run("export", recording, "-o", tmp_path / "sent.tar")[0] == 0
    assert run("verify", tmp_path / "sent.tar")[0] == 0
    assert run("export", recording, "-o", tmp_path / "sent.tar")[0] == 2
    assert run("export", "--force", recording, "-o", tmp_path / "sent.tar")[0] == 0
    assert run("import", tmp_path / "sent.tar")[0] == 0
    assert run("import", tmp_path / "sent.tar")[0] == 2
    assert run("verify", tmp_path / "recordings" / "sent")[0] == 0
    chunk = Recording.open(recording).launches()[2].regions[0].prologue[0]
    (recording / chunk_name(chunk)).write_bytes(b"")
    status, out, err = run("verify", recording)
    assert (status, out) == (1, f"{recording}: 1 damaged\n")
    assert chunk in err
    assert err.count("\n") == 1
    status, out, err = run("verify", tmp_path / "missing", tmp_path / "sent.tar")
    assert (status, out) == (1, f"{tmp_path}/missing: 1 damaged\n{tmp_path}/sent.tar: good\n")
    assert "no such recording" in err


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (R3Error("one\n two"), 1, "r3llvm: error: one two\n"),
        (UsageError("wrong"), 2, "r3llvm: error: wrong\n"),
        (OSError(28, "No space left on device", "/tmp/x"), 1, "r3llvm: error: No space left on device: /tmp/x\n"),
        (KeyboardInterrupt(), 130, "r3llvm: error: interrupted\n"),
        (click.FileError("x", "gone"), 1, "r3llvm: error: Could not open file 'x': gone\n"),
    ],
)
def test_errors_are_one_line(
    run: Run, monkeypatch: pytest.MonkeyPatch, error: BaseException, status: int, line: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(Recording, "open", fail)
    assert run("show", "x") == (status, "", line)


def test_a_reader_that_leaves_early_is_no_error(recording: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "r3llvm", "show", "--json", str(recording)]
    environment = {**os.environ, "PYTHONPATH": str(Path(r3llvm.__file__).parents[1])}
    ended = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, env=environment)
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (141, "")
