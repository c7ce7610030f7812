"""The loop space → strategy → builder → runner → database."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from typing import Any

from r3llvm.builder import BuildStatus, Resources
from r3llvm.database import Database, Session, Trial
from r3llvm.errors import R3Error
from r3llvm.runner import RunStatus
from r3llvm.search.evaluate import Evaluator, Outcome
from r3llvm.search.strategy import Proposal, Strategy
from r3llvm.space import BASELINE, Candidate

LUCK = 0.03  # how much more than its trial's cost a confirmed best may cost, at least, where costs spread


@dataclass(frozen=True)
class Confirmation:
    """The best, measured once more. reproduced: verified, and its cost what is stored, exactly where costs do not
    spread. speedup: over the baseline, None when it was not verified; message: then why.
    """

    reproduced: bool
    speedup: float | None = None
    spread: float = 0.0
    message: str = ""


@dataclass(frozen=True)
class _Asked:
    proposal: Proposal
    number: int
    tick: int


class Tuner:
    """Runs one session to its budget, or on from where it stopped.

    Every trial is committed before the strategy is told of it. With one worker and one seed the trials are the same
    each time, interrupted or not: a resumed session first asks and tells its strategy in the stored order.

    session: stored when it is new; its budget is the number of proposals, duplicates and failures included, and the
    baseline comes on top. on_trial: called in this thread after each new trial. stop: set it (from a signal handler,
    say) to end after the trials in flight.
    """

    def __init__(
        self,
        database: Database,
        session: Session,
        strategy: Strategy,
        evaluator: Evaluator,
        on_trial: Callable[[Trial], None] = lambda trial: None,
        stop: threading.Event | None = None,
    ) -> None:
        self._database = database
        self._session = session
        self._strategy = strategy
        self._evaluator = evaluator
        self._on_trial = on_trial
        self._stop = stop or threading.Event()
        self._clock = 0
        self._trials: list[Trial] = []
        self._left: list[_Asked] = []  # asked before an interruption, not finished
        self._spent = session.seconds
        self._started = time.monotonic()

    def run(self) -> list[Trial]:
        """Tunes, and returns the session's trials in the order they were finished.

        R3Error: the baseline does not reproduce the recording. What was finished is kept, whatever is raised.
        """
        self._started = time.monotonic()
        self._recall()
        baseline = self._baseline()
        number = max(0, *(trial.number for trial in self._trials), *(asked.number for asked in self._left))
        remaining = self._session.budget - (len(self._trials) - 1) - len(self._left)
        pending: dict[Future[Outcome], _Asked] = {}
        executor = ThreadPoolExecutor(self._session.workers, "trial")
        try:
            while True:
                while len(pending) < self._session.workers and not self._stop.is_set():
                    if self._left:
                        asked = self._left.pop(0)
                    elif remaining > 0 and (proposal := self._strategy.ask()):
                        number, remaining = number + 1, remaining - 1
                        asked = _Asked(proposal, number, self._tick())
                    else:
                        break
                    pending[executor.submit(self._evaluator.evaluate, asked.number, asked.proposal.candidate)] = asked
                if not pending:
                    break
                done, _ = wait(pending, return_when=FIRST_COMPLETED)
                for future in sorted(done, key=lambda f: pending[f].number):
                    self._finish(pending.pop(future), future.result(), baseline)
        finally:
            executor.shutdown(wait=False, cancel_futures=True)
        return self._trials

    def confirm(self, best: Trial) -> Confirmation:
        """Builds and measures the best once more."""
        outcome = self._evaluator.confirm(best.number, candidate_of(best))
        change = _loss(outcome.costs, best.costs)
        if change is None or best.loss is None:
            return Confirmation(False, message=outcome.message)
        # The best of many times is one that luck favoured: it may cost a little more than it did, where costs spread.
        spread = best.spread + outcome.spread
        slack = max(LUCK, 2 * spread) if spread else 0.0
        reproduced = all(now <= then * (1 + slack) for now, then in zip(outcome.costs, best.costs, strict=True))
        if not spread:
            reproduced = reproduced and outcome.costs == tuple(best.costs)
        return Confirmation(reproduced, 1 / (best.loss * change), outcome.spread)

    def _baseline(self) -> Trial:
        stored = next((trial for trial in self._trials if trial.number == 0), None)
        if stored is None:
            outcome = self._evaluator.evaluate(0, BASELINE)
            self._session.unit = outcome.unit
            stored = self._store(_Asked(Proposal(BASELINE), 0, 0), outcome, 0, 1.0 if outcome.costs else None)
        if not stored.ok:
            why = f"{stored.status} {stored.message}".strip()
            raise R3Error(
                f"the baseline {BASELINE.pipeline} does not reproduce the recording ({why}); see `r3llvm replay`"
            )
        self._evaluator.anchor(stored.costs)
        return stored

    def _finish(self, asked: _Asked, outcome: Outcome, baseline: Trial) -> None:
        loss = _loss(outcome.costs, baseline.costs)
        self._store(asked, outcome, self._tick(), loss)
        self._strategy.tell(asked.proposal, loss)

    def _store(self, asked: _Asked, outcome: Outcome, told: int, loss: float | None) -> Trial:
        self._session.seconds = self._spent + time.monotonic() - self._started
        trial = Trial(
            session_id=self._session.id,
            number=asked.number,
            asked=asked.tick,
            told=told,
            candidate_id=asked.proposal.candidate.id,
            candidate=asdict(asked.proposal.candidate),
            point=None if asked.proposal.point is None else list(asked.proposal.point),
            build_status=outcome.build_status.value,
            run_status=outcome.run_status.value if outcome.run_status else None,
            message=outcome.message,
            ptx_hash=outcome.ptx_hash,
            resources=asdict(outcome.resources),
            costs=list(outcome.costs),
            spread=outcome.spread,
            loss=loss,
            seconds=outcome.seconds,
            duplicate_of=None if outcome.number == asked.number else outcome.number,
            reproducer=outcome.reproducer,
        )
        self._database.add_trial(self._session, trial)
        self._trials.append(trial)
        self._on_trial(trial)
        return trial

    def _recall(self) -> None:
        """Brings evaluator and strategy to where the stored trials leave them."""
        self._database.add_session(self._session)
        self._trials = sorted(self._database.trials(self._session), key=lambda trial: (trial.told, trial.number))
        for trial in self._trials:
            self._evaluator.remember(candidate_of(trial), _outcome(trial, self._session.unit))
        asked = {trial.asked: trial for trial in self._trials if trial.number}
        told = {trial.told: trial for trial in self._trials if trial.number}
        self._clock = max([0, *told])
        free = iter(sorted(set(range(1, self._clock + 1)) - {trial.number for trial in self._trials}))
        follows = True  # whether the strategy proposes what it proposed then
        for tick in range(1, self._clock + 1):
            if tick in told:
                self._strategy.tell(_proposal(told[tick]), told[tick].loss)
            elif follows:
                proposal, stored = self._strategy.ask(), asked.get(tick)
                if proposal and stored is None:
                    self._left.append(_Asked(proposal, next(free), tick))
                else:
                    follows = bool(proposal and stored and proposal.candidate.id == stored.candidate_id)

    def _tick(self) -> int:
        self._clock += 1
        return self._clock


def best_trial(trials: Sequence[Trial]) -> Trial | None:
    """The verified trial of the smallest loss: of equals the first, one that was run before its duplicates.

    None: all failed.
    """
    verified = [trial for trial in trials if trial.loss is not None]
    return min(verified, key=lambda t: (t.loss, t.duplicate_of is not None, t.number), default=None)


def candidate_of(trial: Trial | Mapping[str, Any]) -> Candidate:
    """From a trial, or from the fields that it stores."""
    stored = trial.candidate if isinstance(trial, Trial) else trial
    fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in stored.items()}
    return Candidate(**fields)


def _loss(costs: Sequence[float], baseline: Sequence[float]) -> float | None:
    if not costs:
        return None
    return math.exp(math.fsum(math.log(cost / base) for cost, base in zip(costs, baseline, strict=True)) / len(costs))


def _proposal(trial: Trial) -> Proposal:
    return Proposal(candidate_of(trial), None if trial.point is None else tuple(trial.point))


def _outcome(trial: Trial, unit: str) -> Outcome:
    return Outcome(
        number=trial.number if trial.duplicate_of is None else trial.duplicate_of,
        build_status=BuildStatus(trial.build_status),
        run_status=None if trial.run_status is None else RunStatus(trial.run_status),
        message=trial.message,
        ptx_hash=trial.ptx_hash,
        resources=Resources(**trial.resources),
        costs=tuple(trial.costs),
        unit=unit,
        spread=trial.spread,
        reproducer=trial.reproducer,
    )
