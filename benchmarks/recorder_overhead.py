"""What the recorder costs an application, idle and recording.

idle_percent: the wall-clock time of a real example with the recorder in it, but every launch left out by its filter,
over that without it. idle_us_per_launch: the same for the mean time of a launch's call in a program of 100,000 short
launches, as a difference; calls come in bursts that the queue holds, so that the GPU hides nothing. Runs come in pairs,
with and without in turns, and figures are medians over the pairs.

copy_ratio: how long a recorded launch holds the application up, over what plain copies (cudaMemcpy to ordinary memory)
of the bytes before it and of those that it changes take; the largest over the sizes. The rows have the ratio to copies
to pinned memory, too. A small launch comes first, which pays for what is set up once (first_ms in the rows).
"""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.gpu import Clock, Folder, Program, Row, RowFailed, preloaded, rows_of
from benchmarks.results import Metric

DEVICES = ("gpu",)

SHORT = "short_launches.nvcc-static"
REAL = "lookup.nvcc-static"
REAL_ARGUMENTS = ("200000", "48", "512", "5000")  # 15,000 launches
PAIRS = {SHORT: 7, REAL: 6}
LEAST_PAIRS = 5
SIZES_MIB = (64, 512, 2048)
REPEATS = 3  # of each size
NOTHING = "^no kernel has this name$"
RUN_SECONDS = 60.0


def run(device: str) -> tuple[dict[str, Metric], list[Row]]:
    clock, folder = Clock(), Folder.open()
    with tempfile.TemporaryDirectory(prefix="r3llvm-overhead-") as scratch:
        overhead = _Overhead(clock, folder, Path(scratch))
        rows = list(rows_of(clock, [SHORT, REAL], overhead.idle))
        for size in SIZES_MIB:
            rows += rows_of(clock, [f"copied_launch {size}"], overhead.copies)
    return metrics(rows), rows


def metrics(rows: list[Row]) -> dict[str, Metric]:
    found = {}
    for row in rows:
        if row["program"] == REAL and "wall_percent" in row:
            found["idle_percent"] = _median(row["wall_percent"], "%")
        if row["program"] == SHORT and "launch_us" in row:
            found["idle_us_per_launch"] = _median(row["launch_us"], "us")
    copies = [row for row in rows if "ratio" in row]
    if copies:
        worst = max(copies, key=lambda row: statistics.median(row["ratio"]))
        found["copy_ratio"] = _median(worst["ratio"], "1")
    return found


def _median(values: list[float], unit: str) -> Metric:
    return Metric(value=statistics.median(values), unit=unit, low=min(values), high=max(values), n=len(values))


class _Overhead:
    def __init__(self, clock: Clock, folder: Folder, scratch: Path) -> None:
        self._clock, self._folder, self._scratch = clock, folder, scratch
        self._runs = 0

    def idle(self, name: str) -> Iterator[Row]:
        """Pairs of runs of one program."""
        program = self._folder.program(name)
        if name == REAL:
            program = program.model_copy(update={"command": (program.command[0], *REAL_ARGUMENTS)})
        self._run(program, {})  # brings the files into memory and the GPU up
        walls: list[tuple[float, float]] = []
        launches: list[tuple[float, float]] = []
        for pair in range(PAIRS[name]):
            if pair >= LEAST_PAIRS and not self._clock.left:
                break
            both = {}
            for idle in (False, True) if pair % 2 else (True, False):
                extra = {"R3LLVM_RECORD_KERNELS": NOTHING} if idle else {}
                both[idle] = self._run(program, extra)
            walls.append((both[False][0], both[True][0]))
            if name == SHORT:
                launches.append((both[False][1]["launch_us"], both[True][1]["launch_us"]))
            self._clock.say(f"{name}: pair {pair}: {walls[-1][0]:.3f} s without, {walls[-1][1]:.3f} s with")
        row: Row = {
            "program": name,
            "wall_seconds": walls,
            "wall_percent": [(idle / without - 1) * 100 for without, idle in walls],
        }
        if launches:
            row |= {"launch_us_of": launches, "launch_us": [idle - without for without, idle in launches]}
        yield row

    def _run(self, program: Program, extra: dict[str, str]) -> tuple[float, Any]:
        """Seconds, and what it printed where that is JSON. extra: with the recorder, when there is any."""
        self._runs += 1
        where = self._scratch / str(self._runs)
        environment = preloaded(where / "record") | extra if extra else {}
        where.mkdir(exist_ok=True)
        done = self._folder.run(program, where, RUN_SECONDS, environment)
        output = done.check(program.name)
        failed = where / "record" / "failed"
        if failed.exists():
            raise RowFailed(f"the recorder failed: {failed.read_text()[:200]}")
        if extra and not (where / "record" / "journal.jsonl").exists():
            raise RowFailed("the recorder left no journal: it was not in the program")
        return done.seconds, json.loads(output) if output.startswith("{") else output

    def copies(self, name: str) -> Iterator[Row]:
        """Recorded launches of one size."""
        size = int(name.split()[1])
        known = self._folder.program("copied_launch")
        program = known.model_copy(update={"command": (known.command[0], str(size)), "launches": "0,1"})
        figures: list[dict[str, float]] = []
        plain = self._run(program, {})[0]
        for repeat in range(REPEATS):
            where = self._scratch / f"copies-{size}-{repeat}"
            where.mkdir()
            recording = where / "recording"
            done = self._folder.record(program, where, recording, RUN_SECONDS, "--kernels", "touch")
            figures.append({**json.loads(done.check("record").splitlines()[-1]), "record_seconds": done.seconds})
            recorded = json.loads((recording / "manifest.json").read_text())["launches"]
            if len(recorded) != 2:
                raise RowFailed(f"{len(recorded)} launches were recorded, not 2: {done.error[-300:]}")
            if not self._clock.left:
                break
        yield {
            "program": "copied_launch",
            "mib": size,
            "ratio": [one["launch_ms"] / one["pageable_ms"] for one in figures],
            "ratio_pinned": [one["launch_ms"] / one["pinned_ms"] for one in figures],
            "plain_seconds": plain,
            "runs": figures,
        }
