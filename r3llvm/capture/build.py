"""Runs a build whose compilers are ours."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from r3llvm.capture import shims
from r3llvm.capture.report import Report, Summary
from r3llvm.capture.settings import Settings
from r3llvm.errors import UsageError


def build(words: Sequence[str], settings: Settings, folder: Path) -> tuple[int, Summary]:
    """Runs a command with a stand-in's compilers first on PATH.

    Returns its exit status (128 + n when a signal ended it) and what became of its translation units.
    Raises UsageError when it cannot be run.
    """
    with tempfile.TemporaryDirectory(prefix="r3llvm-") as scratch:
        report = Report(Path(scratch, "report"))
        environment = shims.environment(folder, os.environ)
        environment.update(settings._replace(report=report.path).environment)
        program, *arguments = words
        command = [program, *(shims.redirected(word, folder) for word in arguments)]
        try:
            # Descriptors stay open: make's jobserver may be among them.
            child = subprocess.Popen(command, env=environment, close_fds=False)
        except OSError as error:
            raise UsageError(f"cannot run {program}: {error.strerror}; check the command after --") from error
        with _signals_to(child):
            status = child.wait()
        return (status if status >= 0 else 128 - status), report.summary()


@contextmanager
def _signals_to(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """Leaves it to the build how it ends: a terminal's interrupt reaches it anyway, other signals are handed on."""

    def hand_on(number: int, _: FrameType | None) -> None:
        child.send_signal(number)

    def leave(number: int, _: FrameType | None) -> None:
        pass

    handlers = {signal.SIGINT: leave, signal.SIGQUIT: leave, signal.SIGTERM: hand_on, signal.SIGHUP: hand_on}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
