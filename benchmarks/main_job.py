"""The main job, end to end: `make demo`, then every example and every foreign program recorded and replayed.

wall_seconds, trials, trials_per_second: of `make demo`, set-up check and tuning included; the rates are of its search.
apps: examples; one is bit-exact when its own check passes, alone and while being recorded, and each of its recorded
launches replays with every byte equal. foreign_kernels: kernels of the foreign programs, fetched from PyPI.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.results import ROOT, Metric, once
from r3llvm.database import Database
from r3llvm.report import Summary, summarize
from r3llvm.toolchain import find_clang
from tests.foreign.catalogue import PROGRAMS

DEVICES = ("host",)
EXAMPLES = ROOT / "examples"


def run(device: str) -> tuple[dict[str, Metric], list[dict[str, Any]]]:
    with tempfile.TemporaryDirectory(prefix="r3llvm-main-job-") as folder:
        wall_seconds, tuned = demo(Path(folder) / "demo")
        apps = [example(source, Path(folder) / source.name) for source in examples()]
        foreign = foreign_programs(Path(folder))
    metrics = {
        "wall_seconds": once(wall_seconds, "s"),
        "trials": once(tuned.trials, "1"),
        "trials_per_second": once(tuned.trials_per_second, "1/s"),
        "apps": once(len(apps), "1"),
        "apps_bit_exact": once(sum(app["bit_exact"] for app in apps), "1"),
        "foreign_kernels": once(foreign["kernels"], "1"),
        "foreign_bit_exact": once(foreign["bit_exact"], "1"),
    }
    return metrics, [{"tuned": tuned.model_dump()}, *apps, *foreign["rows"]]


def demo(folder: Path) -> tuple[float, Summary]:
    """Runs `make demo`, which keeps what it makes in `folder`; returns its wall-clock seconds and what it tuned."""
    started = time.monotonic()
    subprocess.run(
        ["make", "--no-print-directory", "demo"], cwd=ROOT, env={**os.environ, "R3LLVM_DEMO": str(folder)}, check=True
    )
    seconds = time.monotonic() - started
    (database,) = folder.glob("**/trials.sqlite")
    with Database(database) as store:
        session = store.sessions()[-1]
        return seconds, summarize(database.parent.name, session, store.trials(session))


def examples() -> list[Path]:
    """The examples' folders."""
    return sorted(folder for folder in EXAMPLES.iterdir() if any(folder.glob("*.cu")))


def example(source: Path, folder: Path) -> dict[str, Any]:
    """Wraps, runs, records and replays one example."""
    folder.mkdir()
    application = folder / source.name
    sources = [str(file) for file in sorted(source.glob("*.cu"))]
    started = time.monotonic()
    r3llvm(
        folder,
        "wrap",
        "--device",
        "host",
        "--",
        str(find_clang() or "clang++"),
        "-O3",
        "-x",
        "cuda",
        *sources,
        "-o",
        str(application),
    )
    checks = [
        r3llvm(folder, "run", "--", str(application)),
        r3llvm(folder, "record", "-o", str(folder / "recording"), "--max-launches", "3", "--", str(application)),
    ]
    replay = r3llvm(folder, "replay", "--json", str(folder / "recording"), check=False)
    launches = [json.loads(line) for line in replay.splitlines()]
    refusals = json.loads((folder / "recording" / "manifest.json").read_text())["refusals"]
    equal = sum(launch["status"] == "ok" and launch["mismatches"] == 0 for launch in launches)
    passed = all(any(line.startswith("PASS") for line in output.splitlines()) for output in checks)
    return {
        "app": source.name,
        "check_passed": passed,
        "kernels": len({launch["kernel"] for launch in launches}),
        "launches": len(launches),
        "launches_bit_exact": equal,
        "bytes_compared": sum(launch["bytes_compared"] for launch in launches),
        "refusals": refusals,
        "bit_exact": passed and bool(launches) and equal == len(launches) and not refusals,
        "seconds": time.monotonic() - started,
    }


def foreign_programs(folder: Path) -> dict[str, Any]:
    """The counts of `python -m tests.foreign`, which exits with 1 when a kernel is wrong; the counts tell.

    A program that could not be fetched, or fails its own check, leaves no counts, and so no figure.
    """
    output = folder / "foreign.json"
    subprocess.run([sys.executable, "-m", "tests.foreign", "--output", str(output)], cwd=ROOT)
    counts: dict[str, Any] = json.loads(output.read_text())
    if missing := PROGRAMS.keys() - {row["program"] for row in counts["rows"]}:
        sys.exit(f"no results written: {', '.join(sorted(missing))} did not get as far as a replay; see above")
    return counts


def r3llvm(folder: Path, *words: str, check: bool = True) -> str:
    """What the command prints."""
    environment = {**os.environ, "R3LLVM_STORE": str(folder / "store")}
    command = [sys.executable, "-m", "r3llvm", *words]
    return subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=check).stdout
