"""Begins a session, or finds the one to go on with."""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version

import r3llvm
from r3llvm.database import Database, Session
from r3llvm.errors import UsageError
from r3llvm.space import PipelineSpace

DEFAULT_STRATEGY = "nevergrad"
DEFAULT_BUDGET = 200
DEFAULT_LENGTH = 24


@dataclass(frozen=True)
class Settings:
    """What the user asked for; None where nothing was said: a default, or when resuming what the session has."""

    launches: tuple[int, ...] | None = None
    strategy: str | None = None
    seed: int | None = None
    budget: int | None = None
    length: int | None = None
    aggressive: bool | None = None


@dataclass(frozen=True)
class Subject:
    """What is tuned, on what. recording: the manifest's content hash. launches: indices of all that the kernel has.

    conditions: what costs and verdicts depend on beside the device, by the name of the option ("cache": "cold").
    """

    recording: str
    kernel: str
    launches: tuple[int, ...]
    device: str
    llvm: str
    conditions: Mapping[str, str] = field(default_factory=dict)


def begin(subject: Subject, settings: Settings, workers: int) -> tuple[Session, PipelineSpace]:
    """A new session; the tuner stores it."""
    space = PipelineSpace(settings.length or DEFAULT_LENGTH, bool(settings.aggressive))
    session = Session(
        recording=subject.recording,
        kernel=subject.kernel,
        launches=list(_chosen(subject, settings.launches)),
        space={"fingerprint": space.fingerprint, "length": space.length, "aggressive": bool(settings.aggressive)},
        strategy=_full_name(settings.strategy or DEFAULT_STRATEGY),
        seed=settings.seed or 0,
        budget=settings.budget or DEFAULT_BUDGET,
        workers=workers,
        device=subject.device,
        versions=_versions(subject.llvm) | dict(subject.conditions),
    )
    return session, space


def resume(database: Database, subject: Subject, settings: Settings, workers: int) -> tuple[Session, PipelineSpace]:
    """The kernel's latest session, with a new budget where one is given; a new one when there is none.

    UsageError: what it was made with is not what is there or asked for now.
    """
    sessions = database.sessions(subject.kernel)
    if not sessions:
        return begin(subject, settings, workers)
    session = sessions[-1]
    aggressive = session.space["aggressive"] if settings.aggressive is None else settings.aggressive
    space = PipelineSpace(settings.length or session.space["length"], aggressive)
    asked = settings.launches
    strategy = None if settings.strategy is None else _full_name(settings.strategy)
    comparisons = [
        ("the recording", session.recording, subject.recording),
        ("the device", session.device, subject.device),
        ("LLVM", session.versions.get("llvm"), subject.llvm),
        ("--length", session.space["length"], settings.length),
        ("the pass space", session.space["fingerprint"], space.fingerprint),
        ("--launch", sorted(session.launches), None if asked is None else sorted(_chosen(subject, asked))),
        ("--strategy", session.strategy, strategy),
        ("--seed", session.seed, settings.seed),
        *((f"--{name}", session.versions.get(name), value) for name, value in subject.conditions.items()),
    ]
    for what, then, now in comparisons:
        if now is not None and now != then:
            raise UsageError(
                f"cannot resume session {session.id}: {what} was {then}, now {now}; leave out --resume to begin anew"
            )
    session.budget = settings.budget or session.budget
    session.workers = workers
    return session, space


def _chosen(subject: Subject, launches: Sequence[int] | None) -> tuple[int, ...]:
    if launches is None:
        return subject.launches
    missing = sorted(set(launches) - set(subject.launches))
    if missing:
        known = ", ".join(map(str, subject.launches))
        raise UsageError(f"no launch {missing[0]} of {subject.kernel} was recorded; there are {known}")
    return tuple(sorted(set(launches)))


def _full_name(strategy: str) -> str:
    from r3llvm.search.nevergrad import DEFAULT_OPTIMIZER

    return f"nevergrad:{DEFAULT_OPTIMIZER}" if strategy == "nevergrad" else strategy


def _versions(llvm: str) -> dict[str, str]:
    versions = {"r3llvm": r3llvm.__version__, "llvm": llvm, "python": platform.python_version()}
    with contextlib.suppress(PackageNotFoundError):
        versions["nevergrad"] = version("nevergrad")
    return versions
