"""The chain shows what was done to it (S31, S32, C25, C27)."""

from __future__ import annotations

import os
import shutil
import sqlite3
from pathlib import Path

import pytest

from reprieve.errors import StoreCorrupted
from reprieve.store.chain import FIRST_PREV, entry_hash, is_sound
from reprieve.store.hashing import sha256
from reprieve.store.local import LocalStore
from reprieve.testing.store_suite import draft

COUNT = 12


@pytest.fixture
def history(store: LocalStore) -> LocalStore:
    for n in range(COUNT):
        store.timeline("w").append(draft(f"label {n}", note="note", delta=bytes([n]) * 32))
    store.timeline("other").append(draft("unrelated"))
    return store


def tamper(store: LocalStore, *statements: str) -> None:
    plain = sqlite3.connect(store.home.file("store.db"), isolation_level=None)
    for statement in statements:
        plain.execute(statement)
    plain.close()


def problems(store: LocalStore) -> list[int]:
    assert list(store.timeline("other").verify()) == []
    return [seq for seq, _ in store.timeline("w").verify()]


COLUMNS = {
    "id": "'zzzzzzzzzz'", "kind": "'rollback'", "created_at": "created_at + 1", "actor": "'you'", "label": "'x'",
    "note": "'x'", "step": "'x'", "delta": "zeroblob(32)", "files": "7", "size": "7", "changed": "7", "data": "'{}'",
    "prev": "zeroblob(32)", "hash": "zeroblob(32)",
}  # fmt: skip


@pytest.mark.parametrize("column", COLUMNS)
def test_a_changed_field_is_named(history: LocalStore, column: str) -> None:
    tamper(history, f"UPDATE entries SET {column} = {COLUMNS[column]} WHERE workspace = 'w' AND seq = 6")
    assert 6 in problems(history)
    assert set(problems(history)) <= {6, 7}


def test_every_row_is_covered(history: LocalStore) -> None:
    for seq in range(1, COUNT + 1):
        tamper(history, f"UPDATE entries SET label = label || 'x' WHERE workspace = 'w' AND seq = {seq}")
        assert problems(history) == [seq]
        tamper(history, f"UPDATE entries SET label = substr(label, 1, length(label) - 1) WHERE seq = {seq}"
               " AND workspace = 'w'")  # fmt: skip
    assert problems(history) == []


def test_a_deleted_row_is_named(history: LocalStore) -> None:
    tamper(history, "DELETE FROM entries WHERE workspace = 'w' AND seq IN (1, 6)")
    assert problems(history) == [1, 6]


def test_swapped_rows_are_named(history: LocalStore) -> None:
    tamper(
        history,
        "UPDATE entries SET seq = -1 WHERE workspace = 'w' AND seq = 4",
        "UPDATE entries SET seq = 4 WHERE workspace = 'w' AND seq = 8",
        "UPDATE entries SET seq = 8 WHERE workspace = 'w' AND seq = -1",
    )
    assert {4, 8} <= set(problems(history))


def test_an_inserted_row_is_named(history: LocalStore) -> None:
    tamper(
        history,
        "UPDATE entries SET seq = -seq WHERE workspace = 'w' AND seq > 5",
        "UPDATE entries SET seq = -seq + 1 WHERE workspace = 'w' AND seq < 0",
        "INSERT INTO entries SELECT workspace, 6, 'inserted00', kind, created_at, actor, label, note, step, delta,"
        " files, size, changed, data, prev, hash FROM entries WHERE workspace = 'w' AND seq = 5",
    )
    assert 6 in problems(history)


def test_an_entry_of_another_workspace_is_not_accepted(history: LocalStore) -> None:
    tamper(history, "DELETE FROM entries WHERE workspace = 'w'", "UPDATE entries SET workspace = 'w'")
    found = [seq for seq, _ in history.timeline("w").verify()]
    assert 1 in found


@pytest.mark.parametrize("cut", [1, 5, COUNT])
def test_a_cut_tail_is_found_by_the_witness(history: LocalStore, cut: int) -> None:
    """S32: what is left is a perfect chain, only too short."""
    tamper(history, f"DELETE FROM entries WHERE workspace = 'w' AND seq > {COUNT - cut}")
    assert problems(history) == [COUNT]


def test_an_older_copy_of_the_database_is_found(history: LocalStore, path: str) -> None:
    """C27."""
    shutil.copy(f"{path}/store.db", f"{path}/../older.db")
    history.timeline("w").append(draft("newest"))
    history.close()
    shutil.copy(f"{path}/../older.db", f"{path}/store.db")
    again = LocalStore.open(path)
    ((seq, reason),) = again.timeline("w").verify()
    assert seq == COUNT + 1
    assert "older copy" in reason
    again.close()


def test_a_rewritten_chain_is_found_by_the_witness(history: LocalStore) -> None:
    """S32: all hashes computed anew, so the chain alone proves nothing."""
    prev = FIRST_PREV
    for entry in list(history.timeline("w").after(0)):
        forged = entry.replace(label="rewritten", prev=prev)
        prev = entry_hash("w", forged)
        tamper(
            history,
            f"UPDATE entries SET label = 'rewritten', prev = x'{forged.prev.hex()}', hash = x'{prev.hex()}'"
            f" WHERE workspace = 'w' AND seq = {entry.seq}",
        )
    ((seq, reason),) = history.timeline("w").verify()
    assert seq == COUNT
    assert "witness" in reason


def test_a_witness_that_lags_behind_or_is_lost_accuses_nobody(history: LocalStore, path: str) -> None:
    """It is written without a sync: a crash may leave it older or empty."""
    witness = Path(path, "witness", "w")
    old = witness.read_bytes()
    history.timeline("w").append(draft())
    for content in (old, b"", b"garbage", b"\0" * 40):
        witness.write_bytes(content)
        assert problems(history) == []
    witness.unlink()
    assert problems(history) == []


def test_a_witness_that_cannot_be_written_does_not_lose_the_entry(history: LocalStore, path: str) -> None:
    shutil.rmtree(f"{path}/witness")
    Path(path, "witness").touch()
    assert history.timeline("w").append(draft("kept")).seq == COUNT + 1
    assert history.timeline("w").head().label == "kept"  # type: ignore[union-attr]


def test_unreadable_text_is_named_and_the_rest_is_still_checked(history: LocalStore) -> None:
    tamper(
        history,
        "UPDATE entries SET note = CAST(x'ff' AS TEXT) WHERE workspace = 'w' AND seq = 3",
        "UPDATE entries SET note = 7, size = 'x' WHERE workspace = 'w' AND seq = 9",
    )
    assert {3, 9} <= set(problems(history)) <= {3, 4, 9}


def test_a_rolled_back_append_leaves_the_witness_alone(history: LocalStore, path: str) -> None:
    before = Path(path, "witness", "w").read_bytes()
    with pytest.raises(KeyError), history.transaction():
        history.timeline("w").append(draft())
        raise KeyError
    assert Path(path, "witness", "w").read_bytes() == before
    assert problems(history) == []


def test_the_hash_is_what_the_format_document_says(store: LocalStore) -> None:
    entry = store.timeline("w").append(draft("l", note="n", step="s", actor="a", data="{}", delta=b"d" * 32, files=3))

    def text(value: bytes) -> bytes:
        return len(value).to_bytes(8, "little") + value

    def number(value: int) -> bytes:
        return text(value.to_bytes(8, "little", signed=True))

    expected = sha256(
        b"reprieve entry 1\0" + bytes(32) + text(b"w") + number(1) + text(entry.id.encode()) + text(b"checkpoint")
        + number(1) + text(b"a") + text(b"l") + text(b"n") + text(b"s") + text(b"d" * 32) + number(3) + number(0)
        + number(0) + text(b"{}")
    )  # fmt: skip
    assert entry.hash == expected


def test_every_page_of_the_database_with_a_flipped_bit(history: LocalStore, path: str, tmp_path: Path) -> None:
    """C25: an error that names it, or the same answers as before; never other ones."""
    entries = list(history.timeline("w").after(0))
    history.close()
    good = Path(path, "store.db").read_bytes()
    wrong = []
    for at in range(100, len(good), 1021):
        bad = bytearray(good)
        bad[at] ^= 0x04
        Path(path, "store.db").write_bytes(bad)
        if (answer := _ask(path)) not in (entries, "error", "named"):
            wrong.append((at, answer))
    assert wrong == []


def _ask(path: str) -> object:
    from reprieve.errors import ReprieveError

    try:
        store = LocalStore.open(path)
        try:
            if list(store.timeline("w").verify()):
                return "named"
            return list(store.timeline("w").after(0))
        finally:
            store.close()
    except ReprieveError:
        return "error"


def test_sha256_is_the_same_however_much_was_hashed() -> None:
    import hashlib

    for size in (0, 1, 1000, 3 << 20, 10):
        data = os.urandom(size)
        assert sha256(data) == sha256(memoryview(data)) == hashlib.sha256(data).digest()


def test_appending_does_not_slow_down_with_history(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """G07: the same number of statements and no scan, however long the timeline is."""
    plan = store._db.query(
        "EXPLAIN QUERY PLAN SELECT seq, hash FROM entries WHERE workspace = 'w' ORDER BY seq DESC LIMIT 1"
    )
    assert "USING INDEX" in plan[0][3]
    assert "SCAN" not in plan[0][3]


@pytest.mark.parametrize("index", ("sqlite_autoindex_entries_1", "sqlite_autoindex_entries_2", "entries_label"))
def test_a_bit_flip_in_an_index_never_gives_another_entry_or_fewer(history: LocalStore, path: str, index: str) -> None:
    """SQLite follows a damaged index without a word; the timeline says what it always said, or that it is damaged."""
    timeline = history.timeline("w")
    every = list(timeline.after(0))
    sixth = every[5]
    history.close()
    file = Path(path, "store.db")
    good = file.read_bytes()
    plain = sqlite3.connect(file)
    (page,) = plain.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (index,)).fetchone()
    (size,) = plain.execute("PRAGMA page_size").fetchone()
    plain.close()
    start = (page - 1) * size
    content = start + int.from_bytes(good[start + 5 : start + 7], "big")
    refused = 0
    for number, at in enumerate(range(content, start + size)):
        damaged = bytearray(good)
        damaged[at] ^= 1 << number % 8
        file.write_bytes(damaged)
        again = LocalStore.open(path)
        timeline = again.timeline("w")
        questions = {
            "head": (timeline.head, every[-1]),
            "after": (lambda t=timeline: list(t.after(0)), every),
            "some": (lambda t=timeline: list(t.after(3)), every[3:]),
            "backwards": (lambda t=timeline: list(t.backwards()), every[::-1]),
            "id": (lambda t=timeline: t.matching(sixth.id), [sixth]),
            "prefix": (lambda t=timeline: t.matching(sixth.id[:7]), [sixth]),
            "label": (lambda t=timeline: t.matching("label 5"), [sixth]),
            "get": (lambda t=timeline: t.get(sixth.id), sixth),
            "at": (lambda t=timeline: t.at(6), sixth),
        }
        for name, (ask, answer) in questions.items():
            try:
                assert ask() == answer, f"{name}, byte {at - start} of the page"
            except StoreCorrupted:
                refused += 1
        again.close()
    assert refused > 0
    file.write_bytes(good)


@pytest.mark.parametrize("column", sorted(COLUMNS.keys() - {"hash", "prev"}))
def test_what_was_changed_is_not_used(history: LocalStore, column: str) -> None:
    """Every way to an entry that leads to a changed one ends in a refusal; the others stay open."""
    tamper(history, f"UPDATE entries SET {column} = {COLUMNS[column]} WHERE workspace = 'w' AND seq = 6")
    timeline = history.timeline("w")
    for ask in (lambda: timeline.at(6), lambda: list(timeline.after(0)), lambda: list(timeline.backwards())):
        with pytest.raises(StoreCorrupted, match="6"):
            ask()
    assert [e.seq for e in timeline.after(6)] == list(range(7, COUNT + 1))
    assert len(list(timeline.newest_first())) == len(list(timeline.readable())) == COUNT


def test_an_entry_that_is_missing_is_not_passed_over(history: LocalStore) -> None:
    """A walk that would leave an entry out is refused, in both directions and at the end."""
    tamper(history, "DELETE FROM entries WHERE workspace = 'w' AND seq = 6")
    timeline = history.timeline("w")
    for walk in (timeline.after(0), timeline.after(5), timeline.backwards()):
        with pytest.raises(StoreCorrupted, match="6 is missing"):
            list(walk)
    assert len(list(timeline.after(6))) == COUNT - 6


def test_an_entry_that_was_proven_proves_no_other(history: LocalStore) -> None:
    entry = history.timeline("w").head()
    assert entry is not None and is_sound("w", entry)
    assert is_sound("w", entry.replace(name="a mark"))
    for changed in (
        entry.replace(label="another"),
        entry.replace(hash=bytes(32)),
        entry.replace(prev=bytes(32)),
        entry.replace(seq=float(entry.seq)),  # equal, and not what was written
        entry.replace(files=bool(entry.files)),
    ):
        assert is_sound("w", entry) and not is_sound("w", changed)
    assert not is_sound("other", entry)
