from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from r3llvm.errors import UsageError
from r3llvm.space import Action, load_catalogue, parse_pipeline, pipeline_text
from r3llvm.space.pipeline import NESTING

ACTIONS = load_catalogue().actions(aggressive=True)
any_action = st.builds(
    Action,
    level=st.sampled_from(list(NESTING)),
    name=st.text(alphabet="abcXYZ019-", min_size=1),
    parameters=st.text(alphabet="abz-=;09"),
)


@settings(deadline=None)
@given(st.lists(st.one_of(st.sampled_from(ACTIONS), any_action), max_size=30))
def test_parsing_undoes_printing(actions: list[Action]) -> None:
    assert parse_pipeline(pipeline_text(actions)) == tuple(actions)


@settings(deadline=None)
@given(st.text(alphabet="abc-(),<>;= 0123456789", max_size=40))
def test_parsing_takes_or_refuses_any_text(text: str) -> None:
    try:
        actions = parse_pipeline(text)
    except UsageError:
        return
    assert pipeline_text(actions).replace(" ", "") == text.replace(" ", "")


def test_each_level_has_its_nesting() -> None:
    assert [Action(level, "x", "a;b=1").text for level in NESTING] == [
        "x<a;b=1>",
        "cgscc(x<a;b=1>)",
        "function(x<a;b=1>)",
        "function(loop(x<a;b=1>))",
        "function(loop-mssa(x<a;b=1>))",
    ]


def test_no_passes_have_a_text() -> None:
    assert pipeline_text(()) == "no-op-module"
    assert parse_pipeline("no-op-module") == ()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "function(gvn",
        "gvn)",
        "function(gvn,sroa)",
        "function(function(gvn))",
        "loop(licm)",
        "function(gvn))",
        "a,,b",
    ],
)
def test_groups_and_torn_texts_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"is not one pass in one nesting; write one of x, cgscc\(x\), function\(x\)"):
        parse_pipeline(text)
