"""The space of pass sequences: a fixed number of slots, each an action or nothing."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from r3llvm.errors import UsageError
from r3llvm.space.candidate import Candidate
from r3llvm.space.catalogue import Catalogue, load_catalogue
from r3llvm.space.pipeline import Action, pipeline_text

if TYPE_CHECKING:
    import nevergrad as ng

Point = tuple[int, ...]  # an index into PipelineSpace.actions per slot; 0 is the empty slot


class PipelineSpace:
    """Pass sequences of up to `length` actions.

    actions: what a slot may hold; actions[0] is None, the empty slot.
    fingerprint: equal for spaces whose points mean the same pipelines.
    """

    def __init__(self, length: int = 24, aggressive: bool = False, catalogue: Catalogue | None = None) -> None:
        if length < 1:
            raise UsageError(f"a pass sequence of length {length} is empty; give a length of 1 or more")
        self.length = length
        self.catalogue = catalogue or load_catalogue()
        self.actions: tuple[Action | None, ...] = (None, *self.catalogue.actions(aggressive))
        self._index = {action: index for index, action in enumerate(self.actions)}
        texts = [str(length), *(action.text if action else "" for action in self.actions)]
        self.fingerprint = hashlib.blake2b("\n".join(texts).encode(), digest_size=8).hexdigest()

    def candidate(self, point: Point) -> Candidate:
        """What a point builds. Points that differ only in where their empty slots are give the same candidate."""
        return Candidate(pipeline=pipeline_text(action for slot in point if (action := self.actions[slot])))

    def point(self, actions: Sequence[Action]) -> Point:
        """The point of a sequence, empty slots last. UsageError: too long, or an action this space lacks."""
        if len(actions) > self.length:
            raise UsageError(f"{len(actions)} passes do not fit a space of length {self.length}; raise --length")
        for action in actions:
            if action not in self._index:
                self.catalogue.check(action)
                raise UsageError(f"'{action.text}' is not in this space; it is too risky or no listed variant")
        slots = [self._index[action] for action in actions]
        return tuple(slots + [0] * (self.length - len(slots)))

    def seeds(self) -> list[Point]:
        """The named pipelines that fit, `default<O3>` first."""
        sequences = self.catalogue.pipelines.values()
        return [self.point(sequence) for sequence in sequences if len(sequence) <= self.length]

    def random(self, rng: random.Random) -> Point:
        """Uniform over the number of passes, then over the passes."""
        filled = rng.randint(1, self.length)
        slots = [rng.randrange(1, len(self.actions)) for _ in range(filled)]
        return tuple(slots + [0] * (self.length - filled))

    def parametrization(self) -> ng.p.TransitionChoice:
        """What a Nevergrad optimizer draws from: one transition choice per slot (`Choice` is no better than chance)."""
        import nevergrad as ng

        choices: list[Any] = list(range(len(self.actions)))
        return ng.p.TransitionChoice(choices, repetitions=self.length)
