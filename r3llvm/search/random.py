"""Sequences drawn at random."""

from __future__ import annotations

import random

from r3llvm.search.strategy import Proposal, Strategy
from r3llvm.space import PipelineSpace


class RandomStrategy(Strategy):
    """Independent draws; what any other strategy must beat."""

    name = "random"

    def __init__(self, space: PipelineSpace, seed: int) -> None:
        self._space = space
        self._rng = random.Random(seed)

    def ask(self) -> Proposal:
        point = self._space.random(self._rng)
        return Proposal(self._space.candidate(point), point)
