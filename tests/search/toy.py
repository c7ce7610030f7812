"""A compiler and a GPU small enough to know the optimum of: each of three passes helps once, one only after another."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from r3llvm.builder.artifact import Artifact, BuildStatus, Resources
from r3llvm.files import content_hash
from r3llvm.recording import Launch
from r3llvm.runner import Difference, Measurement, Runner, RunStatus
from r3llvm.space import Action, Candidate, load_catalogue, parse_pipeline
from r3llvm.space import space as space_module

HELPS = {"sroa": 0.9, "gvn": 0.8, "licm": 0.7}
OPTIMUM = 0.9 * 0.8 * 0.7  # of the baseline's cost; gvn helps only after sroa
CRASHES, BREAKS, HANGS = "slsr", "loop-sink", "chr"


def use_small_space() -> None:
    """Leaves the default space a dozen passes, for Nevergrad to be quick."""
    names = (*HELPS, CRASHES, BREAKS, HANGS, "globalopt", "inline", "dce", "newgvn")
    whole = load_catalogue()
    passes = tuple(p.model_copy(update={"variants": ()}) for p in whole.passes if p.name in names)
    pipelines = {"O3": whole.pipelines["O3"]}
    small = whole.model_copy(update={"macros": whole.macros[2:], "passes": passes, "pipelines": pipelines})
    space_module.load_catalogue = lambda: small


def launch(index: int, size: int = 1) -> Launch:
    return Launch(
        kernel="toy",
        module="0" * 32,
        index=index,
        grid=(size, 1, 1),
        block=(32, 1, 1),
        arguments="",
        parameters=(),
        regions=(),
    )


def effect(actions: tuple[Action, ...]) -> str:
    """The passes that changed something, in order: two pipelines with the same effect give the same PTX."""
    seen: list[str] = []
    for action in actions:
        known = action.name in (*HELPS, CRASHES, BREAKS, HANGS) and action.name not in seen
        if known and (action.name != "gvn" or "sroa" in seen):
            seen.append(action.name)
    return " ".join(sorted(seen))


class ToyBuilder:
    """log: where each build is noted, as a line."""

    def __init__(self, log: Path | None = None, seconds: float = 0.0) -> None:
        self.compiled: list[str] = []
        self._log, self._seconds, self._lock = log, seconds, threading.Lock()

    def compile(self, candidate: Candidate) -> Artifact:
        time.sleep(self._seconds)
        with self._lock:
            self.compiled.append(candidate.pipeline)
        if self._log:
            with self._log.open("a") as log:
                os.write(log.fileno(), f"{candidate.id}\n".encode())
        ptx = effect(parse_pipeline(candidate.pipeline))
        if CRASHES in ptx:
            return Artifact(candidate.id, BuildStatus.PASS_CRASH, "slsr aborted", reproducer="failures/1")
        return Artifact(candidate.id, BuildStatus.OK, ptx=ptx.encode(), ptx_hash=content_hash(ptx.encode()))

    def assemble(self, artifact: Artifact, candidate: Candidate) -> Artifact:
        registers = Resources(registers=16 + len(artifact.ptx.split()))
        return Artifact(
            artifact.candidate,
            BuildStatus.OK,
            ptx=artifact.ptx,
            ptx_hash=artifact.ptx_hash,
            cubin=b"cubin",
            resources=registers,
        )


class ToyRunner(Runner):
    def __init__(self) -> None:
        self.ran: list[str] = []

    def run(self, artifact: Artifact, launch: Launch) -> Measurement:
        passes = artifact.ptx.decode().split()
        self.ran.append(artifact.ptx_hash)
        if BREAKS in passes:
            return Measurement(RunStatus.MISMATCH, differences=(Difference("allocation 0x300000000000", 4, 8),))
        if HANGS in passes and launch.index:
            return Measurement(RunStatus.TIMEOUT)
        cost = 1000.0 * launch.grid[0]
        for name in passes:
            cost *= HELPS.get(name, 1.0)
        return Measurement(RunStatus.OK, cost=cost)
