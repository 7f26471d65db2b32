"""Encrypted threads: unreadable without the key, refused where they were moved, and provable by everybody."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langgraph.store.memory import InMemoryStore

from frameworks.test_langgraph_rollback import chain, id_of, now, said
from frameworks.test_langgraph_store import graph_on, items
from reprieve.errors import Misconfigured, Refused, StoreCorrupted
from reprieve.frameworks.langgraph import ReprieveSaver
from reprieve.frameworks.langgraph_store import ReprieveStore
from reprieve.store.thread_sealed import Cipher

KEY = b"k" * 32
SECRET = "the patient's name is Ada Lovelace, and this text is longer than what is kept inline in an entry"
CONFIG: Any = {"configurable": {"thread_id": "t"}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Threads with a rollback, a long list, short words and a pruned thread, encrypted."""
    with ReprieveSaver(tmp_path / "state", key=KEY) as saver:
        graph = chain(saver)
        for word in ("u1", SECRET, "short-secret"):
            graph.invoke(said(word), {**CONFIG, "metadata": {"about": "meta-secret"}})
        saver.rollback_to("t", id_of([*graph.get_state_history(CONFIG)][5]))
        graph.invoke(said("more"), {"configurable": {"thread_id": "pruned"}})
        graph.invoke(said("graft-secret"), {"configurable": {"thread_id": "pruned"}})
        saver.prune(["pruned"])
    return tmp_path / "state"


def test_nothing_of_a_value_is_in_the_files(folder: Path) -> None:
    """Nor its plain hash, with which a guess could be confirmed."""
    from hashlib import sha256

    data = b"".join(path.read_bytes() for path in folder.iterdir())
    for word in ("Lovelace", "short-secret", "meta-secret", "graft-secret", '"values"'):
        assert word.encode() not in data, word
    assert sha256(b"V" + json.dumps(SECRET).encode()).digest() not in data


def test_with_the_key_everything_works_in_another_process_too(folder: Path) -> None:
    with ReprieveSaver(folder, key=KEY) as saver:
        graph = chain(saver)
        states = [*graph.get_state_history(CONFIG)]
        assert SECRET in states[3].values["p"] and states[3].values["d"] == states[3].values["p"]
        graph.invoke(said("next"), CONFIG)
        assert now(graph)["d"] == now(graph)["p"]
        assert saver.search_history("lovelace")[0]["thread_id"] == "t"
        saver.fork("t", id_of(states[3]), "fork")
        saver.copy_thread("t", "copy")
        assert saver.diff_checkpoints("t", id_of(states[-1]), id_of(states[0]))
        saver.adopt_checkpoint(saver.handoff_checkpoint("t"), "adopted")
        saver.delete_thread("t")
        for thread in ("fork", "copy", "adopted", "pruned"):
            found = saver.verify_trail(thread)
            assert found["ok"] and found["content_checked"], found


def test_the_long_term_stores_values_are_encrypted_and_go_back(tmp_path: Path) -> None:
    with ReprieveSaver(tmp_path / "s", key=KEY) as saver:
        inner = InMemoryStore()
        store = ReprieveStore(inner, saver)
        graph = graph_on(saver, store)
        graph.invoke({"said": ["one"]}, CONFIG)
        first, before = id_of(graph.get_state(CONFIG)), items(inner)
        graph.invoke({"said": ["Lovelace"]}, CONFIG)
        saver.rollback_to("t", first, store=store)
        assert items(inner) == before
    assert b"Lovelace" not in b"".join(path.read_bytes() for path in (tmp_path / "s").iterdir())


@pytest.mark.parametrize("key", [None, b"x" * 32], ids=["none", "another"])
def test_without_its_key_nothing_is_read_and_nothing_written(folder: Path, key: bytes | None) -> None:
    before = (folder / "threads.db").read_bytes()
    with pytest.raises(Misconfigured, match="encrypted"), ReprieveSaver(folder, key=key) as saver:
        saver.get_tuple(CONFIG)
    with pytest.raises(Misconfigured, match="encrypted"), ReprieveSaver(folder, key=key) as saver:
        chain(saver).invoke(said("x"), {"configurable": {"thread_id": "new"}})
    assert (folder / "threads.db").read_bytes() == before


def test_the_chain_is_proven_without_the_key(folder: Path) -> None:
    with ReprieveSaver(folder) as saver:
        for thread in ("t", "pruned"):
            found = saver.verify_trail(thread)
            assert found["ok"] and not found["content_checked"]
    with sqlite3.connect(folder / "threads.db") as db:
        for number, body in db.execute("SELECT rowid, body FROM entries WHERE seq = 3").fetchall():
            changed = bytearray(body)
            changed[40] ^= 1  # what is encrypted may hold any byte there
            db.execute("UPDATE entries SET body = ? WHERE rowid = ?", (bytes(changed), number))
    with ReprieveSaver(folder) as saver:
        assert saver.verify_trail("t")["tampered_count"]


def rechained(db: sqlite3.Connection) -> None:
    """What somebody does who can write the file but has no key: all hashes are made to fit."""
    from reprieve.model.thread import ThreadEntry
    from reprieve.store.thread_chain import FIRST_PREV, entry_hash

    for number, name in db.execute("SELECT number, id FROM threads").fetchall():
        prev, seq = FIRST_PREV, 0
        for row in db.execute(
            "SELECT seq, kind, ns, id, parent, created_at, body FROM entries WHERE thread = ? ORDER BY seq", (number,)
        ).fetchall():
            if seq and row[0] != seq + 1:
                break
            entry = ThreadEntry(*row, prev, b"")
            prev, seq = entry_hash(name, entry), row[0]
            db.execute(
                "UPDATE entries SET prev = ?, hash = ? WHERE thread = ? AND seq = ?", (entry.prev, prev, number, seq)
            )
        db.execute("UPDATE threads SET hash = ? WHERE number = ?", (prev, number))


MOVES = {
    "to another place": "UPDATE entries SET body = (SELECT body FROM entries e WHERE e.thread = 1 AND e.kind = 'state'"
    " ORDER BY seq LIMIT 1) WHERE thread = 1 AND kind = 'state' AND seq > 10",
    "to another namespace": "UPDATE entries SET ns = 'other' WHERE thread = 1 AND seq = 3",
    "to another thread": "UPDATE threads SET id = 'other' WHERE number = 1",
    "to another state": "UPDATE entries SET id = id || 'x' WHERE thread = 1 AND seq = 3",
    "as plain text": "UPDATE entries SET body = CAST('{\"values\":{}}' AS BLOB) WHERE thread = 1 AND seq = 3",
}


@pytest.mark.parametrize("move", MOVES)
def test_S36_what_was_moved_or_made_plain_is_refused_though_every_hash_fits(folder: Path, move: str) -> None:
    with sqlite3.connect(folder / "threads.db") as db:
        db.execute(MOVES[move])
        rechained(db)
    thread = "other" if move == "to another thread" else "t"
    with ReprieveSaver(folder, key=KEY) as saver:
        assert saver.verify_trail(thread)["tampered_count"]
        with pytest.raises(StoreCorrupted):
            list(saver.list({"configurable": {"thread_id": thread}}))


def test_two_parts_that_changed_places_are_refused(folder: Path) -> None:
    with sqlite3.connect(folder / "threads.db") as db:
        (one, a), (two, b) = db.execute("SELECT number, body FROM parts ORDER BY number LIMIT 2").fetchall()
        db.executemany("UPDATE parts SET body = ? WHERE number = ?", [(b, one), (a, two)])
    with ReprieveSaver(folder, key=KEY) as saver:
        assert saver.verify_trail("t")["tampered_count"]
        with pytest.raises(StoreCorrupted):
            list(saver.list(CONFIG))


def test_equal_parts_are_kept_once_and_under_another_key_look_different(tmp_path: Path) -> None:
    body = b"V" + json.dumps(SECRET).encode()
    one, other = Cipher(KEY), Cipher(b"x" * 32)
    assert one.seal_part(one.name(body), body) == Cipher(KEY).seal_part(one.name(body), body)
    assert one.name(body) != other.name(body)
    assert one.open_part(one.name(body), one.seal_part(one.name(body), body)) == body
    assert other.open_part(one.name(body), one.seal_part(one.name(body), body)) == b""


def test_S36_plain_and_encrypted_threads_are_not_mixed(tmp_path: Path, folder: Path) -> None:
    with ReprieveSaver(tmp_path / "plain") as plain:
        chain(plain).invoke(said("x"), CONFIG)
        with pytest.raises(Misconfigured, match="not encrypted"):
            ReprieveSaver(tmp_path / "plain", key=KEY)
        with ReprieveSaver(folder, key=KEY) as sealed, pytest.raises(Refused, match="one key"):
            plain.adopt_checkpoint(sealed.handoff_checkpoint("t"), "adopted", source=sealed)
        assert plain.threads() == ["t"]


def place(kind: str) -> Callable[[Path, pytest.MonkeyPatch], str]:
    def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
        if kind == "env":
            monkeypatch.setenv("THREADS_KEY", KEY.decode())
            return "env:THREADS_KEY"
        path = tmp_path / "key"
        fd = os.open(path, os.O_CREAT | os.O_WRONLY, 0o600)
        os.write(fd, KEY + b"\n")
        os.close(fd)
        return f"file:{path}"

    return make


@pytest.mark.parametrize("kind", ["env", "file"])
def test_the_key_is_given_by_where_it_is(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    reference = place(kind)(tmp_path, monkeypatch)
    with ReprieveSaver(folder, key=reference) as saver:
        assert saver.get_tuple(CONFIG) is not None
    if kind == "file":
        os.chmod(tmp_path / "key", 0o644)
        with pytest.raises(Misconfigured, match="read by others"):
            ReprieveSaver(folder, key=reference)
        with pytest.raises(Refused, match="cannot be read"):
            ReprieveSaver(folder, key="file:/nowhere")
    with pytest.raises(Misconfigured, match="at least 32"):
        ReprieveSaver(folder, key=b"short")


def test_the_command_line_shows_with_the_key_and_proves_without(
    cli: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THREADS_KEY", KEY.decode())

    def said(*words: str, check: bool = True) -> Any:
        return cli("--json", "thread", *words, "--state", str(folder), check=check).json

    assert {one["id"] for one in said("list")["threads"]} == {"t", "pruned"}
    assert not any(one["content_checked"] for one in said("verify")["threads"])
    shown = said("show", "t", check=False)["error"]
    assert "encrypted" in shown["message"] and "--key" in " ".join(shown["hints"])
    found = said("search", "Lovelace", "--key", "env:THREADS_KEY")
    assert found["hits"] and found["hits"][0]["thread"] == "t"
    assert said("verify", "t", "--key", "env:THREADS_KEY")["threads"][0]["content_checked"]
