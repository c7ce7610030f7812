"""Trials in a SQLite file: a trial is on disk before anything is done with it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, create_engine, event, inspect, select, update
from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from sqlalchemy.orm import sessionmaker

from r3llvm.database.models import SCHEMA_VERSION, Base, Session, Trial
from r3llvm.errors import R3Error

APPLICATION_ID = 0x72336C6C  # "r3ll", in the SQLite header

_ADVICE = {
    "file is not a database": "it is not a database; name another one with --database",
    "database disk image is malformed": "it is damaged; move it away or name another one with --database",
    "database is locked": "another process holds it locked; try again when that one is done",
    "database or disk is full": "the disk is full; make room, then continue with --resume",
    "disk I/O error": "the disk refuses; make room or name another place with --database",
    "unable to open database file": "it cannot be opened; check that its folder exists and may be written",
    "attempt to write a readonly database": "it may not be written; name another one with --database",
}


class Database:
    """The sessions and trials in one file. Use it from one thread, close it at the end.

    R3Error, one line: no such file (unless `create`), not a database or another program's, of a newer schema, locked,
    disk full.
    """

    def __init__(self, path: Path, create: bool = False, lock_seconds: float = 10.0) -> None:
        self.path = path
        if not create and not path.is_file():
            raise self._missing()
        self._engine = create_engine(URL.create("sqlite", database=str(path)), connect_args={"timeout": lock_seconds})
        event.listen(self._engine, "connect", _configure)
        event.listen(self._engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
        self._new = sessionmaker(self._engine, expire_on_commit=False)
        try:
            with self._explained():
                self._prepare(create)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._engine.dispose()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add_session(self, session: Session) -> None:
        """Stores it, unless it comes from here; its id is set on return."""
        if inspect(session).transient:
            with self._explained(), self._new.begin() as transaction:
                transaction.add(session)

    def add_trial(self, session: Session, trial: Trial) -> None:
        """Commits the trial and the session's seconds, unit and budget together."""
        with self._explained(), self._new.begin() as transaction:
            transaction.add(trial)
            transaction.flush()
            transaction.execute(
                update(Session)
                .where(Session.id == session.id)
                .values(seconds=session.seconds, unit=session.unit, budget=session.budget, workers=session.workers)
            )

    def sessions(self, kernel: str | None = None) -> list[Session]:
        """Oldest first."""
        query = select(Session).order_by(Session.id)
        if kernel is not None:
            query = query.where(Session.kernel == kernel)
        with self._explained(), self._new() as transaction:
            return list(transaction.scalars(query))

    def trials(self, session: Session) -> list[Trial]:
        """In the order of their numbers."""
        query = select(Trial).where(Trial.session_id == session.id).order_by(Trial.number)
        with self._explained(), self._new() as transaction:
            return list(transaction.scalars(query))

    def _prepare(self, create: bool) -> None:
        with self._engine.connect() as connection:
            application = connection.exec_driver_sql("PRAGMA application_id").scalar_one()
            version = connection.exec_driver_sql("PRAGMA user_version").scalar_one()
            empty = not inspect(connection).get_table_names()
        if application == 0 and version == 0 and empty:
            if not create:
                raise self._missing()
            self._write_ahead()
            with self._engine.begin() as connection:
                connection.exec_driver_sql(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.exec_driver_sql(f"PRAGMA user_version = {SCHEMA_VERSION}")
                Base.metadata.create_all(connection)
        elif application != APPLICATION_ID:
            raise R3Error(f"{self.path} is another program's database; name another one with --database")
        elif version > SCHEMA_VERSION:
            raise R3Error(
                f"{self.path} has schema {version}, this r3llvm reads {SCHEMA_VERSION}; "
                "update r3llvm or name another one with --database"
            )

    def _missing(self) -> R3Error:
        return R3Error(f"no trials at {self.path}; `r3llvm tune` makes them")

    def _write_ahead(self) -> None:
        """Lets readers and the writer work at once; SQLite remembers it in the file."""
        connection = self._engine.raw_connection()
        try:
            connection.cursor().execute("PRAGMA journal_mode = WAL")
        finally:
            connection.close()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except IntegrityError as error:
            raise R3Error(f"{self.path}: another process is continuing this session; let it finish first") from error
        except (SQLAlchemyError, sqlite3.Error) as error:
            message = str(getattr(error, "orig", None) or error)
            advice = next((text for symptom, text in _ADVICE.items() if symptom in message), message.splitlines()[0])
            raise R3Error(f"{self.path}: {advice}") from error


def _configure(connection: Any, _record: object) -> None:
    """Every commit reaches the disk before it returns."""
    connection.isolation_level = None  # transactions are begun explicitly, above
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")
