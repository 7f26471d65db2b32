"""Content for any thread: each works with packs, files and pending objects of its own.

What one thread has put becomes durable by its own flush, in its own transaction; sharing it would let another thread's
rollback take it away.
"""

from __future__ import annotations

from _thread import get_ident

from reprieve.store.packs import LocalPacks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from reprieve.store.db import Database
    from reprieve.store.home import Home
    from reprieve.store.locks import Locks
    from reprieve.store.protocols import Buffer


class LocalBlobs:
    """BlobStore that gives each thread its own LocalPacks."""

    def __init__(self, home: Home, db: Database, locks: Locks) -> None:
        self._home = home
        self._db = db
        self._locks = locks
        self._threads: dict[int, LocalPacks] = {}

    def put(self, items: Iterable[tuple[bytes, Buffer]]) -> int:
        """Take objects that may be stored already; return how many were new."""
        return self._mine().put(items)

    def start_flush(self) -> None:
        """Begin to make durable what this thread has put."""
        self._mine().start_flush()

    def flush(self) -> None:
        """Make everything this thread has put durable and findable."""
        self._mine().flush()

    def leave(self) -> None:
        """This thread has given a workspace back."""
        mine = self._threads.get(get_ident())
        if mine is not None:
            mine.leave()

    def has(self, ids: Sequence[bytes]) -> set[bytes]:
        """Those of ids that are stored and not known to be damaged."""
        return self._mine().has(ids)

    def get(self, id: bytes) -> bytes:
        """The bytes, verified."""
        return self._mine().get(id)

    def prefetch(self, ids: Iterable[bytes]) -> None:
        """Begin with what `get_many` will be asked for."""
        self._mine().prefetch(ids)

    def get_many(self, ids: Iterable[bytes]) -> Iterator[tuple[bytes, bytes]]:
        """Verified objects in the order in which they lie on disk."""
        return self._mine().get_many(ids)

    def check(self, ids: Iterable[bytes] | None = None) -> Iterator[tuple[bytes, str]]:
        """Problems (id, reason) among ids (None: all objects)."""
        return self._mine().check(ids)

    def damaged(self) -> set[bytes]:
        """Objects known to be damaged or missing."""
        return self._mine().damaged()

    def drop(self, live: set[bytes]) -> int:
        """Take every object not in live out of the tables; return how many."""
        return self._mine().drop(live)

    def collect(self, live: set[bytes]) -> tuple[int, int]:
        """Drop every object not in live; return (objects, bytes) freed."""
        return self._mine().collect(live)

    def close(self) -> None:
        """Let go of every thread's files; what was not flushed is not kept."""
        threads, self._threads = self._threads, {}
        for one in threads.values():
            one.close()

    def _mine(self) -> LocalPacks:
        # A thread's number may be given again after its end; the next one finds idle packs.
        found = self._threads.get(get_ident())
        if found is None:
            found = self._threads[get_ident()] = LocalPacks(self._home, self._db, self._locks)
        return found
