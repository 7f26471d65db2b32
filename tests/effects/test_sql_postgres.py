"""PostgreSQL: what was changed is put back by guarded statements, in one transaction, or not at all."""

from __future__ import annotations

import datetime as dt
import socket
import sys
import uuid
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import psycopg
import pytest

from reprieve.app import journals
from reprieve.app.effects import Side, journal_of, record_sql
from reprieve.app.workspace import Workspace
from reprieve.errors import Misconfigured, Refused, Usage
from reprieve.model.effect import EffectDraft
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
    db = server.make("shop")
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
        url = f"postgresql://postgres@127.0.0.1:{port}/{db.name}?sslmode=disable&gssencmode=disable"
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


@pytest.mark.parametrize("action", ["ON DELETE CASCADE", "ON DELETE SET NULL", "ON DELETE SET DEFAULT"])
def test_bad_case_8_a_later_child_is_kept_where_its_key_would_take_it_along(
    ws: Workspace, db: Database, action: str
) -> None:
    db.do(f"CREATE TABLE note (id int, customer int DEFAULT 1 REFERENCES customer {action})")
    db.do("INSERT INTO customer VALUES (2, 'bob', 'Rome')")
    record(ws, ("DELETE FROM customer WHERE id = %s AND name = %s", [2, "bob"], 1))
    db.do("INSERT INTO note VALUES (7, 2)")
    outcome = undo(ws)
    assert outcome.state == "conflict" and "note" in outcome.detail and "built on it" in outcome.detail
    assert db.rows("SELECT * FROM note") == [(7, 2)] and len(db.rows("SELECT * FROM customer")) == 2


def test_a_child_whose_key_would_be_changed_along_is_kept(ws: Workspace, db: Database) -> None:
    db.do("CREATE TABLE note (id int, customer int REFERENCES customer ON UPDATE CASCADE)")
    db.do("UPDATE customer SET id = 5")
    record(ws, ("UPDATE customer SET id = %s WHERE id = %s", [1, 5], 1))
    db.do("INSERT INTO note VALUES (7, 5)")
    assert undo(ws).state == "conflict"
    assert db.rows("SELECT * FROM note") == [(7, 5)]


def test_a_child_in_the_same_table_is_kept(ws: Workspace, db: Database) -> None:
    db.do("CREATE TABLE node (id int PRIMARY KEY, above int REFERENCES node ON DELETE CASCADE)")
    db.do("INSERT INTO node VALUES (1, NULL), (2, 1)")
    record(ws, ("DELETE FROM node WHERE id = %s", [2], 1))
    db.do("INSERT INTO node VALUES (3, 2)")
    assert undo(ws).state == "conflict"
    db.do("DELETE FROM node WHERE id = 3")
    assert undo(ws).state == "undone"
    assert db.rows("SELECT id FROM node") == [(1,)]


def test_children_that_the_effect_itself_made_go_by_statements_of_their_own(ws: Workspace, db: Database) -> None:
    """And what a trigger writes, even to a parent, is not taken for rows that went along."""
    db.do("CREATE TABLE note (id int, customer int REFERENCES customer ON DELETE CASCADE)")
    db.do(
        "CREATE FUNCTION noted() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN UPDATE customer SET city = 'noted' WHERE id = 1; RETURN OLD; END $$",
        "CREATE TRIGGER noted BEFORE DELETE ON note FOR EACH ROW EXECUTE FUNCTION noted()",
    )
    db.do("INSERT INTO customer VALUES (2, 'bob', 'Rome')", "INSERT INTO note VALUES (7, 2)")
    record(
        ws,
        ("DELETE FROM note WHERE id = %s AND customer = %s", [7, 2], 1),
        ("DELETE FROM customer WHERE id = %s AND name = %s", [2, "bob"], 1),
    )
    assert undo(ws).state == "undone"
    assert db.rows("SELECT * FROM customer") == [(1, "ada", "noted")]
    assert db.rows("SELECT * FROM note") == []


def test_rows_of_a_table_in_parts_are_the_statements_own(ws: Workspace, db: Database) -> None:
    db.do("CREATE TABLE node (id int PRIMARY KEY, above int REFERENCES node ON DELETE CASCADE) PARTITION BY RANGE (id)")
    db.do("CREATE TABLE low PARTITION OF node FOR VALUES FROM (0) TO (10)", "INSERT INTO node VALUES (1, NULL), (2, 1)")
    record(ws, ("DELETE FROM node WHERE id = %s", [2], 1))
    assert undo(ws).state == "undone"
    assert db.rows("SELECT id FROM node") == [(1,)]


@pytest.mark.parametrize("back", ["DROP TABLE IF EXISTS public.note", 'TRUNCATE TABLE "note", other RESTART IDENTITY'])
def test_a_table_in_which_somebody_wrote_since_is_kept(ws: Workspace, db: Database, back: str) -> None:
    db.do("CREATE TABLE note (id int, body text)", "CREATE TABLE other (id int)")
    record(ws, (back, [], -1))
    db.do("INSERT INTO note VALUES (1, 'a person wrote this')")
    outcome = undo(ws)
    assert outcome.state == "conflict" and "1 rows instead of 0" in outcome.detail
    assert db.rows("SELECT * FROM note") == [(1, "a person wrote this")]
    db.do("DELETE FROM note")
    assert undo(ws).state == "undone"


def test_the_rows_that_a_table_must_hold_may_be_said(ws: Workspace, db: Database) -> None:
    db.do("CREATE TABLE note (id int)", "INSERT INTO note VALUES (1), (2)")
    record(ws, ("DROP TABLE note", [], 2))
    assert undo(ws).state == "undone"
    assert db.rows("SELECT to_regclass('note')") == [(None,)]


def test_another_database_under_the_same_variable_is_not_written_to(
    ws: Workspace, server: Server, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = server.make("other")
    for each in (db, other):
        each.do("CREATE TABLE note (id int)", "INSERT INTO note VALUES (7)")
    record(ws, ("DELETE FROM note WHERE id = %s", [7], 1))
    monkeypatch.setenv("DATABASE_URL", other.url)
    outcome = undo(ws)
    assert outcome.state == "failed" and "nothing was sent" in outcome.detail
    assert other.name in outcome.detail and str(server.folder) in outcome.detail
    assert "would be: in env:DATABASE_URL" in outcome.detail  # not in the other one
    assert db.rows("SELECT * FROM note") == other.rows("SELECT * FROM note") == [(7,)]
    # another user or password is the same database; SQLAlchemy's way to write it, too
    monkeypatch.setenv("DATABASE_URL", db.url.replace("postgresql://", "postgresql+psycopg://") + "&password=x")
    with journal_of(ws) as journal:
        side = Side(ws, journal, journal.effects(is_open=True))
        assert f"in {db.name} on {server.folder}" in side.actions[0].reason  # said before, with no password in it
        assert "password" not in side.actions[0].reason
    assert undo(ws).state == "undone" and db.rows("SELECT * FROM note") == []


def test_a_database_that_is_not_known_is_not_recorded(ws: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DATABASE_URL", raising=False)
    with pytest.raises(Refused, match="not set"):
        record(ws, ("DELETE FROM note", [], 1))
    monkeypatch.setenv("DATABASE_URL", "mysql://app:canary-7f3a9c@db/shop")
    with pytest.raises(Misconfigured) as error:
        record(ws, ("DELETE FROM note", [], 1))
    assert "canary" not in str(error.value) and error.value.__suppress_context__


def test_what_a_trigger_keeps_is_not_called_undone(ws: Workspace, db: Database) -> None:
    db.do("UPDATE customer SET city = 'Paris' WHERE id = 1")
    record(ws, ("UPDATE customer SET city = %s WHERE id = %s AND city = %s", ["London", 1, "Paris"], 1))
    db.do(
        "CREATE FUNCTION frozen() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN NEW.city := OLD.city; RETURN NEW; END $$",
        "CREATE TRIGGER frozen BEFORE UPDATE ON customer FOR EACH ROW EXECUTE FUNCTION frozen()",
    )
    outcome = undo(ws)
    assert outcome.state == "conflict" and "trigger" in outcome.detail
    db.do("DROP TRIGGER frozen ON customer")
    assert undo(ws).state == "undone"
    assert db.rows("SELECT city FROM customer") == [("London",)]


@pytest.mark.parametrize("kind", ["text CHECK (length(password) > 40)", "int"], ids=["in the row", "in the first line"])
def test_E10_what_the_database_says_of_a_secret_is_not_kept(
    ws: Workspace, db: Database, home: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """PostgreSQL quotes the row that it refuses, and the value that it can't read."""
    db.do(f"CREATE TABLE account (id int, password {kind})")
    monkeypatch.setenv("OLD_PASSWORD", "canary-55aa11")
    record(ws, ("INSERT INTO account VALUES (%s, %s)", [1, {"credential": "env:OLD_PASSWORD"}], 1))
    outcome = undo(ws)
    assert outcome.state in ("conflict", "failed") and ("(23514)" in outcome.detail or "(22P02)" in outcome.detail)
    assert "canary" not in outcome.detail
    assert not any(b"canary-55aa11" in path.read_bytes() for path in home.rglob("*") if path.is_file())


def test_E10_a_database_out_of_reach_is_named_without_its_password(
    ws: Workspace, server: Server, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"postgresql://app:canary-7f3a9c@/gone?host={server.folder}"
    monkeypatch.setenv("DATABASE_URL", url)
    record(ws, ("DELETE FROM account WHERE id = %s", [1], 1))
    outcome = undo(ws)
    assert outcome.state == "failed" and "no connection to gone on" in outcome.detail
    monkeypatch.setenv("DATABASE_URL", url.replace("postgresql://", "what ever="))
    outcome = undo(ws)
    assert outcome.state == "failed" and "no address of a PostgreSQL database" in outcome.detail
    assert "canary" not in outcome.detail
    assert not any(b"canary-7f3a9c" in path.read_bytes() for path in home.rglob("*") if path.is_file())


def test_what_others_built_on_a_table_is_a_conflict(ws: Workspace, db: Database) -> None:
    db.do("CREATE TABLE note (id int)")
    record(ws, ("DROP TABLE note", [], -1))
    db.do("CREATE VIEW notes AS SELECT * FROM note")
    outcome = undo(ws)
    assert outcome.state == "conflict" and "built on it" in outcome.detail
    assert db.rows("SELECT * FROM notes") == []


def test_a_look_does_not_wait_for_ever_for_a_lock(ws: Workspace, db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reprieve.effects.sql_postgres._WAIT_S", 0.1)
    record(ws, ("UPDATE customer SET city = %s WHERE id = %s AND city = %s", ["Rome", 1, "London"], 1))
    with psycopg.connect(db.url) as person:
        person.execute("UPDATE customer SET name = 'x' WHERE id = 1")  # in a transaction that stays open
        outcome = undo(ws)
        assert outcome.state == "failed" and "lock timeout" in outcome.detail
        person.rollback()
    assert undo(ws).state == "undone"


def test_a_statement_that_takes_for_ever_is_ended(ws: Workspace, db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reprieve.effects.sql_postgres._LONGEST_S", 0.1)
    record(ws, ("DELETE FROM customer WHERE id = 1 AND pg_sleep(60) IS NOT NULL", [], 1))
    outcome = undo(ws)
    assert outcome.state == "failed" and "statement timeout" in outcome.detail
    assert len(db.rows("SELECT * FROM customer")) == 1


def test_a_server_that_does_not_answer_is_not_waited_for(ws: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        monkeypatch.setenv("DATABASE_URL", f"postgresql://app@127.0.0.1:{port}/shop?connect_timeout=2")
        record(ws, ("DELETE FROM customer WHERE id = 1", [], 1))
        with journal_of(ws) as journal:
            (action,) = Side(ws, journal, journal.effects(is_open=True)).actions
    assert action.verb == "leave" and f"no connection to shop on 127.0.0.1:{port}" in action.reason


def test_a_look_moves_no_sequence(ws: Workspace, db: Database) -> None:
    """Nor does it by a statement that an earlier version recorded."""
    db.do("CREATE SEQUENCE s", "SELECT setval('s', 10)")
    record(ws, ("ALTER SEQUENCE s RESTART WITH 5", [], -1))
    with journal_of(ws) as journal:
        (effect,) = journal.effects()
        old = {"sql": "UPDATE customer SET city = 'x' WHERE setval('s', 1) = 1", "values": [], "rows": 1}
        inverse = {**(effect.inverse or {}), "statements": [old]}
        journal.record(EffectDraft("sql", "restorable", "r", "d", inverse=inverse), journals.place(ws))
        side = Side(ws, journal, journal.effects(is_open=True))
        assert [action.verb for action in side.actions] == ["leave", "undo"]
        assert "setval() does stays" in side.actions[0].reason
        assert db.rows("SELECT last_value FROM s") == [(10,)]
        side.carry_out()
        assert [outcome.state for outcome in side.outcomes] == ["failed", "undone"]
    assert db.rows("SELECT last_value FROM s") == [(5,)]


@pytest.mark.parametrize(
    ("sql", "values"),
    [
        ("DELETE FROM customer WHERE name LIKE 'tmp-%'", []),
        ("DELETE FROM customer WHERE id % 2 = 0 AND name <> '%s'", []),
        ("DELETE FROM customer WHERE name LIKE 'tmp-%%' AND id = %s", [2]),
    ],
)
def test_a_percent_sign_is_one(ws: Workspace, db: Database, sql: str, values: list[object]) -> None:
    db.do("INSERT INTO customer VALUES (2, 'tmp-1', '')")
    record(ws, (sql, values, 1))
    assert undo(ws).state == "undone"
    assert db.rows("SELECT id FROM customer") == [(1,)]


def test_values_of_every_type_come_back_exactly(ws: Workspace, db: Database) -> None:
    row = [
        Decimal("1.10000000000000000001"),
        float("inf"),
        dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC),
        dt.date(2026, 1, 1),
        dt.time(12, 30),
        dt.timedelta(days=3),
        b"\x00\xff",
        uuid.UUID(int=7),
        [1, None, 3],
        1 << 70,
    ]
    types = "n numeric, f float8, at timestamptz, d date, t time, i interval, b bytea, u uuid, a int[], big numeric"
    db.do(f"CREATE TABLE every ({types})")
    record(ws, (f"INSERT INTO every VALUES ({', '.join(['%s'] * len(row))})", list(row), 1))
    assert undo(ws).state == "undone"
    assert list(db.rows("SELECT * FROM every")[0]) == row
    columns = ("n", "f", "at", "d", "t", "i", "b", "u", "big")
    guards = " AND ".join(f"{column} = %s" for column in columns)
    del row[8]  # an array has to be cast to be compared
    record(ws, (f"DELETE FROM every WHERE {guards}", list(row), 1))
    assert undo(ws).state == "undone"
    assert db.rows("SELECT * FROM every") == []


def test_a_driver_that_is_missing_is_named_when_it_is_recorded(
    ws: Workspace, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    back: Back = ("DELETE FROM customer WHERE id = 1", [], 1)
    record(ws, back)
    monkeypatch.setitem(sys.modules, "psycopg", None)  # an import of it fails
    with pytest.raises(Misconfigured) as error:
        record(ws, back)
    assert error.value.hints == ("pip install 'reprieve[postgres]'",)
    outcome = undo(ws)
    assert outcome.state == "failed" and "pip install 'reprieve[postgres]'" in outcome.detail


@pytest.mark.parametrize(
    ("column", "written"),
    [("note text", "'a person wrote this'"), ("note json DEFAULT '{}'", """'{"a": 1}'"""), ("note serial", "7")],
)
def test_a_column_in_which_somebody_wrote_since_is_kept(ws: Workspace, db: Database, column: str, written: str) -> None:
    db.do(f"ALTER TABLE customer ADD COLUMN {column}", "DELETE FROM customer")
    record(ws, ("ALTER TABLE IF EXISTS public.customer DROP COLUMN IF EXISTS note, ADD COLUMN other int", [], -1))
    db.do(f"INSERT INTO customer (id, note) VALUES (1, {written})")
    outcome = undo(ws)
    assert outcome.state == "conflict" and "1 rows instead of 0" in outcome.detail
    db.do("DELETE FROM customer", "INSERT INTO customer (id) VALUES (2)" if "serial" not in column else "SELECT 1")
    assert undo(ws).state == "undone"
    with pytest.raises(psycopg.errors.UndefinedColumn):
        db.rows("SELECT note FROM customer")


@pytest.mark.parametrize(
    "column",
    [
        "numeric(10,2) NOT NULL DEFAULT 0",
        "double precision DEFAULT 0.0",
        "timestamp(0) DEFAULT '2020-01-01 00:00:00.4'",
        "char(5) DEFAULT 'x'",
        "int[] DEFAULT '{1,2}'",
        "timestamptz DEFAULT now()",
        "date DEFAULT CURRENT_DATE",
        "text DEFAULT lower('A%')",
        "int GENERATED ALWAYS AS (id * 2) STORED",
    ],
)
def test_a_column_that_holds_its_default_alone_goes(ws: Workspace, db: Database, column: str) -> None:
    """A default is compared as the column holds it; now() is what it was when the column was made."""
    db.do(f"ALTER TABLE customer ADD COLUMN made {column}")
    record(ws, ("ALTER TABLE customer DROP COLUMN made", [], -1))
    assert undo(ws).state == "undone"


@pytest.mark.parametrize(
    ("column", "written"),
    [
        ("numeric(10,2) NOT NULL DEFAULT 0", "9.99"),
        ("timestamptz DEFAULT now()", "'2020-01-01'"),
        ("timestamptz DEFAULT now()", "NULL"),
    ],
)
def test_a_value_among_defaults_is_seen(ws: Workspace, db: Database, column: str, written: str) -> None:
    db.do("INSERT INTO customer VALUES (2), (3)", f"ALTER TABLE customer ADD COLUMN made {column}")
    record(ws, ("ALTER TABLE customer DROP COLUMN made", [], -1))
    db.do(f"UPDATE customer SET made = {written} WHERE id = 1")
    outcome = undo(ws)
    assert outcome.state == "conflict" and "1 rows instead of 0" in outcome.detail


def test_a_default_that_is_another_in_each_row_is_counted_as_values(ws: Workspace, db: Database) -> None:
    db.do("INSERT INTO customer VALUES (2), (3)", "ALTER TABLE customer ADD COLUMN made uuid DEFAULT gen_random_uuid()")
    record(ws, ("ALTER TABLE customer DROP COLUMN made", [], -1))
    outcome = undo(ws)
    assert outcome.state == "conflict" and "3 rows instead of 0" in outcome.detail


@pytest.mark.parametrize(
    ("before", "after", "back", "written"),
    [
        ("int", "numeric", "ALTER price TYPE int", "19.99"),
        ("date", "timestamp", "ALTER COLUMN price SET DATA TYPE date", "'2026-11-17 12:34:56'"),
        ("numeric(10,2)", "numeric(10,4)", "ADD x int, ALTER price TYPE numeric(10, 2), ADD y int", "0.1234"),
        ("varchar(3)", "text", 'ALTER "price" TYPE varchar(3) COLLATE "C"', "'abcd'"),
        ("int", "text", "ALTER price TYPE int USING price::int", "'007'"),
    ],
)
def test_a_value_that_the_old_type_does_not_hold_is_kept(
    ws: Workspace, db: Database, before: str, after: str, back: str, written: str
) -> None:
    db.do(f"CREATE TABLE p (id int, price {before})", f"ALTER TABLE p ALTER price TYPE {after}")
    db.do("INSERT INTO p VALUES (1, NULL)", f"INSERT INTO p VALUES (2, {written})")
    there = db.rows("SELECT price FROM p")
    record(ws, (f"ALTER TABLE p {back}", [], -1))
    outcome = undo(ws)
    assert outcome.state == "conflict" and "1 rows have a value that this would round or cut" in outcome.detail
    assert db.rows("SELECT price FROM p") == there
    db.do("DELETE FROM p WHERE id = 2")
    assert undo(ws).state == "undone"


def test_what_using_does_to_values_is_not_guessed(ws: Workspace, db: Database) -> None:
    for using in ("1", "price::int / 2", "left(price, 3)::int"):
        with pytest.raises(Usage, match="USING"):
            record(ws, (f"ALTER TABLE p ALTER price TYPE int USING {using}", [], -1))
    record(ws, ("ALTER TABLE p ALTER type SET DEFAULT 'a, b', ALTER COLUMN type DROP DEFAULT", [], -1))


@pytest.mark.parametrize("back", ["DROP TABLE hidden", "ALTER TABLE hidden DROP COLUMN who", "TRUNCATE hidden"])
def test_rows_that_a_policy_hides_do_not_go(
    ws: Workspace, server: Server, db: Database, monkeypatch: pytest.MonkeyPatch, back: str
) -> None:
    db.do("CREATE TABLE hidden (id int, who text)", "DROP ROLE IF EXISTS bob", "CREATE ROLE bob LOGIN")
    try:
        db.do("GRANT ALL ON SCHEMA public TO bob", "ALTER TABLE hidden OWNER TO bob")
        db.do("ALTER TABLE hidden ENABLE ROW LEVEL SECURITY", "ALTER TABLE hidden FORCE ROW LEVEL SECURITY")
        db.do("CREATE POLICY p ON hidden USING (who = 'bob')", "INSERT INTO hidden VALUES (1, 'ann'), (2, 'bob')")
        monkeypatch.setenv("DATABASE_URL", db.url.replace("postgres@", "bob@"))
        record(ws, ("DELETE FROM hidden WHERE id = %s", [2], 1), (back, [], -1))
        outcome = undo(ws)
        assert outcome.state == "failed" and "row-level security" in outcome.detail
        assert len(db.rows("SELECT * FROM hidden")) == 2
        with journal_of(ws) as journal:
            journal.keep(next(iter(journal.effects(is_open=True))).id)
        record(ws, ("DELETE FROM hidden WHERE id = %s", [2], 1))  # which its policy lets bob do
        assert undo(ws).state == "undone"
    finally:
        db.do("REASSIGN OWNED BY bob TO postgres", "DROP OWNED BY bob", "DROP ROLE bob")
