"""A store that is opened before it is known what for: used if it is still the same, and in nobody's way until then."""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from pathlib import Path

import pytest

from reprieve.errors import StoreFailed, StoreLocked
from reprieve.model.timeline import WorkspaceRecord
from reprieve.store import local
from reprieve.store.local import LocalStore, open_early
from reprieve.testing.store_suite import draft


@pytest.fixture
def known(store: LocalStore, path: str) -> str:
    """The path of a store with a workspace that has a history."""
    store.save_workspace(WorkspaceRecord("w", b"/tree", 1, 2, 3, 4))
    store.timeline("w").append(draft("first"))
    return path


def early() -> object:
    assert local._early is not None
    return local._early[1]


def exchange(path: str) -> None:
    """Another file under the name of the database, with the same content."""
    shutil.copy(f"{path}/store.db", f"{path}/tmp/copy")
    os.rename(f"{path}/tmp/copy", f"{path}/store.db")


def test_it_is_what_the_next_opening_uses_and_no_other(known: str) -> None:
    open_early(known, b"/tree")
    db = early()
    with_early, without = LocalStore.open(known), LocalStore.open(known)
    assert with_early._db is db and without._db is not db
    with_early.close()
    without.close()


def test_it_sees_what_others_wrote_meanwhile_and_holds_none_of_them_off(known: str, store: LocalStore) -> None:
    open_early(known, b"/tree")
    store.timeline("w").append(draft("second"))
    opened = LocalStore.open(known)
    head = opened.timeline("w").head()
    assert head is not None and head.label == "second"
    assert opened.timeline("w").append(draft("third")).seq == 3
    opened.close()


def test_another_file_under_its_name_is_opened_anew(known: str) -> None:
    open_early(known, b"/tree")
    db = early()
    exchange(known)
    opened = LocalStore.open(known)
    assert opened._db is not db
    opened.timeline("w").append(draft("second"))
    opened.close()
    with sqlite3.connect(f"{known}/store.db") as plain:
        assert plain.execute("SELECT count(*) FROM entries").fetchone() == (2,)
    plain.close()


def test_another_store_is_opened_as_if_there_were_none(known: str, tmp_path: Path) -> None:
    open_early(known, b"/tree")
    other = LocalStore.open(str(tmp_path / "other"))
    assert other.workspaces() == []
    other.close()
    assert local._early is None


def test_it_waits_for_nobody(known: str) -> None:
    writer = sqlite3.connect(f"{known}/store.db", isolation_level=None)
    writer.execute("BEGIN EXCLUSIVE")
    started = time.monotonic()
    with pytest.raises(StoreLocked):
        open_early(known, b"/tree")
    assert time.monotonic() - started < 0.5
    assert local._early is None
    writer.close()


def test_once_used_it_waits_as_others_do(known: str) -> None:
    open_early(known, b"/tree")
    opened = LocalStore.open(known)
    assert opened._db.query("PRAGMA busy_timeout") == [(1000,)]
    assert opened._db._wait_s == 60
    opened.close()


def test_a_newer_version_that_came_meanwhile_is_refused(known: str) -> None:
    open_early(known, b"/tree")
    with sqlite3.connect(f"{known}/store.db") as newer:
        newer.execute("PRAGMA user_version = 99")
    newer.close()
    with pytest.raises(StoreFailed, match="version 99"):
        LocalStore.open(known)


def test_looking_early_makes_no_store(tmp_path: Path) -> None:
    with pytest.raises(StoreFailed):
        open_early(str(tmp_path / "none"), b"/tree")
    assert not (tmp_path / "none").exists()
