"""The grammar of a pass pipeline: a sequence of actions, each nested explicitly in the text.

LLVM reads the level of a pipeline off its first pass, so every element names its own: `globalopt`, `cgscc(inline)`,
`function(gvn)`, `function(loop(indvars))`, `function(loop-mssa(licm))`. One element holds one pass: grouping two in one
nest is another pipeline with other results.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from r3llvm.errors import UsageError

Level = Literal["module", "cgscc", "function", "loop", "loop-mssa"]

NESTING: dict[Level, str] = {
    "module": "",
    "cgscc": "cgscc(",
    "function": "function(",
    "loop": "function(loop(",
    "loop-mssa": "function(loop-mssa(",
}
EMPTY = "no-op-module"  # LLVM has no text for a pipeline without passes

_LEVEL = {opening: level for level, opening in NESTING.items()}
_ELEMENT = re.compile(
    r"(?P<opening>(?:[a-z-]+\()*)(?P<name>[A-Za-z0-9-]+)(?:<(?P<parameters>[^<>,()]*)>)?(?P<closing>\)*)"
)


@dataclass(frozen=True, order=True)
class Action:
    """One pass at one level; `parameters` is what stands between `<` and `>`, without them."""

    level: Level
    name: str
    parameters: str = ""

    @property
    def text(self) -> str:
        opening = NESTING[self.level]
        parameters = f"<{self.parameters}>" if self.parameters else ""
        return f"{opening}{self.name}{parameters}{')' * opening.count('(')}"

    @classmethod
    def parse(cls, text: str) -> Action:
        """The action of one element. UsageError: it is not one pass in one of the five nestings."""
        match = _ELEMENT.fullmatch(text.strip())
        level = _LEVEL.get(match["opening"]) if match else None
        if match is None or level is None or len(match["closing"]) != match["opening"].count("("):
            nestings = ", ".join(Action(level, "x").text for level in NESTING)
            raise UsageError(f"'{text.strip()}' is not one pass in one nesting; write one of {nestings}")
        return cls(level, match["name"], match["parameters"] or "")


def pipeline_text(actions: Iterable[Action]) -> str:
    """The text that `opt -passes=` takes."""
    return ",".join(action.text for action in actions) or EMPTY


def parse_pipeline(text: str) -> tuple[Action, ...]:
    """The inverse of `pipeline_text`. UsageError: an element groups several passes, or is malformed."""
    if text.strip() == EMPTY:
        return ()
    return tuple(Action.parse(element) for element in text.split(","))
