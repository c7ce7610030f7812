from __future__ import annotations

from dataclasses import replace

import pytest

from r3llvm.database import Database
from r3llvm.errors import UsageError
from r3llvm.search import Settings, begin, resume
from tests.search.conftest import SUBJECT


def test_defaults() -> None:
    session, space = begin(SUBJECT, Settings(), 2)
    assert (session.strategy, session.budget, session.seed) == ("nevergrad:DiscreteLenglerOnePlusOne", 200, 0)
    assert (session.launches, session.workers, space.length) == ([0, 3], 2, 24)
    assert session.versions["llvm"] == "22.1.8" and session.versions["nevergrad"]


def test_launches() -> None:
    assert begin(SUBJECT, Settings(launches=(3, 3)), 1)[0].launches == [3]
    with pytest.raises(UsageError, match="no launch 7 of toy was recorded; there are 0, 3"):
        begin(SUBJECT, Settings(launches=(3, 7)), 1)


def test_resume_takes_what_the_session_has(database: Database) -> None:
    first, _ = begin(SUBJECT, Settings((3,), "random", 5, 20, 6), 2)
    database.add_session(first)
    session, space = resume(database, SUBJECT, Settings(budget=40), 3)
    assert (session.id, session.strategy, session.seed, session.launches) == (first.id, "random", 5, [3])
    assert (session.budget, session.workers, space.length) == (40, 3, 6)
    assert resume(database, SUBJECT, Settings((3,), "random", 5, 20, 6), 2)[0].id == first.id


def test_nothing_to_resume_begins(database: Database) -> None:
    session, _ = resume(database, SUBJECT, Settings(seed=3), 1)
    assert (session.id, session.seed) == (None, 3)


@pytest.mark.parametrize(
    ("subject", "settings", "message"),
    [
        (
            replace(SUBJECT, recording="s"),
            Settings(),
            "cannot resume session 1: the recording was r+, now s; leave out --resume",
        ),
        (replace(SUBJECT, llvm="21.1.0"), Settings(), "LLVM was 22.1.8, now 21.1.0"),
        (replace(SUBJECT, device="h200"), Settings(), "the device was host, now h200"),
        (SUBJECT, Settings(seed=8), "--seed was 7, now 8"),
        (SUBJECT, Settings(strategy="nevergrad"), "--strategy was random, now nevergrad:Discrete"),
        (SUBJECT, Settings(launches=(0,)), r"--launch was \[0, 3\], now \[0\]"),
        (SUBJECT, Settings(length=7), "--length was 6, now 7"),
        (SUBJECT, Settings(aggressive=True), "the pass space was"),
    ],
)
def test_another_search_is_not_resumed(database: Database, subject, settings: Settings, message: str) -> None:
    database.add_session(begin(SUBJECT, Settings(None, "random", 7, 20, 6), 1)[0])
    with pytest.raises(UsageError, match=message):
        resume(database, subject, settings, 1)
