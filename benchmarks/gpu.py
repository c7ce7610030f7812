"""What the benchmarks on a GPU share: the programs, running them within a time limit, and the GPU's own figures.

R3LLVM_BENCH_PROGRAMS: the folder that `python -m benchmarks.prepare` made [build/programs].
R3LLVM_BENCH_SECONDS: after so many seconds a benchmark begins no more rows, and says which it left out [90].
R3LLVM_BENCH_ONLY: a regular expression that the rows' names must match.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict

from benchmarks.results import ROOT
from r3llvm.recording import recorder_library
from r3llvm.toolchain import Gpu, gpus

PROGRAMS = "programs.json"
_DEFAULT_SECONDS = 90.0

Build = Literal["clang", "nvcc-static", "nvcc-shared"]
Row = dict[str, Any]


class Program(BaseModel):
    """One program of the folder.

    command: {folder}, {root} and {python} stand for the folder, this repository and the Python that runs. inputs: a
    folder of cases/ whose files are laid where it runs. floats: files of so many random floats to be laid there, too.
    outputs: the files that it writes there. launches: which of each kernel's are recorded ("0,3"); else the first.
    runtime: whether it takes the folder's CUDA runtime, rather than one that it brings.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    build: Build
    command: tuple[str, ...]
    inputs: str = ""
    floats: dict[str, int] = {}
    outputs: tuple[str, ...] = ()
    launches: str = ""
    runtime: bool = True
    measured: bool = False  # one of those whose fidelity is measured


class Catalogue(BaseModel):
    """programs.json: what `python -m benchmarks.prepare` built, and what it could not."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    programs: tuple[Program, ...]
    missing: dict[str, str] = {}


@dataclass(frozen=True)
class Done:
    """How a command ended. status: 124 when it took too long; error: the last lines of stderr."""

    status: int
    output: str
    error: str
    seconds: float

    def check(self, what: str) -> str:
        """What it printed. Raises RowFailed unless it ended well."""
        if self.status:
            said = " | ".join((self.error or self.output).strip().splitlines()[-3:])
            how = "took too long" if self.status == 124 else f"exited with {self.status}"
            raise RowFailed(f"{what} {how}: {said}")
        return self.output


class RowFailed(Exception):
    """This row has no figures; the message says why."""


class TimeUp(BaseException):
    """The benchmark was told to end (SIGTERM): it writes what it has."""


@dataclass(frozen=True)
class Folder:
    """The folder of programs, ready to be run."""

    path: Path
    catalogue: Catalogue

    @classmethod
    def open(cls) -> Folder:
        """Ends the benchmark with one line when there is none."""
        path = Path(os.environ.get("R3LLVM_BENCH_PROGRAMS", ROOT / "build" / "programs")).absolute()
        try:
            catalogue = Catalogue.model_validate_json((path / PROGRAMS).read_text())
        except (OSError, ValueError) as error:
            sys.exit(
                f"no programs in {path} ({error.__class__.__name__}): make them with `python -m benchmarks.prepare "
                f"{path}`, or name their folder in R3LLVM_BENCH_PROGRAMS"
            )
        return cls(path, catalogue)

    def program(self, name: str) -> Program:
        """Raises RowFailed when it was not built."""
        for program in self.catalogue.programs:
            if program.name == name:
                return program
        raise RowFailed(f"{name} is not among the programs: {self.catalogue.missing.get(name, 'prepare them again')}")

    def command(self, program: Program) -> list[str]:
        words = {"folder": str(self.path), "root": str(ROOT), "python": sys.executable}
        return [word.format(**words) for word in program.command]

    def environment(self, program: Program | None = None) -> dict[str, str]:
        """This repository's packages, the folder's modules and, for a program that takes it, its CUDA runtime."""
        found = {
            **os.environ,
            "PYTHONPATH": _joined(str(ROOT), os.environ.get("PYTHONPATH", "")),
            "R3LLVM_STORE": str(self.path / "store"),
        }
        if program and program.runtime:
            found["LD_LIBRARY_PATH"] = _joined(str(self.path / "lib"), os.environ.get("LD_LIBRARY_PATH", ""))
        return found

    def lay(self, program: Program, folder: Path) -> Path:
        """Makes the folder that the program runs in, with its inputs."""
        folder.mkdir(parents=True)
        if program.inputs:
            shutil.copytree(self.path / "cases" / program.inputs, folder, dirs_exist_ok=True)
        for name, count in program.floats.items():
            np.random.default_rng(5).random(count, np.float32).tofile(folder / name)
        return folder

    def run(self, program: Program, folder: Path, seconds: float, extra: Mapping[str, str] | None = None) -> Done:
        """Runs the program in a folder that `lay` made."""
        return run(self.command(program), folder, {**self.environment(program), **(extra or {})}, seconds)

    def launch_times(self, program: Program, folder: Path, seconds: float) -> dict[str, list[float]]:
        """Runs the program with the recorder as a profiler: seconds on the GPU of each launch, by kernel."""
        record = folder.with_name(f"{folder.name}.profile")
        profile = record / "profile.json"
        extra = preloaded(record) | {"R3LLVM_RECORD_PROFILE": str(profile)}
        self.run(program, folder, seconds, extra).check("the profile's run")
        times: dict[str, list[float]] = {}
        if not profile.exists():
            raise RowFailed("the recorder wrote no profile")
        for line in profile.read_text().splitlines():
            for kernel in json.loads(line)["kernels"]:
                measured = [time for time in kernel.get("times", ()) if time is not None]
                times.setdefault(kernel["kernel"], []).extend(measured)
        return times

    def r3llvm(
        self, *words: str | Path, seconds: float, cwd: Path | None = None, extra: Mapping[str, str] | None = None
    ) -> Done:
        """Runs `r3llvm words…`."""
        command = [sys.executable, "-m", "r3llvm", *map(str, words)]
        return run(command, cwd or self.path, {**self.environment(), **(extra or {})}, seconds)

    def record(
        self,
        program: Program,
        folder: Path,
        recording: Path,
        seconds: float,
        *options: str,
        extra: Mapping[str, str] | None = None,
    ) -> Done:
        """Records the program in a folder that `lay` made."""
        which = ["--launches", program.launches] if program.launches else ["--max-launches", "1"]
        words = ["record", "--device", "cuda", "-o", str(recording), *which, *options, "--", *self.command(program)]
        environment = {**self.environment(program), **(extra or {})}
        return self.r3llvm(*words, seconds=seconds, cwd=folder, extra=environment)


def _joined(*folders: str) -> str:
    return ":".join(filter(None, folders))


def preloaded(record: Path) -> dict[str, str]:
    """The environment that puts the recorder into a program, with `record` as its folder."""
    (record / "chunks").mkdir(parents=True, exist_ok=True)
    return {"LD_PRELOAD": str(recorder_library()), "R3LLVM_RECORD": str(record)}


def run(command: Sequence[str], cwd: Path, environment: Mapping[str, str], seconds: float) -> Done:
    """Runs a command in a process group of its own, which is killed when it takes longer."""
    started = time.monotonic()
    try:
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        return Done(127, "", f"{command[0]}: {error.strerror}", 0.0)
    try:
        output, error_output = process.communicate(timeout=seconds)
        status = process.returncode if process.returncode >= 0 else 128 - process.returncode
    except subprocess.TimeoutExpired:
        status = 124
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        output, error_output = _rest(process)
    return Done(status, output, "\n".join(error_output.splitlines()[-20:]), time.monotonic() - started)


def _rest(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What a killed process still said. A grandchild that left its group may hold the pipes: not waited for."""
    try:
        return process.communicate(timeout=5)
    except subprocess.TimeoutExpired:
        return "", "killed"


def digest(folder: Path, program: Program, output: str) -> str:
    """A hash of what the program printed and of the files that it wrote."""
    state = hashlib.sha256(output.encode())
    for name in program.outputs:
        path = folder / name
        state.update(path.read_bytes() if path.exists() else b"missing")
    return state.hexdigest()[:16]


class Clock:
    """Says how far the benchmark is, and when it has to end."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.limit = float(os.environ.get("R3LLVM_BENCH_SECONDS", _DEFAULT_SECONDS))
        self.only = os.environ.get("R3LLVM_BENCH_ONLY", "")
        signal.signal(signal.SIGTERM, self._end)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    @property
    def left(self) -> float:
        return max(0.0, self.limit - self.seconds)

    def _end(self, *_: object) -> None:
        self.limit = 0.0
        raise TimeUp("cut short: the benchmark was told to end")

    def say(self, what: str) -> None:
        print(f"[{self.seconds:5.1f} s] {what}", file=sys.stderr, flush=True)

    def wanted(self, name: str) -> bool:
        return re.search(self.only, name) is not None


def rows_of(clock: Clock, names: Iterable[str], make: Callable[[str], Iterable[Row]]) -> Iterator[Row]:
    """The rows of each name; one with the field `error` where there are none."""
    for name in names:
        if not clock.wanted(name):
            continue
        if not clock.left:
            clock.say(f"{name}: left out, for the time is up")
            yield {"program": name, "error": "left out: the time was up"}
            continue
        yield from guarded(clock, name, make)


def guarded(clock: Clock, name: str, make: Callable[[str], Iterable[Row]]) -> list[Row]:
    """A benchmark goes on whatever happens in one row."""
    try:
        rows = list(make(name))
    except (Exception, TimeUp) as error:
        text = str(error) if isinstance(error, RowFailed | TimeUp) else f"{type(error).__name__}: {error}"
        rows = [{"program": name, "error": text}]
    for row in rows:
        clock.say(f"{name}: {_short(row)}")
    return rows


def _short(row: Row) -> str:
    """What fits a line: strings cut, numbers rounded, what is empty left out."""
    kept = {key: value for key, value in row.items() if key != "program" and value not in (None, [], "")}
    for key, value in kept.items():
        if isinstance(value, float):
            kept[key] = float(f"{value:.4g}")
        elif isinstance(value, str) and key != "error":
            kept[key] = value[:60]
    return json.dumps(kept, default=str)[:600]


def this_gpu() -> Gpu:
    """Ends the benchmark with one line when there is none."""
    found = gpus()
    if not found:
        sys.exit("this benchmark needs an NVIDIA GPU, and the driver offers none here")
    return found[0]


def device_name(gpu: Gpu) -> str:
    """As results are named: "NVIDIA H200" → "h200"."""
    return "-".join(gpu.name.lower().removeprefix("nvidia ").split())
