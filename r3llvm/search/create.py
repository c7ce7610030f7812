"""From what --strategy says to a strategy."""

from __future__ import annotations

from pathlib import Path

from r3llvm.errors import UsageError
from r3llvm.search.file import FileStrategy
from r3llvm.search.nevergrad import DEFAULT_OPTIMIZER, NevergradStrategy
from r3llvm.search.random import RandomStrategy
from r3llvm.search.strategy import Strategy
from r3llvm.space import PipelineSpace


def create_strategy(spec: str, space: PipelineSpace, seed: int, budget: int, workers: int) -> Strategy:
    """spec: "nevergrad", "nevergrad:NAME", "random" or "file:PATH". UsageError: anything else."""
    kind, _, rest = spec.partition(":")
    match kind:
        case "nevergrad":
            return NevergradStrategy(space, seed, budget, workers, rest or DEFAULT_OPTIMIZER)
        case "random" if not rest:
            return RandomStrategy(space, seed)
        case "file" if rest:
            return FileStrategy(Path(rest))
        case _:
            raise UsageError(f"unknown strategy '{spec}'; use nevergrad[:OPTIMIZER], random or file:PATH")
