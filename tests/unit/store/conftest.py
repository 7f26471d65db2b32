"""A store in a temporary directory, and children that die where a test says."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reprieve.store.local import LocalStore

# Everything through which the store's Python code changes the disk. SQLite's own calls are swept by tests/crash.
CHANGES = ("pwrite", "fdatasync", "fsync", "rename", "unlink", "ftruncate", "mkdir", "open", "close")


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Where the store is, or will be."""
    return str(tmp_path / "home")


@pytest.fixture
def store(path: str) -> Iterator[LocalStore]:
    """A fresh local store."""
    store = LocalStore.open(path)
    yield store
    store.close()


def run_in_child(work: Callable[[], object]) -> int:
    """Fork, do the work, return the wait status of the child."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1]


def die_at(number: int) -> None:
    """In a child: kill this process just before the number-th call that changes something."""
    left = number

    def wrap(name: str) -> None:
        real = getattr(os, name)

        def call(*args: object, **kwargs: object) -> object:
            nonlocal left
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **kwargs)

        setattr(os, name, call)

    for name in CHANGES:
        wrap(name)


@pytest.fixture
def kill_sweep() -> Callable[[Callable[[int], None], Callable[[int], None]], int]:
    """Run work(n) in a child killed at its n-th change, for n = 0, 1, ... until it survives; check(n) after each."""

    def sweep(work: Callable[[int], None], check: Callable[[int], None]) -> int:
        for number in range(10_000):

            def child(number: int = number) -> None:
                die_at(number)
                work(number)

            status = run_in_child(child)
            if status == 0:
                check(number)
                return number
            assert os.WIFSIGNALED(status), f"the child failed instead of being killed (point {number})"
            check(number)
        raise AssertionError("never survived")

    return sweep
