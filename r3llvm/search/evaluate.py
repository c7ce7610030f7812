"""One candidate: built, replayed on every launch, and never twice."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Protocol

from r3llvm.builder import Artifact, BuildStatus, Resources
from r3llvm.recording import Launch
from r3llvm.runner import Measurement, Runner, RunStatus
from r3llvm.space import Candidate


class Compiler(Protocol):
    """What an Evaluator needs of a r3llvm.builder.Builder."""

    def compile(self, candidate: Candidate) -> Artifact: ...
    def assemble(self, artifact: Artifact, candidate: Candidate) -> Artifact: ...


@dataclass(frozen=True)
class Outcome:
    """What became of a candidate. costs: per launch, empty unless every launch was verified."""

    number: int  # the trial that did the work
    build_status: BuildStatus
    run_status: RunStatus | None = None
    message: str = ""
    ptx_hash: str = ""
    resources: Resources = field(default_factory=Resources)
    costs: tuple[float, ...] = ()
    unit: str = ""
    spread: float = 0.0
    seconds: float = 0.0
    reproducer: str = ""


class Evaluator:
    """Builds and replays candidates from any number of threads.

    A candidate, or a PTX, that an earlier trial had is not run again: its outcome is that trial's.
    """

    def __init__(self, builder: Compiler, runner: Runner, launches: Sequence[Launch]) -> None:
        self._builder = builder
        self._runner = runner
        self._launches = launches
        self._lock = threading.Lock()
        self._known: dict[str, Future[Outcome]] = {}  # by candidate id and by what was assembled

    def remember(self, candidate: Candidate, outcome: Outcome) -> None:
        """Takes an outcome from an earlier process for known."""
        done: Future[Outcome] = Future()
        done.set_result(outcome)
        self._known.setdefault(candidate.id, done)
        if outcome.ptx_hash:
            self._known.setdefault(_assembled(outcome.ptx_hash, candidate), done)

    def evaluate(self, number: int, candidate: Candidate) -> Outcome:
        """The candidate's outcome; `outcome.number` is `number` unless it is a duplicate."""
        started = time.monotonic()
        return replace(
            self._once(candidate.id, lambda: self._build(number, candidate)), seconds=time.monotonic() - started
        )

    def confirm(self, number: int, candidate: Candidate) -> Outcome:
        """Builds and measures once more, whatever is known, owing nothing to what ran before."""
        artifact = self._builder.compile(candidate)
        return self._failed(number, artifact) or self._run(number, candidate, artifact, self._runner.confirm)

    def anchor(self, costs: Sequence[float]) -> None:
        """What the baseline cost by launch, in the process that this one goes on from."""
        for launch, cost in zip(self._launches, costs, strict=True):
            self._runner.anchor(launch, cost)

    def _build(self, number: int, candidate: Candidate) -> Outcome:
        artifact = self._builder.compile(candidate)
        failed = self._failed(number, artifact)
        return failed or self._once(
            _assembled(artifact.ptx_hash, candidate),
            lambda: self._run(number, candidate, artifact, self._runner.run),
        )

    def _once(self, key: str, work: Callable[[], Outcome]) -> Outcome:
        """The result of `work`, done by whichever thread comes first with `key`."""
        with self._lock:
            known = self._known.get(key)
            if known is None:
                mine = self._known[key] = Future()
        if known is not None:
            return known.result()
        try:
            outcome = work()
        except BaseException as error:
            mine.set_exception(error)
            raise
        mine.set_result(outcome)
        return outcome

    def _failed(self, number: int, artifact: Artifact) -> Outcome | None:
        if artifact.status is BuildStatus.OK:
            return None
        return Outcome(
            number=number,
            build_status=artifact.status,
            message=artifact.message,
            ptx_hash=artifact.ptx_hash,
            reproducer=artifact.reproducer,
        )

    def _run(
        self, number: int, candidate: Candidate, artifact: Artifact, measure: Callable[[Artifact, Launch], Measurement]
    ) -> Outcome:
        artifact = self._builder.assemble(artifact, candidate)
        failed = self._failed(number, artifact)
        if failed:
            return failed
        measurements: list[Measurement] = []
        for launch in self._launches:
            measurements.append(measure(artifact, launch))
            if measurements[-1].status is not RunStatus.OK:
                break
        last = measurements[-1]
        costs = tuple(m.cost for m in measurements if m.status is RunStatus.OK and m.cost is not None)
        verified = len(costs) == len(self._launches)
        return Outcome(
            number=number,
            build_status=BuildStatus.OK,
            run_status=last.status,
            message="; ".join(filter(None, (last.message, _differences(last)))) or last.warning,
            ptx_hash=artifact.ptx_hash,
            resources=artifact.resources,
            costs=costs if verified else (),
            unit=last.unit,
            spread=max(m.spread for m in measurements),
            reproducer=artifact.reproducer,
        )


def _differences(measurement: Measurement) -> str:
    return "; ".join(
        f"{differing.bytes} bytes of {differing.region} differ, the first at offset {differing.first_offset}"
        for differing in measurement.differences
    )


def _assembled(ptx_hash: str, candidate: Candidate) -> str:
    """Equal for candidates that the assembler makes the same cubin of."""
    return " ".join((ptx_hash, *candidate.assembler))
