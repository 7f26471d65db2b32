"""What is written behind the caller's back is waited for, and its errors reach the caller."""

from __future__ import annotations

import threading

import pytest

from reprieve.files.behind import Behind


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
