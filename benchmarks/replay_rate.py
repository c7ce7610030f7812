"""How many trials a second a search makes on a GPU, and how near replaying comes to what the memory allows.

trials_per_second: of `r3llvm tune` on a small kernel, building and all cores included; the rows break a trial down.
replay_bandwidth_ratio: what a replay costs at the memory's bandwidth, over what it takes. A replay is a launch after
its memory was restored; what it takes is the difference in wall-clock time between timing 1100 of them and timing 100
(which leaves out the comparison, once in a series: fixed_seconds in the rows), for each of the 1000. What it costs: the
launch's median time by events, and reading and writing the bytes that the launch changes, at the bandwidth of the copy
kernel of `stream` in the same measurement. The figure is the median over the kernels of `stream`, with the extremes.
R3LLVM_BENCH_TRIALS: how many trials [200].
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.gpu import Clock, Folder, Row, RowFailed, guarded
from benchmarks.results import Metric, once
from r3llvm.builder import Builder
from r3llvm.recording import Recording, demangle
from r3llvm.runner.baseline import image_baseline
from r3llvm.runner.cuda import CudaRunner, worker_command
from r3llvm.runner.process import Worker
from r3llvm.runner.protocol import LaunchKey, Load, Loaded, Time, Timed
from r3llvm.space import BASELINE

DEVICES = ("gpu",)

SERIES = (100, 1100)  # launches
WARMUP = 3
SMALL = ("stencil", ("160", "160", "4", "8"))  # the example's defaults
LARGE = ("stream", ("16777216", "3"))
COPY = "copy("  # of its kernels: reads one half of its memory and writes the other
RUN_SECONDS = 90.0
REPEATS = 10


def run(device: str) -> tuple[dict[str, Metric], list[Row]]:
    clock, folder = Clock(), Folder.open()
    trials = int(os.environ.get("R3LLVM_BENCH_TRIALS", "200"))
    with tempfile.TemporaryDirectory(prefix="r3llvm-rate-") as scratch:
        rate = _Rate(folder, Path(scratch))
        rows = guarded(clock, "replays", lambda _: list(rate.replays()))
        rows += guarded(clock, "breakdown", lambda _: rate.breakdown())
        rows += guarded(clock, "search", lambda _: rate.search(trials))
    return metrics(rows), rows


def metrics(rows: list[Row]) -> dict[str, Metric]:
    found = {}
    for row in rows:
        if "trials_per_second" in row:
            found["trials_per_second"] = once(row["trials_per_second"], "1/s")
    ratios = [row["ratio"] for row in rows if "ratio" in row]
    if ratios:
        middle = statistics.median(ratios)
        found["replay_bandwidth_ratio"] = Metric(
            value=middle, unit="1", low=min(ratios), high=max(ratios), n=len(ratios)
        )
    return found


class _Rate:
    def __init__(self, folder: Folder, scratch: Path) -> None:
        self._folder, self._scratch = folder, scratch

    def _record(self, name: str, arguments: tuple[str, ...]) -> Path:
        recording = self._scratch / f"{name}.recording"
        if not recording.exists():
            known = self._folder.program(name)
            program = known.model_copy(update={"command": (known.command[0], *arguments), "launches": ""})
            where = self._folder.lay(program, self._scratch / name)
            self._folder.record(program, where, recording, RUN_SECONDS).check("record")
        return recording

    def search(self, trials: int) -> Iterator[Row]:
        recording = self._record(*SMALL)
        words = ["tune", "--device", "cuda", "--json", "--budget", str(trials), "--strategy", "random", "--seed", "1"]
        done = self._folder.r3llvm(*words, recording, seconds=RUN_SECONDS)
        summary: dict[str, Any] = json.loads(done.check("tune").splitlines()[-1])
        kept = ("trials", "verified", "duplicates", "failures", "seconds", "trials_per_second", "workers", "speedup")
        yield {"program": SMALL[0], **{key: summary[key] for key in kept}}

    def breakdown(self) -> Iterator[Row]:
        """What one trial of the small kernel takes, one after another on one core, in milliseconds."""
        recording = Recording.open(self._record(*SMALL))
        launch = recording.manifest.launches[0]
        module = recording.describe_module(recording.module_of(launch))
        with CudaRunner(recording) as runner:
            builder = Builder.of(recording, launch, runner.arch(module.arch))
            times: dict[str, list[float]] = {"compile_ms": [], "assemble_ms": [], "replay_ms": [], "launches_ms": []}
            for _ in range(REPEATS):
                started = time.monotonic()
                compiled = builder.compile(BASELINE)
                times["compile_ms"].append((time.monotonic() - started) * 1e3)
                started = time.monotonic()
                artifact = builder.assemble(compiled, BASELINE)
                times["assemble_ms"].append((time.monotonic() - started) * 1e3)
                started = time.monotonic()
                measured = runner.run(artifact, launch)
                times["replay_ms"].append((time.monotonic() - started) * 1e3)
                times["launches_ms"].append(sum(measured.times) * 1e3)
            yield {
                "program": SMALL[0],
                "status": measured.status.value,
                "launches": len(measured.times),
                **{name: statistics.median(values[1:]) for name, values in times.items()},  # the first one calibrates
                "first_replay_ms": times["replay_ms"][0],
            }

    def replays(self) -> Iterator[Row]:
        recording = Recording.open(self._record(*LARGE))
        worker = Worker(worker_command(recording, 0))
        try:
            worker.hello()
            measured = [
                self._replay(recording, worker, position) for position in range(len(recording.manifest.launches))
            ]
        finally:
            worker.stop()
        copies = [row for row in measured if row["kernel"].startswith(COPY)]
        if not copies:
            raise RowFailed(f"no copy kernel among {[row['kernel'] for row in measured]}")
        bandwidth = copies[0]["bytes"] / copies[0]["launch_seconds"]
        for row in measured:
            restore = 2 * row["changed"] / bandwidth
            ratio = (row["launch_seconds"] + restore) / row["replay_seconds"]
            yield {**row, "bandwidth": bandwidth, "restore_seconds": restore, "ratio": ratio}

    def _replay(self, recording: Recording, worker: Worker, position: int) -> Row:
        launch = recording.manifest.launches[position]
        key = LaunchKey(position)
        loaded = worker.ask(Load(key), RUN_SECONDS)
        if not isinstance(loaded, Loaded):
            raise RowFailed(f"{demangle(launch.kernel)} was not loaded: {loaded}")
        binary = image_baseline(recording, launch).binary

        def series(launches: int) -> tuple[float, Timed]:
            exactly = Time(key, binary, cache="warm", warmup=WARMUP, least=launches, most=launches, precision=0.0)
            request = replace(exactly, seconds=30.0)
            started = time.monotonic()
            timed = worker.ask(request, RUN_SECONDS)
            wall = time.monotonic() - started
            if not isinstance(timed, Timed) or len(timed.times) < launches:
                raise RowFailed(f"{demangle(launch.kernel)} was not timed: {str(timed)[:200]}")
            return wall, timed

        series(SERIES[0])  # loads the image, and what else is done once
        short, _ = series(SERIES[0])
        long, timed = series(SERIES[1])
        replay = (long - short) / (SERIES[1] - SERIES[0])
        return {
            "kernel": demangle(launch.kernel),
            "bytes": sum(region.size for region in launch.regions),
            "changed": sum(loaded.changed),
            "launch_seconds": statistics.median(timed.times),
            "replay_seconds": replay,
            "fixed_seconds": short - (SERIES[0] + WARMUP) * replay,
        }
