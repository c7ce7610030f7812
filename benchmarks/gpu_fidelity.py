"""Whether a replay is the launch that the application made: the same bytes, in the same time.

Each program runs once with the recorder as a profiler, which times every launch by events, and once being recorded.
Then each recorded launch is replayed from the application's own device image, and from a rebuild of its module.

kernels: those whose replays agree with each other and can be checked; others (with floating-point atomics, or launches
that leave nothing behind) say so in the rows. bit_exact: of these, the kernels where every byte of every recorded
launch is as recorded, both from the image and from the rebuild.

Time errors compare the median of the image's replays with the median over the application's launches of that kernel.
The last recorded launch stands for its kernel. Caches are warm, since an application flushes nothing between its
launches (a first version took them cold for kernels whose memory exceeds half of L2: streaming kernels were 2 to 9 %
longer than in the application). Counted are kernels that the application launches at least 5 times and whose median
there is at least 10 us, as the times of events come in steps of up to 0.5 us; the rows have the others' errors, too.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks.gpu import Clock, Folder, Program, Row, RowFailed, TimeUp, rows_of
from benchmarks.results import Metric, once
from r3llvm.builder import Builder, BuildStatus
from r3llvm.errors import R3Error
from r3llvm.recording import Launch, Recording, demangle
from r3llvm.runner import Measurement, RunStatus
from r3llvm.runner.cuda import CudaRunner
from r3llvm.runner.protocol import Cache
from r3llvm.space import BASELINE

DEVICES = ("gpu",)

CACHE: Cache = "warm"
LEAST_LAUNCHES = 5
LEAST_SECONDS = 10e-6
RECORDERS = 4  # programs recorded at a time, which is not timed
RUN_SECONDS = 60.0
TIMING_SECONDS = 0.4

Times = dict[str, list[float]]  # seconds of each launch, by kernel


def run(device: str) -> tuple[dict[str, Metric], list[Row]]:
    clock, folder = Clock(), Folder.open()
    programs = {
        program.name: program
        for program in folder.catalogue.programs
        if program.measured and clock.wanted(program.name)
    }
    times: dict[str, Times] = {}
    rows: list[Row] = [{"program": name, "error": reason} for name, reason in folder.catalogue.missing.items()]
    with tempfile.TemporaryDirectory(prefix="r3llvm-fidelity-") as scratch, ThreadPoolExecutor(RECORDERS) as pool:
        place = Path(scratch)
        for program in programs.values():
            if not clock.left:
                break
            try:
                where = folder.lay(program, place / f"{program.name}.profiled")
                times[program.name] = folder.launch_times(program, where, RUN_SECONDS)
                clock.say(f"{program.name}: {sum(map(len, times[program.name].values()))} launches timed")
            except (RowFailed, R3Error, OSError, TimeUp) as error:
                rows.append({"program": program.name, "error": f"not timed: {error}"})
                clock.say(f"{program.name}: {error}")
        recorded = {name: pool.submit(_record, folder, programs[name], place) for name in programs}
        for future in recorded.values():  # nothing else runs while replays are timed
            future.exception()
        clock.say(f"{len(programs)} programs recorded")
        rows += rows_of(
            clock, programs, lambda name: Replays(name, recorded[name].result(), times.get(name, {}), clock).rows()
        )
    return metrics(rows), rows


def metrics(rows: Iterable[Row]) -> dict[str, Metric]:
    """From the rows of kernels."""
    kernels = [row for row in rows if row.get("deterministic") and row["checkable"]]
    errors = [abs(row["time_error_percent"]) for row in kernels if row["counted"]]
    found = {"kernels": once(len(kernels), "1"), "bit_exact": once(sum(row["bit_exact"] for row in kernels), "1")}
    if errors:
        least, most, n = min(errors), max(errors), len(errors)
        middle = statistics.median(errors)
        found["max_time_error_percent"] = Metric(value=most, unit="%", low=least, high=most, n=n)
        found["median_time_error_percent"] = Metric(value=middle, unit="%", low=least, high=most, n=n)
    return found


def _record(folder: Folder, program: Program, place: Path) -> Recording:
    where = folder.lay(program, place / program.name)
    recording = place / f"{program.name}.recording"
    folder.record(program, where, recording, RUN_SECONDS).check("record")
    return Recording.open(recording)


@dataclass
class Replays:
    """The replays of one program's recording. times: in the application."""

    program: str
    recording: Recording
    times: Times
    clock: Clock

    def rows(self) -> Iterator[Row]:
        """One a kernel, or a refusal."""
        for refusal in self.recording.manifest.refusals:
            yield {"program": self.program, "kernel": demangle(refusal.kernel), "refused": refusal.reason}
        with CudaRunner(self.recording, cache=CACHE, timing=TIMING_SECONDS, image=True) as runner:
            for kernel in self.recording.kernels:
                launches = [launch for launch in self.recording.manifest.launches if launch.kernel == kernel]
                row: Row = {"program": self.program, "kernel": demangle(kernel), "cache": CACHE}
                try:
                    if not self.clock.left:
                        raise R3Error("left out: the time was up")
                    row |= self._kernel(kernel, launches, runner)
                except (R3Error, TimeUp) as error:
                    row["error"] = str(error)
                yield row

    def _kernel(self, kernel: str, launches: list[Launch], runner: CudaRunner) -> Row:
        images = [runner.run_image(launch) for launch in launches]
        rebuilds = self._rebuilds(kernel, launches, runner) if images[-1].status is RunStatus.OK else []
        own = self.times.get(kernel, [])
        there = statistics.median(own) if own else 0.0
        timed = bool(images[-1].times)
        here = statistics.median(images[-1].times) if timed else 0.0
        comparable = timed and len(own) >= LEAST_LAUNCHES
        return {
            "launches": [launch.index for launch in launches],
            "bytes": sum(region.size for region in launches[-1].regions),
            "deterministic": not any("differs from run to run" in said(image) for image in images),
            "checkable": all(image.status is not RunStatus.UNCHECKABLE for image in images),
            "bit_exact": all(replay.exact for replay in (*images, *rebuilds)),
            "image_exact": [image.exact for image in images],
            "rebuild_exact": [rebuild.exact for rebuild in rebuilds],
            "image": [image.status.value for image in images],
            "rebuild": [rebuild.status.value for rebuild in rebuilds],
            "warnings": list(launches[-1].warnings),
            "remarks": sorted({said(replay) for replay in (*images, *rebuilds)} - {""}),
            "application_launches": len(own),
            "application_us": there * 1e6,
            "replay_us": here * 1e6,
            "replay_spread_percent": images[-1].spread * 100,
            "rebuild_us": statistics.median(rebuilds[-1].times) * 1e6 if rebuilds and rebuilds[-1].times else None,
            "time_error_percent": (here / there - 1) * 100 if comparable and there else None,
            "counted": comparable and there >= LEAST_SECONDS,
        }

    def _rebuilds(self, kernel: str, launches: list[Launch], runner: CudaRunner) -> list[Measurement]:
        module = launches[-1].module
        if module is None:
            return []
        arch = runner.arch(self.recording.describe_module(module).arch)
        artifact = Builder.of(self.recording, launches[-1], arch).build(BASELINE)
        if artifact.status is not BuildStatus.OK:
            raise R3Error(f"the rebuild failed: {artifact.status.value}: {artifact.message}")
        return [runner.run(artifact, launch) for launch in launches if launch.module == module]


def said(replay: Measurement) -> str:
    """What the runner says of a replay."""
    differing = "; ".join(f"{d.bytes} bytes of {d.region} differ" for d in replay.differences)
    return "; ".join(filter(None, (replay.message, replay.warning, differing)))
