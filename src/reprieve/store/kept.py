"""A database that stays open from one use of the store to the next.

For a thread that opens the store again and again: connecting, reading the schema and compiling the same statements are
0.7 ms of each opening, as much as the whole rest of a small checkpoint. Everything that an opening checks is checked at
each of them as before: the home, the database's version, and that it is still the same file. Locks and packs are not
kept.
"""

from __future__ import annotations

import os

from reprieve.store.db import Database
from reprieve.store.faults import failed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from reprieve.model.reporter import Reporter
    from reprieve.store.home import Home


class Kept:
    """For one thread, and one use at a time. Close it after a use that failed: nobody knows what that one left."""

    def __init__(self) -> None:
        self._db: Database | None = None
        self._file: tuple[str, int, int] | None = None

    def database(self, home: Home, reporter: Reporter) -> Database:
        """The database of a home that was just checked."""
        path = home.file("store.db")
        try:
            info = os.lstat(path)
        except OSError as exc:
            raise failed(exc, path, f"open {path!r}") from exc
        file = (path, info.st_dev, info.st_ino)
        if self._db is not None and self._file == file:
            self._db.wake(reporter)
        else:
            self.close()
            # seen before it is opened: should another take its place in between, the next use notices
            self._db, self._file = Database(path, reporter=reporter), file
        return self._db

    def rest(self) -> None:
        """The use is over."""
        if self._db is not None:
            self._db.rest()

    def close(self) -> None:
        """Let go of it."""
        db, self._db, self._file = self._db, None, None
        if db is not None:
            db.close()
