"""Which kinds of binaries the recorder works in: nvcc with either CUDA runtime, clang, PyTorch, Triton, CuPy, PyCUDA.

Each runs without and with the recorder. binaries: how many there are. recorded: those that put out the same with the
recorder, and of which at least one launch was recorded. replayed: those of which none was refused and every recorded
launch replays with the result that it had; but a kernel that differs from run to run (floating-point atomics) has no
one result, and only has to run. The rows have the counts by status. Kernels of no known module are replayed from their
image.
"""

from __future__ import annotations

import importlib.util
import json
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.gpu import Clock, Folder, Program, Row, RowFailed, digest, guarded
from benchmarks.results import Metric, once

DEVICES = ("gpu",)

AT_A_TIME = 4  # nothing is timed
RUN_SECONDS = 90.0
COMPILED = ("lbm.nvcc-static", "lbm.nvcc-shared", "stencil.nvcc-static", "lbm", "lookup", "cub_sort_scan")
SCRIPTS = ("torch", "triton", "cupy", "pycuda")
# What matters here is that it works at all.
ARGUMENTS = {"lbm": ("192", "96", "5"), "stencil": (), "lookup": (), "cub_sort_scan": ("30000",)}


def run(device: str) -> tuple[dict[str, Metric], list[Row]]:
    clock, folder = Clock(), Folder.open()
    names = [name for name in (*SCRIPTS, *COMPILED) if clock.wanted(name)]
    with tempfile.TemporaryDirectory(prefix="r3llvm-interposition-") as scratch:
        place = Path(scratch)
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            made = pool.map(lambda name: guarded(clock, name, lambda _: _binary(clock, folder, name, place)), names)
            rows = [row for rows in made for row in rows]
    return metrics(rows), rows


def metrics(rows: list[Row]) -> dict[str, Metric]:
    return {
        "binaries": once(len(rows), "1"),
        "recorded": once(sum(row.get("recorded", False) for row in rows), "1"),
        "replayed": once(sum(row.get("replayed", False) for row in rows), "1"),
    }


def program(folder: Folder, name: str) -> Program:
    """A script of ours, or one that was built, with small sizes. Raises RowFailed when it is not there."""
    if name in SCRIPTS:
        if importlib.util.find_spec(name) is None:
            raise RowFailed(f"Python has no {name} here")
        script = "{root}/benchmarks/programs/" + f"{name}_ops.py"
        return Program(name=name, build="clang", command=("{python}", script), runtime=False)
    known = folder.program(name)
    arguments = ARGUMENTS.get(name.split(".")[0], ())
    return known.model_copy(update={"command": (known.command[0], *arguments), "launches": ""})


def _binary(clock: Clock, folder: Folder, name: str, place: Path) -> Iterator[Row]:
    if not clock.left:
        raise RowFailed("left out: the time was up")
    chosen = program(folder, name)
    # Generated code is cached on disk: each run has a cache of its own, and generates the same.
    without = folder.lay(chosen, place / f"{name}.without")
    plain = folder.run(chosen, without, RUN_SECONDS, caches(without))
    expected = digest(without, chosen, plain.check(name))
    within = folder.lay(chosen, place / f"{name}.with")
    recording = place / f"{name}.recording"
    done = folder.record(chosen, within, recording, RUN_SECONDS, extra=caches(within))
    output = done.check("record")
    clock.say(f"{name}: recorded in {done.seconds:.1f} s")
    manifest = json.loads((recording / "manifest.json").read_text())
    launches = manifest["launches"]
    same = digest(within, chosen, output) == expected
    row: Row = {
        "program": name,
        "output_same": same,
        "launches_seen": manifest["launches_seen"],
        "kernels": len({launch["kernel"] for launch in launches}),
        "launches": len(launches),
        "image_only": sum(launch["module"] is None for launch in launches),
        "graph_launches": manifest["graph_launches"],
        "captured_launches": manifest["captured_launches"],
        "refusals": [f"{refusal['kernel'][:80]}: {refusal['reason']}" for refusal in manifest["refusals"]],
        "recorded": same and bool(launches),
        "replayed": False,
    }
    replay = folder.r3llvm("replay", "--device", "cuda", "--json", recording, seconds=RUN_SECONDS)
    entries = [json.loads(line) for line in replay.output.splitlines() if line.startswith("{")]
    row["statuses"] = dict(Counter(entry["status"] for entry in entries))
    row["not_ok"] = [
        f"{entry['kernel'][:80]} {entry['launch']}: {entry['status']}: {' '.join(entry['remarks'])[:200]}"
        for entry in entries
        if entry["status"] != "ok"
    ][:40]
    if len(entries) < len(launches):
        row["error"] = (
            f"{len(launches) - len(entries)} launches were not replayed: {replay.status}: {replay.error[-300:]}"
        )
    row["replayed"] = len(entries) == len(launches) > 0 and not row["refusals"] and all(map(replayed, entries))
    yield row


def replayed(entry: dict[str, Any]) -> bool:
    """Whether this launch did what it did in the application, as far as that is one thing."""
    varies = entry["status"] == "uncheckable" and any("differs from run to run" in said for said in entry["remarks"])
    return entry["status"] == "ok" or varies


def caches(folder: Path) -> dict[str, str]:
    """The environment that keeps generated code in this folder."""
    names = ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "CUPY_CACHE_DIR", "PYCUDA_CACHE_DIR")
    for name in names:
        (folder / name.lower()).mkdir(exist_ok=True)
    return {name: str(folder / name.lower()) for name in names}
