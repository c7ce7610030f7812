"""Replays on the CPU, which emulates the SIMT model; the cost is modelled cycles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from r3llvm.builder.artifact import Artifact, BuildStatus
from r3llvm.recording import Launch, Recording, Region
from r3llvm.runner.cost import modelled_cycles
from r3llvm.runner.measurement import Difference, Measurement, RunStatus
from r3llvm.runner.memory import MemoryImage, MemoryImages
from r3llvm.runner.runner import Runner

if TYPE_CHECKING:
    from r3llvm._native import ReplayResult


class HostRunner(Runner):
    """Replays launches of one recording, each in a forked child.

    workers: threads that run blocks, 0 for one per core.
    seconds, memory_bytes: what a replay may take, wall-clock and address space beside the recorded memory.
    The launches' memory is kept in memory files, up to `keep_bytes`, for the next replay. Thread-safe.
    """

    def __init__(
        self,
        recording: Recording,
        workers: int = 1,
        seconds: float = 60.0,
        memory_bytes: int = 4 << 30,
        keep_bytes: int = 2 << 30,
    ) -> None:
        self._recording = recording
        self._workers = workers
        self._seconds = seconds
        self._memory_bytes = memory_bytes
        self._images = MemoryImages(recording, keep_bytes)

    def run(self, artifact: Artifact, launch: Launch) -> Measurement:
        if artifact.status is not BuildStatus.OK:
            raise ValueError(f"artifact {artifact.candidate} was not built: {artifact.status.value}")
        with self._images.borrow(launch) as image:
            result = self._replay(artifact, launch, image)
        status = RunStatus(result["status"])
        counts = result["counts"]
        return Measurement(
            status=status,
            cost=modelled_cycles(counts, artifact.resources, launch) if status is RunStatus.OK else None,
            message=result["message"],
            warning=result["warning"],
            output=result["output"],
            differences=tuple(
                Difference(region_name(launch.regions[region]), n_bytes, first)
                for region, n_bytes, first in result["differences"]
            ),
            counts=counts,
            seconds=result["run_seconds"],
        )

    def close(self) -> None:
        self._images.close()

    def _replay(self, artifact: Artifact, launch: Launch, image: MemoryImage) -> ReplayResult:
        from r3llvm import _native

        return _native.replay(
            bitcode=artifact.bitcode,
            passes="",
            cpu=self._recording.describe_module(self._recording.module_of(launch)).arch,
            features="",
            kernel=launch.kernel,
            grid=launch.grid,
            block=launch.block,
            dynamic_shared=launch.dynamic_shared,
            arguments=bytes.fromhex(launch.arguments),
            spans=image.spans,
            regions=[
                (region.base, region.size, region.name if region.kind == "variable" else "")
                for region in launch.regions
            ],
            prologue_fd=image.prologue_fd,
            epilogue_fd=image.epilogue_fd,
            flags=_native.CHECK | _native.COUNT,
            workers=self._workers,
            cooperative=launch.cooperative,
            seconds=self._seconds,
            memory_bytes=self._memory_bytes + 2 * image.size,  # both images are mapped
        )


def region_name(region: Region) -> str:
    """A region as a message names it."""
    return f"variable {region.name}" if region.kind == "variable" else f"allocation {region.base:#x}"
