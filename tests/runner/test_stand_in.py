"""The GPU's runner, its real worker and the device library, on the stand-in driver: everything but the GPU."""

from __future__ import annotations

import json
import os
import struct
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from r3llvm.builder import Artifact, BuildStatus
from r3llvm.errors import R3Error
from r3llvm.ir import Elements
from r3llvm.recording import Launch, Parameter, Recording, Region
from r3llvm.runner import RunStatus
from r3llvm.runner import cuda as cuda_module
from r3llvm.runner.baseline import Baseline
from r3llvm.runner.cuda import CudaRunner
from r3llvm.runner.protocol import Binary
from tests.cli.conftest import Run
from tests.cli.conftest import run as run  # the fixture
from tests.fakecuda import FakeCuda
from tests.recording.fake import BASE, FakeRecording

pytest.importorskip("r3llvm._native", reason="r3llvm's extension is not built")
STAND_IN = Path(__file__).parents[1] / "device" / "stand_in"
N = 1024
WRITTEN = np.arange(N, dtype=np.uint32) * np.uint32(2654435761) + np.uint32(1)
HALVES = (np.arange(N, dtype=np.float32) + 1) / 2


def add_launch(
    fake: FakeRecording,
    image: str,
    kernel: str,
    regions: Sequence[Region],
    arguments: bytes,
    layout: str,
    index: int = 0,
) -> None:
    """layout: a letter a parameter, "p" for a pointer, else struct's."""
    parameters, offset = [], 0
    for letter in layout:
        size = 8 if letter == "p" else struct.calcsize(letter)
        offset = -(-offset // size) * size
        parameters.append(
            Parameter(offset=offset, size=size, alignment=size, kind="pointer" if letter == "p" else "scalar")
        )
        offset += size
    launch = fake.launch(kernel, None, regions, index, image)
    fields = {"grid": (4, 1, 1), "arguments": arguments.hex(), "parameters": tuple(parameters)}
    fake.launches[-1] = launch.model_copy(update=fields)


@pytest.fixture(scope="module")
def environment(fakecuda: FakeCuda) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in fakecuda.environment.items():
            patch.setenv(name, value)
        patch.setenv("PYTHONPATH", os.pathsep.join([str(STAND_IN), *sys.path]))
        yield


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory, fakecuda: FakeCuda) -> Path:
    """Writes every word of a region; adds one region to another; writes what was there; does nothing."""
    fake = FakeRecording(tmp_path_factory.mktemp("stand-in") / "recording")
    image = fake.image(fakecuda.ptx.read_bytes())
    out = BASE.to_bytes(8, "little")
    size = N.to_bytes(8, "little")
    written = WRITTEN.tobytes()
    add_launch(fake, image, "write_only", [fake.region(bytes(4 * N), written)], out + size, "pQ")
    regions = [
        fake.region(HALVES.tobytes(), (3 * HALVES).tobytes()),
        fake.region(HALVES.tobytes(), HALVES.tobytes(), BASE + (1 << 21)),
    ]
    arguments = out + (BASE + (1 << 21)).to_bytes(8, "little") + struct.pack("<f4x", 2.0) + size
    add_launch(fake, image, "saxpy", regions, arguments, "ppfQ")
    add_launch(fake, image, "write_only", [fake.region(written, written)], out + size, "pQ", index=1)
    add_launch(fake, image, "do_nothing", [fake.region(written, written)], b"", "")
    manifest = fake.finish().model_copy(update={"device": "r3llvm fake GPU"})
    (fake.folder / "manifest.json").write_text(manifest.model_dump_json())
    return fake.folder


@pytest.fixture(scope="module")
def recording(path: Path) -> Recording:
    return Recording.open(path)


@pytest.fixture(scope="module")
def runner(recording: Recording, fakecuda: FakeCuda, environment: None) -> Iterator[CudaRunner]:
    """Its artifacts name the kernel that is run instead of the launch's."""
    code = fakecuda.ptx.read_bytes()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cuda_module, "binary_of", lambda artifact, launch: Binary(code, artifact.candidate))
        patch.setattr(
            cuda_module,
            "image_baseline",
            lambda _, launch, arch=None: Baseline(
                Binary(code, launch.kernel), (), Elements({(0, 0): "f32", (1, 0): "f32"})
            ),
        )
        with CudaRunner(recording) as opened:
            yield opened


def artifact(kernel: str) -> Artifact:
    return Artifact(kernel, BuildStatus.OK, cubin=b"unused")


def launch_of(recording: Recording, kernel: str, index: int = 0) -> Launch:
    return next(x for x in recording.launches() if (x.kernel, x.index) == (kernel, index))


@pytest.mark.parametrize(
    ("kernel", "status", "message"),
    [
        ("write_only", RunStatus.OK, ""),
        ("do_nothing", RunStatus.MISMATCH, ""),
        ("write_past", RunStatus.MISMATCH, "an out-of-bounds write: 4 bytes beside the recorded memory changed"),
        ("illegal_address", RunStatus.ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS at the kernel's run"),
        ("misaligned_address", RunStatus.MISALIGNED, "CUDA_ERROR_MISALIGNED_ADDRESS"),
        ("traps", RunStatus.TRAP, "CUDA_ERROR_LAUNCH_FAILED"),
        ("runs_forever", RunStatus.TIMEOUT, "not finished after"),
        ("no_such_kernel", RunStatus.UNSUPPORTED, "CUDA_ERROR_NOT_FOUND at the kernel's load"),
    ],
)
def test_what_comes_of_a_kernel(
    runner: CudaRunner, recording: Recording, kernel: str, status: RunStatus, message: str
) -> None:
    launch = launch_of(recording, "write_only")
    measured = runner.run(artifact(kernel), launch)
    assert measured.status is status, measured.message
    assert message in measured.message
    assert (measured.cost is not None) == (status is RunStatus.OK)
    assert runner.run(artifact("write_only"), launch).status is RunStatus.OK


def test_memory_that_is_read_and_written_is_restored_between_launches(runner: CudaRunner, recording: Recording) -> None:
    launch = launch_of(recording, "saxpy")
    measured = runner.run(artifact("saxpy"), launch)
    assert measured.status is RunStatus.OK, measured.message
    assert len(measured.times) >= 10
    assert runner.run(artifact("do_nothing"), launch).status is RunStatus.MISMATCH


def test_a_kernel_that_writes_what_was_there_is_told_from_one_that_does_nothing(
    runner: CudaRunner, recording: Recording
) -> None:
    launch = launch_of(recording, "write_only", 1)
    assert runner.run(artifact("write_only"), launch).status is RunStatus.OK
    assert runner.run(artifact("do_nothing"), launch).status is RunStatus.MISMATCH
    assert runner.run(artifact("do_nothing"), launch_of(recording, "do_nothing")).status is RunStatus.UNCHECKABLE


def test_a_confirmation(runner: CudaRunner, recording: Recording) -> None:
    measured = runner.confirm(artifact("write_only"), launch_of(recording, "write_only"))
    assert measured.status is RunStatus.OK, measured.message
    assert len(measured.times) >= 50


def test_the_device_is_named(runner: CudaRunner) -> None:
    assert (runner.device, runner.arch("sm_90"), runner.arch("sm_80")) == ("r3llvm fake GPU", "sm_90", "sm_90")


def test_replay_of_images(run: Run, environment: None, path: Path) -> None:
    status, out, err = run("replay", path, "--kernel", "write_only")
    assert (status, err) == (0, "")
    assert "time (median ± 95 % CI)" in out
    assert "µs ±" in out
    assert out.endswith("2 of 2 launches replayed with the recorded result on r3llvm fake GPU\n")
    status, out, _ = run("replay", path, "--json", "--repeat", "7", "--cache", "warm")
    replays = [json.loads(line) for line in out.splitlines()]
    assert [replay["status"] for replay in replays] == ["ok", "ok", "ok", "uncheckable"]
    assert status == 1
    assert [len(replay["times"]) for replay in replays] == [7, 7, 7, 0]
    assert replays[0]["seconds"] > 0
    assert replays[0]["device"] == "r3llvm fake GPU"


def test_a_recording_of_images_cannot_be_rebuilt(run: Run, environment: None, path: Path) -> None:
    status, out, err = run("replay", path, "--device", "host")
    assert (status, out) == (1, "")
    assert "recorded without its module" in err
    status, _, err = run("tune", path, "--kernel", "saxpy", "--budget", "1")
    assert status == 1
    assert "recorded without its module" in err
    assert err.count("\n") == 1


def test_a_gpu_that_is_not_there(recording: Recording, environment: None) -> None:
    with pytest.raises(R3Error, match="there is no GPU 7"):
        _ = CudaRunner(recording, 7).device
