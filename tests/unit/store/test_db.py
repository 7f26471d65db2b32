"""Transactions, waiting, versions and errors of the database."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from reprieve.errors import StoreCorrupted, StoreFailed, StoreLocked
from reprieve.store.db import Database
from reprieve.store.local import LocalStore
from reprieve.store.schema import MIGRATIONS
from reprieve.testing.store_suite import Words, draft


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "store.db"
    path.touch(0o600)
    db = Database(str(path), is_new=True)
    db.migrate()
    db.close()
    return str(path)


def test_settings_that_durability_rests_on(file: str) -> None:
    db = Database(file)
    for pragma, value in (("journal_mode", "truncate"), ("synchronous", 3), ("secure_delete", 1), ("temp_store", 2)):
        assert db.query(f"PRAGMA {pragma}") == [(value,)]
    db.close()


def test_waiting_for_another_writer_is_said_and_ends(file: str) -> None:
    words = Words()
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    db = Database(file, reporter=words, wait_s=1.5)
    assert db.query("SELECT count(*) FROM packs") == [(0,)]  # readers do not wait for a writer
    with pytest.raises(StoreLocked), db.transaction():
        pass
    assert len(words.notes) == 1
    other.execute("ROLLBACK")
    with db.transaction():
        db.execute("INSERT INTO meta VALUES ('a', 'b')")
    db.close()
    other.close()


def test_changes_need_a_transaction(file: str) -> None:
    db = Database(file)
    with pytest.raises(AssertionError):
        db.execute("INSERT INTO meta VALUES ('a', 'b')")
    db.close()


def test_hooks_run_after_the_outermost_end(file: str) -> None:
    db = Database(file)
    seen: list[str] = []
    with db.transaction():
        with db.transaction():
            db.when_done(committed=lambda: seen.append("committed"), undone=lambda: seen.append("undone"))
        assert seen == []
    assert seen == ["committed"]
    with pytest.raises(KeyError), db.transaction():
        db.when_done(committed=lambda: seen.append("committed"), undone=lambda: seen.append("undone"))
        raise KeyError
    assert seen == ["committed", "undone"]
    db.close()


def test_a_newer_schema_is_refused_and_left_alone(file: str) -> None:
    """C28."""
    other = sqlite3.connect(file)
    other.execute("PRAGMA user_version = 99")
    other.execute("INSERT INTO meta VALUES ('needs', 'reprieve 9.1')")
    other.commit()
    other.close()
    before = Path(file).read_bytes()
    with pytest.raises(StoreFailed) as caught:
        Database(file).query("SELECT 1")
    assert "99" in caught.value.message
    assert "reprieve 9.1" in caught.value.hints[0]
    assert Path(file).read_bytes() == before


NEXT = (*MIGRATIONS, ("CREATE TABLE extra (a)", "INSERT INTO extra VALUES (1)"), ("CREATE TABLE more (a)",))


def test_an_older_schema_is_brought_up_to_date(file: str) -> None:
    db = Database(file, migrations=NEXT)
    assert db.query("SELECT a FROM extra") == [(1,)]
    assert db.query("PRAGMA user_version") == [(len(NEXT),)]
    db.close()
    again = Database(file, migrations=NEXT)
    assert again.query("SELECT a FROM extra") == [(1,)]
    again.close()


def test_a_migration_that_fails_leaves_the_old_version(file: str) -> None:
    """C07: each step is one transaction."""
    bad = (*NEXT[:2], ("CREATE TABLE half (a)", "THIS IS NO SQL"))
    with pytest.raises(StoreFailed):
        Database(file, migrations=bad).query("SELECT 1")
    plain = sqlite3.connect(file)
    assert plain.execute("PRAGMA user_version").fetchone() == (2,)
    assert plain.execute("SELECT count(*) FROM sqlite_master WHERE name = 'half'").fetchone() == (0,)
    plain.close()
    good = Database(file, migrations=NEXT)
    assert good.query("SELECT a FROM extra") == [(1,)]
    good.close()


@pytest.mark.parametrize(
    "content", [b"not a database at all" * 500, b"\0" * 8192, b"SQLite format 3\0" + b"\xff" * 9000]
)
def test_a_file_that_is_no_database_is_corrupted(store: LocalStore, path: str, content: bytes) -> None:
    store.close()
    Path(path, "store.db").write_bytes(content)
    with pytest.raises(StoreCorrupted):
        LocalStore.open(path).workspaces()


def test_text_that_is_not_text_is_corrupted(file: str) -> None:
    db = Database(file)
    with db.transaction():
        db.execute("INSERT INTO meta VALUES ('a', CAST(x'ff' AS TEXT))")
    with pytest.raises(StoreCorrupted):
        db.query("SELECT value FROM meta")
    db.close()


def test_a_failing_disk_is_named(file: str) -> None:
    """A database that may not grow behaves like a full disk."""
    db = Database(file)
    db.query(f"PRAGMA max_page_count = {db.query('PRAGMA page_count')[0][0]}")
    with pytest.raises(StoreFailed) as caught, db.transaction():
        for n in range(1000):
            db.execute("INSERT INTO meta VALUES (?, ?)", (str(n), "x" * 1000))
    assert "full" in caught.value.message
    assert str(caught.value.data["disk"]) in caught.value.message
    assert db.query("SELECT count(*) FROM meta") == [(0,)]
    db.close()


def test_a_swallowed_disk_error_does_not_commit_half(file: str) -> None:
    """SQLite rolls back by itself then; going on as if nothing had happened must not succeed."""
    db = Database(file)
    db.query(f"PRAGMA max_page_count = {db.query('PRAGMA page_count')[0][0]}")
    with pytest.raises(StoreFailed), db.transaction():
        db.execute("INSERT INTO meta VALUES ('kept', '')")
        try:
            db.execute("INSERT INTO meta VALUES ('big', ?)", ("x" * 100_000,))
        except StoreFailed:
            pass
        db.execute("INSERT INTO meta VALUES ('after', '')")
    assert db.query("SELECT key FROM meta") == []
    with db.transaction():
        db.execute("INSERT INTO meta VALUES ('again', '')")
    assert db.query("SELECT key FROM meta") == [("again",)]
    db.close()


def test_deleted_rows_are_not_readable_in_the_file(store: LocalStore, path: str) -> None:
    secret = "correct horse battery staple"
    timeline = store.timeline("w")
    timeline.set_intent(secret.encode() * 50)
    assert secret.encode() in Path(path, "store.db").read_bytes()
    timeline.set_intent(b"")
    timeline.append(draft())
    store.close()
    for name in os.listdir(path):
        if os.path.isfile(f"{path}/{name}"):
            assert secret.encode() not in Path(path, name).read_bytes()


def test_a_closed_store_says_so(store: LocalStore) -> None:
    store.close()
    with pytest.raises(StoreFailed):
        store.workspaces()
