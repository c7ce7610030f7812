"""The form of benchmarks/results/<benchmark>.<device>.json."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

import r3llvm
from r3llvm.capture.toolkit import find_toolkit
from r3llvm.files import write_atomically
from r3llvm.toolchain import cuda_header_version, gpus, native_version

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "benchmarks" / "results"


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Metric(_Model):
    """A figure. low, high: the extremes of the n measurements that `value` is the median of."""

    value: float
    unit: str
    low: float
    high: float
    n: int


class Results(_Model):
    """What one run of a benchmark found. rows: what the metrics were computed from."""

    benchmark: str
    device: str
    date: str
    commit: str
    versions: dict[str, str]
    command: str
    metrics: dict[str, Metric]
    rows: list[dict[str, Any]]


def once(value: float, unit: str) -> Metric:
    """A figure that was measured, or counted, once."""
    return Metric(value=value, unit=unit, low=value, high=value, n=1)


def write(
    benchmark: str, device: str, metrics: dict[str, Metric], rows: list[dict[str, Any]], folder: Path = FOLDER
) -> Path:
    """Writes the results with date, commit and versions; returns the file."""
    results = Results(
        benchmark=benchmark,
        device=device,
        date=datetime.now(timezone.utc).date().isoformat(),
        commit=commit(),
        versions=_versions(device),
        command=f"python -m benchmarks {benchmark} --device {device}",
        metrics=metrics,
        rows=rows,
    )
    path = folder / f"{benchmark}.{device}.json"
    write_atomically(path, results.model_dump_json(indent=1).encode() + b"\n")
    return path


def _versions(device: str) -> dict[str, str]:
    toolkit = find_toolkit()
    versions = {
        "r3llvm": r3llvm.__version__,
        "llvm": native_version().version.removeprefix("LLVM "),
        "cuda": cuda_header_version(toolkit) if toolkit else "",
        "python": platform.python_version(),
    }
    found = gpus()
    if device != "host" and found:
        versions["driver"] = found[0].driver
    return versions


def commit() -> str:
    """The commit, with "+" where the tree has changes. In a copy without history: R3LLVM_BENCH_COMMIT says."""
    if named := os.environ.get("R3LLVM_BENCH_COMMIT"):
        return named
    try:
        commit = _git("rev-parse", "HEAD")
        return commit + ("+" if _git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*words: str) -> str:
    return subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True, check=True).stdout.strip()
