"""Replays on the CPU, which emulates the SIMT model; the cost is modelled cycles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from r3llvm.builder.artifact import Artifact, BuildStatus
from r3llvm.recording import Launch, Recording
from r3llvm.runner.baseline import region_name
from r3llvm.runner.cost import modelled_cycles
from r3llvm.runner.measurement import Difference, Measurement, RunStatus
from r3llvm.runner.memory import PAGE, MemoryImage, MemoryImages
from r3llvm.runner.runner import Runner

if TYPE_CHECKING:
    from r3llvm._native import ReplayResult

_ARENA = range(0x300000000000, 0x310000000000)  # see csrc/snapshot/arena.h
_VARIABLES = 0x30F000000000  # in its last part, where nothing is allocated
# What no block by itself can make up for, by CUlaunchAttributeID.
_ATTRIBUTES = {4: "thread block clusters", 11: "thread block clusters"}


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
        attributes = [_ATTRIBUTES[attribute.id] for attribute in launch.attributes if attribute.id in _ATTRIBUTES]
        if attributes:
            return Measurement(
                RunStatus.UNSUPPORTED, message=f"the CPU does not carry {attributes[0]}: replay it on a GPU"
            )
        launch = place_variables(launch)
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
            exact=status is RunStatus.OK,
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


def place_variables(launch: Launch) -> Launch:
    """The launch with its variables inside the arena, and the arguments that point into them adjusted: where a GPU had
    them, this process may have something else.
    """
    if all(region.kind != "variable" or region.base in _ARENA for region in launch.regions):
        return launch
    next_base = _VARIABLES
    regions, bases = [], {}
    for region in launch.regions:
        if region.kind == "variable":
            bases[region.name] = next_base
            region = region.model_copy(update={"base": next_base})
            next_base += (-(-region.size // PAGE) + 1) * PAGE  # and a page that belongs to nobody
        regions.append(region)
    arguments = bytearray.fromhex(launch.arguments)
    for relocation in launch.relocations:
        if relocation.variable in bases:
            address = bases[relocation.variable] + relocation.addend
            arguments[relocation.offset : relocation.offset + 8] = address.to_bytes(8, "little")
    return launch.model_copy(update={"regions": tuple(regions), "arguments": arguments.hex()})
