"""What proposes the next candidate."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from r3llvm.space import Candidate, Point

PENALTY = 10.0  # the loss a failure counts as where an optimizer needs a number; the baseline's is 1


@dataclass(frozen=True)
class Proposal:
    """point: where in the space the candidate lies; None when it comes from outside of it."""

    candidate: Candidate
    point: Point | None = None


class Strategy(ABC):
    """Proposes candidates and is told what they are worth.

    Deterministic: the same seed and the same order of asks and tells give the same proposals. Called from one thread.
    """

    name: str  # as --strategy takes it

    @abstractmethod
    def ask(self) -> Proposal | None:
        """The next proposal; None when there is nothing left to propose."""

    def tell(self, proposal: Proposal, loss: float | None) -> None:  # noqa: B027
        """loss: cost over the baseline's, smaller is better; None: it failed. The proposal need not be an asked one."""
