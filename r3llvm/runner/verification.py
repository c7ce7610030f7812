"""How the results of one launch are checked: learnt from its baseline. The method: docs/runner.md."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from r3llvm.ir import Element
from r3llvm.runner.measurement import RunStatus
from r3llvm.runner.protocol import (
    Binary,
    Comparison,
    Failure,
    Fault,
    Hello,
    LaunchKey,
    Load,
    Loaded,
    Poison,
    Poisoned,
    Ran,
    Reply,
    Request,
    Run,
    Tolerance,
)

ToleranceMode = Literal["auto", "exact"]

REPLAYS = 3  # of the baseline, to see whether it agrees with itself
ANY_ORDER_ULPS = 16  # that a sum in no fixed order is taken to spread by, at least: the runs may agree by chance
POISON_SECONDS = 60.0  # that finding what can be poisoned may take; of a launch of many regions the rest is left
MARGIN = 4  # a tolerance is this often the spread that was seen
# All ones are a NaN to every floating-point type: whatever is computed from it shows.
PATTERNS = (0xFF, 0xA5)
# The distance from 1 to the next number.
EPSILON: dict[Element, float] = {"f16": 2.0**-10, "bf16": 2.0**-7, "f32": 2.0**-23, "f64": 2.0**-52}


class Unverifiable(Exception):
    """Nothing can be verified against this recording; what every replay of the launch ends with."""

    def __init__(self, status: RunStatus, message: str, output: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.output = output


@dataclass(frozen=True)
class Ended:
    """How a request ended that got no reply of its own. lost: the worker is gone, with the memory it held."""

    status: RunStatus
    message: str
    output: str = ""
    lost: bool = False


Ask = Callable[[Request], Reply | Ended]


@dataclass(frozen=True)
class Poisoning:
    """These bytes of a region hold `pattern` before each launch."""

    region: int
    pattern: int
    where: Literal["changed", "written"]


@dataclass(frozen=True)
class Subject:
    """The launch that is checked. rebuilds: of the baseline, with other contraction. By region: names for messages,
    what they hold, the largest finite magnitude that the recorded result has there, and whether the kernel adds to
    them in whatever order its threads come.
    """

    launch: LaunchKey
    baseline: Binary
    rebuilds: Sequence[Binary]
    names: Sequence[str]
    elements: Sequence[Element]
    magnitude: Callable[[int], float]
    sums: Sequence[bool] = ()


@dataclass(frozen=True)
class Calibration:
    """How a replay of the launch is checked. tolerances: by region. seconds: the baseline's, by events.

    exact: the baseline's bytes are the recorded ones. remarks: a line for each tolerance.
    """

    tolerances: tuple[Tolerance, ...]
    poisonings: tuple[Poisoning, ...]
    deterministic: bool
    exact: bool
    seconds: float
    remarks: tuple[str, ...] = ()

    def warning(self, exact: bool) -> str:
        """What to say of a result that is good: exactly, or within tolerances."""
        wavers = () if self.deterministic else ("its baseline differs from run to run",)
        return "; ".join((*wavers, *(() if exact else self.remarks)))


def good(ran: Ran) -> bool:
    """Whether every region is as recorded, within the tolerances it was compared with, and nothing beside."""
    return ran.canaries == 0 and all(comparison.differing == 0 for comparison in ran.comparisons)


def poison(ask: Ask, subject: Subject, calibration: Calibration) -> Ended | None:
    """Brings a worker that has just loaded the launch to where calibration left another. None: done."""
    calibrator = Calibrator(ask, subject)
    for poisoning in calibration.poisonings:
        try:
            calibrator.apply(poisoning, calibration.tolerances)
        except _Lost as lost:
            return lost.ended
    return None


class _Lost(Exception):
    """A run of the baseline ended without a result."""

    def __init__(self, ended: Ended) -> None:
        super().__init__(ended.message)
        self.ended = ended


class Calibrator:
    """Learns from runs of the baseline how to check others. `ask` gives each request to a worker; after one that lost
    its worker the next goes to a new one, which holds the launch unpoisoned.
    """

    def __init__(self, ask: Ask, subject: Subject, mode: ToleranceMode = "auto") -> None:
        self._ask = ask
        self._subject = subject
        self._mode = mode
        self._exact = tuple(Tolerance() for _ in subject.names)
        self._elements = list(subject.elements)  # guessed where the subject does not know

    def calibrate(self) -> Calibration:
        """Raises Unverifiable when no check would tell a right result from a wrong one."""
        try:
            return self._calibrate()
        except _Lost as lost:
            ended = lost.ended
            raise Unverifiable(ended.status, f"the baseline itself ended so: {ended.message}", ended.output) from lost

    def apply(self, poisoning: Poisoning, tolerances: tuple[Tolerance, ...]) -> int:
        """Poisons; returns how many bytes. What a region's written bytes are is learnt anew."""
        if poisoning.where == "written" and not self._learn(poisoning.region, tolerances):
            return 0
        return self._poison(poisoning.region, poisoning.pattern, poisoning.where)

    def _calibrate(self) -> Calibration:
        changed = self._load()
        runs = [self._run(self._subject.baseline, self._exact) for _ in range(REPLAYS)]
        if beside := max(run.canaries for run in runs):
            raise Unverifiable(
                RunStatus.MISMATCH, f"the baseline itself changes {beside} bytes outside of the recorded memory"
            )
        own = _differing(runs)
        deterministic = self._repeats(runs, own)
        tolerances, remarks = self._tolerances(runs, own, deterministic)
        deterministic = deterministic and self._elements == list(self._subject.elements)  # the recorded run was another
        if not self._passes(tolerances):
            raise Unverifiable(RunStatus.MISMATCH, self._no_reproduction(runs))
        poisonings = self._poisonings(changed, tolerances)
        if poisonings and not self._passes(tolerances):  # each was fine alone
            self._unpoison(range(len(changed)))
            poisonings = ()
        if good(self._run(None, tolerances)):
            raise Unverifiable(
                RunStatus.UNCHECKABLE,
                "a kernel that does nothing would pass: what this launch writes cannot be told from what was there",
            )
        seconds = min(run.seconds for run in runs)
        return Calibration(tolerances, poisonings, deterministic, not own, seconds, remarks)

    # Tolerances

    def _repeats(self, runs: Sequence[Ran], own: set[int]) -> bool:
        """Whether the baseline's results are the same each time, where they are not the recorded ones: by number and
        place of the bytes that differ, and by how far they do.
        """
        probe = self._probe(own)
        measured = [self._run(self._subject.baseline, probe) for _ in runs] if own else []
        return all(len({run.comparisons for run in group}) <= 1 for group in (runs, measured))

    def _probe(self, regions: set[int]) -> tuple[Tolerance, ...]:
        """Has the worker measure these regions, by numbers rather than by bytes: one unit of tolerance does it. What
        is not known to be floating point is measured as if it were, which tells one integer from another.
        """
        kinds: list[Element] = ["f32" if element == "bytes" else element for element in self._elements]
        return tuple(Tolerance(kind, ulps=1) if i in regions else Tolerance() for i, kind in enumerate(kinds))

    def _tolerances(
        self, runs: Sequence[Ran], own: set[int], deterministic: bool
    ) -> tuple[tuple[Tolerance, ...], tuple[str, ...]]:
        if self._mode == "exact":
            if own:
                raise Unverifiable(RunStatus.MISMATCH, self._no_reproduction(runs))
            return self._exact, ()
        rebuilds = []
        loose = set(own)
        for binary in self._subject.rebuilds:
            ran = self._try(binary, self._exact)
            if ran and ran.canaries == 0:
                rebuilds.append(binary)
                loose |= _differing([ran])
        for region in sorted(own):
            if self._elements[region] == "bytes":
                guessed = self._guess(region)
                if guessed is None and deterministic:
                    raise Unverifiable(RunStatus.MISMATCH, self._no_reproduction(runs))
                if guessed is None:
                    raise Unverifiable(
                        RunStatus.UNCHECKABLE,
                        f"{self._subject.names[region]} differs from run to run of the baseline by more than roundings "
                        "of floating-point numbers",
                    )
                self._elements[region] = guessed
        sums = {region for region, adds in enumerate(self._subject.sums) if adds}
        loose = {region for region in loose | sums if self._elements[region] != "bytes"}
        if not loose:
            return self._exact, ()
        probe = self._probe(loose)
        baseline = [self._run(self._subject.baseline, probe) for _ in range(REPLAYS)]
        others = [ran for binary in rebuilds if (ran := self._try(binary, probe))]
        chosen, remarks = list(self._exact), []
        for region in sorted(loose):
            element, name = self._elements[region], self._subject.names[region]
            magnitude = self._subject.magnitude(region)
            seen = [ran.comparisons[region] for ran in baseline]
            if region in sums:
                seen.append(Comparison(0, -1, ANY_ORDER_ULPS, 0.0, ANY_ORDER_ULPS * EPSILON[element]))
            found = tolerance(element, [*seen, *(ran.comparisons[region] for ran in others)], magnitude)
            if found is None:  # a rebuild that is far off says nothing of the baseline
                found = tolerance(element, seen, magnitude)
            if found is None:
                raise Unverifiable(RunStatus.MISMATCH, self._no_reproduction(baseline))
            chosen[region] = found
            why = ", its type guessed from how runs differ" if self._subject.elements[region] == "bytes" else ""
            remarks.append(f"{name} is compared {describe(found)}{why}")
        return tuple(chosen), tuple(remarks)

    def _guess(self, region: int) -> Element | None:
        """The type as which the baseline's runs, which may agree by chance, differ from the recorded one by roundings.
        Of a kernel that is known by its image alone, nothing says what its memory holds; read as another type than
        they are, numbers differ by more, or by less than is allowed for anyway.
        """
        kinds: tuple[Element, ...] = ("f64", "f32")
        for kind in kinds:
            probe = tuple(Tolerance(kind, ulps=1) if i == region else exact for i, exact in enumerate(self._exact))
            runs = [self._run(self._subject.baseline, probe) for _ in range(REPLAYS)]
            if tolerance(kind, [ran.comparisons[region] for ran in runs], 0.0):
                return kind
        return None

    def _no_reproduction(self, runs: Sequence[Ran]) -> str:
        differing = {
            i: comparison for run in runs for i, comparison in enumerate(run.comparisons) if comparison.differing
        }
        where = ", ".join(
            f"{c.differing} of {self._subject.names[i]}, the first at offset {c.first}" for i, c in differing.items()
        )
        return f"the baseline itself does not reproduce the recorded result: bytes differ ({where or 'now and then'})"

    # Poison

    def _poisonings(self, changed: Sequence[int], tolerances: tuple[Tolerance, ...]) -> tuple[Poisoning, ...]:
        """Region by region, those poisoned so far staying so: the changed ones first, then, for what is written anew
        with the value that was there, the others, up to one whose loss the kernel does not survive.
        """
        held: list[Poisoning] = []
        started = time.monotonic()
        regions = sorted(range(len(changed)), key=lambda region: changed[region] == 0)
        for region in regions:
            if time.monotonic() - started > POISON_SECONDS:
                break
            wheres: Iterable[Literal["written", "changed"]] = (
                ("written", "changed") if changed[region] else ("written",)
            )
            for where in wheres:
                try:
                    found = self._try_poison(region, where, tolerances)
                except _Lost as lost:
                    if lost.ended.lost:
                        for poisoning in held:
                            self.apply(poisoning, tolerances)
                    if not changed[region]:
                        return tuple(held)
                    found = None
                if found:
                    held.append(found)
                    break
                self._unpoison((region,))
        return tuple(held)

    def _try_poison(
        self, region: int, where: Literal["written", "changed"], tolerances: tuple[Tolerance, ...]
    ) -> Poisoning | None:
        """Poisons these bytes for good when the baseline comes out right under every pattern."""
        if where == "written" and not self._learn(region, tolerances):
            return None
        for pattern in PATTERNS if where == "changed" else ():
            if not self._poison(region, pattern, where) or not self._passes(tolerances):
                return None
        pattern = PATTERNS[1] if self._elements[region] == "bytes" else PATTERNS[0]
        if not self._poison(region, pattern, where) or not self._passes(tolerances):
            return None
        return Poisoning(region, pattern, where)

    def _learn(self, region: int, tolerances: tuple[Tolerance, ...]) -> bool:
        """Has the worker find out which bytes are written and never read. False: it cannot be told."""
        for pattern in PATTERNS:
            if not self._poison(region, pattern, "all"):
                return False
            ran = self._run(self._subject.baseline, tolerances, learn=region)
            others = [comparison for i, comparison in enumerate(ran.comparisons) if i != region]
            if not ran.consistent or ran.canaries or any(comparison.differing for comparison in others):
                return False
        return True

    def _unpoison(self, regions: Iterable[int]) -> None:
        for region in regions:
            self._poison(region, None, "all")

    # Requests

    def _load(self) -> tuple[int, ...]:
        reply = self._ask(Load(self._subject.launch))
        if isinstance(reply, Loaded):
            return reply.changed
        raise _unexpected(reply)

    def _poison(self, region: int, pattern: int | None, where: Literal["all", "changed", "written"]) -> int:
        reply = self._ask(Poison(self._subject.launch, region, pattern, where))
        if isinstance(reply, Poisoned):
            return reply.bytes
        if isinstance(reply, Failure):  # such as no memory left for it on the device
            return 0
        raise _unexpected(reply)

    def _run(self, binary: Binary | None, tolerances: tuple[Tolerance, ...], learn: int | None = None) -> Ran:
        reply = self._ask(Run(self._subject.launch, binary, tolerances, learn))
        if isinstance(reply, Ran):
            return reply
        raise _unexpected(reply)

    def _try(self, binary: Binary, tolerances: tuple[Tolerance, ...]) -> Ran | None:
        try:
            return self._run(binary, tolerances)
        except _Lost:
            return None

    def _passes(self, tolerances: tuple[Tolerance, ...]) -> bool:
        return good(self._run(self._subject.baseline, tolerances))


def tolerance(element: Element, seen: Sequence[Comparison], magnitude: float) -> Tolerance | None:
    """What allows for MARGIN times the differences seen, and for one unit where only zeros' signs or NaNs' bits differ.

    None when they leave less than half of the type's digits: that is no rounding, but another result. Where values
    cancel out, single ones are far off in relation to themselves but not to the largest magnitude: then the bound is
    absolute.
    """
    limit = math.sqrt(EPSILON[element])
    ulps = max(c.max_ulps for c in seen)
    absolute = max(c.max_absolute for c in seen)
    relative = max(c.max_relative for c in seen)
    if not (ulps or absolute or relative):
        return Tolerance(element, ulps=1)
    if MARGIN * relative <= limit:
        return Tolerance(element, ulps=min(MARGIN * ulps, int(limit / EPSILON[element])), relative=MARGIN * relative)
    if MARGIN * absolute <= limit * magnitude:
        return Tolerance(element, absolute=MARGIN * absolute)
    return None


def describe(tolerance: Tolerance) -> str:
    """For people: "as f32 within 8 ulps or 4.8e-07 of the value"."""
    if tolerance.exact:
        return "byte by byte"
    bounds = [
        f"{tolerance.ulps} ulps" if tolerance.ulps else "",
        f"{tolerance.relative:.2g} of the value" if tolerance.relative else "",
        f"{tolerance.absolute:.2g}" if tolerance.absolute else "",
    ]
    return f"as {tolerance.element} within {' or '.join(filter(None, bounds))}"


def _differing(runs: Sequence[Ran]) -> set[int]:
    """The regions in which a run differs."""
    return {i for run in runs for i, comparison in enumerate(run.comparisons) if comparison.differing}


def _unexpected(reply: Reply | Hello | Ended) -> Exception:
    if isinstance(reply, Ended):
        return _Lost(reply)
    if isinstance(reply, Failure):
        return Unverifiable(RunStatus.MEMORY, reply.message)
    assert not isinstance(reply, Fault), "faults reach no further than the runner"
    return _Lost(Ended(RunStatus.CRASH, f"the worker said {type(reply).__name__} out of turn"))
