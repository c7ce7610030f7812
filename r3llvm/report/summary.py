"""What a session found, in the one shape that tables, JSON and pages are made from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from r3llvm.database import Session, Trial
from r3llvm.search import Confirmation, best_trial


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True)


class LaunchCosts(_Model):
    """One launch: its index in the application, and costs in the summary's unit. speedup: baseline over best."""

    launch: int
    baseline: float
    best: float
    speedup: float


class Improvement(_Model):
    """From trial `trial` on, `speedup` was the best."""

    trial: int
    speedup: float


class Build(_Model):
    """A candidate as it was built. resources: the assembler's figures, bytes but for registers and barriers."""

    trial: int
    candidate: dict[str, Any]
    ptx_hash: str
    resources: dict[str, int]


class Summary(_Model):
    """One session of one kernel.

    speedup: geometric mean over the launches; None, like `best`, before anything was verified.
    spread: the best's relative spread over repetitions.
    trials: verified + duplicates + failures, the baseline not among them.
    confirmed: whether the best, built and replayed again, reproduced its cost; None when that was not tried.
    confirmed_speedup, confirmed_spread: what it was then, on a GPU in a fresh process and in turns with the baseline.
    sanitizer: a line for each tool of compute-sanitizer that looked at the best.
    """

    recording: str
    kernel: str
    session: int
    device: str
    unit: str
    strategy: str
    seed: int
    budget: int
    workers: int
    versions: dict[str, str]
    baseline: Build | None
    best: Build | None
    launches: list[LaunchCosts]
    speedup: float | None
    spread: float
    trials: int
    verified: int
    duplicates: int
    failures: dict[str, int]
    improvements: list[Improvement]
    seconds: float
    trials_per_second: float
    confirmed: bool | None = None
    confirmed_speedup: float | None = None
    confirmed_spread: float = 0.0
    sanitizer: list[str] = []


def summarize(
    recording: str, session: Session, trials: Sequence[Trial], confirmation: Confirmation | None = None
) -> Summary:
    """recording: how the user names it. trials: the session's, in any order."""
    baseline = next((trial for trial in trials if trial.number == 0), None)
    proposed = [trial for trial in trials if trial.number]
    best = best_trial(trials)
    launches = []
    if baseline and best:
        for launch, before, after in zip(session.launches, baseline.costs, best.costs, strict=True):
            launches.append(LaunchCosts(launch=launch, baseline=before, best=after, speedup=before / after))
    own = [trial for trial in proposed if trial.duplicate_of is None]
    return Summary(
        recording=recording,
        kernel=session.kernel,
        session=session.id,
        device=session.device,
        unit=session.unit,
        strategy=session.strategy,
        seed=session.seed,
        budget=session.budget,
        workers=session.workers,
        versions=session.versions,
        baseline=_build(baseline),
        best=_build(best),
        launches=launches,
        speedup=1 / best.loss if best and best.loss else None,
        spread=best.spread if best else 0.0,
        trials=len(proposed),
        verified=sum(trial.ok for trial in own),
        duplicates=len(proposed) - len(own),
        failures=dict(sorted(Counter(trial.status for trial in own if not trial.ok).items())),
        improvements=_improvements(trials),
        seconds=session.seconds,
        trials_per_second=len(proposed) / session.seconds if session.seconds else 0.0,
        confirmed=confirmation.reproduced if confirmation else None,
        confirmed_speedup=confirmation.speedup if confirmation else None,
        confirmed_spread=confirmation.spread if confirmation else 0.0,
    )


def _build(trial: Trial | None) -> Build | None:
    if trial is None:
        return None
    return Build(trial=trial.number, candidate=trial.candidate, ptx_hash=trial.ptx_hash, resources=trial.resources)


def _improvements(trials: Sequence[Trial]) -> list[Improvement]:
    found: list[Improvement] = []
    least = float("inf")
    for trial in sorted(trials, key=lambda trial: (trial.told, trial.number)):
        if trial.loss is not None and trial.loss < least:
            least = trial.loss
            found.append(Improvement(trial=trial.number, speedup=1 / least))
    return found
