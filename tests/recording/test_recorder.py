"""Recording applications; shell scripts stand in for them and for the recording library."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import r3llvm
from r3llvm.errors import R3Error, UsageError
from r3llvm.recording import Recording, problems
from r3llvm.recording.journal import Journal
from tests.recording.application import BITCODE, Application


@pytest.fixture
def application(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Application:
    (tmp_path / "runtime").mkdir()
    (tmp_path / "runtime" / "libcudart.so.13").touch()
    monkeypatch.setenv("R3LLVM_HOSTCUDA", str(tmp_path / "runtime"))
    return Application(tmp_path)


def test_a_run_becomes_a_recording(application: Application) -> None:
    recording = application.record("10")
    manifest = recording.manifest
    assert recording.kernels == ["_Z5scalePfi", "_Z5countPi"]
    assert manifest.application == (str(application.path), "10")
    assert (manifest.device, manifest.launches_seen) == ("host", 9)
    [module] = manifest.modules
    assert (module.source, module.arch, module.command) == ("/src/app.cu", "sm_80", ("clang++", "app.cu"))
    assert recording.module(module.hash) == BITCODE
    assert list(problems(recording)) == []
    assert application.left() == ["name"]
    assert sorted(path.name for path in application.output.iterdir()) == ["chunks", "manifest.json", "modules"]


def test_the_application_gets_its_environment_and_streams(
    application: Application, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/already/there")
    application.writes(*application.lines, then='env | grep -E "^(R3LLVM|LD_LIB)"; echo complaint >&2')
    application.record(kernels="a|c", max_launches=2)
    out, err = capfd.readouterr()
    seen = dict(line.split("=", 1) for line in out.splitlines())
    assert err == "complaint\n"
    assert seen["R3LLVM_RECORD"] == f"{application.output}.partial-{os.getpid()}"
    assert seen["R3LLVM_RECORD_KERNELS"] == "a|c"
    assert seen["R3LLVM_RECORD_MAX"] == "2"
    assert seen["R3LLVM_STORE"] == str(application.store.root)
    assert seen["LD_LIBRARY_PATH"] == f"{application.folder}/runtime:/already/there"


@pytest.mark.parametrize(
    ("then", "message"),
    [
        ("exit 3", "exited with status 3"),
        ("kill -SEGV $$", "was killed by SIGSEGV"),
        ("kill -KILL $$", "was killed by SIGKILL"),
        (
            'echo "No space left on device" > "$R3LLVM_RECORD/failed"',
            "recording failed: No space left on device; free some",
        ),
        (
            'echo "R3LLVM_RECORD_KERNELS is no regular expression: invalid" > "$R3LLVM_RECORD/failed"',
            "is no regular expression of ECMAScript, .*: invalid",
        ),
        ('touch "$R3LLVM_RECORD/failed"', r"recording failed: .*: No space left on device; free some"),
        ('echo bad >> "$R3LLVM_RECORD/journal.jsonl"', "line 3 of the recorder's journal is damaged"),
        ('rm -r "$R3LLVM_RECORD"/chunks/*', "lost 3 chunks"),
    ],
)
def test_a_failed_run_leaves_nothing(application: Application, then: str, message: str) -> None:
    application.writes(*application.lines, then=then)
    with pytest.raises(R3Error, match=message) as error:
        application.record()
    assert "\n" not in str(error.value)
    assert application.left() == []


def test_arguments_need_not_be_utf8(application: Application) -> None:
    assert application.record("caf\udce9").manifest.application == (str(application.path), "caf\ufffd")


def test_a_failed_run_can_be_kept(application: Application) -> None:
    application.writes(application.lines[0], then="kill -KILL $$", tail='{"type": "launch", "kern')
    recording = application.record(allow_failure=True)
    assert recording.kernels == ["_Z5scalePfi"]
    assert recording.manifest.launches_seen == 1
    assert len(list((application.output / "chunks").rglob("*.zst"))) == 2  # of the other launch's none


def test_a_module_that_the_store_lost_is_named(application: Application) -> None:
    [module] = application.store.root.glob("modules/*.bc")
    module.unlink()
    with pytest.raises(R3Error, match=r"the store .* has no modules/.*--store"):
        application.record()
    assert application.left() == []


def test_a_filter_that_matches_nothing_names_the_kernels_seen(application: Application) -> None:
    application.writes({"type": "skipped", "kernel": "_Z5scalePfi"}, {"type": "skipped", "kernel": "other"})
    with pytest.raises(UsageError, match=r"no kernel matches 'sum'; the application launched scale\(.*\), other"):
        application.record(kernels="sum")
    assert application.left() == []


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "through r3llvm's CUDA runtime"),
        ([{"type": "end", "launches_seen": 0}], "launched no kernel$"),
        ([{"type": "refusal", "kernel": "_Z5scalePfi", "reason": "no module"}], r"scale\(float\*, int\): no module$"),
    ],
)
def test_why_nothing_was_recorded(application: Application, lines: list[object], message: str) -> None:
    application.writes(*lines)
    with pytest.raises(R3Error, match=message):
        application.record()
    assert application.left() == []


def test_a_taken_name_is_refused_before_anything_runs(application: Application) -> None:
    application.record()
    application.writes(application.lines[1])
    with pytest.raises(UsageError, match="exists already"):
        application.record()
    assert application.record(force=True).kernels == ["_Z5countPi"]
    assert application.left() == ["name"]


def test_a_failed_replacement_keeps_the_old_recording(application: Application) -> None:
    application.record()
    application.writes(then="exit 1")
    with pytest.raises(R3Error, match="status 1"):
        application.record(force=True)
    assert Recording.open(application.output).kernels == ["_Z5scalePfi", "_Z5countPi"]


def test_what_is_no_recording_is_never_replaced(application: Application) -> None:
    (application.output / "precious").mkdir(parents=True)
    with pytest.raises(UsageError, match="no recording"):
        application.record(force=True)
    assert (application.output / "precious").exists()


@pytest.mark.parametrize(
    ("options", "message"), [({"kernels": "("}, "no regular expression"), ({}, "no such program, or not executable")]
)
def test_wrong_calls_are_told_before_anything_runs(
    application: Application, options: dict[str, str], message: str
) -> None:
    if not options:
        application.path.chmod(0o644)
    with pytest.raises(UsageError, match=message):
        application.record(**options)
    assert application.left() == []


def test_what_a_killed_recording_left_is_removed(application: Application) -> None:
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True)
    stale = application.output.with_name(f"name.partial-{ended.stdout.strip()}")
    alive = application.output.with_name("name.partial-1")
    stale.mkdir(parents=True)
    alive.mkdir()
    application.record()
    assert application.left() == ["name", "name.partial-1"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_recording_leaves_nothing(application: Application, number: signal.Signals) -> None:
    started = application.folder / "started"
    application.writes(*application.lines, then=f"touch {started}; exec sleep 60")
    command = [sys.executable, "-m", "r3llvm", "record", "-o", str(application.output), "--", str(application.path)]
    environment = {**os.environ, "PYTHONPATH": str(Path(r3llvm.__file__).parents[1])}
    process = subprocess.Popen(command, env=environment, start_new_session=True, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not started.exists() and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.02)
    if number is signal.SIGINT:
        os.killpg(process.pid, number)  # as the terminal does
    else:
        process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "r3llvm: error: interrupted\n")
    assert application.left() == []


@given(st.lists(st.sampled_from(["refusal", "skipped", "end"]), max_size=8), st.integers(0, 30))
def test_a_journal_cut_off_by_a_kill_keeps_its_whole_lines(
    tmp_path_factory: pytest.TempPathFactory, kinds: list[str], cut: int
) -> None:
    lines = {
        "refusal": {"type": "refusal", "kernel": "k", "reason": "r"},
        "skipped": {"type": "skipped", "kernel": "s"},
        "end": {"type": "end", "launches_seen": 2},
    }
    text = "".join(json.dumps(lines[kind]) + "\n" for kind in kinds)
    whole = text[: len(text) - cut].count("\n") if cut < len(text) else 0
    path = tmp_path_factory.mktemp("journal") / "journal.jsonl"
    path.write_text(text[: max(len(text) - cut, 0)])
    journal = Journal.read(path)
    kept = kinds[:whole]
    assert len(journal.refusals) == kept.count("refusal")
    assert len(journal.skipped) == kept.count("skipped")
    assert journal.launches_seen == 2 * kept.count("end")


@pytest.mark.parametrize(
    "line", ["{}", "[]", "3", '{"type": "other"}', '{"type": "launch"}', '{"type": "end"}', "\xff"]
)
def test_a_journal_line_that_is_not_the_formats(tmp_path: Path, line: str) -> None:
    (tmp_path / "journal.jsonl").write_text(f'{{"type": "end", "launches_seen": 1}}\n{line}\n', encoding="latin-1")
    with pytest.raises(R3Error, match=r"line 2 of the recorder's journal is damaged") as error:
        Journal.read(tmp_path / "journal.jsonl")
    assert "\n" not in str(error.value)
