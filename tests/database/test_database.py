from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from r3llvm.database import SCHEMA_VERSION, Database, Session, Trial
from r3llvm.errors import R3Error


def session(kernel: str = "k", **fields: object) -> Session:
    given: dict[str, object] = {
        "recording": "r",
        "kernel": kernel,
        "launches": [0, 2],
        "space": {"length": 24},
        "strategy": "random",
        "seed": 1,
        "budget": 10,
        "workers": 2,
        "device": "host",
    }
    return Session(**{**given, **fields})  # type: ignore[arg-type]


def trial(session: Session, number: int, **fields: object) -> Trial:
    given: dict[str, object] = {
        "session_id": session.id,
        "number": number,
        "asked": 2 * number - 1,
        "told": 2 * number,
        "candidate_id": f"c{number}",
        "candidate": {"pipeline": "default<O3>", "options": ["-a"]},
        "point": [1, 0],
        "build_status": "ok",
        "run_status": "ok",
        "costs": [1.5, 2.0],
        "loss": 0.5,
    }
    return Trial(**{**given, **fields})  # type: ignore[arg-type]


def test_what_is_stored_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "trials.sqlite"
    with Database(path, create=True) as database:
        stored = session()
        database.add_session(stored)
        database.add_session(stored)  # once is enough
        database.add_session(session("other"))
        stored.seconds, stored.unit = 3.5, "modelled cycles"
        database.add_trial(stored, trial(stored, 2, point=None, loss=None, costs=[], run_status="mismatch"))
        database.add_trial(stored, trial(stored, 1))
    with Database(path) as database:
        assert [s.kernel for s in database.sessions()] == ["k", "other"]
        (found,) = database.sessions("k")
        assert (found.seconds, found.unit, found.launches) == (3.5, "modelled cycles", [0, 2])
        first, second = database.trials(found)
        assert (first.number, first.costs, first.point, first.ok, first.status) == (1, [1.5, 2.0], [1, 0], True, "ok")
        assert (second.point, second.ok, second.status) == (None, False, "mismatch")
        assert first.candidate == {"pipeline": "default<O3>", "options": ["-a"]}


def test_a_name_is_no_address(tmp_path: Path) -> None:
    path = tmp_path / "a?b=1&c#d%20"
    Database(path, create=True).close()
    assert [found.name for found in tmp_path.iterdir()] == [path.name]


def test_a_trial_is_stored_once(tmp_path: Path) -> None:
    with Database(tmp_path / "t.sqlite", create=True) as database:
        stored = session()
        database.add_session(stored)
        database.add_trial(stored, trial(stored, 1))
        with pytest.raises(R3Error, match="another process is continuing this session"):
            database.add_trial(stored, trial(stored, 1))


def test_commits_outlive_the_process(tmp_path: Path) -> None:
    """Ended without any clean-up, right after a commit."""
    program = (
        "import os, sys; from pathlib import Path; from r3llvm.database import Database\n"
        "from tests.database.test_database import session, trial\n"
        "d = Database(Path(sys.argv[1]), create=True); s = session(); d.add_session(s)\n"
        "[d.add_trial(s, trial(s, n)) for n in range(5)]; os._exit(9)"
    )
    path = tmp_path / "t.sqlite"
    assert subprocess.run([sys.executable, "-c", program, path], env={"PYTHONPATH": ":".join(sys.path)}).returncode == 9
    with Database(path) as database:
        assert [t.number for t in database.trials(database.sessions()[0])] == list(range(5))


def test_missing(tmp_path: Path) -> None:
    with pytest.raises(R3Error, match=r"no trials at .*t.sqlite; `r3llvm tune` makes them"):
        Database(tmp_path / "t.sqlite")
    with pytest.raises(R3Error, match="it cannot be opened"):
        Database(tmp_path / "nowhere" / "t.sqlite", create=True)


def test_not_a_database(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    path.write_bytes(b"these are no trials" * 100)
    with pytest.raises(R3Error, match="it is not a database; name another one with --database"):
        Database(path, create=True)
    assert path.read_bytes() == b"these are no trials" * 100


def test_another_programs_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(R3Error, match="another program's database"):
        Database(path, create=True)
    assert path.read_bytes() == before


def test_newer_schema(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    Database(path, create=True).close()
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    connection.close()
    with pytest.raises(R3Error, match=rf"has schema {SCHEMA_VERSION + 1}, this r3llvm reads {SCHEMA_VERSION}; update"):
        Database(path)


def test_locked(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    with Database(path, create=True, lock_seconds=0.05) as database:
        stored = session()
        database.add_session(stored)
        connection = sqlite3.connect(path)
        connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(R3Error, match="another process holds it locked"):
            database.add_trial(stored, trial(stored, 1))
        connection.rollback()
        connection.close()
        database.add_trial(stored, trial(stored, 1))
        assert len(database.trials(stored)) == 1


def test_full_disk(tmp_path: Path) -> None:
    with Database(tmp_path / "t.sqlite", create=True) as database:
        stored = session()
        database.add_session(stored)
        with database._engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA max_page_count = 1")  # SQLite says what it says on a full disk
        with pytest.raises(R3Error, match="the disk is full; make room, then continue with --resume"):
            for number in range(100):
                database.add_trial(stored, trial(stored, number, message="x" * 4000))
        kept = [t.number for t in database.trials(stored)]
        assert kept == list(range(len(kept)))


def test_a_reader_and_a_writer_at_once(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    with Database(path, create=True) as writer, Database(path, lock_seconds=0.05) as reader:
        stored = session()
        writer.add_session(stored)
        for number in range(3):
            writer.add_trial(stored, trial(stored, number))
            assert len(reader.trials(reader.sessions()[0])) == number + 1
