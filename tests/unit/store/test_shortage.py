"""Real shortages: a full disk, no inodes, limits of the process (C13, C14, C16, C18, C19)."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from reprieve.errors import ReprieveError, StoreCorrupted, StoreFailed
from reprieve.store.local import LocalStore
from reprieve.testing.store_suite import blob, draft

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def mounted(where: Path, *options: str) -> bool:
    where.mkdir()
    return subprocess.run(["mount", "-t", "tmpfs", *options, "tmpfs", str(where)], capture_output=True).returncode == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 2 MB."""
    disk = tmp_path / "disk"
    if not mounted(disk, "-o", "size=2m,mode=700"):
        pytest.skip("cannot mount here")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def checkpoint(store: LocalStore, n: int, size: int) -> list[tuple[bytes, bytes]]:
    objects = [blob(os.urandom(size)) for _ in range(3)]
    with store.lock("w"):
        store.blobs.put(objects)
        with store.transaction():
            store.blobs.flush()
            store.timeline("w").append(draft(f"{n}", delta=objects[0][0]))
    return objects


@pytest.mark.root
@needs_root
def test_a_store_that_is_bound_read_only_is_named_and_not_the_disk_around_it(tmp_path: Path) -> None:
    home = tmp_path / "the store"
    LocalStore.open(str(home)).close()
    if subprocess.run(["mount", "--bind", home, home], capture_output=True).returncode:
        pytest.skip("cannot mount here")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", home], check=True)
        with pytest.raises(ReprieveError) as raised:
            checkpoint(LocalStore.open(str(home)), 1, 300)
        assert f"the disk '{home}' is read-only" in raised.value.message
    finally:
        subprocess.run(["umount", "-l", home], check=True)


@pytest.mark.root
@needs_root
@pytest.mark.parametrize("size", [300, 40_000, 300_000])
def test_a_full_disk_is_named_and_costs_nothing_that_was_acknowledged(small_disk: Path, size: int) -> None:
    store = LocalStore.open(str(small_disk / "home"))
    kept: dict[bytes, bytes] = {}
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes((1 << 20) if size > 1000 else 1_700_000))
    with pytest.raises(StoreFailed) as caught:
        for n in range(2000):
            kept.update(checkpoint(store, n, size))
    assert "full" in caught.value.message
    assert str(small_disk) in caught.value.message
    assert caught.value.hints
    count = len(list(store.timeline("w").after(0)))
    assert count * 3 == len(kept)
    for again in (store, LocalStore.open(str(small_disk / "home"))):
        assert dict(again.blobs.get_many(kept)) == kept
        assert list(again.timeline("w").verify()) == []
        assert list(again.blobs.check()) == []
        with pytest.raises(StoreFailed):
            for n in range(50):
                checkpoint(again, n, max(size, 20_000))
    ballast.unlink()
    kept.update(checkpoint(store, count, 1000))  # the same store goes on as soon as there is room
    assert dict(store.blobs.get_many(kept)) == kept
    assert list(store.timeline("w").verify()) == []


@pytest.mark.root
@needs_root
def test_a_read_only_disk_can_be_read(small_disk: Path) -> None:
    """Damage is told, not remembered; what wants to write names the disk."""
    store = LocalStore.open(str(small_disk / "home"))
    good, bad = checkpoint(store, 1, 20_000), checkpoint(store, 2, 20_000)
    pack = small_disk / "home" / "packs" / "1.pack"
    data = pack.read_bytes()
    pack.write_bytes(data[:-1] + bytes([data[-1] ^ 0xFF]))  # another byte, whatever it was
    store.close()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    store = LocalStore.open(str(small_disk / "home"))
    assert dict(store.blobs.get_many(id for id, _ in good)) == dict(good)
    assert [entry.label for entry in store.timeline("w").after(0)] == ["1", "2"]
    assert list(store.timeline("w").verify()) == []
    with pytest.raises(StoreCorrupted):
        store.blobs.get(bad[-1][0])
    assert [id for id, _ in store.blobs.check()] == [bad[-1][0]]
    for write in (
        lambda: store.lock("w").__enter__(),
        lambda: store.timeline("w").append(draft()),
        lambda: store.blobs.put([blob(b"x")]),
    ):
        with pytest.raises(StoreFailed) as caught:
            write()
        assert "read-only" in caught.value.message
        assert str(small_disk) in caught.value.message
    store.close()


@pytest.mark.root
@needs_root
def test_a_disk_without_inodes_is_refused_cleanly(tmp_path: Path) -> None:
    """C19: for every number of inodes the store is whole or says what is missing."""
    for inodes in range(2, 22):
        disk = tmp_path / f"disk{inodes}"
        if not mounted(disk, "-o", f"size=1m,nr_inodes={inodes},mode=700"):
            pytest.skip("cannot mount here")
        try:
            store = LocalStore.open(str(disk / "home"))
            objects = checkpoint(store, 1, 1000)
            assert dict(store.blobs.get_many(id for id, _ in objects)) == dict(objects)
            store.close()
            outcome = "whole"
        except ReprieveError as exc:
            assert "full" in exc.message or "cannot open" in exc.message
            outcome = "refused"
        finally:
            subprocess.run(["umount", "-l", str(disk)], check=True)
        assert outcome == ("whole" if inodes > 15 else outcome)
    assert outcome == "whole"


def in_limited_child(limit: int, value: int, path: str) -> str:
    """What happens to a checkpoint in a process with a limit; the store is open before the limit comes."""
    ready, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        try:
            store = LocalStore.open(path)
            store.timeline("w").head()
            resource.setrlimit(limit, (value, value))
            for n in range(5):
                checkpoint(store, n, 200_000)
            answer = "done"
        except ReprieveError as exc:
            answer = f"{exc.code}: {exc.message}"
        except BaseException as exc:
            answer = f"bug: {exc!r}"
        os.write(told, answer.encode())
        os._exit(0)
    os.close(told)
    with os.fdopen(ready, "rb") as answer_of_child:
        answer = answer_of_child.read().decode()
    os.waitpid(pid, 0)
    return answer


def test_limits_of_the_process_are_named(store: LocalStore, path: str) -> None:
    """C16: EFBIG and EMFILE."""
    answer = in_limited_child(resource.RLIMIT_FSIZE, 700_000, path)
    assert answer.startswith("store_failed:")
    assert "larger file" in answer
    open_files = len(os.listdir("/proc/self/fd"))
    for more in range(12):
        answer = in_limited_child(resource.RLIMIT_NOFILE, open_files + more, path)
        assert answer.startswith(("store_failed:", "done")), answer
    assert answer == "done"
    assert list(store.blobs.check()) == []
    assert list(store.timeline("w").verify()) == []
