"""PostgreSQL: what was changed is put back by guarded statements, in one transaction, or not at all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from reprieve.app.effects import Side, journal_of, record_sql
from reprieve.app.workspace import Workspace
from reprieve.model.plan import EffectOutcome
from support.postgres import Database, Server, losing_commits, serving

Back = tuple[str, list[object], int]


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


@pytest.fixture
def db(server: Server, monkeypatch: pytest.MonkeyPatch) -> Database:
    """A shop; DATABASE_URL leads to it."""
    db = server.make()
    monkeypatch.setenv("DATABASE_URL", db.url)
    db.do("CREATE TABLE customer (id int PRIMARY KEY, name text, city text)")
    db.do("INSERT INTO customer VALUES (1, 'ada', 'London')")
    return db


def record(ws: Workspace, *back: Back, is_idempotent: bool = False) -> None:
    record_sql(ws, "env:DATABASE_URL", back, module="psycopg", description="a change", is_idempotent=is_idempotent)


def undo(ws: Workspace) -> EffectOutcome:
    """What a rollback says of the newest effect."""
    with journal_of(ws) as journal:
        side = Side(ws, journal, journal.effects(is_open=True))
        side.carry_out()
        return side.outcomes[0]


def test_what_was_changed_is_put_back_once(ws: Workspace, db: Database) -> None:
    db.do("UPDATE customer SET city = 'Paris' WHERE id = 1")
    record(ws, ("UPDATE customer SET city = %s WHERE id = %s AND city = %s", ["London", 1, "Paris"], 1))
    assert undo(ws).state == "undone"
    assert db.rows("SELECT * FROM customer") == [(1, "ada", "London")]
    with journal_of(ws) as journal:
        assert not list(journal.effects(is_open=True))


def test_a_commit_whose_answer_is_lost_is_left_to_a_person_and_not_run_again(
    ws: Workspace, server: Server, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error of the connection that is gone by then must not hide that nobody knows."""
    db.do("CREATE TABLE account (id int, balance int)", "INSERT INTO account VALUES (1, 110)")
    with losing_commits(server) as port:
        name = db.url.partition("?")[0].rpartition("/")[2]
        url = f"postgresql://postgres@127.0.0.1:{port}/{name}?sslmode=disable&gssencmode=disable"
        monkeypatch.setenv("DATABASE_URL", url)
        record(ws, ("UPDATE account SET balance = balance - 10 WHERE id = 1", [], 1))
        for _ in range(2):
            outcome = undo(ws)
            assert outcome.state == "manual" and "not known" in outcome.detail
    assert db.rows("SELECT balance FROM account") == [(100,)]


def test_a_commit_that_the_database_refuses_is_known_to_have_failed(ws: Workspace, db: Database) -> None:
    db.do("CREATE TABLE sale (customer int REFERENCES customer DEFERRABLE INITIALLY DEFERRED)")
    db.do("INSERT INTO sale VALUES (1)")
    record(ws, ("DELETE FROM customer WHERE id = 1", [], 1))
    outcome = undo(ws)
    assert outcome.state == "conflict" and "built on it" in outcome.detail
    assert db.rows("SELECT * FROM sale") == [(1,)] and len(db.rows("SELECT * FROM customer")) == 1
