"""The host runner, with the native replay stood in for."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import r3llvm
from r3llvm.builder.artifact import Artifact, BuildStatus, Resources
from r3llvm.errors import R3Error
from r3llvm.recording import Launch, Recording
from r3llvm.recording.manifest import Attribute, Relocation
from r3llvm.runner import Difference, RunStatus
from r3llvm.runner.host import HostRunner
from tests.recording.fake import BASE, small_recording

ARTIFACT = Artifact("candidate", BuildStatus.OK, bitcode=b"BC optimised", resources=Resources(registers=32))


class Native:
    """Answers `replay` with `answer`, and keeps what it was asked."""

    def __init__(self, **answer: Any) -> None:
        self.answer = {
            "status": "ok",
            "message": "",
            "warning": "",
            "output": "",
            "differences": [],
            "counts": {"int": 4},
            "load_seconds": 0.5,
            "run_seconds": 0.25,
        } | answer
        self.asked: list[dict[str, Any]] = []

    def __call__(self, **request: Any) -> dict[str, Any]:
        request["prologue"] = os.pread(request["prologue_fd"], 16, 0)
        self.asked.append(request)
        return self.answer


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    return Recording.open(small_recording(tmp_path / "small"))


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Any:
    def install(native: Native) -> Native:
        module = ModuleType("r3llvm._native")
        vars(module).update(replay=native, CHECK=1, COUNT=2)
        monkeypatch.setitem(sys.modules, "r3llvm._native", module)
        monkeypatch.setattr(r3llvm, "_native", module, raising=False)
        return native

    def cycles(counts: dict[str, int], resources: Resources, launch: Launch) -> float:
        return 100.0 * counts["int"] + resources.registers

    monkeypatch.setattr("r3llvm.runner.host.modelled_cycles", cycles)
    return install


def test_a_launch_is_replayed_as_it_was_recorded(recording: Recording, install: Any) -> None:
    native = install(Native())
    launch = recording.launches()[1]
    with HostRunner(recording, workers=3, seconds=5, memory_bytes=1 << 20) as runner:
        measurement = runner.run(ARTIFACT, launch)
    assert measurement.status is RunStatus.OK
    assert measurement.cost == 432.0
    assert measurement.unit == "modelled cycles"
    assert measurement.seconds == 0.25
    assert measurement.counts == {"int": 4}
    [asked] = native.asked
    assert asked["prologue"] == bytes(range(16))
    assert asked["regions"] == [(BASE, 307200, ""), (BASE + (1 << 20), 4, "counter")]
    assert asked["arguments"] == BASE.to_bytes(8, "little")
    wanted = {
        "bitcode": b"BC optimised",
        "passes": "",
        "cpu": "sm_90",
        "kernel": "_Z5scalePfi",
        "grid": (4, 2, 1),
        "block": (128, 1, 1),
        "dynamic_shared": 0,
        "flags": 3,
        "workers": 3,
        "cooperative": False,
        "seconds": 5,
        "memory_bytes": (1 << 20) + 2 * (307200 + 4096),
    }
    assert {name: asked[name] for name in wanted} == wanted


def test_what_differs_is_named_and_never_given_a_cost(recording: Recording, install: Any) -> None:
    install(Native(status="mismatch", differences=[(0, 7, 16), (1, 1, 3)]))
    measurement = HostRunner(recording).run(ARTIFACT, recording.launches()[1])
    assert measurement.status is RunStatus.MISMATCH
    assert measurement.cost is None
    assert measurement.differences == (
        Difference("allocation 0x300000000000", 7, 16),
        Difference("variable counter", 1, 3),
    )


@pytest.mark.parametrize("status", [status for status in RunStatus if status is not RunStatus.OK])
def test_every_failure_has_its_status_and_no_cost(recording: Recording, install: Any, status: RunStatus) -> None:
    install(Native(status=status.value, message="why", counts={}))
    measurement = HostRunner(recording).run(ARTIFACT, recording.launches()[0])
    assert (measurement.status, measurement.cost, measurement.message) == (status, None, "why")


def test_an_artifact_that_was_not_built_is_a_callers_error(recording: Recording, install: Any) -> None:
    install(Native())
    with pytest.raises(ValueError, match="pass_crash"):
        HostRunner(recording).run(Artifact("c", BuildStatus.PASS_CRASH), recording.launches()[0])


def test_a_damaged_recording_is_told_in_one_line(recording: Recording, install: Any) -> None:
    native = install(Native())
    for chunk in (recording.path / "chunks").rglob("*.zst"):
        chunk.write_bytes(b"")
    with pytest.raises(R3Error, match="damaged"):
        HostRunner(recording).run(ARTIFACT, recording.launches()[0])
    assert native.asked == []


def test_a_gpus_variables_are_moved_into_the_arena(recording: Recording, install: Any) -> None:
    """Where the GPU had them, this process may have something else."""
    native = install(Native())
    launch = recording.launches()[1]
    variable = launch.regions[1].model_copy(update={"base": 0x7F0000000200})
    moved = launch.model_copy(
        update={
            "regions": (launch.regions[0], variable),
            "arguments": (BASE.to_bytes(8, "little") + (0x7F0000000202).to_bytes(8, "little")).hex(),
            "relocations": (Relocation(offset=8, variable="counter", addend=2),),
        }
    )
    measurement = HostRunner(recording).run(ARTIFACT, moved)
    assert measurement.status is RunStatus.OK
    [asked] = native.asked
    assert asked["regions"][0] == (BASE, 307200, "")
    base, size, name = asked["regions"][1]
    assert (size, name) == (4, "counter")
    assert BASE < base < BASE + (1 << 40)
    assert asked["arguments"] == BASE.to_bytes(8, "little") + (base + 2).to_bytes(8, "little")
    assert any(address <= base < address + length for address, length, _ in asked["spans"])


def test_clusters_are_refused_by_name(recording: Recording, install: Any) -> None:
    native = install(Native())
    attributes = (Attribute(id=4, value="02" + "00" * 63),)
    launch = recording.launches()[0].model_copy(update={"attributes": attributes})
    measurement = HostRunner(recording).run(ARTIFACT, launch)
    assert (measurement.status, native.asked) == (RunStatus.UNSUPPORTED, [])
    assert "thread block clusters" in measurement.message
