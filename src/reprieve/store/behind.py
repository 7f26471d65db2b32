"""One call at a time behind the caller's back: the next batch is made ready while the last one is written."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class Behind:
    """Runs `work` in a thread, `done` with its result in the caller's when it is waited for.

    `elsewhere`: for what is over soon and starts no thread itself, see `leave`.
    """

    def __init__(self, *, in_thread: bool, elsewhere: bool = False) -> None:
        self._in_thread, self._elsewhere = in_thread, elsewhere
        self._done: Callable[[Any], None] | None = None
        self._outcome: Any = None
        self._is_over: Any = None  # a lock that is free when it is
        self._has_ended = False

    def __enter__(self) -> Behind:
        return self

    def __exit__(self, *_: object) -> None:
        self.wait()

    def start(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Begin; what was begun before must have been waited for."""
        assert self._done is None
        self._has_ended = False
        if self._in_thread:
            from _thread import allocate_lock, start_new_thread

            starter = processor() if self._elsewhere else -1
            self._is_over = lock = allocate_lock()
            lock.acquire()
            # A signal's handler may raise after any call: from here on there is something to wait for
            self._done = done
            try:
                start_new_thread(self._run, (work, lock, starter))
                return
            except RuntimeError:  # as many threads as the system allows
                self._in_thread, self._done = False, None
        self._run(work, None)
        self._done = done

    def _run(self, work: Callable[[], Any], lock: Any, starter: int = -1) -> None:
        try:
            leave(starter)
            self._outcome = work()
        except BaseException as error:  # noqa: BLE001  raised where it is waited for
            self._outcome = error
        self._has_ended = True
        if lock is not None:
            lock.release()

    def wait(self) -> None:
        """Wait for the end of what was begun, if anything was. Raises what `work` and `done` raise."""
        if self._done is None:
            return
        if self._in_thread and not self._has_ended:
            with self._is_over:  # if an interrupt ends this, even now, one can still wait for it
                pass
        done, outcome = self._done, self._outcome
        self._done = self._outcome = None
        if isinstance(outcome, BaseException):
            raise outcome
        done(outcome)


def processor() -> int:
    """The processor that this thread runs on; -1 where that can't be told, or there is only one for us."""
    if not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2:
        return -1
    try:
        fd = os.open("/proc/thread-self/stat", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return int(os.read(fd, 4096).rpartition(b")")[2].split()[36])
        finally:
            os.close(fd)
    except OSError:
        return -1  # no /proc


def leave(number: int) -> None:
    """Run anywhere but on that processor, which is the one of who started this thread; -1: anywhere.

    Linux lets a thread that is woken wait for 4 ms behind the one that took its processor over when it went to wait for
    the disk, while the other processor is idle: a commit in the middle of a rollback took twice as long.
    """
    if number < 0:
        return
    try:
        os.sched_setaffinity(0, os.sched_getaffinity(0) - {number} or {number})
    except OSError:
        return  # what we may run on has just changed: then anywhere
