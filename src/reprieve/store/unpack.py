"""Many objects out of their frames: decompressed and verified in threads while the caller uses what is ready.

Threads compute, and read from files that the caller has opened; the database stays with the caller.
"""

from __future__ import annotations

from reprieve.store.behind import here, leave
from reprieve.store.codec import BadContent, decompress_start
from reprieve.store.frames import ZSTD
from reprieve.store.hashing import sha256, sha256_in_thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _queue import SimpleQueue
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    from reprieve.store.behind import Starter
    from reprieve.store.places import Place

    Group = list[Place]  # objects of one frame, by their start
    Found = list[bytes | None]  # their bytes; None where they do not match their id

_THREADS = 2
_AHEAD_THREADS = 1  # the caller is at work as well
_IN_FLIGHT = 2 << 20  # raw bytes waiting for a thread or for the caller; bounds memory


def unpack(payload: bytes, group: Group, hash_of: Callable[[bytes], bytes] = sha256) -> Found:
    """The objects of a payload, each compared with its id; None for those that are damaged."""
    found: Found = []
    raw = payload
    if group[0].codec == ZSTD:
        try:
            raw = decompress_start(payload, max(place.start + place.length for place in group))
        except BadContent:
            return [None] * len(group)
    for place in group:
        data = raw[place.start : place.start + place.length]
        found.append(data if hash_of(data) == place.id else None)
    return found


def unpack_all(frames: Iterable[tuple[Group, bytes]], *, in_threads: bool) -> Iterator[tuple[Group, Found]]:
    """`unpack` for each (objects, payload), in the same order."""
    if in_threads:
        yield from _unpack_in_threads(frames)
        return
    for group, payload in frames:
        yield group, unpack(payload, group)


class Ahead:
    """Frames that threads unpack from now on, while the caller does something else.

    Everything is handed over at once, so the threads end by themselves, whether anybody asks for the results or not.
    """

    def __init__(self, frames: Iterable[tuple[Group, Callable[[], bytes]]]) -> None:
        from _queue import SimpleQueue
        from _thread import start_new_thread

        todo: SimpleQueue[Any] = SimpleQueue()
        self._ready: SimpleQueue[Any] = SimpleQueue()
        self._count = 0
        for group, read in frames:
            todo.put((self._count, group, read))
            self._count += 1
        for _ in range(_AHEAD_THREADS):
            todo.put(None)
        for _ in range(_AHEAD_THREADS):
            start_new_thread(_read_and_work, (todo, self._ready, here()))

    def results(self) -> Iterator[tuple[Group, Found]]:
        """As they come; once only."""
        while self._count:
            self._count -= 1
            _, outcome = self._ready.get()
            if isinstance(outcome, BaseException):
                raise outcome
            yield outcome


def _unpack_in_threads(frames: Iterable[tuple[Group, bytes]]) -> Iterator[tuple[Group, Found]]:
    from _queue import SimpleQueue
    from _thread import start_new_thread

    todo: SimpleQueue[Any] = SimpleQueue()
    ready: SimpleQueue[Any] = SimpleQueue()
    for _ in range(_THREADS):
        start_new_thread(_work, (todo, ready))
    sizes: list[int] = []
    done: dict[int, Any] = {}
    in_flight = given = 0

    def take() -> tuple[Group, Found]:
        while given not in done:
            number, outcome = ready.get()
            done[number] = outcome
        outcome = done.pop(given)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome  # type: ignore[no-any-return]

    try:
        for group, payload in frames:
            todo.put((len(sizes), group, payload))
            sizes.append(group[0].raw_size)
            in_flight += sizes[-1]
            while in_flight > _IN_FLIGHT:
                yield take()
                in_flight -= sizes[given]
                given += 1
        while given < len(sizes):
            yield take()
            given += 1
    finally:
        for _ in range(_THREADS):
            todo.put(None)


def _read_and_work(todo: SimpleQueue[Any], ready: SimpleQueue[Any], starter: Starter | None) -> None:
    leave(starter)
    while (job := todo.get()) is not None:
        number, group, read = job
        outcome: object
        try:
            try:
                payload = read()
            except OSError:
                payload = b""  # matches no id, so each of them gets its second try
            outcome = group, unpack(payload, group)
        except BaseException as exc:  # noqa: BLE001  handed to the caller, who raises it
            outcome = exc
        ready.put((number, outcome))


def _work(todo: SimpleQueue[Any], ready: SimpleQueue[Any]) -> None:
    while (job := todo.get()) is not None:
        number, group, payload = job
        outcome: object
        try:
            outcome = group, unpack(payload, group, sha256_in_thread)
        except BaseException as exc:  # noqa: BLE001  handed to the caller, who raises it
            outcome = exc
        ready.put((number, outcome))
