"""Worker processes of a CudaRunner: started, asked within a deadline, killed, replaced."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import subprocess
import tempfile
from collections import deque
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import IO

from r3llvm.errors import R3Error
from r3llvm.runner.protocol import Failure, Hello, Reply, Request, Stop

# From a socket's descriptor to the words that start a worker on it.
Command = Callable[[int], Sequence[str]]

_START_SECONDS = 120.0  # a driver that has to wake up a GPU takes several
_END_SECONDS = 10.0
_MUCH_MEMORY = 32 << 30  # bytes


class WorkerDied(Exception):
    """It ended without an answer; the message says how."""


class WorkerLate(Exception):
    """It did not answer in time, and was killed."""


class Worker:
    """One worker process in a process group of its own. Starting does not wait for it."""

    def __init__(self, command: Command) -> None:
        ours, theirs = socket.socketpair()
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the worker)
        try:
            self._process = subprocess.Popen(
                list(command(theirs.fileno())),
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            self._log.close()
            raise R3Error(f"cannot start a worker for the GPU: {error}") from error
        finally:
            theirs.close()
        self._connection = Connection(ours.detach())
        self._hello: Hello | None = None
        self.held: set[int] = set()  # positions of the launches whose memory it holds

    def hello(self) -> Hello:
        """What it said of itself; waits for it to be ready. R3Error: it cannot work, and why."""
        if self._hello is None:
            try:
                first = self._receive(_START_SECONDS)
            except (WorkerDied, WorkerLate) as error:
                raise R3Error(f"the GPU's worker did not start: {error}") from error
            if isinstance(first, Failure):
                self.kill()
                raise R3Error(first.message)
            if not isinstance(first, Hello):
                self.kill()
                raise R3Error(f"the GPU's worker did not start: it said {first!r:.80}")
            self._hello = first
        return self._hello

    def ask(self, request: Request, seconds: float) -> Reply:
        """Its reply. Raises WorkerLate or WorkerDied, after which the process is gone."""
        try:
            self._connection.send(request)
        except (OSError, ValueError) as error:
            raise WorkerDied(self._ending()) from error
        reply = self._receive(seconds)
        if isinstance(reply, Hello):
            self.kill()
            raise WorkerDied("it said hello twice")
        return reply

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        return self._process.pid

    def stop(self, seconds: float = _END_SECONDS) -> None:
        """Ends it; waits until it is gone, for so long by itself."""
        if not self._connection.closed:
            with contextlib.suppress(OSError, ValueError):
                self._connection.send(Stop())
            self._connection.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        self.kill()

    def kill(self) -> None:
        """Ends it and all it started, at once."""
        if not self._connection.closed:
            self._connection.close()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        # A process that dies with a kernel on the GPU takes a moment, in which nothing should be timed.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_SECONDS)
        self._log.close()

    def _receive(self, seconds: float) -> Reply | Hello:
        try:
            if not self._connection.poll(seconds):
                self.kill()
                raise WorkerLate(f"no answer within {seconds:.3g} s")
            reply: Reply | Hello = self._connection.recv()
        except (EOFError, OSError, pickle.UnpicklingError) as error:
            raise WorkerDied(self._ending()) from error
        return reply

    def _ending(self) -> str:
        """How it ended, with the last line that it left. It is gone afterwards."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)  # its socket closes before it has quite ended
        code = self._process.poll()
        last = ""
        if not self._log.closed:
            self._log.seek(max(0, self._log.seek(0, os.SEEK_END) - 4096))
            lines = self._log.read().decode(errors="replace").strip().splitlines()
            last = f": {lines[-1]}" if lines else ""
        self.kill()
        if code is None:
            return f"it closed its socket{last}"
        how = f"exited with status {code}" if code >= 0 else f"was killed by {_signal_name(-code)}"
        return f"it {how}{last}"


class Workers:
    """The worker in use, and others that are started ahead, so that it can be replaced at once: one, or two where the
    GPU has memory to spare for another context.
    """

    def __init__(self, command: Command) -> None:
        self._command = command
        self._current: Worker | None = None
        self._ahead: deque[Worker] = deque()
        self._closed = False

    def current(self) -> Worker:
        """A worker that is ready. R3Error: none can be had."""
        if self._current is None or not self._current.alive:
            self.replace()
        assert self._current is not None
        return self._current

    def replace(self) -> Worker:
        """Ends the current one and puts the next in its place. R3Error: none can be had."""
        if self._closed:  # a thread that was building when the runner was closed
            raise R3Error("the GPU was given back")
        if self._current:
            self._current.kill()
        self._current = self._next()
        wanted = 2 if self._current.hello().memory_bytes >= _MUCH_MEMORY else 1
        while len(self._ahead) < wanted:
            self._ahead.append(Worker(self._command))
        return self._current

    def close(self) -> None:
        self._closed = True
        while self._ahead:
            self._ahead.pop().kill()
        if self._current:
            self._current.stop()
            self._current = None

    def _next(self) -> Worker:
        while self._ahead:
            worker = self._ahead.popleft()
            try:
                worker.hello()
                return worker
            except R3Error:  # such as on a GPU that takes one process at a time
                worker.kill()
        worker = Worker(self._command)
        try:
            worker.hello()
        except BaseException:
            worker.kill()
            raise
        return worker


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
