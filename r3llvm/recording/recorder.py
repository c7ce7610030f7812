"""Running an application under the recording library."""

from __future__ import annotations

import logging
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from r3llvm.capture import Store
from r3llvm.capture.toolkit import hostcuda_library
from r3llvm.errors import R3Error, UsageError
from r3llvm.recording.application import check_application, check_preloadable
from r3llvm.recording.crosscheck import crosscheck
from r3llvm.recording.finish import finish
from r3llvm.recording.journal import JOURNAL, Journal
from r3llvm.recording.names import compile_pattern, demangle
from r3llvm.recording.preload import check_gpu, cuda_environment
from r3llvm.recording.profile import Profile
from r3llvm.recording.recording import Recording
from r3llvm.recording.source import MANIFEST

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Recorder:
    """How to record.

    device: "host" or "cuda". kernels: a regular expression. max_launches: recorded launches per kernel; launches and
    every: which of them, by their number. scope: "reachable" or "all" of the device's memory. max_bytes: of host memory
    that snapshots may wait in. ranks: of MPI, such as "0,2" or "all". None and (): the recording library's defaults.
    """

    store: Store
    kernels: str | None = None
    max_launches: int | None = None
    allow_failure: bool = False
    device: str = "host"
    launches: tuple[int, ...] = ()
    every: int | None = None
    scope: str | None = None
    max_bytes: int | None = None
    ranks: str | None = None

    def record(self, application: Sequence[str], output: Path, force: bool = False) -> Recording:
        """Runs the application to its end and leaves a recording in the folder `output`.

        Raises UsageError when `output` is taken, the filter matches nothing or there is no such application; R3Error
        when the application fails or launches nothing; KeyboardInterrupt. Then nothing is left behind.
        """
        self.check_output(output, force)
        self._check(application)
        partial = _partial_folder(output)
        try:
            status = _run(application, self._environment(partial))
            journal = self._judge(partial, status)
            finish(partial, journal, self.store, tuple(application), self._device_name(journal))
            _move_into_place(partial, output)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        return Recording.open(output)

    def profile(self, application: Sequence[str]) -> Profile:
        """Runs the application to its end and measures the GPU time of its kernels; records nothing.

        Raises what `record` does.
        """
        self._check(application)
        with tempfile.TemporaryDirectory(prefix="r3llvm-profile-") as folder:
            (Path(folder) / "chunks").mkdir()
            file = Path(folder) / "profile.jsonl"
            environment = self._environment(Path(folder)) | {"R3LLVM_RECORD_PROFILE": str(file)}
            environment.pop("R3LLVM_RECORD_KERNELS", None)
            status = _run(application, environment)
            self._complain(Path(folder), status)
            profile = Profile.read(file)
        if not profile.kernels and (profile.graph_launches or profile.captured_launches):
            raise R3Error(f"nothing was measured: {_ONLY_GRAPHS}")
        if not profile.kernels:
            raise R3Error(f"nothing was measured: {self._unseen()}{_ending(status)}")
        return profile

    @staticmethod
    def check_output(output: Path, force: bool) -> None:
        """Raises UsageError when there is something that may not be replaced."""
        if output.exists() or output.is_symlink():
            if not force:
                raise UsageError(f"{output} exists already: name another with -o, or replace it with --force")
            if not (output / MANIFEST).exists():
                raise UsageError(f"{output} is no recording, so --force does not replace it: name another with -o")

    def _check(self, application: Sequence[str]) -> None:
        if self.kernels is not None:
            compile_pattern(self.kernels)
        check_application(application)
        if self.device == "cuda":
            check_gpu()
            check_preloadable(application)

    def _environment(self, folder: Path) -> dict[str, str]:
        environment = cuda_environment(self.store) if self.device == "cuda" else host_environment(self.store)
        max_launches = self.max_launches or len(self.launches) or None
        chosen = {
            "R3LLVM_RECORD": str(folder.absolute()),
            "R3LLVM_RECORD_KERNELS": self.kernels,
            "R3LLVM_RECORD_MAX": max_launches,
            "R3LLVM_RECORD_LAUNCHES": ",".join(map(str, self.launches)) or None,
            "R3LLVM_RECORD_EVERY": self.every,
            "R3LLVM_RECORD_SCOPE": self.scope,
            "R3LLVM_RECORD_BYTES": self.max_bytes,
            "R3LLVM_RECORD_RANKS": self.ranks,
        }
        return environment | {name: str(value) for name, value in chosen.items() if value is not None}

    def _device_name(self, journal: Journal) -> str:
        return (journal.device or "an NVIDIA GPU") if self.device == "cuda" else "host"

    def _complain(self, folder: Path, status: int) -> None:
        """Raises when the recording library could not go on, or the application failed."""
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

    def _judge(self, folder: Path, status: int) -> Journal:
        """Reads the journal, or says why there is nothing to make a recording of."""
        self._complain(folder, status)
        journal = Journal.read(folder / JOURNAL)
        if self.device == "cuda":
            crosscheck(journal, self.store)
        if journal.launches:
            return journal
        ending = _ending(status)
        if journal.refusals:
            first = journal.refusals[0]
            more = f" (and {len(journal.refusals) - 1} more refusals)" if len(journal.refusals) > 1 else ""
            raise R3Error(f"nothing was recorded: {demangle(first.kernel)}: {first.reason}{more}{ending}")
        if journal.skipped:
            seen = ", ".join(dict.fromkeys(demangle(kernel) for kernel in journal.skipped))
            raise UsageError(f"no kernel matches {self.kernels!r}; the application launched {seen}{ending}")
        raise R3Error(f"nothing was recorded: {self._why_nothing(journal)}{ending}")

    def _why_nothing(self, journal: Journal) -> str:
        seen = journal.launches_seen
        if (journal.graph_launches or journal.captured_launches) and seen <= journal.captured_launches:
            return _ONLY_GRAPHS
        if seen and (self.launches or self.every):
            return f"the application launched {seen} kernels, none of which --launches and --every pick"
        if seen:
            return f"the application launched {seen} kernels, none of which came to its end"
        if journal.ended:
            return "the application launched no kernel"
        if journal.device:
            return "the application ended before the memory of a launch was written"
        if self.device == "cuda":
            return self._unseen()
        return (
            "the application launched no kernel through r3llvm's CUDA runtime; build it with "
            "`r3llvm wrap --device host -- clang++ …`, linked with the shared libcudart"
        )

    def _unseen(self) -> str:
        ranks = "" if self.ranks in (None, "all") else f"has no MPI rank of {self.ranks}, or "
        return (
            f"the recorder saw no launch: the application launches none, or {ranks}was built for the host device "
            "(--device host), or ignores LD_PRELOAD (started with a clean environment, in a container)"
        )


_ONLY_GRAPHS = "all launches are made by CUDA graphs, which are not recorded: switch graphs off in the application"


def host_environment(store: Store) -> dict[str, str]:
    """The environment of a program that runs on the host device."""
    folder = str(hostcuda_library().parent)
    inherited = os.environ.get("LD_LIBRARY_PATH")
    path = f"{folder}:{inherited}" if inherited else folder
    return {**os.environ, "LD_LIBRARY_PATH": path, "R3LLVM_STORE": str(store.root)}


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


def _ending(status: int) -> str:
    return f" (the application {_ended(status)})" if status else ""


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
