"""One call at a time behind the caller's back: the next batch is made ready while the last one is written."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class Behind:
    """Runs `work` in a thread, `done` with its result in the caller's when it is waited for."""

    def __init__(self, *, in_thread: bool) -> None:
        self._in_thread = in_thread
        self._done: Callable[[Any], None] | None = None
        self._outcome: Any = None
        self._is_over: Any = None

    def start(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Begin; what was begun before must have been waited for."""
        assert self._done is None
        self._done = done
        if not self._in_thread:
            self._run(work)
            return
        from _thread import allocate_lock, start_new_thread

        self._is_over = allocate_lock()
        self._is_over.acquire()
        try:
            start_new_thread(self._run, (work,))
        except RuntimeError:  # as many threads as the system allows
            self._in_thread = False
            self._run(work)

    def _run(self, work: Callable[[], Any]) -> None:
        try:
            self._outcome = work()
        except BaseException as error:  # noqa: BLE001  raised where it is waited for
            self._outcome = error
        if self._in_thread:
            self._is_over.release()

    def wait(self) -> None:
        """Wait for the end of what was begun, if anything was. Raises what `work` and `done` raise."""
        if self._done is None:
            return
        if self._in_thread:
            self._is_over.acquire()  # if an interrupt ends this, there is still something to wait for
        done, outcome = self._done, self._outcome
        self._done = self._outcome = None
        if isinstance(outcome, BaseException):
            raise outcome
        done(outcome)
