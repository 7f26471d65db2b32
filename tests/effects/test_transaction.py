"""A step in a database transaction: its rows are there if it was kept, and were never there if it failed."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import reprieve

sqlalchemy = pytest.importorskip("sqlalchemy")

Rows = Callable[[], list[str]]
World = tuple[Any, Callable[[str], None], Rows]


@pytest.fixture(params=["sqlite3", "sqlite3 autocommit", "sqlalchemy", "sqlalchemy session", "no words"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """(connection, insert a row over it, the rows that others see)."""
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as setup:
        setup.execute("CREATE TABLE t (name TEXT)")
    setup.close()

    def rows() -> list[str]:
        other = sqlite3.connect(path)
        try:
            return [name for (name,) in other.execute("SELECT name FROM t ORDER BY rowid")]
        finally:
            other.close()

    if request.param.startswith("sqlalchemy"):
        engine = sqlalchemy.create_engine(f"sqlite:///{path}")
        if request.param.endswith("session"):
            from sqlalchemy.orm import Session

            connection: Any = Session(engine)
        else:
            connection = engine.connect()

        def insert(name: str) -> None:
            connection.execute(sqlalchemy.text("INSERT INTO t VALUES (:n)"), {"n": name})

        yield connection, insert, rows
        connection.close()
        engine.dispose()
        return
    connection = sqlite3.connect(path, isolation_level=None if "autocommit" in request.param else "")
    outside: Any = _Silent(connection) if request.param == "no words" else connection

    def insert_plainly(name: str) -> None:
        outside.cursor().execute("INSERT INTO t VALUES (?)", (name,))

    yield outside, insert_plainly, rows
    connection.close()


class _Silent:
    """A driver as PEP 249 asks for, which says nothing about its transactions; it begins them by itself."""

    def __init__(self, inner: sqlite3.Connection) -> None:
        self._inner = inner

    def cursor(self) -> sqlite3.Cursor:
        if not self._inner.in_transaction:
            self._inner.execute("BEGIN")
        return self._inner.cursor()

    def commit(self) -> None:
        self._inner.commit()

    def rollback(self) -> None:
        self._inner.rollback()


def test_P11_rows_of_a_step_that_raises_are_absent_and_of_one_that_is_kept_present(
    project: Path, home: Path, world: World
) -> None:
    connection, insert, rows = world
    with reprieve.open(project) as ws:
        with pytest.raises(ValueError, match="no"), ws.transaction(connection):
            insert("failed")
            raise ValueError("no")
        assert rows() == []
        with ws.transaction(connection):
            insert("kept")
            assert rows() == []
        assert rows() == ["kept"]


def test_P11_nested_steps_are_savepoints(project: Path, home: Path, world: World) -> None:
    connection, insert, rows = world
    with reprieve.open(project) as ws:
        with ws.transaction(connection):
            insert("outer")
            with pytest.raises(ValueError, match="no"), ws.transaction(connection):
                insert("inner, failed")
                raise ValueError("no")
            with ws.transaction(connection):
                insert("inner, kept")
            assert rows() == []
        assert rows() == ["outer", "inner, kept"]
        with pytest.raises(KeyboardInterrupt), ws.transaction(connection):
            with ws.transaction(connection):
                insert("inner, kept, then outer interrupted")
            raise KeyboardInterrupt
        assert rows() == ["outer", "inner, kept"]


def test_bad_case_56_a_transaction_belongs_to_where_it_was_committed(project: Path, home: Path, world: World) -> None:
    """A checkpoint in the middle of it: the commit comes after, so a rollback to that checkpoint has to name it."""
    connection, insert, _ = world
    with reprieve.open(project) as ws:
        ws.checkpoint("before")
        with ws.transaction(connection):
            insert("a row")
            middle = ws.checkpoint("middle")
        after = ws.checkpoint("after")
        assert len(ws.effects(middle)) == 1 and ws.effects(after) == []
        (outcome,) = ws.rollback(middle, effects=True).effects
        assert outcome.state == "irreversible" and "a transaction committed to" in outcome.description


def test_a_transaction_that_was_ended_inside_of_its_block_is_told(project: Path, home: Path, tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "x.db")
    connection.execute("CREATE TABLE t (name TEXT)")
    with reprieve.open(project) as ws:
        with pytest.raises(reprieve.Refused, match="stays"), ws.transaction(connection):
            connection.execute("INSERT INTO t VALUES ('committed inside')")
            connection.commit()
            raise ValueError("no")
        with pytest.raises(reprieve.Refused, match="ended inside"), ws.transaction(connection):
            connection.commit()
        with ws.transaction(connection):
            connection.execute("INSERT INTO t VALUES ('fine')")
    assert connection.execute("SELECT count(*) FROM t").fetchone() == (2,)
    connection.close()


def test_a_password_of_a_database_is_not_in_the_journal(project: Path, home: Path) -> None:
    from reprieve.app.inner_effects import _name_of

    engine = type("Engine", (), {"url": sqlalchemy.make_url("postgresql://user:canary-pass@host/db")})
    assert _name_of(type("C", (), {"engine": engine})()) == "postgresql://user:***@host/db"
