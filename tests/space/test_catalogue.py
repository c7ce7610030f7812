from __future__ import annotations

import pytest

from r3llvm.errors import UsageError
from r3llvm.space import Action, load_catalogue

CATALOGUE = load_catalogue()


@pytest.mark.parametrize("name", ["instcombine", "loop-unroll", "gvn", "licm"])
def test_what_every_search_needs_is_in(name: str) -> None:
    assert any(action.name == name for action in CATALOGUE.actions())


def test_passes_are_listed_once_a_level() -> None:
    listed = [(entry.name, entry.level) for entry in CATALOGUE.passes]
    assert len(listed) == len(set(listed))
    assert len(CATALOGUE.actions(True)) == len(set(CATALOGUE.actions(True)))


def test_licm_is_only_where_memory_ssa_is() -> None:
    levels = {a.level for a in CATALOGUE.actions(True) if a.name in ("licm", "lnicm")}
    assert levels == {"loop-mssa"}


def test_instcombine_never_verifies_its_fixpoint() -> None:
    texts = [a.parameters.split(";") for a in CATALOGUE.actions(True) if a.name == "instcombine"]
    assert texts and all("no-verify-fixpoint" in parameters for parameters in texts)


def test_aggressive_passes_are_left_out_unless_asked_for() -> None:
    normal, all_of_them = CATALOGUE.actions(), CATALOGUE.actions(aggressive=True)
    assert set(normal) < set(all_of_them)
    assert {a.name for a in all_of_them} - {a.name for a in normal} >= {"newgvn", "gvn-hoist", "structurizecfg"}


def test_variants_are_made_of_the_parameters() -> None:
    for entry in CATALOGUE.passes:
        known = {text for parameter in entry.parameters for text in parameter.texts()} | set(entry.always.split(";"))
        for variant in entry.variants:
            for part in variant.split(";"):
                name, _, value = part.partition("=")
                integers = {parameter.name for parameter in entry.parameters if parameter.kind == "integer"}
                assert part in known or (name in integers and value.isdigit()), (entry.name, part)


def test_named_pipelines_are_in_the_catalogue() -> None:
    assert next(iter(CATALOGUE.pipelines)) == "O3"
    for actions in CATALOGUE.pipelines.values():
        for action in actions:
            CATALOGUE.check(action)


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (
            Action("loop", "licm"),
            r"'function\(loop\(licm\)\)' is at the wrong level; write function\(loop-mssa\(licm\)\)",
        ),
        (Action("function", "instcombine"), "must say instcombine<no-verify-fixpoint>"),
        (Action("function", "lower-atomic"), "may not be used: removes the atomicity"),
        (Action("function", "lower-atomics"), "the pass catalogue does not list it"),
    ],
)
def test_what_may_not_be_used_is_said_with_the_reason(action: Action, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        CATALOGUE.check(action)
