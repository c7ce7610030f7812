"""Whether every broken candidate gets the status of what is wrong with it, and no good one suffers from it.

candidates: good and broken variants of one kernel (benchmarks/programs/faults.cu), in an order shuffled by a fixed
seed, each replayed and judged as the tuner would. right_status: those with the status that is expected of them.
good_affected: good candidates that were not ok. R3LLVM_BENCH_CANDIDATES: how many there are [260, 200 of them broken].
"""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections.abc import Iterator, Mapping
from itertools import cycle, islice
from pathlib import Path

from benchmarks.gpu import Clock, Folder, Row, TimeUp, guarded
from benchmarks.results import Metric, once
from r3llvm.builder import Artifact, BuildStatus
from r3llvm.recording import Launch, Recording
from r3llvm.runner import RunStatus
from r3llvm.runner.cuda import CudaRunner

DEVICES = ("gpu",)

SEED = 4
RUN_SECONDS = 60.0
TIMING_SECONDS = 0.1

GOOD = ("good", "good_unrolled", "good_backwards")
# The statuses that are right for a variant. A trap and a failed assertion are told apart by the driver; what a kernel
# that was built for smaller blocks gets is a launch that is refused.
EXPECTED: Mapping[str, frozenset[RunStatus]] = {
    **dict.fromkeys(GOOD, frozenset({RunStatus.OK})),
    "wrong_value": frozenset({RunStatus.MISMATCH}),
    "does_nothing": frozenset({RunStatus.MISMATCH}),
    "half_done": frozenset({RunStatus.MISMATCH}),
    "out_of_bounds": frozenset({RunStatus.MISMATCH}),
    "illegal_address": frozenset({RunStatus.ILLEGAL_ADDRESS}),
    "misaligned": frozenset({RunStatus.MISALIGNED}),
    "trap": frozenset({RunStatus.TRAP}),
    "assert": frozenset({RunStatus.ASSERT}),
    "endless": frozenset({RunStatus.TIMEOUT}),
    "too_large": frozenset({RunStatus.MEMORY}),
    "invalid_launch": frozenset({RunStatus.INVALID_LAUNCH}),
}
# Of 260 candidates, 200 of them broken. Those that end a worker process, the endless ones above all, take seconds each.
ALL = 260
SHARES = {
    "wrong_value": 40,
    "does_nothing": 36,
    "half_done": 34,
    "out_of_bounds": 30,
    "invalid_launch": 22,
    "too_large": 12,
    "illegal_address": 6,
    "misaligned": 6,
    "trap": 5,
    "assert": 5,
    "endless": 4,
}


def run(device: str) -> tuple[dict[str, Metric], list[Row]]:
    clock, folder = Clock(), Folder.open()
    count = int(os.environ.get("R3LLVM_BENCH_CANDIDATES", str(ALL)))
    with tempfile.TemporaryDirectory(prefix="r3llvm-faults-") as scratch:
        rows = guarded(clock, "faults", lambda _: list(_trials(clock, folder, Path(scratch), count)))
    return metrics(rows), rows


def metrics(rows: list[Row]) -> dict[str, Metric]:
    trials = [row for row in rows if "variant" in row]
    return {
        "candidates": once(len(trials), "1"),
        "right_status": once(sum(row["right"] for row in trials), "1"),
        "good_affected": once(sum(row["variant"] in GOOD and not row["right"] for row in trials), "1"),
    }


def candidates(count: int, available: frozenset[str]) -> list[str]:
    """So many variants, in the order in which they are replayed."""
    broken = [name for name, share in SHARES.items() if name in available for _ in range(round(share * count / ALL))]
    chosen = broken[:count] + list(islice(cycle(GOOD), max(0, count - len(broken))))
    random.Random(SEED).shuffle(chosen)
    return chosen


def _trials(clock: Clock, folder: Folder, scratch: Path, count: int) -> Iterator[Row]:
    where = folder.lay(folder.program("faults"), scratch / "faults")
    recording = scratch / "recording"
    folder.record(folder.program("faults"), where, recording, RUN_SECONDS).check("record")
    artifacts = {
        name: artifact_of(folder, name) for name in EXPECTED if (folder.path / "faults" / f"{name}.cubin").exists()
    }
    opened = Recording.open(recording)
    (launch,) = opened.manifest.launches
    clock.say(f"recorded; {len(artifacts)} of {len(EXPECTED)} variants are there")
    runner = CudaRunner(opened, timing=TIMING_SECONDS)
    with runner:
        for number, name in enumerate(candidates(count, frozenset(artifacts))):
            if not clock.left:
                clock.say(f"{number} of {count} candidates, then the time was up")
                return
            if number % 20 == 0:
                clock.say(f"candidate {number} of {count}")
            try:
                trial = _trial(runner, artifacts[name], launch, number, name)
            except TimeUp:
                return
            yield trial


def artifact_of(folder: Folder, name: str) -> Artifact:
    base = folder.path / "faults" / name
    return Artifact(
        candidate=name,
        status=BuildStatus.OK,
        ptx=base.with_suffix(".ptx").read_bytes(),
        ptx_hash=name,
        cubin=base.with_suffix(".cubin").read_bytes(),
    )


def _trial(runner: CudaRunner, artifact: Artifact, launch: Launch, number: int, name: str) -> Row:
    started = time.monotonic()
    try:
        measured = runner.run(artifact, launch)
        status, message = measured.status, measured.message
        right = status in EXPECTED[name] and (name != "out_of_bounds" or "out-of-bounds" in message)
        said = status.value
    except Exception as error:  # a session would have ended here
        right, said, message = False, "session ended", f"{type(error).__name__}: {error}"
    return {
        "number": number,
        "variant": name,
        "status": said,
        "right": right,
        "message": message[:200],
        "seconds": round(time.monotonic() - started, 3),
    }
