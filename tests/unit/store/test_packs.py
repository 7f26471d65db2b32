"""Packs: what is written when, what damage does, what a failed write leaves."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from reprieve.errors import StoreCorrupted, StoreFailed
from reprieve.store.behind import Behind
from reprieve.store.blobs import LocalBlobs
from reprieve.store.local import LocalStore
from reprieve.testing.store_suite import blob, draft

TEXT = [blob(b"text %d " % n * 3500) for n in range(40)]  # 1 MB: several compressed frames
SMALL = [blob(b"small %d" % n) for n in range(5)]  # one raw frame
LARGE = [blob(os.urandom(600_000))]  # raw, a frame of its own


@pytest.fixture
def filled(store: LocalStore) -> LocalStore:
    for objects in (TEXT, SMALL, LARGE):
        store.blobs.put(objects)
        store.blobs.flush()
    return store


def pack_of(store: LocalStore, number: int = 1) -> Path:
    return Path(store.home.file("packs", f"{number}.pack"))


def place_of(store: LocalStore, id: bytes) -> tuple[int, int, int, int]:
    """(pack, offset, size, frame) of the object's frame."""
    sql = "SELECT f.pack, f.offset, f.size, f.number FROM objects o JOIN frames f ON f.number = o.frame WHERE o.id = ?"
    return store._db.query(sql, (id,))[0]


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 0x20
    path.write_bytes(content)


def readable(store: LocalStore) -> set[bytes]:
    good = set()
    for id, data in TEXT + SMALL + LARGE:
        try:
            assert store.blobs.get(id) == data
        except StoreCorrupted as exc:
            assert id.hex()[:16] in exc.message
            assert "pack" in exc.message or "row" in exc.message
        else:
            good.add(id)
    return good


def test_little_content_needs_no_compression_module(path: str) -> None:
    """8 ms that a checkpoint with a few small changes does not pay."""
    code = (
        "import sys; from reprieve.store.local import LocalStore; from reprieve.model.timeline import Draft\n"
        f"s = LocalStore.open({path!r})\n"
        "with s.lock('w'):\n"
        "    s.blobs.put([(bytes(32), b'x' * 15000)])\n"
        "    with s.transaction(): s.blobs.flush(); s.timeline('w').append(Draft('checkpoint', 1))\n"
        "s.close()\n"
        "heavy = {'typing', 'dataclasses', 'json', 're', 'enum', 'pathlib', 'subprocess', 'logging', 'datetime',"
        " 'hashlib', '_hashlib', 'threading', 'backports.zstd', 'compression.zstd', 'contextlib', 'sqlite3'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    src = str(Path(__file__).parents[3] / "src")
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {src!r})\n{code}"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "[]\n"


def test_content_is_grouped_and_compressed(filled: LocalStore) -> None:
    frames = filled._db.query("SELECT codec, raw_size, count, size FROM frames ORDER BY number")
    text, small, large = frames[:-2], frames[-2], frames[-1]
    assert len(text) >= 4
    assert all(codec == 1 and raw <= (64 << 10) + 32_000 and size < raw / 4 for codec, raw, _, size in text)
    assert (small[0], small[2]) == (0, len(SMALL))
    assert (large[0], large[1], large[2]) == (0, 600_000, 1)


def test_a_pack_rolls_over(store: LocalStore) -> None:
    blobs = LocalBlobs(store.home, store._db, store._locks)
    blobs._mine()._writer._roll_at = 500_000
    objects = [blob(os.urandom(200_000)) for _ in range(12)]
    blobs.put(objects)
    blobs.flush()
    assert len(os.listdir(store.home.file("packs"))) == 4
    assert dict(store.blobs.get_many(id for id, _ in objects)) == dict(objects)


def test_a_flipped_bit_spoils_only_its_own_frame(filled: LocalStore) -> None:
    """C25: every frame in turn, in its head, its payload and its last byte."""
    everything = {id for id, _ in TEXT + SMALL + LARGE}
    good = pack_of(filled).read_bytes()
    places = {place_of(filled, id) for id in everything}
    for _, offset, size, frame in sorted(places):
        inside = {id for (id,) in filled._db.query("SELECT id FROM objects WHERE frame = ?", (frame,))}
        for at in (offset + 3, offset + 60, offset + 48 + 40 * len(inside) + 11, offset + size - 1):
            pack_of(filled).write_bytes(good)
            flip(pack_of(filled), at)
            filled.blobs._mine()._places.forget()
            assert readable(filled) >= everything - inside
            found = {id for id, _ in filled.blobs.check()}
            assert found
            assert found <= inside
    pack_of(filled).write_bytes(good)
    assert list(filled.blobs.check()) == []
    assert filled.blobs.damaged() == set()


@pytest.mark.parametrize("how", ["truncated", "empty", "missing", "directory", "symlink", "fifo"])
def test_a_lost_pack_is_named_and_its_content_healed(filled: LocalStore, path: str, how: str, tmp_path: Path) -> None:
    """C26: the next checkpoint with the same content stores it anew."""
    pack = pack_of(filled)
    if how == "truncated":
        os.truncate(pack, place_of(filled, SMALL[0][0])[1] + 10)
    elif how == "empty":
        os.truncate(pack, 0)
    else:
        elsewhere = tmp_path / "elsewhere"
        pack.rename(elsewhere)
        if how == "directory":
            pack.mkdir()
        elif how == "symlink":
            pack.symlink_to(elsewhere)
        elif how == "fifo":
            os.mkfifo(pack)
    filled.close()
    store = LocalStore.open(path)
    left = readable(store)
    assert left == ({id for id, _ in TEXT} if how == "truncated" else set())
    assert store.blobs.put(TEXT + SMALL + LARGE) == len(TEXT + SMALL + LARGE) - len(left)
    store.blobs.flush()
    assert len(readable(store)) == len(TEXT + SMALL + LARGE)
    assert store.blobs.damaged() == set()
    assert list(store.blobs.check()) == []
    store.close()


def test_a_pack_cut_short_is_noticed_by_put_before_any_read(filled: LocalStore, path: str) -> None:
    os.truncate(pack_of(filled), place_of(filled, LARGE[0][0])[1] + 1000)
    filled.close()
    store = LocalStore.open(path)
    assert store.blobs.put([blob(b"something else")]) == 1
    store.blobs.flush()
    assert store.blobs.damaged() == {LARGE[0][0]}
    assert [pack for (pack,) in store._db.query("SELECT number FROM packs WHERE is_sealed")] == [1]
    assert sorted(os.listdir(f"{path}/packs")) == ["1.pack", "2.pack"]
    store.close()


def test_an_object_swapped_for_another_valid_one_is_found(filled: LocalStore) -> None:
    """S33."""
    a, b = SMALL[0][0], SMALL[1][0]
    with filled._db.transaction():
        filled._db.execute("UPDATE objects SET start = (SELECT start FROM objects WHERE id = ?) WHERE id = ?", (b, a))
    with pytest.raises(StoreCorrupted):
        filled.blobs.get(a)
    assert [id for id, _ in filled.blobs.check()] == [a]


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE frames SET offset = -5", "UPDATE frames SET size = 1 << 60", "UPDATE frames SET pack = 99",
        "UPDATE frames SET codec = 7", "UPDATE frames SET raw_size = 1 << 60", "UPDATE frames SET count = 1 << 40",
        "UPDATE frames SET offset = 'text'", "UPDATE objects SET frame = 4711", "UPDATE objects SET length = 1 << 50",
        "UPDATE objects SET start = -1", "DELETE FROM frames", "DELETE FROM packs", "UPDATE packs SET end = 40",
        "UPDATE objects SET start = x'00'",
    ],
)  # fmt: skip
def test_rows_that_say_nonsense_give_errors_and_heal(filled: LocalStore, change: str) -> None:
    """SQLite has no checksums: a flipped bit in a row must not become wrong bytes, nor a crash, nor fill the memory."""
    with filled._db.transaction():
        filled._db.execute(change)
    filled.blobs._mine()._frames.clear()
    assert readable(filled) == set() or "raw_size" in change or "count" in change or "codec" in change
    assert len(list(filled.blobs.check())) == len(TEXT + SMALL + LARGE)
    filled.blobs.put(TEXT + SMALL + LARGE)
    filled.blobs.flush()
    assert len(readable(filled)) == len(TEXT + SMALL + LARGE)


@pytest.mark.parametrize("call", ["pwrite", "fdatasync"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG, errno.EROFS])
def test_a_failed_write_is_never_taken_for_a_success(
    filled: LocalStore, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    """C15, C16: the error names the disk; afterwards the content goes to another pack, as if never put before."""
    new = [blob(b"new %d " % n * 1000) for n in range(200)]
    calls = 0

    def fail(*args: object) -> int:
        nonlocal calls
        calls += 1
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(StoreFailed) as caught:
            filled.blobs.put(new)
            filled.blobs.flush()
    assert calls == 1
    assert str(caught.value.data["disk"]) in caught.value.message
    assert caught.value.hints
    assert filled.blobs.has([id for id, _ in new]) == set()
    assert filled.blobs.put(new) == len(new)
    filled.blobs.flush()
    assert place_of(filled, new[0][0])[0] == 2
    assert dict(filled.blobs.get_many(id for id, _ in new)) == dict(new)
    assert len(readable(filled)) == len(TEXT + SMALL + LARGE)


def test_the_rest_of_a_failed_operation_is_refused(filled: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever swallows the error must not get a checkpoint with holes; the next operation is free of it."""
    with filled.lock("w"):
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
            with pytest.raises(StoreFailed):
                filled.blobs.put([blob(b"%d" % n * 3000) for n in range(9000)])
        with pytest.raises(StoreFailed):
            filled.blobs.put([blob(b"rest")])
        with pytest.raises(StoreFailed):
            filled.blobs.flush()
    with filled.lock("w"):
        filled.blobs.put([blob(b"rest")])
        filled.blobs.flush()
    assert filled.blobs.get(blob(b"rest")[0]) == b"rest"


def test_a_failure_inside_a_transaction_cannot_be_committed_around(
    filled: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an earlier flush of the same transaction wrote is given up with it."""
    first, second = blob(b"first " * 9000), blob(b"second " * 9000)
    with pytest.raises(StoreFailed), filled.transaction():
        filled.blobs.put([first])
        filled.blobs.flush()
        with monkeypatch.context() as patch:
            patch.setattr(os, "fdatasync", lambda _: (_ for _ in ()).throw(OSError(errno.EIO, "bad")))
            filled.blobs.put([second])
            with pytest.raises(StoreFailed):
                filled.blobs.flush()
    assert filled.blobs.has([first[0], second[0]]) == set()
    assert filled.timeline("w").append(draft()).seq == 1


def test_an_error_of_the_caller_s_generator_keeps_what_came_before(store: LocalStore) -> None:
    def items() -> object:
        yield from TEXT
        raise KeyError

    with pytest.raises(KeyError):
        store.blobs.put(items())  # type: ignore[arg-type]
    store.blobs.put(TEXT)
    store.blobs.flush()
    assert dict(store.blobs.get_many(id for id, _ in TEXT)) == dict(TEXT)
    assert list(store.blobs.check()) == []


def test_put_after_flush_in_one_transaction_survives_its_commit(store: LocalStore) -> None:
    with store.transaction():
        store.blobs.put(TEXT)
        store.blobs.flush()
        store.blobs.put(SMALL)
    other = LocalStore.open(store.home.path)
    other.blobs.put(LARGE)
    other.blobs.flush()
    store.blobs.flush()
    assert dict(store.blobs.get_many(id for id, _ in TEXT + SMALL)) == dict(TEXT + SMALL)
    assert list(other.blobs.check()) == []
    other.close()


def test_a_reader_follows_objects_that_a_collection_moved(filled: LocalStore, path: str) -> None:
    reader = LocalStore.open(path)
    assert reader.blobs.get(TEXT[0][0])
    slow = reader.blobs.get_many(id for id, _ in TEXT)
    first = next(slow)
    with filled.gc_lock():
        filled.blobs.collect({id for id, _ in TEXT})
    assert dict([first, *slow]) == dict(TEXT)
    assert reader.blobs.damaged() == set()
    reader.close()


def test_memory_stays_bounded(path: str) -> None:
    """200 MB through put with less than 60 MB more than before."""
    code = (
        "import os, resource, sys, hashlib\n"
        "from reprieve.store.local import LocalStore\n"
        f"s = LocalStore.open({path!r})\n"
        "s.blobs.put([(bytes(32), b'x' * 300000)]); s.blobs.flush()\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "def items():\n"
        "    for n in range(2000):\n"
        "        data = os.urandom(50000) * 2\n"
        "        yield hashlib.sha256(data).digest(), data\n"
        "s.blobs.put(items()); s.blobs.flush()\n"
        "print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)\n"
    )
    src = str(Path(__file__).parents[3] / "src")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": src})
    assert done.stderr == ""
    assert int(done.stdout) < 60


def test_what_was_begun_early_is_durable_after_the_flush(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """And synced once, unless something came after it."""
    synced: list[int] = []
    honest = os.fdatasync
    monkeypatch.setattr(os, "fdatasync", lambda fd: (synced.append(os.fstat(fd).st_size), honest(fd)))
    store.blobs.start_flush()  # nothing to do
    store.blobs.put(TEXT)
    store.blobs.start_flush()
    store.blobs.start_flush()
    store.blobs.flush()
    assert synced == [pack_of(store).stat().st_size]
    synced.clear()
    store.blobs.put(LARGE)
    store.blobs.start_flush()
    store.blobs.put(SMALL)
    store.blobs.flush()
    assert synced[-1] == pack_of(store).stat().st_size and len(synced) == 2
    assert dict(store.blobs.get_many(id for id, _ in TEXT + SMALL + LARGE)) == dict(TEXT + SMALL + LARGE)


@pytest.mark.parametrize("is_in_transaction", [False, True])
def test_an_early_sync_that_failed_is_never_taken_for_a_success(
    filled: LocalStore, path: str, monkeypatch: pytest.MonkeyPatch, is_in_transaction: bool
) -> None:
    """The kernel tells it once: a second sync of the same file would say that all is well."""
    new = [blob(b"new %d " % n * 3000) for n in range(30)]
    honest, failures = os.fdatasync, [OSError(errno.EIO, "failed")]

    def fail_once(fd: int) -> None:
        if failures:
            raise failures.pop()
        honest(fd)

    monkeypatch.setattr(os, "fdatasync", fail_once)
    filled.blobs.put(new)
    filled.blobs.start_flush()
    with pytest.raises(StoreFailed):
        if is_in_transaction:
            with filled.transaction():
                filled.blobs.flush()
        else:
            filled.blobs.flush()
    assert not failures
    assert filled.blobs.has([id for id, _ in new]) == set()
    filled.close()
    again = LocalStore.open(path)
    again.blobs.put(new)
    again.blobs.flush()
    assert dict(again.blobs.get_many(id for id, _ in new)) == dict(new)
    again.close()


def test_a_fork_in_the_middle_of_an_early_sync_waits_for_nobody(
    filled: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    honest = os.fdatasync
    monkeypatch.setattr(os, "fdatasync", lambda fd: (gate.wait(60), honest(fd)))
    filled.blobs.put([blob(b"new" * 9000)])
    filled.blobs.start_flush()
    child = os.fork()
    if not child:
        os._exit(0)  # it has closed the packs by now
    assert os.waitpid(child, 0)[1] == 0
    gate.set()
    filled.blobs.flush()
    assert filled.blobs.get(blob(b"new" * 9000)[0]) == b"new" * 9000


def test_an_interrupted_wait_for_a_sync_leaves_nothing_to_be_lost_later(
    filled: LocalStore, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pack is given up with the lock that kept collections from removing it; what comes next goes elsewhere."""
    gate, honest, interrupts = threading.Event(), os.fdatasync, 2

    def wait(self: Behind) -> None:
        nonlocal interrupts
        if interrupts and not gate.is_set():
            interrupts -= 1
            raise KeyboardInterrupt
        waiting(self)

    waiting = Behind.wait
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", lambda fd: (gate.wait(60), honest(fd)))
        patch.setattr(Behind, "wait", wait)
        filled.blobs.put([blob(b"first" * 9000)])
        with pytest.raises(KeyboardInterrupt):
            filled.blobs.flush()
        gate.set()
    other = LocalStore.open(path)
    with other.gc_lock(wait_s=0):
        other.blobs.collect({id for id, _ in TEXT})  # everything else goes, so packs are made anew
    other.close()
    new = [blob(b"new %d " % n * 3000) for n in range(30)]
    filled.blobs.put(new)
    filled.blobs.flush()
    again = LocalStore.open(path)
    assert dict(again.blobs.get_many(id for id, _ in new)) == dict(new)
    again.close()
