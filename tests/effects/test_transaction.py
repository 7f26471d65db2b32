"""A step in a database transaction: its rows are there if it was kept, and were never there if it failed."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

import reprieve
from support.settings import write_accepted

sqlalchemy = pytest.importorskip("sqlalchemy")
pytest.importorskip("sqlalchemy.orm")

Rows = Callable[[], list[str]]
World = tuple[Any, Callable[[str], None], Rows]


@pytest.fixture(
    params=["sqlite3", "sqlite3 autocommit", "sqlalchemy", "sqlalchemy session", "sqlalchemy scoped", "no words"]
)
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
        elif request.param.endswith("scoped"):
            connection = sqlalchemy.orm.scoped_session(sqlalchemy.orm.sessionmaker(engine))
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
        assert [effect.state for effect in ws.effects()] == ["done"]
        with pytest.raises(KeyboardInterrupt), ws.transaction(connection):
            with ws.transaction(connection):
                insert("inner, kept, then outer interrupted")
            raise KeyboardInterrupt
        assert rows() == ["outer", "inner, kept"]


def test_a_step_in_a_transaction_that_somebody_else_opened_is_named(project: Path, home: Path, world: World) -> None:
    """Who opened it may commit it when we are gone: the step may stand, and a rollback has to say so."""
    connection, insert, rows = world
    if isinstance(connection, _Silent):
        pytest.skip("nobody can tell that one is open")
    with reprieve.open(project) as ws:
        before = ws.checkpoint("before")
        if isinstance(connection, sqlite3.Connection):
            connection.execute("BEGIN")
        insert("somebody's")
        with pytest.raises(ValueError, match="no"), ws.transaction(connection):
            insert("failed")
            raise ValueError("no")
        assert ws.effects(before) == []
        with ws.transaction(connection):
            insert("the step's")
            with ws.transaction(connection):
                insert("an inner step's")
        assert rows() == []
        connection.commit()
        assert rows() == ["somebody's", "the step's", "an inner step's"]
        (effect,) = ws.effects(before)  # the inner one has no other fate than the one around it
        assert (effect.kind, effect.state) == ("transaction", "unknown")
        report = ws.rollback(before, effects=True)
        (outcome,) = report.effects
        assert report.is_partial and outcome.state == "manual"
        assert "somebody else ends" in outcome.description and "open before the step" in outcome.detail


def test_a_session_over_somebody_elses_connection_does_not_claim_a_commit(
    project: Path, home: Path, tmp_path: Path
) -> None:
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path / 'x.db'}")
    with reprieve.open(project) as ws, engine.connect() as connection:
        outer = connection.begin()
        with sqlalchemy.orm.Session(connection) as session, ws.transaction(session):
            session.execute(sqlalchemy.text("CREATE TABLE t (name TEXT)"))
        outer.rollback()
        assert [effect.state for effect in ws.effects()] == ["unknown"]
    engine.dispose()


def test_a_step_that_cannot_be_noted_leaves_the_transaction_around_it_alone(
    project: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its row in the journal the step is not kept; what others wrote before is theirs."""
    with reprieve.open(project) as ws, closing(sqlite3.connect(tmp_path / "x.db")) as connection:
        connection.execute("CREATE TABLE t (name TEXT)")
        connection.execute("INSERT INTO t VALUES ('theirs')")
        with monkeypatch.context() as broken, pytest.raises(reprieve.ReprieveError), ws.transaction(connection):
            connection.execute("INSERT INTO t VALUES ('the step''s')")
            broken.setattr("reprieve.app.journals.open_journal", _no_journal)
        connection.commit()
        assert connection.execute("SELECT name FROM t").fetchall() == [("theirs",)]


def _no_journal(*_: object, **__: object) -> None:
    raise reprieve.StoreFailed("the disk is full")


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
        with pytest.raises(reprieve.Refused, match="may stay"), ws.transaction(connection):
            connection.execute("INSERT INTO t VALUES ('committed inside')")
            connection.commit()
            raise ValueError("no")
        with pytest.raises(reprieve.Refused, match="ended inside"), ws.transaction(connection):
            connection.commit()
        with ws.transaction(connection):
            connection.execute("INSERT INTO t VALUES ('fine')")
    assert connection.execute("SELECT count(*) FROM t").fetchone() == (2,)
    connection.close()


@pytest.mark.parametrize("is_nested", [False, True])
def test_what_was_committed_inside_of_a_step_that_failed_is_an_effect(
    project: Path, home: Path, world: World, is_nested: bool
) -> None:
    """The first half stays and is named once, whatever happens next; the second half is not kept by a later commit."""
    connection, insert, rows = world
    with reprieve.open(project) as ws:
        before = ws.checkpoint("before")
        with ExitStack() as blocks:
            blocks.enter_context(pytest.raises(reprieve.Refused, match="may stay"))
            if is_nested:
                blocks.enter_context(ws.transaction(connection))
            with ws.transaction(connection):
                insert("first half")
                connection.commit()
                insert("second half")
                raise ValueError("no")
        connection.commit()
        is_autocommit = getattr(connection, "isolation_level", "") is None  # then it was kept at once
        assert rows() == ["first half", "second half"][: 2 if is_autocommit else 1]
        (effect,) = ws.effects(before)
        assert (effect.kind, effect.state) == ("transaction", "unknown")
        report = ws.rollback(before, effects=True)
        assert report.is_partial
        assert "ended inside of it" in report.effects[0].detail


def test_a_step_that_commits_by_itself_is_partly_taken_back(project: Path, home: Path, world: World) -> None:
    connection, insert, rows = world
    with reprieve.open(project) as ws:
        refused = pytest.raises(reprieve.Refused, match="may stay")
        with refused, ws.plan("p") as plan, plan.step("s") as step, ws.transaction(connection):
            insert("a row")
            connection.commit()
            raise ValueError("no")
        assert rows() == ["a row"]
        assert step.report is not None and step.report.is_partial


def test_an_interrupt_of_such_a_step_stays_an_interrupt(project: Path, home: Path, world: World) -> None:
    connection, insert, _ = world
    with reprieve.open(project) as ws:
        with pytest.raises(KeyboardInterrupt) as caught, ws.transaction(connection):
            insert("a row")
            connection.commit()
            raise KeyboardInterrupt
        assert "may stay" in caught.value.__notes__[0]
        assert len(ws.effects()) == 1


def test_a_connection_that_was_closed_inside_of_its_block_is_told(project: Path, home: Path, tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "x.db")
    with reprieve.open(project) as ws:
        with pytest.raises(reprieve.Refused, match="could not be rolled back"), ws.transaction(connection):
            connection.close()
            raise ValueError("no")
        assert [effect.state for effect in ws.effects()] == ["unknown"]


def test_a_commit_that_fails_leaves_nothing_open(project: Path, home: Path, tmp_path: Path) -> None:
    """A constraint that is looked at only then: without a rollback the next COMMIT might keep the step."""
    connection = sqlite3.connect(tmp_path / "x.db")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("CREATE TABLE a (id INTEGER PRIMARY KEY)")
    connection.execute("CREATE TABLE b (id INTEGER REFERENCES a DEFERRABLE INITIALLY DEFERRED)")
    with reprieve.open(project) as ws:
        with pytest.raises(sqlite3.IntegrityError), ws.transaction(connection):
            connection.execute("INSERT INTO b VALUES (7)")
        assert not connection.in_transaction
        assert [effect.state for effect in ws.effects()] == ["unknown"]
    connection.close()


@pytest.mark.parametrize("kind", ["sqlite3", "connection", "session"])
def test_rows_of_a_database_in_the_tree_come_back_with_its_file(project: Path, home: Path, kind: str) -> None:
    """Then the transaction is a matter of the files alone: nothing of it is left to undo, or to be named."""
    path = project / "app.db"
    with closing(sqlite3.connect(path)) as setup:
        setup.execute("CREATE TABLE t (name TEXT)")
        setup.commit()
    with reprieve.open(project) as ws:
        before = ws.checkpoint("before")
        if kind == "sqlite3":
            connection: Any = sqlite3.connect(path)
            connection.row_factory = sqlite3.Row
        else:
            engine = sqlalchemy.create_engine(f"sqlite:///{path}")
            connection = engine.connect() if kind == "connection" else sqlalchemy.orm.Session(engine)
        with ws.transaction(connection):
            statement = "INSERT INTO t VALUES ('a row')"
            connection.execute(statement if kind == "sqlite3" else sqlalchemy.text(statement))
        connection.close()
        (effect,) = ws.effects(before)
        assert (effect.cls, effect.state, effect.undo_state) == ("restorable", "done", "covered")
        report = ws.rollback(before, effects=True)
        assert report.effects == () and not report.is_partial
    with closing(sqlite3.connect(path)) as after:
        assert after.execute("SELECT * FROM t").fetchall() == []


@pytest.mark.parametrize("where", ["attached elsewhere", "excluded", "its log is excluded"])
def test_a_database_that_is_not_all_in_the_checkpoints_is_named_once(
    project: Path, home: Path, tmp_path: Path, where: str
) -> None:
    patterns = {"excluded": "*.db", "its log is excluded": "*-wal"}
    if where in patterns:
        write_accepted(project, f'exclude = ["{patterns[where]}"]\n')
    with reprieve.open(project) as ws:
        connection = sqlite3.connect(project / "app.db")
        connection.execute("CREATE TABLE t (name TEXT)")
        connection.commit()
        before = ws.checkpoint("before")
        if where == "attached elsewhere":
            connection.execute("ATTACH ? AS other", (str(tmp_path / "other.db"),))
        with ws.transaction(connection):
            connection.execute("INSERT INTO t VALUES ('a row')")
        connection.close()
        for _ in range(3):
            (outcome,) = ws.rollback(before, effects=True).effects
            assert outcome.state == "irreversible"
            assert outcome.detail.count("there is no inverse") == 1


@pytest.mark.parametrize("is_taken_off", [False, True])
def test_a_database_that_a_step_attaches_itself_is_looked_at(
    project: Path, home: Path, tmp_path: Path, is_taken_off: bool
) -> None:
    """Its rows are not in the folder and do not come back with it; nor do those that were committed before a DETACH."""
    with reprieve.open(project) as ws, closing(sqlite3.connect(project / "app.db")) as connection:
        before = ws.checkpoint("before")
        with ExitStack() as blocks:
            if is_taken_off:
                connection.execute("ATTACH ? AS other", (str(tmp_path / "other.db"),))
                blocks.enter_context(pytest.raises(reprieve.Refused, match="ended inside"))
            blocks.enter_context(ws.transaction(connection))
            if not is_taken_off:
                connection.execute("ATTACH ? AS other", (str(tmp_path / "other.db"),))
            connection.execute("CREATE TABLE other.t (name TEXT)")
            if is_taken_off:
                connection.commit()
                connection.execute("DETACH other")
        (effect,) = ws.effects(before)
        assert (effect.cls, effect.undo_state) == ("irreversible", "")
        assert is_taken_off or effect.description.endswith("other.db")
        report = ws.rollback(before, effects=True)
        assert report.is_partial and len(report.effects) == 1


@pytest.mark.parametrize("has_default", [True, False])
@pytest.mark.parametrize("is_inside", [True, False])
def test_every_database_of_a_session_is_looked_at(
    project: Path, home: Path, tmp_path: Path, has_default: bool, is_inside: bool
) -> None:
    """Also one that it goes to only when it flushes, just before its commit."""
    places = (project / "a.db", (project if is_inside else tmp_path) / "b.db")
    tables = sqlalchemy.MetaData()

    class Base(sqlalchemy.orm.DeclarativeBase):
        metadata = tables

    class A(Base):
        __tablename__ = "a"
        id = sqlalchemy.Column(sqlalchemy.Integer, primary_key=True)

    class B(Base):
        __tablename__ = "b"
        id = sqlalchemy.Column(sqlalchemy.Integer, primary_key=True)

    engines = [sqlalchemy.create_engine(f"sqlite:///{place}") for place in places]
    for engine in engines:
        tables.create_all(engine)
    binds = {B: engines[1]} if has_default else {A: engines[0], B: engines[1]}

    def rows() -> list[int]:
        found = []
        for place, table in zip(places, "ab", strict=True):
            with closing(sqlite3.connect(place)) as other:
                found += other.execute(f"SELECT count(*) FROM {table}").fetchone()
        return found

    with reprieve.open(project) as ws:
        before = ws.checkpoint("before")
        with sqlalchemy.orm.Session(engines[0] if has_default else None, binds=binds) as session:
            with pytest.raises(ValueError, match="no"), ws.transaction(session):
                session.execute(sqlalchemy.text("CREATE TABLE more (id)"), bind_arguments={"bind": engines[1]})
                session.add(B(id=1))
                session.flush()
                raise ValueError("no")
            with ws.transaction(session), ws.transaction(session):
                session.add_all((A(id=1), B(id=1)))
        with closing(sqlite3.connect(places[1])) as other:
            assert other.execute("SELECT count(*) FROM sqlite_master WHERE name = 'more'").fetchone() == (0,)
        assert rows() == [1, 1]
        (effect,) = ws.effects(before)
        assert "a.db and sqlite:" in effect.description
        assert effect.undo_state == ("covered" if is_inside else "")
        for engine in engines:
            engine.dispose()
        report = ws.rollback(before, effects=True)
        assert len(report.effects) == (0 if is_inside else 1) and report.is_partial != is_inside
    assert rows() == [0, 0 if is_inside else 1]


def test_a_password_of_a_database_is_not_in_the_journal(project: Path, home: Path) -> None:
    from reprieve.app.inner_effects import _name_of

    engine = type("Engine", (), {"url": sqlalchemy.make_url("postgresql://user:canary-pass@host/db")})
    assert _name_of(type("C", (), {"engine": engine})()) == "postgresql://user:***@host/db"


def test_a_connection_for_asyncio_is_refused_before_anything_is_done(project: Path, home: Path, tmp_path: Path) -> None:
    """Nothing of it would be awaited: a step that failed would keep its rows, and a commit would be none."""
    aiosqlite = pytest.importorskip("aiosqlite")

    async def main() -> None:
        async with aiosqlite.connect(tmp_path / "x.db") as connection:
            with reprieve.open(project) as ws:
                with pytest.raises(reprieve.Usage, match="for asyncio") as refused, ws.transaction(connection):
                    pytest.fail("the step ran")
                assert "not awaited" in refused.value.hints[0]
                assert ws.effects() == []

    asyncio.run(main())


class _Awaited:
    """Cursors as compiled drivers for asyncio have them: what has to be awaited shows only in what a call returns."""

    def cursor(self) -> _Awaited:
        return self

    def execute(self, sql: str) -> object:
        async def answer() -> None: ...

        return answer()

    def close(self) -> None: ...


def test_a_driver_whose_answers_have_to_be_awaited_is_refused(project: Path, home: Path) -> None:
    with reprieve.open(project) as ws:
        with pytest.raises(reprieve.Usage, match="for asyncio"), ws.transaction(_Awaited()):
            pytest.fail("the step ran")
        assert ws.effects() == []


class _Autocommit(sqlite3.Connection):
    """As psycopg's with autocommit, and sqlite3's from Python 3.12 on: commit and rollback do nothing."""

    autocommit = True

    def commit(self) -> None: ...

    def rollback(self) -> None: ...


@pytest.mark.parametrize("kind", ["connection", "session", "nested"])
def test_an_sqlalchemy_connection_in_autocommit_is_refused(
    project: Path, home: Path, tmp_path: Path, kind: str
) -> None:
    """A step that failed would keep its rows there, and nobody would be told."""
    engine = sqlalchemy.create_engine(
        f"sqlite:///{tmp_path / 'x.db'}", connect_args={"factory": _Autocommit, "isolation_level": None}
    )
    connection = sqlalchemy.orm.Session(engine) if kind == "session" else engine.connect()
    with reprieve.open(project) as ws, closing(connection):
        if kind == "nested":
            connection.begin()
        with pytest.raises(reprieve.Usage, match="commits each statement"), ws.transaction(connection):
            pytest.fail("the step ran")
        assert connection.in_transaction() == (kind == "nested")
        assert ws.effects() == []
    engine.dispose()


def test_sqlalchemy_in_autocommit_on_sqlite_has_a_transaction_all_the_same(
    project: Path, home: Path, tmp_path: Path
) -> None:
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path / 'x.db'}", isolation_level="AUTOCOMMIT")
    with reprieve.open(project) as ws, engine.connect() as connection:
        connection.execute(sqlalchemy.text("CREATE TABLE t (name TEXT)"))
        with pytest.raises(ValueError, match="no"), ws.transaction(connection):
            connection.execute(sqlalchemy.text("INSERT INTO t VALUES ('failed')"))
            raise ValueError("no")
        with ws.transaction(connection):
            connection.execute(sqlalchemy.text("INSERT INTO t VALUES ('kept')"))
        assert connection.execute(sqlalchemy.text("SELECT name FROM t")).scalars().all() == ["kept"]
    engine.dispose()


class _SilentAutocommit(_Silent):
    """Says neither whether a transaction is open, nor can it be noted on it."""

    __slots__ = ()
    autocommit = True

    def __setattr__(self, name: str, value: object) -> None:
        if name != "_inner":
            raise AttributeError(name)
        super().__setattr__(name, value)


def test_a_driver_in_autocommit_that_says_nothing_is_refused(project: Path, home: Path, tmp_path: Path) -> None:
    with reprieve.open(project) as ws, closing(sqlite3.connect(tmp_path / "x.db", isolation_level=None)) as inner:
        connection = _SilentAutocommit(inner)
        with pytest.raises(reprieve.Usage, match="does not tell"), ws.transaction(connection):
            pytest.fail("the step ran")
