from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from r3llvm.database import Database, Session, Trial
from r3llvm.search import Evaluator, Settings, Subject, Tuner, begin, create_strategy
from r3llvm.space import load_catalogue
from tests.search.toy import ToyBuilder, ToyRunner, launch, use_small_space

SUBJECT = Subject(recording="r" * 32, kernel="toy", launches=(0, 3), device="host", llvm="22.1.8")


@pytest.fixture(autouse=True)
def small_space(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("r3llvm.space.space.load_catalogue", load_catalogue)  # so that it is put back
    use_small_space()


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "trials.sqlite", create=True) as opened:
        yield opened


@pytest.fixture
def tune(database: Database) -> Callable[..., tuple[Session, list[Trial]]]:
    """Tunes the toy: tune(budget=…, strategy=…, workers=…)."""

    def run(workers: int = 1, builder: ToyBuilder | None = None, runner: ToyRunner | None = None, **settings: object):  # type: ignore[no-untyped-def]
        session, space = begin(SUBJECT, Settings(**{"seed": 7, "length": 6, **settings}), workers)  # type: ignore[arg-type]
        strategy = create_strategy(session.strategy, space, session.seed, session.budget, workers)
        evaluator = Evaluator(builder or ToyBuilder(), runner or ToyRunner(), [launch(0), launch(3, 50)])
        return session, Tuner(database, session, strategy, evaluator).run()

    return run
