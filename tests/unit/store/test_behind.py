"""What is written behind the caller's back is waited for, and its errors reach the caller."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from reprieve.store.behind import Behind, here, leave


@pytest.mark.parametrize("in_thread", [False, True])
def test_each_result_is_handed_over_once_and_in_order(in_thread: bool) -> None:
    behind, seen = Behind(in_thread=in_thread), []
    for number in range(5):
        behind.wait()
        behind.start(lambda number=number: number, seen.append)  # type: ignore[misc]
    behind.wait()
    behind.wait()
    assert seen == [0, 1, 2, 3, 4]


def test_it_really_runs_beside_the_caller() -> None:
    gate, seen = threading.Event(), []
    behind = Behind(in_thread=True)
    behind.start(lambda: gate.wait(30), seen.append)
    gate.set()  # would never be reached if `start` waited for the work
    behind.wait()
    assert seen == [True]


@pytest.mark.parametrize("in_thread", [False, True])
def test_an_error_is_raised_to_the_caller_and_then_it_is_over(in_thread: bool) -> None:
    behind = Behind(in_thread=in_thread)
    with pytest.raises(ZeroDivisionError):
        behind.start(lambda: 1 // 0, print)
        behind.wait()


def test_an_error_of_what_follows_is_raised_too() -> None:
    def done(_: object) -> None:
        raise KeyError

    behind = Behind(in_thread=True)
    behind.start(lambda: 1, done)
    with pytest.raises(KeyError):
        behind.wait()
    behind.wait()


def test_where_no_thread_can_be_had_the_caller_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("_thread.start_new_thread", refuse)
    behind, seen = Behind(in_thread=True), []
    behind.start(lambda: 1, seen.append)
    behind.wait()
    assert seen == [1]


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2, reason="one processor")
def test_a_short_job_runs_on_another_processor_than_its_starter() -> None:
    ours = os.sched_getaffinity(0)
    seen: list[set[int]] = []
    for _ in range(50):
        behind = Behind(in_thread=True, elsewhere=True)
        behind.start(lambda: os.sched_getaffinity(0), seen.append)
        behind.wait()
    assert all(mask < ours and len(ours - mask) == 1 for mask in seen)  # one is left out: where the starter was
    assert os.sched_getaffinity(0) == ours  # the starter itself may go anywhere
    behind = Behind(in_thread=True)
    behind.start(lambda: os.sched_getaffinity(0), seen.append)
    behind.wait()
    assert seen[-1] == ours


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="processors can't be chosen here")
def test_where_there_is_one_processor_it_is_shared() -> None:
    def work() -> tuple[object, set[int]]:
        os.sched_setaffinity(0, {one})
        alone = here()
        leave((0, one))
        leave((0, 1 << 10))  # one that there is not
        return alone, os.sched_getaffinity(0)

    one = min(os.sched_getaffinity(0))
    seen: list[tuple[object, set[int]]] = []
    behind = Behind(in_thread=True)
    behind.start(work, seen.append)
    behind.wait()
    assert seen == [(None, {one})]


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="processors can't be chosen here")
@pytest.mark.parametrize("error", [PermissionError, ValueError])
def test_who_may_not_ask_for_processors_works_all_the_same(monkeypatch: pytest.MonkeyPatch, error: type) -> None:
    def refuse(*_: object) -> None:
        raise error("not here")

    monkeypatch.setattr(os, "sched_getaffinity" if error is PermissionError else "read", refuse)
    behind, seen = Behind(in_thread=True, elsewhere=True), []
    behind.start(lambda: 1, seen.append)
    behind.wait()
    assert seen == [1]


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="processors can't be chosen here")
def test_where_threads_are_only_played_nobody_is_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    """As under gevent: what a thread should do is done by the one that starts it."""
    ours = os.sched_getaffinity(0)
    monkeypatch.setattr("_thread.start_new_thread", lambda work, args: work(*args))
    behind, seen = Behind(in_thread=True, elsewhere=True), []
    behind.start(lambda: 1, seen.append)
    behind.wait()
    assert seen == [1]
    assert os.sched_getaffinity(0) == ours


HAMMER = """
import random, signal, sys
from reprieve.store.behind import Behind

class Stopped(BaseException):
    pass

def stop(*_):
    raise Stopped

signal.signal(signal.SIGALRM, stop)
rng, stopped, ended = random.Random(5), 0, 0
for _ in range(6000):
    seen = []
    behind = Behind(in_thread=True, elsewhere=True)
    try:
        with behind:
            signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-6, 2e-4))
            behind.start(lambda: ended, seen.append)
            behind.wait()
        signal.setitimer(signal.ITIMER_REAL, 0)
    except Stopped:
        stopped += 1
    behind.wait()
    ended += 1
print(stopped, ended)
"""


def test_a_signal_at_any_moment_leaves_nothing_that_is_waited_for_in_vain() -> None:
    """A handler raises wherever it is: before the thread is there, while it is waited for, after that."""
    done = subprocess.run([sys.executable, "-c", HAMMER], capture_output=True, text=True, timeout=120, check=False)
    stopped, ended = map(int, done.stdout.split() or [0, 0])
    assert ended == 6000 and stopped > 1000, (done.stdout, done.stderr[-2000:])
