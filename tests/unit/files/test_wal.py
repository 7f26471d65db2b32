"""A log applied to its database gives the bytes that SQLite itself leaves."""

from __future__ import annotations

import random
import shutil
import sqlite3
from pathlib import Path

import pytest

from reprieve.files.wal import applied


@pytest.mark.parametrize("page_size", [512, 4096, 65536])
@pytest.mark.parametrize("seed", range(4))
def test_it_is_what_sqlite_makes_of_it(tmp_path: Path, page_size: int, seed: int) -> None:
    """Over commits, rollbacks, restarts of the log, tables that grow and a file that shrinks."""
    chance = random.Random(seed)
    path, copy = tmp_path / "a.db", tmp_path / "b.db"
    db = sqlite3.connect(path, isolation_level=None)
    db.execute(f"pragma page_size={page_size}")
    db.execute("pragma journal_mode=wal")
    db.execute("pragma wal_autocheckpoint=0")
    db.execute("create table t (v)")
    for _ in range(12):
        db.execute("begin")
        db.executemany("insert into t values (?)", [(chance.randbytes(900),) for _ in range(chance.randrange(1, 40))])
        db.execute("delete from t where rowid % 7 = ?", (chance.randrange(7),))
        db.execute(chance.choice(["commit", "commit", "rollback"]))
        chance.choice([lambda: None, lambda: None, lambda: db.execute("pragma wal_checkpoint(restart)")])()
        if not chance.randrange(6):
            db.execute("vacuum")
        log = Path(f"{path}-wal").read_bytes()
        found = applied(path.read_bytes(), log)
        shutil.copy(path, copy)
        Path(f"{copy}-wal").write_bytes(log)
        other = sqlite3.connect(copy)
        other.execute("select count(*) from t").fetchone()
        other.close()  # the last one: the log is emptied into the file
        assert not Path(f"{copy}-wal").exists()
        assert found == copy.read_bytes()
    db.close()


@pytest.mark.parametrize("log", [b"", b"x" * 10, b"\x37\x7f\x06\x82" + bytes(60), b"not a log" * 10])
def test_what_is_no_log_changes_nothing(log: bytes) -> None:
    assert applied(b"a database", log) == b"a database"
