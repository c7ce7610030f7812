"""The options of `replay` and `tune` that say where kernels run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from r3llvm.cli import _device
from r3llvm.cli._device import choose_device
from r3llvm.errors import R3Error
from r3llvm.recording import Recording
from r3llvm.toolchain import Gpu
from tests.cli.conftest import Run

GPU = Gpu("NVIDIA H200", "9.0", 1 << 37, "13.0")


@pytest.mark.parametrize(
    ("wanted", "recorded_on", "gpus", "chosen"),
    [
        ("auto", "host", [GPU], "host"),
        ("auto", "NVIDIA H200", [GPU], "cuda"),
        ("auto", "NVIDIA H200", [], "host"),
        ("host", "NVIDIA H200", [GPU], "host"),
        ("cuda", "host", [GPU], "cuda"),
    ],
)
def test_the_device_is_chosen(
    recording: Path, monkeypatch: pytest.MonkeyPatch, wanted: str, recorded_on: str, gpus: list[Gpu], chosen: str
) -> None:
    monkeypatch.setattr(_device.toolchain, "gpus", lambda: gpus)
    opened = Recording.open(recording)
    opened.manifest = opened.manifest.model_copy(update={"device": recorded_on})
    assert choose_device(wanted, opened) == chosen


def test_a_gpu_that_is_not_there(recording: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    monkeypatch.setattr(_device.toolchain, "gpus", list)
    with pytest.raises(R3Error, match="no GPU"):
        choose_device("cuda", Recording.open(recording))
    for command in ("replay", "tune"):
        status, out, err = run(command, "--device", "cuda", "--kernel", "scale", recording)
        assert (status, out, err.count("\n")) == (1, "", 1)
        assert err.startswith("r3llvm: error: no GPU: the NVIDIA driver offers none")


@pytest.mark.parametrize("options", [["--image"], ["--sanitize"], ["--repeat", "3"]])
def test_what_only_a_gpu_can_do(recording: Path, run: Run, options: list[str]) -> None:
    status, out, err = run("replay", recording, *options)
    assert (status, out) == (2, "")
    assert err == (
        f"r3llvm: error: {options[0]} needs a GPU, and this recording is replayed on the CPU: say --device cuda\n"
    )


def test_unknown_choices_are_usage_errors(recording: Path, run: Run) -> None:
    for option in ("--device", "--cache", "--tolerance"):
        status, _, err = run("replay", recording, option, "lukewarm")
        assert (status, err.count("\n")) == (2, 1)
        assert "lukewarm" in err


def test_a_session_is_resumed_under_its_own_conditions() -> None:
    from r3llvm.errors import UsageError
    from r3llvm.search import Settings, Subject, begin
    from r3llvm.search.session import resume

    def subject(**conditions: str) -> Subject:
        return Subject("r" * 32, "k", (0,), "NVIDIA H200", "22.1.8", conditions)

    session, _ = begin(subject(cache="cold", tolerance="auto"), Settings(), 1)
    session.id = 1
    assert json.loads(json.dumps(session.versions))["cache"] == "cold"

    class Stored:
        def sessions(self, kernel: str) -> list[object]:
            return [session]

    assert resume(Stored(), subject(cache="cold", tolerance="auto"), Settings(), 1)[0] is session  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="--cache was cold, now warm"):
        resume(Stored(), subject(cache="warm", tolerance="auto"), Settings(), 1)  # type: ignore[arg-type]
