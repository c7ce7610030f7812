"""Any Nevergrad optimizer, through ask and tell."""

from __future__ import annotations

import difflib
import warnings
from collections import defaultdict
from typing import Any

from r3llvm.errors import UsageError
from r3llvm.search.strategy import PENALTY, Proposal, Strategy
from r3llvm.space import PipelineSpace

DEFAULT_OPTIMIZER = "DiscreteLenglerOnePlusOne"


class NevergradStrategy(Strategy):
    """Starts with the space's seeds, then follows the optimizer.

    budget: how many proposals the optimizer may plan for.
    UsageError: Nevergrad has no such optimizer, or cannot use it here.
    """

    def __init__(
        self, space: PipelineSpace, seed: int, budget: int, workers: int, optimizer: str = DEFAULT_OPTIMIZER
    ) -> None:
        import nevergrad  # seconds to import, so only when used

        registry = nevergrad.optimizers.registry
        if optimizer not in registry:
            near = difflib.get_close_matches(optimizer, registry.keys(), n=3)
            raise UsageError(f"Nevergrad has no optimizer '{optimizer}'; try {', '.join(near) or DEFAULT_OPTIMIZER}")
        self.name = f"nevergrad:{optimizer}"
        self._space = space
        parametrization = space.parametrization()
        parametrization.random_state.seed(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # advice about settings, to nobody who could take it
            try:
                self._optimizer: Any = registry[optimizer](parametrization, budget=budget, num_workers=workers)
            except Exception as error:  # an optional package it needs, or no support for several workers
                raise UsageError(f"Nevergrad's {optimizer} cannot search this space: {error}") from error
        self._seeds = space.seeds()
        self._asked: defaultdict[Proposal, list[Any]] = defaultdict(list)

    def ask(self) -> Proposal:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if self._seeds:
                self._optimizer.suggest(self._seeds.pop(0))
            asked = self._optimizer.ask()
        point = tuple(int(slot) for slot in asked.value)
        proposal = Proposal(self._space.candidate(point), point)
        self._asked[proposal].append(asked)
        return proposal

    def tell(self, proposal: Proposal, loss: float | None) -> None:
        waiting = self._asked.get(proposal)
        if waiting:
            told = waiting.pop(0)
        elif proposal.point is not None:
            told = self._optimizer.parametrization.spawn_child(new_value=proposal.point)
        else:
            return  # from outside the space: nothing an optimizer could learn from
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._optimizer.tell(told, PENALTY if loss is None else loss)
