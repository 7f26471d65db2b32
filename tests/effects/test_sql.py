"""Databases: what was changed is put back by guarded statements, in one transaction, or not at all."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

import reprieve
from reprieve.app.effects import Side, journal_of, record_sql
from reprieve.app.workspace import Workspace
from reprieve.effects.journal import Journal, Place
from reprieve.effects.sql import sql_inverse
from reprieve.errors import Usage
from reprieve.model.effect import EffectDraft
from reprieve.model.plan import EffectOutcome
from support import Cli


@pytest.fixture
def db(tmp_path: Path) -> Path:
    """A shop, outside of the folder."""
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE customer (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT UNIQUE, city TEXT)")
        db.execute("CREATE TABLE sale (id INTEGER PRIMARY KEY, customer INTEGER REFERENCES customer)")
        db.execute("INSERT INTO customer (name, city) VALUES ('ada', 'London')")
    db.close()
    return path


def change(path: Path, *statements: str) -> None:
    db = sqlite3.connect(path)
    db.execute("PRAGMA foreign_keys = ON")
    with db:
        for statement in statements:
            db.execute(statement)
    db.close()


def rows(path: Path, table: str = "customer") -> list[tuple[object, ...]]:
    db = sqlite3.connect(path)
    found = db.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall()
    db.close()
    return found


def undo(ws: Workspace) -> EffectOutcome:
    with journal_of(ws) as journal:
        side = Side(ws, journal, journal.effects(is_open=True))
        side.carry_out()
        return side.outcomes[0]


def moved(ws: Workspace, db: Path) -> None:
    """The agent's update of one column, with its inverse."""
    change(db, "UPDATE customer SET city = 'Paris' WHERE id = 1")
    back = ("UPDATE customer SET city = ? WHERE id = ? AND city = ?", ["London", 1, "Paris"], 1)
    record_sql(ws, str(db), [back], description="moved ada")


def test_what_was_changed_is_put_back_once(ws: Workspace, db: Path) -> None:
    before = rows(db)
    moved(ws, db)
    assert undo(ws).state == "undone"
    assert rows(db) == before
    change(db, "UPDATE customer SET city = 'Paris' WHERE id = 1")
    with journal_of(ws) as journal:
        assert not list(journal.effects(is_open=True))  # a second rollback has nothing to do


@pytest.mark.parametrize(
    ("sql", "values"),
    [
        ("UPDATE customer SET password = ? WHERE id = 1", ["canary-7f3a9c"]),
        ("UPDATE customer SET password = 'canary-7f3a9c' WHERE id = 1", []),
    ],
    ids=["value", "literal"],
)
def test_E10_a_secret_among_the_values_is_refused_and_not_kept(
    sql: str, values: list[object], ws: Workspace, db: Path, home: Path
) -> None:
    with pytest.raises(reprieve.Refused, match="'password'") as refused:
        record_sql(ws, str(db), [(sql, values, 1)], description="changed a password")
    assert "canary" not in str(refused.value) and "'credential': 'env:VARIABLE'" in refused.value.hints[0]
    assert not any(b"canary-7f3a9c" in path.read_bytes() for path in home.rglob("*") if path.is_file())


def test_E10_a_secret_that_the_undo_needs_is_read_where_it_is(
    ws: Workspace, db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(db, "ALTER TABLE customer ADD COLUMN password TEXT", "UPDATE customer SET password = 'agents'")
    back = ("UPDATE customer SET password = ? WHERE id = ?", [{"credential": "env:OLD_PASSWORD"}, 1], 1)
    record_sql(ws, str(db), [back], description="changed a password")
    outcome = undo(ws)
    assert outcome.state == "failed" and "'env:OLD_PASSWORD' is not set" in outcome.detail
    monkeypatch.setenv("OLD_PASSWORD", "the old one")
    assert undo(ws).state == "undone"
    assert rows(db) == [(1, "ada", "London", "the old one")]
    with pytest.raises(Usage, match="names a credential"):
        record_sql(ws, str(db), [(back[0], [{"credential": "x"}, 1], 1)], description="d")


def test_a_statement_that_begins_with_WITH_is_counted(ws: Workspace, db: Path) -> None:
    """By itself, without what a trigger did; the module of Python does not count it."""
    change(db, "CREATE TABLE log (x)", "INSERT INTO customer VALUES (2, 'bob', 'Rome'), (3, 'eve', 'Rome')")
    change(db, "CREATE TRIGGER t AFTER DELETE ON customer BEGIN INSERT INTO log VALUES (1), (2); END")
    back = "WITH made (id) AS (VALUES (?), (?)) DELETE FROM customer WHERE id IN (SELECT id FROM made)"
    record_sql(ws, str(db), [("UPDATE customer SET city = 'Bonn'", [], 3), (back, [2, 9], 2)], description="d")
    outcome = undo(ws)
    assert outcome.state == "conflict" and "1 rows instead of 2" in outcome.detail
    change(db, "INSERT INTO customer VALUES (9, 'joe', 'Rome')")
    change(db, "DELETE FROM customer WHERE id = 3")
    assert undo(ws).state == "undone"
    assert rows(db) == [(1, "ada", "Bonn")]


def test_E07_bad_case_6_a_later_writer_of_the_same_column_is_a_conflict(ws: Workspace, db: Path) -> None:
    moved(ws, db)
    change(db, "UPDATE customer SET city = 'Oslo' WHERE id = 1")
    outcome = undo(ws)
    assert outcome.state == "conflict" and "0 rows instead of 1" in outcome.detail
    assert rows(db) == [(1, "ada", "Oslo")]


def test_bad_case_7_a_later_writer_of_another_column_is_kept(ws: Workspace, db: Path) -> None:
    moved(ws, db)
    change(db, "UPDATE customer SET name = 'Ada L.' WHERE id = 1")
    assert undo(ws).state == "undone"
    assert rows(db) == [(1, "Ada L.", "London")]


def test_bad_case_8_a_later_child_of_a_row_that_must_go_is_kept(ws: Workspace, db: Path) -> None:
    change(db, "INSERT INTO customer (name, city) VALUES ('bob', 'Rome')")
    back = ("DELETE FROM customer WHERE id = ? AND name = ?", [2, "bob"], 1)
    record_sql(ws, str(db), [back], description="added bob")
    change(db, "INSERT INTO sale VALUES (7, 2)")
    outcome = undo(ws)
    assert outcome.state == "conflict" and "built on it" in outcome.detail
    assert rows(db, "sale") == [(7, 2)] and len(rows(db)) == 2


@pytest.mark.parametrize("action", ["ON DELETE CASCADE", "ON DELETE SET NULL", "ON DELETE SET DEFAULT"])
def test_bad_case_8_a_later_child_is_kept_too_where_its_key_would_take_it_along(
    ws: Workspace, db: Path, action: str
) -> None:
    change(db, f"CREATE TABLE note (id INTEGER, customer INTEGER DEFAULT 1 REFERENCES customer {action})")
    change(db, "INSERT INTO customer (name, city) VALUES ('bob', 'Rome')")
    back = ("DELETE FROM customer WHERE id = ? AND name = ?", [2, "bob"], 1)
    record_sql(ws, str(db), [back], description="added bob")
    change(db, "INSERT INTO note VALUES (7, 2)")
    outcome = undo(ws)
    assert outcome.state == "conflict" and "note" in outcome.detail and "built on it" in outcome.detail
    assert rows(db, "note") == [(7, 2)] and len(rows(db)) == 2


def test_children_that_the_effect_itself_made_go_by_statements_of_their_own(ws: Workspace, db: Path) -> None:
    """And what a trigger writes somewhere is not taken for rows that went along."""
    change(db, "CREATE TABLE note (id INTEGER, customer INTEGER REFERENCES customer ON DELETE CASCADE)")
    change(db, "CREATE TABLE audit (id INTEGER)")
    change(db, "CREATE TRIGGER t AFTER DELETE ON customer BEGIN INSERT INTO audit VALUES (OLD.id); END")
    change(db, "INSERT INTO customer VALUES (2, 'bob', 'Rome')", "INSERT INTO note VALUES (7, 2)")
    back: list[tuple[str, list[object], int]] = [
        ("DELETE FROM note WHERE id = 7 AND customer = 2", [], 1),
        ("DELETE FROM customer WHERE id = ? AND name = ?", [2, "bob"], 1),
    ]
    record_sql(ws, str(db), back, description="added bob")
    assert undo(ws).state == "undone"
    assert rows(db, "note") == [] and rows(db, "audit") == [(2,)] and len(rows(db)) == 1


def test_bad_case_9_a_key_that_was_taken_since_is_a_conflict(ws: Workspace, db: Path) -> None:
    change(db, "DELETE FROM customer WHERE id = 1")
    back = ("INSERT INTO customer VALUES (?, ?, ?)", [1, "ada", "London"], 1)
    record_sql(ws, str(db), [back], description="deleted ada")
    change(db, "INSERT INTO customer VALUES (1, 'mallory', 'X')")
    assert undo(ws).state == "conflict"
    assert rows(db) == [(1, "mallory", "X")]


@pytest.mark.parametrize(
    ("trigger", "back"),
    [
        (
            "AFTER UPDATE ON customer WHEN NEW.city <> 'Paris' BEGIN UPDATE customer SET city = OLD.city; END",
            ("UPDATE customer SET city = ? WHERE id = ? AND city = ?", ["London", 1, "Paris"], 1),
        ),
        (
            "AFTER DELETE ON customer BEGIN INSERT INTO customer VALUES (OLD.id, OLD.name, OLD.city); END",
            ("DELETE FROM customer WHERE id = 1", [], 1),
        ),
    ],
    ids=["update", "delete"],
)
def test_what_a_trigger_keeps_is_not_called_undone(
    ws: Workspace, db: Path, trigger: str, back: tuple[str, list[object], int]
) -> None:
    change(db, "UPDATE customer SET city = 'Paris' WHERE id = 1")
    record_sql(ws, str(db), [back], description="moved ada")
    change(db, f"CREATE TRIGGER frozen {trigger}")
    outcome = undo(ws)
    assert outcome.state == "conflict" and "trigger" in outcome.detail
    assert rows(db) == [(1, "ada", "Paris")]


def test_several_statements_are_all_or_nothing(ws: Workspace, db: Path) -> None:
    change(db, "UPDATE customer SET city = 'Paris'", "INSERT INTO customer (name, city) VALUES ('bob', 'Rome')")
    record_sql(
        ws,
        str(db),
        [
            ("DELETE FROM customer WHERE name = ?", ["bob"], 1),
            ("UPDATE customer SET city = ? WHERE id = ? AND city = ?", ["London", 1, "Paris"], 1),
        ],
        description="two things",
    )
    change(db, "UPDATE customer SET city = 'Oslo' WHERE id = 1")
    before = rows(db)
    assert undo(ws).state == "conflict"
    assert rows(db) == before


def test_E08_bad_case_57_a_schema_change_is_declared_not_exact_and_sequences_stay(ws: Workspace, db: Path) -> None:
    change(db, "CREATE TABLE junk (x)", "INSERT INTO customer (name, city) VALUES ('bob', 'Rome')")
    back = [
        ("DELETE FROM customer WHERE name = ?", ["bob"], 1),
        ("DROP TABLE junk", [], -1),
    ]
    record_sql(ws, str(db), back, description="made a table")
    with journal_of(ws) as journal:
        side = Side(ws, journal, journal.effects(is_open=True))
        assert "not exact: sequences" in side.actions[0].reason
        side.carry_out()
        assert side.outcomes[0].state == "undone"
    # later inserts may have used the sequence: it is left alone
    change(db, "INSERT INTO customer (name, city) VALUES ('cy', 'Bonn')")
    assert rows(db)[-1][0] == 3


@pytest.mark.parametrize(
    "back",
    [
        [("DROP TABLE sale", [], 1)],
        [("ALTER TABLE sale RENAME TO sold", [], -1), ("CREATE TABLE other (x)", [], -1)],
        [("PRAGMA user_version = 7", [], -1)],
    ],
)
def test_a_look_leaves_the_database_as_it_is_also_where_a_schema_change_comes_first(
    ws: Workspace, db: Path, back: list[tuple[str, list[object], int]]
) -> None:
    """The preview tries the statements; every byte is as before, and the undo itself finds what it needs."""
    change(db, "INSERT INTO sale VALUES (7, 1)")
    record_sql(ws, str(db), back, description="made a table")
    before = db.read_bytes()
    with journal_of(ws) as journal:
        side = Side(ws, journal, journal.effects(is_open=True))
        assert [action.verb for action in side.actions] == ["undo"]
        assert db.read_bytes() == before
        side.carry_out()
        assert side.outcomes[0].state == "undone"
    assert db.read_bytes() != before


def test_a_dry_run_drops_no_table(project: Path, db: Path, cli: Cli) -> None:
    with reprieve.open(project) as ws:
        ws.checkpoint("base")
        ws.record_sql(str(db), [("DROP TABLE customer", (), 1)], description="made a table")
    before = db.read_bytes()
    assert "Nothing was touched" in cli("rollback", "base", "--dry-run").out
    assert db.read_bytes() == before
    cli("rollback", "base", "--yes")
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        rows(db)


def test_a_table_in_which_somebody_wrote_since_is_kept(ws: Workspace, db: Path) -> None:
    change(db, "CREATE TABLE [a note] (x)")
    record_sql(ws, str(db), [("DROP TABLE IF EXISTS [a note]", [], -1)], description="made a table")
    change(db, "INSERT INTO [a note] VALUES ('a person wrote this')")
    outcome = undo(ws)
    assert outcome.state == "conflict" and "1 rows instead of 0" in outcome.detail
    assert rows(db, "[a note]") == [("a person wrote this",)]
    change(db, "DELETE FROM [a note]")
    assert undo(ws).state == "undone"


def test_a_column_in_which_somebody_wrote_since_is_kept(ws: Workspace, db: Path) -> None:
    change(db, "ALTER TABLE customer ADD COLUMN [The Note] TEXT DEFAULT 'none'")
    back = ("ALTER TABLE customer DROP COLUMN [the note]", [], -1)
    record_sql(ws, str(db), [back], description="added a column")
    change(db, "UPDATE customer SET [the note] = 'a person wrote this'")
    outcome = undo(ws)
    assert outcome.state == "conflict" and "1 rows instead of 0" in outcome.detail
    assert rows(db)[0][-1] == "a person wrote this"
    change(db, "UPDATE customer SET [the note] = 'none'")
    assert undo(ws).state == "undone"
    assert rows(db) == [(1, "ada", "London")]


def test_a_column_that_is_computed_goes(ws: Workspace, db: Path) -> None:
    change(db, "ALTER TABLE customer ADD COLUMN twice INTEGER GENERATED ALWAYS AS (id * 2)")
    record_sql(ws, str(db), [("ALTER TABLE customer DROP COLUMN twice", [], -1)], description="added a column")
    assert undo(ws).state == "undone"


def test_the_rows_that_a_table_must_hold_may_be_said_and_children_are_kept(ws: Workspace, db: Path) -> None:
    change(db, "CREATE TABLE made (id INTEGER PRIMARY KEY)", "INSERT INTO made VALUES (1), (2)")
    change(db, "CREATE TABLE note (made INTEGER REFERENCES made ON DELETE CASCADE)")
    record_sql(ws, str(db), [("DROP TABLE made", [], 2)], description="made a table")
    change(db, "INSERT INTO note VALUES (1)")
    assert undo(ws).state == "conflict" and rows(db, "note") == [(1,)]
    change(db, "DELETE FROM note")
    assert undo(ws).state == "undone"


def test_a_foreign_key_is_looked_at_where_a_schema_change_comes_first(ws: Workspace, db: Path) -> None:
    change(db, "CREATE TABLE junk (x)", "INSERT INTO sale VALUES (7, 1)")
    back = [("DROP TABLE junk", [], -1), ("DELETE FROM customer WHERE id = ?", [1], 1)]
    record_sql(ws, str(db), back, description="made a table")  # type: ignore[arg-type]
    assert undo(ws).state == "conflict"
    assert rows(db, "junk") == [] and len(rows(db)) == 1


@pytest.mark.parametrize(
    "ends", ["COMMIT", "END", "VACUUM", "ATTACH 'x' AS x", "/* */ COMMIT", "PRAGMA journal_mode = WAL"]
)
def test_a_statement_that_no_rollback_takes_back_is_neither_recorded_nor_tried(
    ws: Workspace, db: Path, ends: str
) -> None:
    """Nor is one that an earlier version recorded: what stands before a COMMIT would be kept by a mere look."""
    back = ("DELETE FROM customer WHERE id = ?", [1], 1)
    with pytest.raises(Usage, match="ROLLBACK"):
        record_sql(ws, str(db), [back, (ends, [], -1)], description="d")
    inverse = sql_inverse(str(db), [back])
    assert isinstance(inverse["statements"], list)
    inverse["statements"].append({"sql": ends, "values": [], "rows": -1})
    before = db.read_bytes()
    with journal_of(ws) as journal:
        journal.record(EffectDraft("sql", "restorable", "r", "d", inverse=inverse), Place(at=1))
        side = Side(ws, journal, journal.effects(is_open=True))
        assert side.actions[0].verb == "leave" and ends in side.actions[0].reason
        side.carry_out()
        assert side.outcomes[0].state == "failed"
    assert db.read_bytes() == before


@pytest.mark.parametrize(
    "sql",
    ["SELECT setval('s', 1)", "DO $$ BEGIN END $$", "CALL p()", "UPDATE t SET a = 1; COMMIT", "DELETE FROM t;COMMIT;",
     "UPDATE t SET a = setval('s', 1)", 'INSERT INTO t VALUES (pg_catalog."nextval" (\'s\'))',
     "DELETE FROM t WHERE dblink_exec('x', 'y') = ''", "UPDATE t SET a = setval/**/('s', 1)",
     "UPDATE t SET a = setval -- x\n ('s', 1)", "UPDATE t SET a = /* ' */ setval('s', 1)",
     "UPDATE t SET a = setval/* /* */ x */('s', 1)", "UPDATE t SET b = $$--$$, a = setval/**/('s', 1)",
     "UPDATE t SET b = E'\\'', a = SETVAL('s', 1)", """UPDATE t SET "it's" = setval('s', 1)"""],
)  # fmt: skip
def test_in_postgresql_too_only_what_a_rollback_takes_back_is_recorded(sql: str) -> None:
    with pytest.raises(Usage):
        sql_inverse("env:DATABASE_URL", [(sql, [], -1)], module="psycopg")
    for fine in (
        "DROP TABLE t;",
        "DELETE FROM t WHERE a = 'setval(1)'",
        "DELETE FROM t WHERE a = 1 /* by setval(1) */",
        "ALTER TABLE t ALTER a SET DEFAULT nextval('s')",
    ):
        assert sql_inverse("env:DATABASE_URL", [(fine, [], -1)], module="psycopg")


@pytest.mark.parametrize(
    "sql",
    [
        "DROP TABLE a CASCADE",
        "drop schema s  cascade ;",
        "DROP OWNED BY me",
        "TRUNCATE /* */ t",
        "DROP TABLE U&'x'",
        "ALTER TABLE t DROP a CASCADE",
        "ALTER TABLE t ADD x int, DROP CONSTRAINT k CASCADE",
        "ALTER TABLE t /* */ DROP COLUMN a",
        "ALTER /* */ TABLE t DROP COLUMN a",
        "ALTER -- \n TABLE t DROP COLUMN a",
        "ALTER TABLE t /* */ ALTER a TYPE int",
        "ALTER TABLE t ALTER a SET DEFAULT E'\\'', ALTER b TYPE int, ALTER c SET DEFAULT 'x'",
    ],
)
def test_what_takes_along_what_nobody_can_list_is_refused(sql: str) -> None:
    with pytest.raises(Usage):
        sql_inverse("env:DATABASE_URL", [(sql, [], -1)], module="psycopg")


def test_a_database_that_is_gone_or_locked_is_said_and_nothing_is_lost(ws: Workspace, db: Path) -> None:
    moved(ws, db)
    away = db.with_name("away.db")
    db.rename(away)
    assert undo(ws).state == "failed"
    away.rename(db)
    assert undo(ws).state == "undone"


def test_another_file_under_the_same_variable_is_not_written_to(
    ws: Workspace, db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = db.with_name("copy.db")
    copy.write_bytes(db.read_bytes())
    monkeypatch.setenv("SHOP", str(db))
    record_sql(ws, "env:SHOP", [("DELETE FROM customer WHERE id = ?", [1], 1)], description="added ada")
    monkeypatch.setenv("SHOP", str(copy))
    outcome = undo(ws)
    assert outcome.state == "failed" and str(copy) in outcome.detail and len(rows(copy)) == 1
    monkeypatch.setenv("SHOP", str(db))
    assert undo(ws).state == "undone" and not rows(db)


@pytest.mark.parametrize("by", ["path", "variable", "link"])
def test_a_database_in_the_tree_comes_back_with_its_file_and_by_nothing_else(
    by: str, project: Path, db: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Statements would change the file under the plan that puts it back, and it would stay as it is."""
    inside = project / "app.db"
    db.rename(inside)
    link = db.with_name("link.db")
    link.symlink_to(inside)
    monkeypatch.setenv("APP_DB", str(inside))
    before = inside.read_bytes()
    with reprieve.open(project) as ws:
        ws.checkpoint("base")
        change(inside, "UPDATE customer SET city = 'Paris'", "INSERT INTO customer VALUES (2, 'bob', 'Rome')")
        back = ("UPDATE customer SET city = ? WHERE id = ? AND city = ?", ["London", 1, "Paris"], 1)
        where = {"path": str(inside), "variable": "env:APP_DB", "link": str(link)}[by]
        effect = ws.record_sql(where, [back], description="moved ada")
        assert (effect.state, effect.undo_state, effect.inverse) == ("done", "covered", None)
    assert "restore   app.db" in cli("rollback", "base", "--yes").out
    assert inside.read_bytes() == before


@pytest.mark.parametrize("what", ["folder", "file", "a second file"])
def test_a_tracked_database_comes_back_with_its_file_and_by_nothing_else(
    what: str, project: Path, db: Path, cli: Cli
) -> None:
    """As one in the tree does. A rollback to before it was tracked says that it does not come back."""
    outside = db.parent / "outside"
    outside.mkdir()
    (outside / "other").write_text("other")
    db = db.rename(outside / "app.db")
    if what == "a second file":
        cli("track", str(outside / "other"))
    cli("checkpoint", "early")
    cli("track", str(outside if what == "folder" else db))
    back = ("UPDATE customer SET city = ? WHERE id = ? AND city = ?", ["London", 1, "Paris"], 1)
    with reprieve.open(project) as ws:
        assert ws.record_sql(str(db), [back], description="no checkpoint holds it").inverse
        ws.checkpoint("base")
        before = db.read_bytes()
        change(db, "UPDATE customer SET city = 'Paris'", "INSERT INTO customer VALUES (2, 'bob', 'Rome')")
        effect = ws.record_sql(str(db), [back], description="moved ada")
        assert (effect.state, effect.undo_state, effect.inverse) == ("done", "covered", None)
    named = cli("rollback", "early", "--dry-run").out
    assert f"not undone {outside if what == 'folder' else db}" in named
    assert cli("rollback", "base", "--yes").code == 0
    assert db.read_bytes() == before


def test_an_undo_that_was_interrupted_is_left_to_a_person_who_is_told_what_to_look_for(ws: Workspace, db: Path) -> None:
    """Nothing in the database tells whether it was committed before the process died; running it again may be twice."""
    moved(ws, db)
    with journal_of(ws) as journal:
        (effect,) = journal.effects()
        gone = Journal(journal.log, ws.id, clock=lambda: 1, process=(1 << 30, 1), is_alive=lambda *_: False)
        gone.start_undo(effect.id)
    before = rows(db)
    for _ in range(2):
        outcome = undo(ws)
        assert outcome.state == "manual"
        assert "may have been done" in outcome.detail and "UPDATE customer SET city" in outcome.detail
        assert outcome.detail.count("a person has to look") <= 1
    assert rows(db) == before


def test_a_commit_that_a_reader_keeps_out_is_known_to_have_failed_and_is_tried_again(
    ws: Workspace, db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reprieve.effects.sql_sqlite.WAIT_S", 0)
    before = rows(db)
    moved(ws, db)
    reader = sqlite3.connect(db)
    reading = reader.execute("SELECT 1 FROM customer UNION ALL SELECT 2")
    reading.fetchone()
    outcome = undo(ws)
    assert outcome.state == "failed" and "locked" in outcome.detail
    reading.close()
    reader.close()
    assert undo(ws).state == "undone" and rows(db) == before


@pytest.mark.parametrize(
    "record",
    [
        lambda ws, db: record_sql(ws, str(db), [], description="d"),
        lambda ws, db: record_sql(ws, str(db), [("x", [], 1)], description="d", module="os"),
        lambda ws, db: record_sql(ws, "postgres://u:secret@h/d", [("x", [], 1)], description="d", module="psycopg"),
    ],
)
def test_what_makes_no_sense_is_refused(ws: Workspace, db: Path, record: Callable[[Workspace, Path], object]) -> None:
    with pytest.raises(Usage):
        record(ws, db)
