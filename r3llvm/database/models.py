"""What is stored of a search: a session, and its trials."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any, ClassVar

from sqlalchemy import JSON, ForeignKey
from sqlalchemy.orm import DeclarativeBase, Mapped, MappedAsDataclass, mapped_column

SCHEMA_VERSION = 1


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


class Base(MappedAsDataclass, DeclarativeBase):
    type_annotation_map: ClassVar[dict[Any, Any]] = {dict[str, Any]: JSON, list[int]: JSON, list[float]: JSON}


class Session(Base, kw_only=True):
    """One search for one kernel.

    recording: the manifest's content hash. launches: which launches of the kernel, by index.
    space: its fingerprint and what makes it. seconds: spent searching, over all resumptions. unit: of every cost.
    """

    __tablename__ = "session"

    id: Mapped[int] = mapped_column(primary_key=True, init=False)  # None until it is stored
    created: Mapped[str] = mapped_column(default_factory=_now)
    recording: Mapped[str]
    kernel: Mapped[str]
    launches: Mapped[list[int]]
    space: Mapped[dict[str, Any]]
    strategy: Mapped[str]
    seed: Mapped[int]
    budget: Mapped[int]
    workers: Mapped[int]
    device: Mapped[str]
    unit: Mapped[str] = mapped_column(default="")
    versions: Mapped[dict[str, Any]] = mapped_column(default_factory=dict)
    seconds: Mapped[float] = mapped_column(default=0.0)


class Trial(Base, kw_only=True):
    """One candidate, built and replayed. Number 0 is the baseline.

    asked, told: when the strategy proposed it and was told of it, on a clock that ticks at each of the two; 0 for the
    baseline. point: the space's slots, or null. run_status: null when it was not built.
    costs: per launch, in the session's unit; empty unless every launch was verified.
    loss: geometric mean of cost over baseline cost, null for a failure.
    duplicate_of: the trial with the same candidate or the same PTX that was run in its place.
    """

    __tablename__ = "trial"

    session_id: Mapped[int] = mapped_column(ForeignKey("session.id"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    asked: Mapped[int]
    told: Mapped[int]
    candidate_id: Mapped[str] = mapped_column(index=True)
    candidate: Mapped[dict[str, Any]]
    point: Mapped[list[int] | None] = mapped_column(JSON(none_as_null=True), default=None)
    build_status: Mapped[str]
    run_status: Mapped[str | None] = mapped_column(default=None)
    message: Mapped[str] = mapped_column(default="")
    ptx_hash: Mapped[str] = mapped_column(default="", index=True)
    resources: Mapped[dict[str, Any]] = mapped_column(default_factory=dict)
    costs: Mapped[list[float]] = mapped_column(default_factory=list)
    spread: Mapped[float] = mapped_column(default=0.0)
    loss: Mapped[float | None] = mapped_column(default=None)
    seconds: Mapped[float] = mapped_column(default=0.0)
    duplicate_of: Mapped[int | None] = mapped_column(default=None)
    reproducer: Mapped[str] = mapped_column(default="")
    created: Mapped[str] = mapped_column(default_factory=_now)

    @property
    def status(self) -> str:
        """How it ended: the run's status, or the build's when there was no run."""
        return self.run_status or self.build_status

    @property
    def ok(self) -> bool:
        """Built, and every recorded byte equal on every launch."""
        return self.loss is not None
