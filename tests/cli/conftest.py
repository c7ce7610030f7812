"""The command line, called in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from r3llvm import cli
from tests.recording.fake import small_recording

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    return small_recording(tmp_path / "small")


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Calls `r3llvm` in an empty folder; returns the exit status, what came on stdout, and on stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ending:
            cli.main([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        return int(ending.value.code or 0), out, err

    return run
