"""The pass catalogue: what a search may use, what it may not, and the named pipelines. The data lie in `passes/`."""

from __future__ import annotations

import json
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict

from r3llvm.errors import UsageError
from r3llvm.space.pipeline import Action, Level

if TYPE_CHECKING:
    from importlib.abc import Traversable


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Parameter(_Model):
    """What may stand between a pass's angle brackets.

    flag: `name` or nothing. toggle: `name`, `no-name` or nothing. integer: `name=N`, N of `values`.
    choice: one of `values`.
    """

    kind: Literal["flag", "toggle", "integer", "choice"]
    name: str = ""
    values: tuple[int | str, ...] = ()

    def texts(self) -> tuple[str, ...]:
        """Every text this parameter can have."""
        match self.kind:
            case "flag":
                return (self.name,)
            case "toggle":
                return (self.name, f"no-{self.name}")
            case "integer":
                return tuple(f"{self.name}={value}" for value in self.values)
            case _:
                return tuple(str(value) for value in self.values)


class Pass(_Model):
    """A pass at one level.

    always: parameters it must never be without. variants: parameter texts that are actions of their own.
    target: known to LLVM only for an NVPTX module. risk: aggressive ones have a history of miscompiles.
    """

    name: str
    level: Level
    risk: Literal["normal", "aggressive"] = "normal"
    always: str = ""
    target: bool = False
    variants: tuple[str, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    note: str = ""

    def action(self, parameters: str = "") -> Action:
        """This pass with `parameters` and those it must have."""
        given = [p for p in parameters.split(";") if p]
        required = [p for p in self.always.split(";") if p and p not in given]
        return Action(self.level, self.name, ";".join(required + given))

    def actions(self) -> tuple[Action, ...]:
        return tuple(self.action(parameters) for parameters in ("", *self.variants))


class Catalogue(_Model):
    """Everything in `passes/*.json`. denied: pass name → why."""

    llvm: str
    macros: tuple[str, ...]
    passes: tuple[Pass, ...]
    denied: dict[str, str]
    pipelines: dict[str, tuple[Action, ...]]

    def actions(self, aggressive: bool = False) -> tuple[Action, ...]:
        """What a sequence may be made of: macros first, then passes in the catalogue's order."""
        macros = tuple(Action.parse(text) for text in self.macros)
        allowed = (p for p in self.passes if aggressive or p.risk == "normal")
        return macros + tuple(action for p in allowed for action in p.actions())

    def check(self, action: Action) -> None:
        """UsageError: `action` is not in the catalogue at its level, with the reason where there is one."""
        if action.text in self.macros:
            return
        levels = {p.level: p for p in self.passes if p.name == action.name}
        if action.level in levels:
            always = levels[action.level].always
            if always and always not in action.parameters.split(";"):
                raise UsageError(f"'{action.text}' must say {action.name}<{always}>")
            return
        if levels:
            right = " or ".join(Action(level, action.name).text for level in levels)
            raise UsageError(f"'{action.text}' is at the wrong level; write {right}")
        reason = self.denied.get(action.name, "the pass catalogue does not list it")
        raise UsageError(f"pass '{action.name}' may not be used: {reason}")


def _folder() -> Traversable:
    """`passes/` as installed (package r3llvm.passes), else as it lies in the source tree."""
    try:
        installed = resources.files("r3llvm.passes")
        if installed.joinpath("catalogue.json").is_file():
            return installed
    except ModuleNotFoundError:
        pass
    return Path(__file__).parents[2] / "passes"


def _read(name: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(_folder().joinpath(name).read_text(encoding="utf-8"))
    return data


@lru_cache(maxsize=1)
def load_catalogue() -> Catalogue:
    catalogue = _read("catalogue.json")
    return Catalogue(
        llvm=catalogue["llvm"],
        macros=catalogue["macros"],
        passes=catalogue["passes"],
        denied={name: group["reason"] for group in _read("denied.json")["denied"] for name in group["passes"]},
        pipelines={
            pipeline["name"]: tuple(Action.parse(text) for text in pipeline["passes"])
            for pipeline in _read("pipelines.json")["pipelines"]
        },
    )
