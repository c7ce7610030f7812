"""The recording library under test, the applications that it is put into, and what it leaves behind."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import zstandard

from r3llvm import toolchain
from r3llvm.capture.toolkit import find_toolkit
from r3llvm.errors import R3Error
from r3llvm.recording.journal import Journal
from r3llvm.recording.manifest import Launch, Region
from r3llvm.recording.preload import recorder_library
from r3llvm.toolchain import find_clang
from tests.fakecuda import FakeCuda

PROGRAMS = Path(__file__).resolve().parent / "programs"
MEMORY = 256 << 20  # of the device
DIED = 3  # how an application ends that gets an error where it counts on none


@dataclass(frozen=True)
class Outcome:
    status: int
    output: str
    errors: str


@dataclass(frozen=True)
class Recorded:
    """One application, run without and with the recorder. journal: what the latter wrote into `folder`."""

    plain: Outcome
    outcome: Outcome
    folder: Path
    gpu: bool
    journal: Journal

    def launches(self, kernel: str) -> list[Launch]:
        return [launch for launch in self.journal.launches if launch.kernel == kernel]

    def launch(self, kernel: str) -> Launch:
        (launch,) = self.launches(kernel)
        return launch

    def reasons(self, kernel: str) -> list[str]:
        return [refusal.reason for refusal in self.journal.refusals if refusal.kernel == kernel]

    def before(self, region: Region) -> bytes:
        return self._bytes(region.prologue, region.size)

    def after(self, region: Region) -> bytes:
        return self._bytes(region.epilogue, region.size)

    def _bytes(self, hashes: tuple[str, ...], size: int) -> bytes:
        chunks = [
            zstandard.decompress((self.folder / "chunks" / name[:2] / f"{name}.zst").read_bytes()) for name in hashes
        ]
        memory = b"".join(chunks)
        assert len(memory) == size
        return memory


@dataclass(frozen=True)
class Applications:
    """programs/application.cpp: unlinked, and linked with libcuda in two ways."""

    unlinked: Path
    linked: Path
    linked_per_thread: Path
    fakecuda: FakeCuda
    library: Path

    def run(
        self, name: str, *, reach: str = "lookup", preload: bool = False, gpu: bool = False, **environment: str
    ) -> Outcome:
        """reach: how it finds the driver's functions (programs/driver.h). gpu: on a real one."""
        program = {"linked": self.linked, "linked_per_thread": self.linked_per_thread}.get(reach, self.unlinked)
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("R3LLVM_", "FAKECUDA_"))}
        settings = {"REACH": reach, "KERNELS": str(self.fakecuda.ptx), "FAKECUDA_MEMORY": str(MEMORY)}
        driver = {} if gpu else self.fakecuda.environment
        loaded = {"LD_PRELOAD": str(self.library)} if preload else {}
        done = subprocess.run(
            [program, name],
            env={**kept, **driver, **settings, **loaded, **environment},
            capture_output=True,
            text=True,
            timeout=120,
        )
        return Outcome(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="session")
def library() -> Path:
    """libr3recorder.so."""
    try:
        return recorder_library()
    except R3Error as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def applications(library: Path, fakecuda: FakeCuda, tmp_path_factory: pytest.TempPathFactory) -> Applications:
    toolkit, clang = find_toolkit(), find_clang()
    assert toolkit and clang  # the fixture `fakecuda` has seen to it
    folder = tmp_path_factory.mktemp("applications")

    def compile(name: str, *options: str) -> Path:
        include = toolkit.root / "include"
        command = [clang, "-std=c++20", "-isystem", include, PROGRAMS / "application.cpp", "-o", folder / name]
        subprocess.run([*command, "-pthread", *options], check=True)
        return folder / name

    link = ["-DR3_LINKED", f"-L{fakecuda.library.parent}", "-lcuda"]
    return Applications(
        compile("unlinked"),
        compile("linked", *link),
        compile("linked_per_thread", "-DCUDA_API_PER_THREAD_DEFAULT_STREAM", *link),
        fakecuda,
        library,
    )


Record = Callable[..., Recorded]


@pytest.fixture(scope="session")
def has_gpu() -> bool:
    return bool(toolchain.gpus())


@pytest.fixture(params=["stand-in", pytest.param("gpu", marks=pytest.mark.cuda)])
def record(request: pytest.FixtureRequest, applications: Applications, has_gpu: bool, tmp_path: Path) -> Record:
    """Runs an application without and with the recorder, which must make no difference to what it prints on stdout and
    to how it ends.
    """
    gpu = request.param == "gpu"
    if gpu and not has_gpu:
        pytest.skip("no GPU here")

    def record(name: str, *, reach: str = "lookup", **environment: str) -> Recorded:
        if gpu and any(variable.startswith("FAKECUDA_") for variable in environment):
            pytest.skip("what only the stand-in can be made to do")
        folder = tmp_path / "recording"
        (folder / "chunks").mkdir(parents=True)
        plain = applications.run(name, reach=reach, gpu=gpu, **environment)
        assert plain.status != DIED, plain.errors
        store = {"R3LLVM_RECORD": str(folder), "R3LLVM_STORE": str(tmp_path / "store")}
        outcome = applications.run(name, reach=reach, gpu=gpu, preload=True, **{**store, **environment})
        assert (outcome.status, outcome.output) == (plain.status, plain.output), outcome.errors
        return Recorded(plain, outcome, folder, gpu, Journal.read(folder / "journal.jsonl"))

    return record
