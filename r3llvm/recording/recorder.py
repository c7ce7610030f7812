"""Running an application under the recording library."""

from __future__ import annotations

import logging
import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from r3llvm.capture import Store
from r3llvm.capture.toolkit import hostcuda_library
from r3llvm.errors import R3Error, UsageError
from r3llvm.recording.journal import JOURNAL, Journal, finish
from r3llvm.recording.names import compile_pattern, demangle
from r3llvm.recording.recording import Recording
from r3llvm.recording.source import MANIFEST

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Recorder:
    """How to record. `kernels`: a regular expression; `max_launches`: recorded launches per kernel."""

    store: Store
    kernels: str | None = None
    max_launches: int | None = None
    allow_failure: bool = False

    def record(self, application: Sequence[str], output: Path, force: bool = False) -> Recording:
        """Runs the application to its end and leaves a recording in the folder `output`.

        Raises UsageError when `output` is taken, the filter matches nothing or there is no such application; R3Error
        when the application fails or launches nothing; KeyboardInterrupt. Then nothing is left behind.
        """
        self._check(application, output, force)
        partial = _partial_folder(output)
        try:
            status = _run(application, self._environment(partial))
            journal = self._judge(partial, status)
            finish(partial, journal, self.store, tuple(application), "host")
            _move_into_place(partial, output)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        return Recording.open(output)

    def _check(self, application: Sequence[str], output: Path, force: bool) -> None:
        if output.exists() or output.is_symlink():
            if not force:
                raise UsageError(f"{output} exists already: name another with -o, or replace it with --force")
            if not (output / MANIFEST).exists():
                raise UsageError(f"{output} is no recording, so --force does not replace it: name another with -o")
        if self.kernels is not None:
            compile_pattern(self.kernels)
        check_application(application)

    def _environment(self, folder: Path) -> dict[str, str]:
        environment = host_environment(self.store) | {"R3LLVM_RECORD": str(folder.absolute())}
        if self.kernels is not None:
            environment["R3LLVM_RECORD_KERNELS"] = self.kernels
        if self.max_launches is not None:
            environment["R3LLVM_RECORD_MAX"] = str(self.max_launches)
        return environment

    def _judge(self, folder: Path, status: int) -> Journal:
        """Reads the journal, or says why there is nothing to make a recording of."""
        failed = folder / "failed"
        if failed.exists():
            reason = " ".join(failed.read_text(errors="replace").split()) or f"{folder.parent}: No space left on device"
            if reason.startswith("R3LLVM_RECORD_KERNELS"):  # the runtime's are ECMAScript's, not Python's
                raise UsageError(
                    f"--kernels {self.kernels!r} is no regular expression of ECMAScript, which has no (?i), (?<=) or "
                    f"(?P<>): {reason.partition(': ')[2]}"
                )
            remedy = "; free some, or name another disk with -o" if "space left" in reason else ""
            raise R3Error(f"recording failed: {reason}{remedy}")
        if status and not self.allow_failure:
            raise R3Error(f"the application {_ended(status)}; nothing was recorded (--allow-failure keeps what was)")
        journal = Journal.read(folder / JOURNAL)
        if journal.launches:
            return journal
        ending = f" (the application {_ended(status)})" if status else ""
        if journal.refusals:
            first = journal.refusals[0]
            more = f" (and {len(journal.refusals) - 1} more refusals)" if len(journal.refusals) > 1 else ""
            raise R3Error(f"nothing was recorded: {demangle(first.kernel)}: {first.reason}{more}{ending}")
        if journal.skipped:
            seen = ", ".join(dict.fromkeys(demangle(kernel) for kernel in journal.skipped))
            raise UsageError(f"no kernel matches {self.kernels!r}; the application launched {seen}{ending}")
        if journal.ended:
            raise R3Error(f"nothing was recorded: the application launched no kernel{ending}")
        raise R3Error(
            "nothing was recorded: the application launched no kernel through r3llvm's CUDA runtime; build it with "
            f"`r3llvm wrap --device host -- clang++ …`, linked with the shared libcudart{ending}"
        )


def host_environment(store: Store) -> dict[str, str]:
    """The environment of a program that runs on the host device."""
    folder = str(hostcuda_library().parent)
    inherited = os.environ.get("LD_LIBRARY_PATH")
    path = f"{folder}:{inherited}" if inherited else folder
    return {**os.environ, "LD_LIBRARY_PATH": path, "R3LLVM_STORE": str(store.root)}


def check_application(application: Sequence[str]) -> None:
    """Raises UsageError when the program cannot be run."""
    if not application or shutil.which(application[0]) is None:
        name = application[0] if application else "nothing"
        raise UsageError(f"{name}: no such program, or not executable; check what follows --")


@contextmanager
def _interruptible(application: subprocess.Popen[bytes]) -> Iterator[list[int]]:
    """Lets Ctrl-C (which the application gets too) and SIGTERM end the application first. Yields the signals seen."""
    seen: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        seen.append(number)
        if number != signal.SIGINT or len(seen) > 1:
            application.send_signal(number if len(seen) == 1 else signal.SIGKILL)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield seen
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _run(application: Sequence[str], environment: dict[str, str]) -> int:
    """The application's status, negative for a signal. Raises KeyboardInterrupt when we were told to stop."""
    log.info("running %s", shlex.join(application))
    try:
        process = subprocess.Popen(list(application), env=environment)
    except OSError as error:
        raise UsageError(f"cannot run {application[0]}: {error.strerror}") from error
    with _interruptible(process) as seen:
        status = process.wait()
    if seen:
        raise KeyboardInterrupt
    return status


def _ended(status: int) -> str:
    if status >= 0:
        return f"exited with status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"


def _partial_folder(output: Path) -> Path:
    """A fresh folder beside `output`. What a killed `r3llvm record` left there is removed."""
    for stale in output.parent.glob(f"{_escape(output.name)}.partial-*"):
        process = stale.name.rpartition("-")[2]
        if process.isdigit() and not Path(f"/proc/{process}").exists():
            shutil.rmtree(stale, ignore_errors=True)
    partial = output.with_name(f"{output.name}.partial-{os.getpid()}")
    try:
        (partial / "chunks").mkdir(parents=True)
    except OSError as error:
        raise R3Error(f"cannot make {partial}: {error.strerror or error}") from error
    return partial


def _escape(name: str) -> str:
    return re.sub(r"([*?\[])", r"[\1]", name)


def _move_into_place(partial: Path, output: Path) -> None:
    try:
        if output.exists():
            replaced = output.with_name(f"{output.name}.replaced-{os.getpid()}")
            output.replace(replaced)
            partial.replace(output)
            shutil.rmtree(replaced, ignore_errors=True)
        else:
            partial.replace(output)
    except OSError as error:
        raise R3Error(f"cannot move the recording to {output}: {error.strerror or error}") from error
