from __future__ import annotations

import json
from pathlib import Path

import pytest

from r3llvm.errors import UsageError
from r3llvm.search import Proposal, Strategy, create_strategy
from r3llvm.space import Candidate, PipelineSpace


def loss_of(proposal: Proposal) -> float:
    assert proposal.point is not None
    return 1 - sum(slot == 2 for slot in proposal.point) / 10


def asked(strategy: Strategy, count: int) -> list[Proposal]:
    proposals = []
    for _ in range(count):
        proposal = strategy.ask()
        assert proposal is not None
        strategy.tell(proposal, loss_of(proposal))
        proposals.append(proposal)
    return proposals


@pytest.mark.parametrize("name", ["nevergrad", "nevergrad:CMA"])
def test_nevergrad_starts_with_the_seeds_and_improves(name: str) -> None:
    space = PipelineSpace(length=5)
    proposals = asked(create_strategy(name, space, seed=1, budget=40, workers=1), 40)
    assert proposals[0].candidate == Candidate()
    assert [p.point for p in proposals[: len(space.seeds())]] == space.seeds()
    assert min(map(loss_of, proposals)) < 1
    assert all(space.candidate(p.point or ()) == p.candidate for p in proposals)


def test_seeds_decide() -> None:
    space = PipelineSpace(length=5)
    for name in ("nevergrad", "random"):
        first, same, other = (asked(create_strategy(name, space, seed, 30, 1), 30) for seed in (4, 4, 5))
        assert first == same != other


def test_nevergrad_learns_from_what_it_did_not_ask() -> None:
    space = PipelineSpace(length=5)
    strategy = create_strategy("nevergrad", space, seed=1, budget=40, workers=1)
    for _ in space.seeds():
        strategy.tell(strategy.ask() or pytest.fail(), 1.0)
    point = (2, 2, 2, 2, 2)
    strategy.tell(Proposal(space.candidate(point), point), 0.01)
    strategy.tell(Proposal(Candidate("elsewhere")), 0.001)  # no point: nothing to learn, no error
    near = [strategy.ask() or pytest.fail() for _ in range(10)]
    assert max(sum(slot == 2 for slot in p.point or ()) for p in near) >= 2


def test_failures_and_late_answers_are_taken() -> None:
    strategy = create_strategy("nevergrad", PipelineSpace(length=5), seed=1, budget=40, workers=4)
    waiting = [strategy.ask() or pytest.fail() for _ in range(4)]
    for proposal in reversed(waiting):
        strategy.tell(proposal, None)
    assert strategy.ask() is not None


def test_file(tmp_path: Path) -> None:
    file = tmp_path / "c.jsonl"
    file.write_text('{"pipeline": "globaldce", "options": ["-unroll-threshold=400"]}\n\n{"codegen_level": 1}\n')
    strategy = create_strategy(f"file:{file}", PipelineSpace(), 0, 10, 1)
    assert [strategy.ask(), strategy.ask(), strategy.ask()] == [
        Proposal(Candidate("globaldce", ("-unroll-threshold=400",))),
        Proposal(Candidate(codegen_level=1)),
        None,
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "not a candidate"),
        ("[1]", "expected an object with some of pipeline, options, assembler, codegen_level"),
        (json.dumps({"passes": "x"}), "expected an object with some of"),
        (json.dumps({"pipeline": 3}), "pipeline: Input should be a valid string"),
        (json.dumps({"options": "-x"}), "options: Input should be a valid tuple"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    file = tmp_path / "c.jsonl"
    file.write_text(f'{{"pipeline": "default<O2>"}}\n{line}\n')
    with pytest.raises(UsageError, match=rf"c.jsonl:2: .*{message}"):
        create_strategy(f"file:{file}", PipelineSpace(), 0, 10, 1)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("annealing", r"unknown strategy 'annealing'; use nevergrad\[:OPTIMIZER\], random or file:PATH"),
        ("nevergrad:OnePlusOn", "Nevergrad has no optimizer 'OnePlusOn'; try .*OnePlusOne"),
        ("random:3", "unknown strategy"),
        ("file:", "unknown strategy"),
        ("file:/nowhere/x", "cannot read candidates from /nowhere/x"),
    ],
)
def test_wrong_strategies_are_refused(spec: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        create_strategy(spec, PipelineSpace(), 0, 10, 1)
