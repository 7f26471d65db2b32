"""Threads in which calls do their work, and what each of them keeps open for the next.

Not the pool of anyio: its threads end without a word, so that nothing that has to be closed can stay in them.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import anyio

from reprieve.store.kept import Kept

T = TypeVar("T")
Job = tuple[Callable[[], Any], asyncio.AbstractEventLoop, "asyncio.Future[Any]"]

_IDLE_S = 30.0  # an agent that thinks longer opens the store again: 0.7 ms

_here = threading.local()


def kept() -> Kept | None:
    """What this thread keeps open; None in a thread that is no worker."""
    found: Kept | None = getattr(_here, "kept", None)
    return found


class Workers:
    """At most so many threads. They begin when they are needed and end when they were not for a while."""

    def __init__(self, most: int, *, idle_s: float = _IDLE_S) -> None:
        self._places = anyio.Semaphore(most, fast_acquire=True)  # without a turn of the loop where there is room
        self._idle_s = idle_s
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []  # the one that worked last is the last: the others may end

    async def run(self, do: Callable[[], T]) -> T:
        """Do it in a thread. Not given up when the client is: what was begun is finished, as with Ctrl-C."""
        async with self._places:
            with self._lock:
                worker = self._idle.pop() if self._idle else None
            if worker is None:
                worker = _Worker(self)
                worker.start()
            loop = asyncio.get_running_loop()
            done: asyncio.Future[T] = loop.create_future()
            worker.jobs.put((do, loop, done))
            try:
                with anyio.CancelScope(shield=True):
                    await done
                return done.result()
            finally:
                del done  # an error knows this frame and is known to it: 6 kB of each, until the collector comes by

    def rests(self, worker: _Worker) -> None:
        """It can take the next job."""
        with self._lock:
            self._idle.append(worker)

    def may_end(self, worker: _Worker) -> bool:
        """Whether nobody has just chosen it."""
        with self._lock:
            if worker not in self._idle:
                return False
            self._idle.remove(worker)
            return True


class _Worker(threading.Thread):
    def __init__(self, workers: Workers) -> None:
        # a daemon: the end of the server does not wait for idle ones, and `run` has waited for the others
        super().__init__(name="reprieve-worker", daemon=True)
        self._workers = workers
        self.jobs: SimpleQueue[Job] = SimpleQueue()

    def run(self) -> None:
        _here.kept = Kept()
        try:
            while (job := self._next()) is not None:
                do, loop, done = job
                result, error = None, None
                try:
                    result = do()
                except BaseException as caught:  # noqa: BLE001 - it is raised again where the call waits
                    error = caught
                self._workers.rests(self)
                try:
                    loop.call_soon_threadsafe(_settle, done, result, error)
                except RuntimeError:  # the server has ended, and nobody waits
                    if self._workers.may_end(self):
                        return
                del job, do, done, result, error  # an idle thread keeps no answer alive
        finally:
            _here.kept.close()

    def _next(self) -> Job | None:
        while True:
            try:
                return self.jobs.get(timeout=self._workers._idle_s)
            except Empty:
                if self._workers.may_end(self):
                    return None


def _settle(done: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if done.done():
        return  # the event loop itself was told to end
    if error is None:
        done.set_result(result)
    else:
        done.set_exception(error)
