"""One call at a time behind the caller's back: the next batch is made ready while the last one is written."""

from __future__ import annotations

import os
from _thread import get_native_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Starter = tuple[int, int]  # (number of the thread, of its processor)


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

            starter = here() if self._elsewhere else None
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

    def _run(self, work: Callable[[], Any], lock: Any, starter: Starter | None = None) -> None:
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


def here() -> Starter | None:
    """This thread and the processor that it runs on; None where that can't be told, or there is only one for us."""
    try:
        if not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2:
            return None
        fd = os.open("/proc/thread-self/stat", os.O_RDONLY | os.O_CLOEXEC)
        try:
            number, _, rest = os.read(fd, 4096).partition(b" ")
        finally:
            os.close(fd)
        return int(number), int(rest.rpartition(b")")[2].split()[36])
    except (OSError, ValueError, IndexError):
        return None  # no /proc, another one than Linux's, or we may not ask


def leave(starter: Starter | None) -> None:
    """Run anywhere but on the processor of the thread that started this one; None: anywhere.

    Linux lets a thread that is woken wait for 4 ms behind the one that took its processor over when it went to wait for
    the disk, while the other processor is idle: a commit in the middle of a rollback took twice as long.
    """
    # where threads are only played (gevent), this is still the one that started it, and must not be moved for good
    if starter is None or starter[0] == get_native_id():
        return
    try:
        os.sched_setaffinity(0, os.sched_getaffinity(0) - {starter[1]} or {starter[1]})
    except (OSError, MemoryError):
        return  # what we may run on has just changed, or we may not choose: then anywhere
