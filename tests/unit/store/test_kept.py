"""A database that stays open between two uses notices whatever an opening would have noticed."""

from __future__ import annotations

import os
import shutil
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from reprieve.app.finding import open_workspace
from reprieve.errors import Misconfigured, StoreFailed
from reprieve.store.db import Database
from reprieve.store.kept import Kept


def open_files(home: Path) -> int:
    """How often this process has the database open."""
    found = (os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if _is_there(fd))
    return sum(place == str(home / "store.db") for place in found)


def _is_there(fd: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{fd}")


@pytest.fixture
def kept(project: Path) -> Iterator[Kept]:
    found = Kept()
    with open_workspace(str(project), create=True, kept=found) as ws:
        ws.checkpoint("first")
    yield found
    found.close()


def labels(project: Path, kept: Kept) -> list[str]:
    with open_workspace(str(project), kept=kept) as ws:
        return [entry.label for entry in ws.log()]


def test_it_is_open_once_however_often_it_is_used_and_not_after_close(project: Path, home: Path, kept: Kept) -> None:
    for n in range(5):
        with open_workspace(str(project), kept=kept) as ws:
            ws.checkpoint(f"c{n}")
            assert open_files(home) == 1
    assert open_files(home) == 1
    kept.close()
    assert open_files(home) == 0
    assert labels(project, kept)[0] == "c4"


def test_what_others_write_meanwhile_is_seen(project: Path, kept: Kept) -> None:
    with open_workspace(str(project)) as other:
        other.checkpoint("theirs")
    assert labels(project, kept) == ["theirs", "first"]


def test_connections_of_other_threads_do_not_stay(project: Path, home: Path, kept: Kept) -> None:
    with open_workspace(str(project), kept=kept) as ws:
        thread = threading.Thread(target=lambda: list(ws.log()))
        thread.start()
        thread.join()
        assert open_files(home) == 2
    assert open_files(home) == 1


def test_another_store_in_its_place_is_another_store(project: Path, home: Path, kept: Kept) -> None:
    home.rename(home.with_name("old"))
    with open_workspace(str(project), create=True) as ws:
        ws.checkpoint("new")
    assert labels(project, kept) == ["new"]
    assert open_files(home.with_name("old")) == 0


def test_a_store_that_became_open_to_others_is_refused(project: Path, home: Path, kept: Kept) -> None:
    home.chmod(0o755)
    with pytest.raises(Misconfigured, match="open to other users"):
        labels(project, kept)
    home.chmod(0o700)
    shutil.move(home / "packs", home / "elsewhere")
    (home / "packs").symlink_to(home / "elsewhere")
    with pytest.raises(Misconfigured, match="not the store's own directory"):
        labels(project, kept)


def test_a_newer_version_of_the_tables_is_refused(project: Path, home: Path, kept: Kept) -> None:
    with sqlite3.connect(home / "store.db") as other:
        other.execute("PRAGMA user_version = 99")
    other.close()
    with pytest.raises(StoreFailed, match="has version 99"):
        labels(project, kept)


def test_a_copy_put_back_in_place_and_written_to_the_same_count_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    sqlite3.connect(path).executescript("CREATE TABLE t (v); PRAGMA user_version = 1").close()
    backup = path.read_bytes()

    def put(value: str) -> None:
        other = sqlite3.connect(path)
        other.execute("INSERT INTO t VALUES (?)", (value,))
        other.commit()
        other.close()

    put("before")
    db = Database(str(path), migrations=[[]])
    assert db.query("SELECT v FROM t") == [("before",)]
    db.rest()
    path.write_bytes(backup)  # the same file, so nothing but its content says so
    put("after")
    assert db.query("SELECT v FROM t") == [("after",)]
    db.close()
