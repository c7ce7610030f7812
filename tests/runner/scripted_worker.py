"""A worker without a GPU: a binary's code is Python, run on the recorded memory.

It sees `memory` (a bytearray for each region), `prologue` and `epilogue` (bytes), `state` (a dict for the life of the
process), `f32(region)` (memory as an array) and `fault(code, …)`; it sets `seconds`, what one launch takes.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from r3llvm.recording import Recording
from r3llvm.runner.protocol import (
    Binary,
    Comparison,
    Failure,
    Fault,
    Hello,
    Load,
    Loaded,
    Poison,
    Poisoned,
    Ran,
    Request,
    Run,
    Stop,
    Time,
    Timed,
    Tolerance,
)

FLOATS = {"f32": (np.float32, np.int32), "f64": (np.float64, np.int64), "f16": (np.float16, np.int16)}


class Faulted(Exception):
    def __init__(self, code: int, sticky: bool = True, output: str = "") -> None:
        self.reply = Fault(code, f"CUDA_ERROR_{code}", "run" if sticky else "launch", sticky, output)


@dataclass
class Held:
    prologue: list[bytes]
    epilogue: list[bytes]
    restored: list[bytes]  # with poison
    learnt: dict[int, Any] = field(default_factory=dict)  # by region: which bytes were as recorded after each run


class ScriptedWorker:
    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.held: dict[int, Held] = {}
        self.state: dict[str, Any] = {}
        self.log = os.environ.get("SCRIPTED_LOG")

    def answer(self, request: Request) -> object:
        if self.log:
            with open(self.log, "a") as log:  # noqa: PTH123
                print(
                    os.getpid(),
                    type(request).__name__,
                    getattr(getattr(request, "binary", None), "code", b""),
                    file=log,
                )
        try:
            if isinstance(request, Load):
                return self.load(request.launch.position)
            if isinstance(request, Poison):
                return self.poison(self.held[request.launch.position], request)
            if isinstance(request, Run):
                return self.run(self.held[request.launch.position], request.binary, request.tolerances, request.learn)
            assert isinstance(request, Time)
            return self.time(self.held[request.launch.position], request)
        except Faulted as fault:
            return fault.reply

    def load(self, position: int) -> Loaded:
        regions = self.recording.manifest.launches[position].regions
        prologue = [self.recording.read_region(region, "prologue") for region in regions]
        epilogue = [self.recording.read_region(region, "epilogue") for region in regions]
        self.held[position] = Held(prologue, epilogue, list(prologue))
        changed = (int((view(a) != view(b)).sum()) for a, b in zip(prologue, epilogue, strict=True))
        return Loaded(tuple(changed), 0.0)

    def poison(self, held: Held, request: Poison) -> Poisoned:
        before, after = held.prologue[request.region], held.epilogue[request.region]
        which = np.zeros(len(before), bool)
        if request.pattern is not None and request.where == "all":
            which[:] = True
        elif request.pattern is not None and request.where == "changed":
            which = view(before) != view(after)
        elif request.pattern is not None:
            which = held.learnt[request.region]
        elif request.region in held.learnt:
            del held.learnt[request.region]
        now = view(before).copy()
        now[which] = request.pattern or 0
        held.restored[request.region] = now.tobytes()
        return Poisoned(int(which.sum()))

    def run(
        self, held: Held, binary: Binary | None, tolerances: tuple[Tolerance, ...], learn: int | None = None
    ) -> Ran:
        memory, names = self.launch(held, binary)
        consistent = True
        if learn is not None:
            now, after, before = view(memory[learn]), view(held.epilogue[learn]), view(held.restored[learn])
            right = now == after
            consistent = bool((right | (now == before)).all())
            held.learnt[learn] = held.learnt.get(learn, np.ones(len(now), bool)) & right
        comparisons = tuple(
            compare(bytes(now), after, tolerances[i] if tolerances else Tolerance())
            for i, (now, after) in enumerate(zip(memory, held.epilogue, strict=True))
        )
        return Ran(
            comparisons,
            canaries=names.get("canaries", 0),
            seconds=names["seconds"],
            output=names.get("output", ""),
            consistent=consistent,
        )

    def time(self, held: Held, request: Time) -> Timed:
        times = []
        for _ in range(request.least):
            times.append(self.launch(held, request.binary)[1]["seconds"])
        hopeless = request.bound is not None and min(times) > request.bound
        return Timed(tuple(times), self.run(held, request.binary, request.tolerances), hopeless=hopeless)

    def launch(self, held: Held, binary: Binary | None) -> tuple[list[bytearray], dict[str, Any]]:
        memory = [bytearray(before) for before in held.restored]
        names = {
            "memory": memory,
            "prologue": held.prologue,
            "epilogue": held.epilogue,
            "state": self.state,
            "f32": lambda region: np.frombuffer(memory[region], np.float32),
            "fault": fault,
            "seconds": 1e-5,
            "os": os,
            "time": time,
            "np": np,
        }
        if binary:
            exec(binary.code.decode(), names)
        return memory, names


def compare(now: bytes, after: bytes, tolerance: Tolerance) -> Comparison:
    if tolerance.element == "bytes":
        differing = view(now) != view(after)
        return Comparison(int(differing.sum()), int(differing.argmax()) if differing.any() else -1)
    kind, integer = FLOATS[tolerance.element]
    whole = len(now) // kind().itemsize * kind().itemsize
    a, b = np.frombuffer(now[:whole], kind), np.frombuffer(after[:whole], kind)
    with np.errstate(all="ignore"):
        finite = np.isfinite(a) & np.isfinite(b)
        absolute = np.where(finite, np.abs(a.astype(float) - b), 0.0)
        relative = np.where(absolute > 0, absolute / np.abs(b.astype(float)), 0.0)
    ulps = np.where(finite, np.abs(ordered(a, integer) - ordered(b, integer)), 0)
    within = (ulps <= tolerance.ulps) | (absolute <= tolerance.absolute) | (relative <= tolerance.relative)
    same = np.where(finite, within, (np.isnan(a) & np.isnan(b)) | (a == b))
    first = int((~same).argmax()) * a.itemsize if not same.all() else -1
    return Comparison(int((~same).sum()), first, int(ulps.max()), float(absolute.max()), float(relative.max()))


def ordered(values: Any, integer: Any) -> Any:
    """Integers in the order of the numbers, one apart where these are neighbours."""
    bits = values.view(integer).astype(np.int64)
    return np.where(bits < 0, np.int64(np.iinfo(integer).min) - bits, bits)


def view(data: bytes | bytearray) -> Any:
    return np.frombuffer(data, np.uint8)


def fault(code: int, sticky: bool = True, output: str = "") -> None:
    raise Faulted(code, sticky, output)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("recording")
    parser.add_argument("--device", type=int, required=True)
    arguments = parser.parse_args()
    connection = Connection(arguments.fd)
    if os.environ.get("SCRIPTED_START") == "fail":
        connection.send(Failure("no GPU 0: this machine has none"))
        return
    if os.environ.get("SCRIPTED_START") == "die":
        sys.exit("no libcuda.so.1")
    connection.send(Hello(os.getpid(), "Scripted GPU", "9.0", "13.0", 1 << 30))
    worker = ScriptedWorker(Recording.open(arguments.recording))
    while True:
        try:
            request = connection.recv()
        except EOFError:
            return
        if isinstance(request, Stop):
            return
        connection.send(worker.answer(request))


if __name__ == "__main__":
    main()
