"""Replays on a GPU, by worker processes: this side decides what is run, what a result means, and when to give up."""

from __future__ import annotations

import math
import statistics
import sys
import threading
import time
from dataclasses import dataclass, replace

from r3llvm.builder import Artifact, BuildStatus
from r3llvm.errors import R3Error
from r3llvm.recording import Launch, Recording, demangle
from r3llvm.runner.baseline import (
    Baseline,
    arch_for,
    binary_of,
    build_baseline,
    image_baseline,
    magnitude,
    names_of,
    region_elements,
    region_sums,
)
from r3llvm.runner.measurement import Difference, Measurement, RunStatus
from r3llvm.runner.process import Command, Worker, WorkerDied, WorkerLate, Workers
from r3llvm.runner.protocol import (
    Binary,
    Cache,
    Failure,
    Fault,
    Hello,
    LaunchKey,
    Load,
    Loaded,
    Poison,
    Ran,
    Reply,
    Request,
    Run,
    Stop,
    Time,
    Timed,
)
from r3llvm.runner.runner import Runner
from r3llvm.runner.timing import Interval, median_interval
from r3llvm.runner.verification import (
    Calibration,
    Calibrator,
    Ended,
    Subject,
    ToleranceMode,
    Unverifiable,
    good,
    poison,
)

NEIGHBOUR_SECONDS = 1.0  # a baseline's time counts as a candidate's neighbour for so long
GIVE_UP = 1.25  # a candidate that is surely this much slower than the best is not timed to the end
PATIENCE = 20  # a replay may take this often the baseline's time
LEAST_SECONDS = 2.0
ROUNDS = 5  # of a confirmation: baseline, candidate, baseline, …

# Bytes a second that are expected at least: of loading a recording, and of the CPU going through memory.
_LOAD_RATE = 20e6
_CPU_RATE = 100e6

# CUresult → what that means for a replay; others: _status().
_STATUS = {
    1: RunStatus.INVALID_LAUNCH,
    2: RunStatus.MEMORY,
    700: RunStatus.ILLEGAL_ADDRESS,
    701: RunStatus.INVALID_LAUNCH,  # more registers or shared memory than there are
    702: RunStatus.TIMEOUT,
    710: RunStatus.ASSERT,
    714: RunStatus.STACK_OVERFLOW,
    715: RunStatus.ILLEGAL_INSTRUCTION,
    716: RunStatus.MISALIGNED,
    717: RunStatus.ILLEGAL_ADDRESS,  # of another address space
    718: RunStatus.ILLEGAL_INSTRUCTION,  # a wild program counter
    719: RunStatus.TRAP,
    720: RunStatus.INVALID_LAUNCH,  # cooperative, with too many blocks
}


def worker_command(recording: Recording, ordinal: int) -> Command:
    """How to start a worker for a recording on the GPU of this number."""

    def command(descriptor: int) -> list[str]:
        module = [sys.executable, "-m", "r3llvm.runner.worker", "--fd", str(descriptor)]
        return [*module, str(recording.path), "--device", str(ordinal)]

    return command


@dataclass
class _State:
    """What is known of a launch. wall: the longest that a run of the baseline took, all in all.

    reference: the baseline's cost, which all costs are in terms of; neighbour: its latest time, and when that was.
    best: the least cost so far. All in seconds.
    """

    key: LaunchKey
    launch: Launch
    baseline: Baseline
    subject: Subject
    calibration: Calibration | None = None
    failure: Unverifiable | None = None
    wall: float = 0.0
    reference: float | None = None
    neighbour: Interval | None = None
    neighbour_at: float = 0.0
    best: float = float("inf")

    @property
    def scale(self) -> float:
        """From a time that was taken now to a cost."""
        return self.reference / self.neighbour.median if self.reference and self.neighbour else 1.0


class CudaRunner(Runner):
    """Replays launches of one recording on one GPU. Threads may share it; one at a time has the GPU.

    device: the GPU's number. cache: what a timed launch finds in L2. seconds: how long one replay may take before the
    baseline's time is known, and at most. timing: seconds that timing one binary may take; repeat: or how many launches
    of it. image: the recorded image is the baseline, rather than a rebuild.
    """

    unit = "s"

    def __init__(
        self,
        recording: Recording,
        device: int = 0,
        *,
        cache: Cache = "cold",
        tolerance: ToleranceMode = "auto",
        seconds: float = 60.0,
        timing: float = 2.0,
        repeat: int | None = None,
        image: bool = False,
        command: Command | None = None,
    ) -> None:
        self._recording = recording
        self._cache: Cache = cache
        self._tolerance: ToleranceMode = tolerance
        self._seconds = seconds
        self._timing = timing
        self._repeat = repeat
        self._image = image
        self._workers = Workers(command or worker_command(recording, device))
        self._states: dict[int, _State] = {}
        self._anchors: dict[int, float] = {}
        self._baselines: dict[tuple[str | None, ...], Baseline] = {}
        self._lock = threading.RLock()

    @property
    def device(self) -> str:
        return self.hello.device

    @property
    def hello(self) -> Hello:
        """What the worker says of the GPU. R3Error: there is none that works."""
        with self._lock:
            return self._workers.current().hello()

    def arch(self, recorded: str) -> str:
        return arch_for(recorded, self.hello.capability)

    def run(self, artifact: Artifact, launch: Launch) -> Measurement:
        if artifact.status is not BuildStatus.OK:
            raise ValueError(f"artifact {artifact.candidate} was not built: {artifact.status.value}")
        return self._run(binary_of(artifact, launch), launch)

    def run_image(self, launch: Launch) -> Measurement:
        """Replays the image that the application itself ran. R3Error: it was not recorded."""
        return self._run(image_baseline(self._recording, launch).binary, launch)

    def anchor(self, launch: Launch, cost: float) -> None:
        with self._lock:
            self._anchors[self._position(launch)] = cost

    def confirm(self, artifact: Artifact, launch: Launch) -> Measurement:
        """Times the artifact and the baseline again, in turns and in a fresh process; the cost's spread is that of the
        ratios.
        """
        started = time.monotonic()
        binary = binary_of(artifact, launch)
        with self._lock:
            self._workers.replace()
            state = self._state(launch)
            if state.failure:
                return self._unverifiable(state.failure)
            state.neighbour = None
            ratios: list[float] = []
            times: list[float] = []
            for _ in range(ROUNDS):
                baseline = self._time(state, state.baseline.binary)
                if isinstance(baseline, Measurement):
                    return baseline
                timed = self._time(state, binary)
                if isinstance(timed, Measurement):
                    return timed
                ratios.append(statistics.median(timed.times) / statistics.median(baseline.times))
                times += timed.times
                state.reference = state.reference or statistics.median(baseline.times)
            assert state.reference is not None and state.calibration is not None
            ratio = median_interval(ratios)
            return Measurement(
                RunStatus.OK,
                cost=ratio.median * state.reference,
                unit=self.unit,
                spread=ratio.spread,
                warning=state.calibration.warning(exact=False),
                times=tuple(times),
                seconds=time.monotonic() - started,
            )

    def close(self) -> None:
        with self._lock:
            self._workers.close()

    # One binary, from a first run to its cost

    def _run(self, binary: Binary, launch: Launch) -> Measurement:
        started = time.monotonic()
        with self._lock:
            state = self._state(launch)
            if state.failure:
                measured = self._unverifiable(state.failure)
            elif binary == state.baseline.binary:
                measured = self._measure_baseline(state)
            else:
                measured = self._measure(state, binary)
        return replace(measured, seconds=time.monotonic() - started)

    def _measure_baseline(self, state: _State) -> Measurement:
        state.neighbour = None
        timed = self._time_neighbour(state)
        assert state.calibration is not None
        return (
            timed if isinstance(timed, Measurement) else self._measurement(state, timed, state.calibration.exact, 0.0)
        )

    def _measure(self, state: _State, binary: Binary) -> Measurement:
        assert state.calibration is not None
        ran = self._ask(state, Run(state.key, binary))
        exact = isinstance(ran, Ran) and good(ran)
        if isinstance(ran, Ran) and not exact and not all(allowed.exact for allowed in state.calibration.tolerances):
            ran = self._ask(state, Run(state.key, binary, state.calibration.tolerances))
        if not isinstance(ran, Ran):
            return self._ended(ran)
        if not good(ran):
            return self._mismatch(state, ran, "")
        if state.neighbour is None or time.monotonic() - state.neighbour_at > NEIGHBOUR_SECONDS:
            neighbour = self._time_neighbour(state)
            if isinstance(neighbour, Measurement):
                return replace(neighbour, message=f"the baseline that it was to be held against: {neighbour.message}")
        timed = self._time(state, binary, ran.seconds, GIVE_UP * state.best / state.scale)
        assert state.neighbour is not None
        spread = state.neighbour.spread
        return timed if isinstance(timed, Measurement) else self._measurement(state, timed, exact, spread)

    def _measurement(self, state: _State, timed: Timed, exact: bool, spread: float) -> Measurement:
        """spread: that of what it is held against."""
        assert state.calibration is not None
        interval = median_interval(timed.times)
        cost = interval.median * state.scale
        state.best = min(state.best, cost)
        given_up = f"given up early: surely more than {GIVE_UP}x as slow as the best" if timed.hopeless else ""
        return Measurement(
            RunStatus.OK,
            cost=cost,
            unit=self.unit,
            spread=math.hypot(interval.spread, spread),
            message=given_up,
            warning=state.calibration.warning(exact),
            output=timed.ran.output,
            times=timed.times,
            exact=exact,
        )

    def _time_neighbour(self, state: _State) -> Timed | Measurement:
        """Times the baseline, for what is timed next to be held against."""
        timed = self._time(state, state.baseline.binary)
        if isinstance(timed, Timed):
            state.neighbour = median_interval(timed.times)
            state.neighbour_at = time.monotonic()
            state.reference = state.reference or state.neighbour.median
            state.best = min(state.best, state.reference)
        return timed

    def _time(
        self, state: _State, binary: Binary, seconds: float = 0.0, bound: float = float("inf")
    ) -> Timed | Measurement:
        """Times and verifies. seconds: what one launch is known to take."""
        assert state.calibration is not None
        request = Time(
            state.key,
            binary,
            state.calibration.tolerances,
            cache=self._cache,
            seconds=self._timing,
            bound=None if bound == float("inf") else bound,
        )
        if self._repeat:
            request = replace(request, least=self._repeat, most=self._repeat, precision=0.0, seconds=1e6)
        timed = self._ask(state, request, max(seconds, state.calibration.seconds))
        if not isinstance(timed, Timed):
            return self._ended(timed)
        if not timed.times:
            return self._ended(Ended(RunStatus.CRASH, "the worker timed nothing"))
        if not good(timed.ran):
            return self._mismatch(state, timed.ran, "after the last timed launch ")
        return timed

    # What comes of it when it is not good

    def _mismatch(self, state: _State, ran: Ran, when: str) -> Measurement:
        beside = ran.canaries
        return Measurement(
            RunStatus.MISMATCH,
            unit=self.unit,
            message=f"{when}an out-of-bounds write: {beside} bytes beside the recorded memory changed"
            if beside
            else when,
            output=ran.output,
            differences=tuple(
                Difference(name, comparison.differing, comparison.first)
                for name, comparison in zip(state.subject.names, ran.comparisons, strict=True)
                if comparison.differing
            ),
        )

    def _unverifiable(self, failure: Unverifiable) -> Measurement:
        return Measurement(failure.status, unit=self.unit, message=str(failure), output=failure.output)

    def _ended(self, reply: Reply | Ended) -> Measurement:
        if isinstance(reply, Failure):
            raise R3Error(reply.message)
        if not isinstance(reply, Ended):
            reply = Ended(RunStatus.CRASH, f"the worker said {type(reply).__name__} out of turn")
        return Measurement(reply.status, unit=self.unit, message=reply.message, output=reply.output)

    # A launch and its baseline

    def _state(self, launch: Launch) -> _State:
        """Calibrated at its first use. R3Error: its memory or its baseline cannot be had."""
        position = self._position(launch)
        if position not in self._states:
            baseline = self._baseline(launch)
            elements = region_elements(launch, baseline.elements)
            subject = Subject(
                LaunchKey(position),
                baseline.binary,
                baseline.rebuilds,
                names_of(launch.regions),
                elements,
                lambda region: magnitude(self._recording, launch.regions[region], elements[region]),
                region_sums(launch, baseline.elements),
            )
            state = _State(subject.launch, launch, baseline, subject, reference=self._anchors.get(position))
            try:
                calibrator = Calibrator(lambda request: self._ask(state, request), subject, self._tolerance)
                state.calibration = calibrator.calibrate()
            except Unverifiable as failure:
                state.failure = failure
            self._states[position] = state
        return self._states[position]

    def _baseline(self, launch: Launch) -> Baseline:
        if launch.module is None:
            return image_baseline(self._recording, launch)
        key = (launch.module, launch.kernel, launch.image if self._image else None)
        if key not in self._baselines:
            arch = self.arch(self._recording.describe_module(launch.module).arch)
            make = image_baseline if self._image else build_baseline
            self._baselines[key] = make(self._recording, launch, arch)
        return self._baselines[key]

    def _position(self, launch: Launch) -> int:
        try:
            return self._recording.manifest.launches.index(launch)
        except ValueError:
            raise ValueError(f"launch {launch.index} of {launch.kernel} is not of {self._recording.path}") from None

    # The worker

    def _ask(self, state: _State, request: Request, seconds: float = 0.0) -> Reply | Ended:
        """A reply from a worker that holds the launch, poisoned as its calibration has it.

        seconds: what one launch is known to take.
        """
        worker = self._workers.current()
        if state.key.position not in worker.held:
            loaded = self._exchange(worker, Load(state.key), self._load_seconds(state.launch))
            if isinstance(loaded, Failure):
                raise R3Error(f"{loaded.message} (launch {state.launch.index} of {demangle(state.launch.kernel)})")
            if not isinstance(loaded, Loaded):
                return loaded
            worker.held.add(state.key.position)
            if state.calibration:
                ended = poison(lambda request: self._ask(state, request), state.subject, state.calibration)
                if ended:
                    return ended
            if isinstance(request, Load | Stop):
                return loaded
        assert not isinstance(request, Load | Stop)
        started = time.monotonic()
        reply = self._exchange(worker, request, self._deadline(state, request, seconds))
        if isinstance(reply, Ran) and isinstance(request, Run) and request.binary == state.baseline.binary:
            state.wall = max(state.wall, time.monotonic() - started)
        return reply

    def _exchange(self, worker: Worker, request: Request, seconds: float) -> Reply | Ended:
        try:
            reply = worker.ask(request, seconds)
        except WorkerLate:
            self._workers.replace()
            return Ended(RunStatus.TIMEOUT, f"not finished after {seconds:.3g} s", lost=True)
        except WorkerDied as death:
            self._workers.replace()
            return Ended(RunStatus.CRASH, f"the GPU's worker died: {death}", lost=True)
        if isinstance(reply, Fault):
            if reply.sticky:
                self._workers.replace()
            said = reply.output.strip().splitlines()[:1]  # an assertion's words, or why a binary does not fit
            message = ": ".join((f"{reply.name} at the kernel's {reply.step}", *said))
            return Ended(_status(reply), message, reply.output, reply.sticky)
        return reply

    def _deadline(self, state: _State, request: Poison | Run | Time, seconds: float) -> float:
        """wall covers loading, restoring and comparing, which take as long whatever the kernel does."""
        if not state.wall:
            return self._seconds
        known = max(seconds, state.calibration.seconds if state.calibration else state.wall)
        if isinstance(request, Time):
            launches = request.warmup + request.least
            return (
                min(request.seconds, self._timing)
                + max(LEAST_SECONDS, PATIENCE * known * launches)
                + launches * state.wall
            )
        limit = min(self._seconds, max(LEAST_SECONDS, PATIENCE * known) + 4 * state.wall)
        through_all = isinstance(request, Poison) or request.learn is not None  # on the CPU
        return limit + (_bytes(state.launch) / _CPU_RATE if through_all else 0.0)

    def _load_seconds(self, launch: Launch) -> float:
        return self._seconds + _bytes(launch) / _LOAD_RATE


def _bytes(launch: Launch) -> int:
    return sum(region.size for region in launch.regions)


def _status(fault: Fault) -> RunStatus:
    if fault.code in _STATUS:
        return _STATUS[fault.code]
    by_step = {"load": RunStatus.UNSUPPORTED, "launch": RunStatus.INVALID_LAUNCH}
    return by_step.get(fault.step, RunStatus.CRASH)
