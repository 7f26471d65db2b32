"""Databases that are in use come back as databases (F25, F26)."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from support import Cli
from support.acts import assert_tree, checkpoint, paths, rollback, script, wait_until
from support.tree import fingerprint

# Moves money between two accounts, in transactions of many pages, until it is killed. The sum never changes.
WRITER = """
import sqlite3, sys
path, mode = sys.argv[1:3]
db = sqlite3.connect(path, isolation_level=None, timeout=60)
db.execute(f"pragma journal_mode={mode}")
db.execute("pragma synchronous=off")
db.execute("pragma cache_size=50")
db.execute("create table if not exists account (id integer primary key, amount integer, filler blob)")
db.execute("begin immediate")
for i in range(2000):
    db.execute("insert or ignore into account values (?, 100, randomblob(1500))", (i,))
db.execute("commit")
print("ready", flush=True)
n = 0
while True:
    n += 1
    db.execute("begin immediate")
    for k in range(40):
        a, b = (n * 7 + k * 13) % 2000, (n * 11 + k * 17 + 1) % 2000
        db.execute("update account set amount = amount - 1, filler = randomblob(1500) where id = ?", (a,))
        db.execute("update account set amount = amount + 1, filler = randomblob(1500) where id = ?", (b,))
    db.execute("commit")
"""


def total(path: Path) -> int:
    """The sum over all accounts, from a database that must be in order."""
    db = sqlite3.connect(path)
    try:
        assert db.execute("pragma integrity_check").fetchall() == [("ok",)]
        count, amount = db.execute("select count(*), sum(amount) from account").fetchone()
        assert count == 2000
        return int(amount)
    finally:
        db.close()


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["delete", "wal", "truncate"])
def test_F25_a_database_under_load_comes_back_in_order(cli: Cli, project: Path, mode: str) -> None:
    """Captured while another process writes, each checkpoint holds a database that passes integrity_check."""
    path = project / "live.db"
    taken = []
    with script(WRITER, path, mode):
        for _ in range(5):
            made = cli("checkpoint", "--json", check=False, timeout=60)
            assert made.code in (0, 1), made
            assert not {p for p in paths(made.json["checkpoint"]["gaps"]) if not p.startswith("live.db-")}
            taken.append(made.json["checkpoint"]["id"])
    for id in taken:
        answer = cli("rollback", id, check=False)
        assert answer.code in (0, 1), answer
        assert total(path) == 200_000


def test_F25_the_writer_is_not_disturbed(cli: Cli, project: Path) -> None:
    """A checkpoint takes no lock away from the program that has the database open, and makes it wait for nothing."""
    path = project / "mine.db"
    db = sqlite3.connect(path, isolation_level=None, timeout=0)
    db.execute("create table account (id integer primary key, amount integer, filler blob)")
    db.execute("begin")
    db.executemany("insert into account values (?, 100, zeroblob(1000))", [(i,) for i in range(2000)])
    db.execute("commit")
    db.execute("begin immediate")
    db.execute("update account set amount = 0")
    try:
        made = cli("checkpoint", "--json", check=False, timeout=60)
        assert made.code in (0, 1), made
        other = sqlite3.connect(path, isolation_level=None, timeout=0)
        with pytest.raises(sqlite3.OperationalError):
            other.execute("begin immediate")  # the lock is still held
        other.close()
        db.execute("commit")
    finally:
        db.close()
    if "mine.db" not in paths(made.json["checkpoint"]["gaps"]):
        cli("rollback", made.json["checkpoint"]["id"])
        assert total(path) == 200_000


def fill(path: Path, mode: str, value: str) -> None:
    """A small database with one row of that value, closed in good order."""
    db = sqlite3.connect(path)
    db.execute(f"pragma journal_mode={mode}")
    db.execute("create table if not exists t (v text)")
    db.execute("delete from t")
    db.execute("insert into t values (?)", (value,))
    db.commit()
    db.close()


def read(path: Path) -> str:
    """That value."""
    db = sqlite3.connect(path)
    try:
        assert db.execute("pragma integrity_check").fetchall() == [("ok",)]
        return str(db.execute("select v from t").fetchone()[0])
    finally:
        db.close()


# Leaves the sidecar file behind, as a program that is killed does.
KILLED = """
import sqlite3, sys
path, mode = sys.argv[1:3]
db = sqlite3.connect(path, isolation_level=None)
db.execute(f"pragma journal_mode={mode}")
db.execute("pragma wal_autocheckpoint=0")
db.execute("begin immediate")
db.execute("update t set v = 'the agent'")
db.execute("create table more (x)")
for i in range(300): db.execute("insert into more values (randomblob(900))")
if mode == "wal":
    db.execute("commit")
else:
    db.execute("pragma cache_spill=1")
    db.execute("pragma cache_size=5")
    for i in range(300): db.execute("insert into more values (randomblob(900))")
print("ready", flush=True)
import time
time.sleep(60)
"""


@pytest.mark.parametrize(("mode", "sidecar"), [("wal", "-wal"), ("delete", "-journal")])
def test_F26_a_later_sidecar_does_not_spoil_the_restored_database(
    cli: Cli, project: Path, mode: str, sidecar: str
) -> None:
    """The -wal or -journal that lies beside it after the wreck goes with the wreck."""
    path = project / "app.db"
    fill(path, mode, "the person")
    before = fingerprint(project)
    checkpoint(cli)
    with script(KILLED, path, mode):
        assert Path(f"{path}{sidecar}").stat().st_size > 0
    assert Path(f"{path}{sidecar}").exists()
    rollback(cli)
    assert not Path(f"{path}{sidecar}").exists()
    assert_tree(project, before)
    assert read(path) == "the person"


@pytest.mark.parametrize(("mode", "sidecar"), [("wal", "-wal"), ("delete", "-journal")])
def test_F26_a_database_captured_with_its_sidecar_comes_back_as_one(
    cli: Cli, project: Path, mode: str, sidecar: str
) -> None:
    """What was committed at the checkpoint is there after the rollback, also if it was still in the -wal."""
    path = project / "app.db"
    fill(path, mode, "the person")
    with script(KILLED, path, mode):
        pass
    assert Path(f"{path}{sidecar}").exists()
    cli("checkpoint", check=False)
    for name in (path, Path(f"{path}{sidecar}"), Path(f"{path}-shm")):
        name.unlink(missing_ok=True)
    fill(path, "delete", "somebody else")
    answer = cli("rollback", check=False)
    assert answer.code in (0, 1), answer
    assert read(path) == ("the agent" if mode == "wal" else "the person")


def test_F26_only_the_sidecars_of_a_restored_database_go(cli: Cli, project: Path) -> None:
    """A file that merely has such a name is a file like any other."""
    (project / "notes-wal").write_text("not a database\n")
    (project / "notes").write_text("text\n")
    before = fingerprint(project)
    checkpoint(cli)
    (project / "notes").write_text("wrecked\n")
    rollback(cli)
    assert_tree(project, before)
    (project / "notes-wal").unlink()
    rollback(cli)
    assert_tree(project, before)


def test_F25_a_file_that_only_begins_like_a_database(cli: Cli, project: Path) -> None:
    """The magic bytes at the beginning of something else are kept exactly as they are."""
    (project / "fake.db").write_bytes(b"SQLite format 3\x00" + os.urandom(5_000))
    (project / "short.db").write_bytes(b"SQLite format 3\x00")
    before = fingerprint(project)
    made = cli("checkpoint", "--json", check=False)
    assert made.code in (0, 1), made
    (project / "fake.db").unlink()
    (project / "short.db").write_bytes(b"")
    rollback(cli)
    assert_tree(project, before)


def test_F25_a_database_at_rest_is_kept_byte_by_byte(cli: Cli, project: Path) -> None:
    """Nobody has it open: no backup of it is made, its bytes are taken as they are."""
    path = project / "rest.db"
    fill(path, "delete", "at rest")
    before = fingerprint(project)
    checkpoint(cli)
    assert_tree(project, before)
    path.write_bytes(b"wrecked")
    rollback(cli)
    assert_tree(project, before)
    wait_until(lambda: read(path) == "at rest", what="the database")
