"""Garbage is collected whole, live content never (C06, G01, G02)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from reprieve.errors import StoreCorrupted
from reprieve.store.blobs import LocalBlobs
from reprieve.store.local import LocalStore
from reprieve.testing.store_suite import blob

LIVE = [blob(b"live %d " % n * 700) for n in range(60)]
DEAD = [blob(b"SECRET %d " % n * 700) for n in range(60)]
IDS = {id for id, _ in LIVE}


def fill(store: LocalStore) -> None:
    """Several packs: all live, all dead, mixed frames, raw and compressed."""
    blobs = LocalBlobs(store.home, store._db, store._locks)
    blobs._mine()._writer._roll_at = 1  # a pack for each frame
    for objects in (LIVE[:20], DEAD[:20], [x for pair in zip(LIVE[20:50], DEAD[20:50], strict=True) for x in pair]):
        blobs.put(objects)
        blobs.flush()
    for one in LIVE[50:] + DEAD[50:]:
        blobs.put([one])
    blobs.flush()
    blobs.close()


def packs(store: LocalStore) -> bytes:
    return b"".join(p.read_bytes() for p in Path(store.home.file("packs")).iterdir())


def test_nothing_dead_is_left_on_the_disk(store: LocalStore) -> None:
    """What `forget` relies on: not in a pack, not in a row."""
    raw_dead, raw_live = blob(b"SECRET in a raw frame"), blob(b"live in a raw frame")
    fill(store)
    store.blobs.put([raw_dead, raw_live])
    store.blobs.flush()
    with store.gc_lock():
        assert store.blobs.collect({*IDS, raw_live[0]})[0] == len(DEAD) + 1
    assert b"SECRET" not in packs(store)
    assert store._db.query("SELECT count(*) FROM objects") == [(len(LIVE) + 1,)]
    assert dict(store.blobs.get_many([*IDS, raw_live[0]])) == dict([*LIVE, raw_live])
    files = {int(name.split(".")[0]) for name in os.listdir(store.home.file("packs"))}
    assert files == {number for (number,) in store._db.query("SELECT number FROM packs")}


def test_packs_without_dead_bytes_are_left_alone(store: LocalStore) -> None:
    fill(store)
    before = os.stat(store.home.file("packs", "1.pack")).st_ino
    with store.gc_lock():
        store.blobs.collect(set(IDS))
    assert os.stat(store.home.file("packs", "1.pack")).st_ino == before


def test_collecting_everything_leaves_nothing(store: LocalStore) -> None:
    fill(store)
    with store.gc_lock():
        objects, freed = store.blobs.collect(set())
    assert objects == len(LIVE) + len(DEAD)
    assert freed > 0
    assert os.listdir(store.home.file("packs")) == []
    store.blobs.put(LIVE)
    store.blobs.flush()
    assert dict(store.blobs.get_many(IDS)) == dict(LIVE)


def test_leftovers_of_killed_processes_are_removed(store: LocalStore) -> None:
    fill(store)
    stray, scratch = store.home.file("packs", "99.pack"), store.home.file("tmp", "x.123")
    attic = Path(store.home.file("tmp", ".reprieve-123"))  # of a restore that was killed before it had cleared up
    (attic / "d.0.abcd").mkdir(parents=True)
    index, half = Path(store.home.file("index", "w1")), Path(store.home.file("index", "w1.123.abcd"))
    for path in (stray, scratch, attic / "t0", attic / "n7", index, half):
        Path(path).write_bytes(b"x" * 1000)
    with store.gc_lock():
        store.blobs.collect(set(IDS))
    assert not os.path.exists(stray)
    assert not os.path.exists(scratch)
    assert not attic.exists()
    assert index.exists() and not half.exists()


def test_a_number_is_never_given_to_a_second_pack(store: LocalStore) -> None:
    """A reader in another process may still remember the first."""
    seen: set[str] = set()
    for n in range(4):
        store.blobs.put([blob(b"%d" % n)])
        store.blobs.flush()
        names = set(os.listdir(store.home.file("packs")))
        assert not names & seen
        seen |= names
        with store.gc_lock():
            store.blobs.collect(set())


def test_damaged_live_objects_do_not_stop_a_collection(store: LocalStore) -> None:
    """They stay known as damaged, the dead beside them go, and the content can be healed."""
    fill(store)
    for pack in Path(store.home.file("packs")).iterdir():
        content = bytearray(pack.read_bytes())
        content[-1] ^= 1
        pack.write_bytes(content)
    bad = {id for id, _ in store.blobs.check()}
    assert bad & IDS
    with store.gc_lock():
        store.blobs.collect(set(IDS))
    assert b"SECRET" not in packs(store)
    assert store.blobs.damaged() == bad & IDS
    assert store.blobs.has(list(IDS)) == IDS - bad
    assert dict(store.blobs.get_many(IDS - bad)) == {id: data for id, data in LIVE if id not in bad}
    store.blobs.put(LIVE)
    store.blobs.flush()
    assert dict(store.blobs.get_many(IDS)) == dict(LIVE)
    assert list(store.blobs.check()) == []


def test_a_lost_pack_does_not_stop_a_collection(store: LocalStore) -> None:
    fill(store)
    for number in (1, 3):
        os.unlink(store.home.file("packs", f"{number}.pack"))
    with store.gc_lock():
        store.blobs.collect(set(IDS))
    problems = {id for id, _ in store.blobs.check()}
    assert problems <= IDS
    store.blobs.put(LIVE)
    store.blobs.flush()
    assert dict(store.blobs.get_many(IDS)) == dict(LIVE)


def test_a_damaged_database_deletes_nothing(store: LocalStore, path: str) -> None:
    """G03."""
    fill(store)
    store.close()
    before = packs(store)
    content = bytearray(Path(path, "store.db").read_bytes())
    for at in range(4096 + 8, len(content), 4096):
        content[at : at + 60] = b"\xff" * 60
    Path(path, "store.db").write_bytes(content)
    again = LocalStore.open(path)
    with pytest.raises(StoreCorrupted), again.gc_lock():
        again.blobs.collect(set())
    again.close()
    assert packs(store) == before


def test_collect_needs_the_lock_and_no_transaction(store: LocalStore) -> None:
    with pytest.raises(AssertionError):
        store.blobs.collect(set())
    with store.gc_lock(), pytest.raises(AssertionError), store.transaction():
        store.blobs.collect(set())


def test_killed_anywhere_no_live_object_is_lost(
    tmp_path: Path, kill_sweep: Callable[[Callable[[int], None], Callable[[int], None]], int]
) -> None:
    """C06, G02: the next collection ends what the killed one began."""
    original = LocalStore.open(str(tmp_path / "original"))
    fill(original)
    original.close()

    def copy() -> None:
        shutil.copytree(tmp_path / "original", tmp_path / "home")
        os.chmod(tmp_path / "home", 0o700)

    copy()

    def work(number: int) -> None:
        store = LocalStore.open(str(tmp_path / "home"))
        with store.gc_lock():
            store.blobs.collect(set(IDS))
        store.close()

    def check(number: int) -> None:
        try:
            store = LocalStore.open(str(tmp_path / "home"))
            assert dict(store.blobs.get_many(IDS)) == dict(LIVE)
            with store.gc_lock():
                store.blobs.collect(set(IDS))
            assert dict(store.blobs.get_many(IDS)) == dict(LIVE)
            assert list(store.blobs.check()) == []
            files = {int(name.split(".")[0]) for name in os.listdir(store.home.file("packs"))}
            assert files == {n for (n,) in store._db.query("SELECT number FROM packs")}
            assert b"SECRET" not in packs(store)
            store.close()
        finally:
            shutil.rmtree(tmp_path / "home")
            copy()

    assert kill_sweep(work, check) > 30
