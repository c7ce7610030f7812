"""A worker on the stand-in driver, and on a GPU where there is one; a recording of the stand-in's kernels."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from r3llvm.recording import Launch, Parameter, Region
from r3llvm.runner.protocol import Binary, Failure, Hello, LaunchKey, Reply, Request
from tests.fakecuda import FakeCuda
from tests.recording.fake import FakeRecording

ROOT = Path(__file__).resolve().parent.parent.parent
STAND_IN = Path(__file__).resolve().parent / "stand_in"


class Worker:
    """r3llvm.runner.worker in a process of its own, and our end of its socket."""

    def __init__(self, recording: Path, environment: dict[str, str], device: int = 0) -> None:
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-m", "r3llvm.runner.worker", "--fd", str(theirs.fileno()), str(recording)]
        self.process = subprocess.Popen(
            [*command, "--device", str(device)],
            pass_fds=(theirs.fileno(),),
            env={**os.environ, **environment},
            cwd=ROOT,
        )
        theirs.close()
        self.connection = Connection(ours.detach())
        self.first: Hello | Failure = self.receive()

    def receive(self) -> Reply:
        assert self.connection.poll(60), "no answer"
        reply: Reply = self.connection.recv()
        return reply

    def ask(self, request: Request) -> Reply:
        self.connection.send(request)
        return self.receive()

    def close(self) -> int:
        """Closes the socket; the worker's exit status."""
        self.connection.close()
        return self.process.wait(60)


Start = Callable[..., Worker]


def on_stand_in(fakecuda: FakeCuda, **more: str) -> dict[str, str]:
    path = os.pathsep.join(filter(None, (str(STAND_IN), os.environ.get("PYTHONPATH"))))
    return {**fakecuda.environment, "PYTHONPATH": path, **more}


def why_no_gpu() -> str:
    if importlib.util.find_spec("pycuda") is None:
        return "no PyCUDA here"
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no CUDA driver here"
    return "no GPU here" if driver.cuInit(0) else ""


@pytest.fixture(scope="session", params=["stand-in", pytest.param("gpu", marks=pytest.mark.cuda)])
def platform(request: pytest.FixtureRequest) -> str:
    if request.param == "gpu" and (reason := why_no_gpu()):
        pytest.skip(reason)
    return str(request.param)


@pytest.fixture
def start(platform: str, fakecuda: FakeCuda) -> Iterator[Start]:
    """Starts workers on a recording; ends those that are left."""
    started = []

    def start(recording: Path, device: int = 0, **environment: str) -> Worker:
        if platform == "gpu" and environment:
            pytest.skip("only the stand-in can be told to do this")
        worker = Worker(recording, on_stand_in(fakecuda, **environment) if platform == "stand-in" else {}, device)
        started.append(worker)
        return worker

    yield start
    for worker in started:
        worker.process.kill()
        worker.process.wait()
        worker.connection.close()


class Recorded(FakeRecording):
    """Launches of the stand-in's kernels (tests/fakecuda/kernels.cu), whose PTX a GPU runs too."""

    def __init__(self, folder: Path, ptx: Path) -> None:
        super().__init__(folder)
        self.ptx = ptx.read_bytes()
        self.image_hash = self.image(self.ptx)

    def add(
        self, kernel: str, layout: str, arguments: Sequence[int | float], regions: Sequence[Region], **more: object
    ) -> LaunchKey:
        """layout: the parameters' types as `struct` has them, such as "QQfQ"."""
        packed, parameters = b"", []
        for code, value in zip(layout, arguments, strict=True):
            size = struct.calcsize(code)
            packed += bytes(-len(packed) % size)
            parameters.append(Parameter(offset=len(packed), size=size, alignment=size, kind="scalar"))
            packed += struct.pack(f"<{code}", value)
        launch = Launch(
            kernel=kernel,
            image=self.image_hash,
            index=len(self.launches),
            grid=(4, 1, 1),
            block=(64, 1, 1),
            arguments=packed.hex(),
            parameters=tuple(parameters),
            regions=tuple(regions),
        )
        self.launches.append(launch.model_copy(update=more))
        return LaunchKey(len(self.launches) - 1)

    def write(self) -> Path:
        self.finish()
        return self.folder

    def binary(self, name: str) -> Binary:
        return Binary(self.ptx, name)


@pytest.fixture
def recorded(tmp_path: Path, fakecuda: FakeCuda) -> Recorded:
    return Recorded(tmp_path / "recording", fakecuda.ptx)
