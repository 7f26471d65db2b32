"""Locks between processes: the kernel's, never stale, with the holder's number for people."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from reprieve.errors import StoreFailed, StoreLocked
from reprieve.store.local import LocalStore
from reprieve.store.turns import Turn


def hold_in_child(path: str, *, gc: bool = False) -> int:
    """A child that holds the lock until it is killed; returns its pid once it has it."""
    ready, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        store = LocalStore.open(path)
        with store.gc_lock() if gc else store.lock("w"):
            os.write(told, b"x")
            signal.pause()
        os._exit(0)
    os.read(ready, 1)
    os.close(ready)
    os.close(told)
    return pid


def test_the_holder_is_named_and_a_killed_holder_leaves_no_lock(store: LocalStore, path: str) -> None:
    pid = hold_in_child(path)
    try:
        with pytest.raises(StoreLocked) as caught, store.lock("w", wait_s=0.05):
            pass
        assert str(pid) in caught.value.message
        assert str(pid) in caught.value.hints[0]
        assert caught.value.data["holder"] == pid
        with store.lock("other", wait_s=0):
            pass
        with pytest.raises(StoreLocked), store.gc_lock(wait_s=0.05):
            pass
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    with store.lock("w", wait_s=0), store.gc_lock(wait_s=0):
        pass


def test_gc_in_another_process_holds_off_work(store: LocalStore, path: str) -> None:
    pid = hold_in_child(path, gc=True)
    with pytest.raises(StoreLocked) as caught, store.lock("w", wait_s=0.05):
        pass
    assert str(pid) in caught.value.message
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    with store.lock("w", wait_s=0):
        pass


def test_a_forked_child_does_not_keep_the_lock(store: LocalStore, path: str) -> None:
    """Not while its parent lets go of it, nor after its parent's death."""
    ready, told = os.pipe()
    holder = os.fork()
    if holder == 0:
        mine = LocalStore.open(path)
        mine.lock("w").__enter__()
        child = os.fork()
        if child == 0:
            signal.pause()
            os._exit(0)
        os.write(told, b"%d" % child)
        signal.pause()
        os._exit(0)
    child = int(os.read(ready, 20))
    os.close(ready)
    os.close(told)
    try:
        os.kill(holder, signal.SIGKILL)
        os.waitpid(holder, 0)
        with store.lock("w", wait_s=0.5):
            pass
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_lock_that_is_a_symlink_is_not_followed(store: LocalStore, path: str, tmp_path: Path) -> None:
    target = tmp_path / "victim"
    target.write_text("mine")
    os.symlink(target, f"{path}/locks/w")
    with pytest.raises(StoreFailed), store.lock("w"):
        pass
    assert target.read_text() == "mine"


@pytest.mark.parametrize("id", ["gc", "", ".", "..", "a/b", "a\0b", "ä", "../../etc/passwd"])
def test_ids_that_are_no_file_names_are_refused(store: LocalStore, id: str) -> None:
    with pytest.raises(ValueError, match="not a workspace id"):
        store.lock(id)
    if id != "gc":
        with pytest.raises(ValueError, match="not a workspace id"):
            store.timeline(id)


def test_a_lost_lock_directory_is_made_again(store: LocalStore, path: str) -> None:
    os.rmdir(f"{path}/locks")
    with store.lock("w", wait_s=0):
        assert os.listdir(f"{path}/locks")


def test_an_upgrade_to_gc_gives_the_shared_lock_back(store: LocalStore, path: str) -> None:
    other = LocalStore.open(path)
    with store.lock("w"):
        with store.gc_lock(wait_s=0), pytest.raises(StoreLocked), other.lock("x", wait_s=0):
            pass
        with other.lock("x", wait_s=0), pytest.raises(StoreLocked), store.gc_lock(wait_s=0.02):
            pass
        with pytest.raises(StoreLocked), other.gc_lock(wait_s=0.02):
            pass
    with other.gc_lock(wait_s=0):
        pass
    other.close()


def test_a_lock_tells_whether_anybody_had_it_in_between(store: LocalStore, path: str) -> None:
    with store.lock("w"):
        pass
    turn = Turn(path, "w")
    assert not turn.is_next()
    with store.lock("w"):
        assert turn.is_next()
        with store.lock("w"):
            assert turn.is_next()
    with store.lock("w"):
        assert not turn.is_next()
    turn.close()
    with store.lock("w"), pytest.raises(BlockingIOError):
        Turn(path, "w")
    with pytest.raises(FileNotFoundError):
        Turn(path, "nobody")


@pytest.mark.parametrize(
    "words", [b"", b"77        \n", b"x y z\n", b"77        \n12 78 5\n", b"7 " * 60, b"77        \n-1 77 5\n"]
)
def test_what_a_lock_file_said_before_may_be_anything(store: LocalStore, path: str, words: bytes) -> None:
    Path(path, "locks").mkdir(exist_ok=True)
    Path(path, "locks", "w").write_bytes(words)
    turn = Turn(path, "w")
    with store.lock("w", wait_s=0):
        assert not turn.is_next()
    turn.close()
