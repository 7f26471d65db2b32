"""Both stores of threads keep what the Protocol promises (P-25: in memory, P-26: in a file)."""

from __future__ import annotations

import os
import sqlite3
import stat
from pathlib import Path

import pytest

from reprieve.errors import Misconfigured, StoreCorrupted, StoreFailed
from reprieve.store.thread_db import SqliteThreads
from reprieve.store.thread_memory import MemoryThreads
from reprieve.store.thread_protocol import ThreadStore
from reprieve.testing.thread_suite import ThreadStoreSuite


class TestSqliteThreads(ThreadStoreSuite):
    def open(self, where: Path) -> ThreadStore:
        return SqliteThreads.open(str(where / "own" / "threads.db"))


class TestMemoryThreadsP25(ThreadStoreSuite):
    survives = False

    def open(self, where: Path) -> ThreadStore:
        return MemoryThreads()


def test_nobody_else_can_read_any_file_of_it(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store = SqliteThreads.open(str(tmp_path / "own" / "threads.db"))
        TestSqliteThreads().begin(store)
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "own").iterdir()}
    assert modes and set(modes.values()) == {0o600}, modes
    assert stat.S_IMODE((tmp_path / "own").stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_a_folder_that_others_can_write_to_is_refused(tmp_path: Path, mode: int) -> None:
    """They could put a journal there, from which SQLite would recover whatever it says."""
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(Misconfigured):
        SqliteThreads.open(str(folder / "threads.db"))
    assert list(folder.iterdir()) == []


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "own" / "threads.db"
    SqliteThreads.open(str(path)).close()
    path.chmod(0o644)
    with pytest.raises(Misconfigured):
        SqliteThreads.open(str(path))


def test_a_creation_that_was_cut_short_is_begun_again(tmp_path: Path) -> None:
    (tmp_path / "threads.db.new").write_bytes(b"half")
    (tmp_path / "threads.db.new-journal").write_bytes(b"half")
    store = SqliteThreads.open(str(tmp_path / "threads.db"))
    assert store.threads() == []
    assert not (tmp_path / "threads.db.new").exists()


def test_a_newer_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "threads.db"
    SqliteThreads.open(str(path)).close()
    with sqlite3.connect(path) as sql:
        sql.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreFailed, match="version 99"):
        SqliteThreads.open(str(path)).threads()


def test_a_file_that_is_no_database_is_named_as_damaged(tmp_path: Path) -> None:
    path = tmp_path / "threads.db"
    path.write_bytes(b"not a database" * 100)
    path.chmod(0o600)
    with pytest.raises(StoreCorrupted):
        SqliteThreads.open(str(path)).threads()


def test_a_forked_child_is_told_to_open_it_anew(tmp_path: Path) -> None:
    store = SqliteThreads.open(str(tmp_path / "threads.db"))
    store.threads()
    pid = os.fork()
    if pid == 0:
        try:
            store.transaction().__enter__()
        except StoreFailed:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
