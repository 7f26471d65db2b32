"""The database: connections, transactions that nest by joining, waiting, and errors a person can act on.

One connection per thread, none across a fork. Every write happens between BEGIN IMMEDIATE and COMMIT: a transaction
that starts by reading and then wants to write fails at once when another process had the same idea (1,500 of 1,600
with 16 processes), BEGIN IMMEDIATE waits.

Durability. Rollback journal in TRUNCATE mode: unlike WAL it needs no shared memory (SIGBUS on a full disk with small
blocks) and works on network file systems; unlike PERSIST it leaves no old rows in the journal; DELETE is a fifth
slower (one commit: DELETE 1.2 ms, TRUNCATE 0.9, PERSIST 0.9). From FULL on SQLite syncs the journal after truncating
it, without which the journal may come back after a power cut and undo the commit; EXTRA costs the same in this mode
and also holds should the journal ever be deleted.
"""

from __future__ import annotations

import os
from _thread import get_ident
from time import monotonic

from reprieve.errors import StoreCorrupted, StoreFailed, StoreLocked
from reprieve.model.reporter import Reporter
from reprieve.store.faults import is_busy, translate
from reprieve.store.forks import make_immortal, tell_on_fork
from reprieve.store.schema import MIGRATIONS

TYPE_CHECKING = False
if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Sequence
    from types import TracebackType
    from typing import Any, TypeVar

    T = TypeVar("T")
    Row = tuple[Any, ...]
else:
    try:
        import _sqlite3 as sqlite3  # the package around it adds only datetime converters, and 4 ms
    except ImportError:
        import sqlite3

PATIENCE_S = 60.0
_SAY_AFTER_S = 1.0  # also SQLite's own waiting time, so that we are back in time to say it
_PRAGMAS = (
    "PRAGMA journal_mode = TRUNCATE",
    "PRAGMA synchronous = EXTRA",
    "PRAGMA secure_delete = ON",  # what `forget` removes must not stay readable in free pages
    "PRAGMA temp_store = MEMORY",  # no copy of a row in a temporary file outside the home
    "PRAGMA cache_size = -8000",  # 8 MB: the rows of a first checkpoint of 100,000 files without spilling half-way
)


class Database:
    """store.db. Methods are for any thread; each gets its own connection."""

    def __init__(
        self,
        path: str,
        *,
        reporter: Reporter | None = None,
        wait_s: float = PATIENCE_S,
        busy_s: float = _SAY_AFTER_S,
        is_new: bool = False,
        migrations: Sequence[Sequence[str]] = MIGRATIONS,
        pragmas: Sequence[str] = _PRAGMAS,
    ) -> None:
        self.path = path
        self._reporter = reporter or Reporter()
        self._wait_s = wait_s
        self._busy_s = busy_s
        self._is_new = is_new  # being created: empty is right
        self._migrations = migrations
        self._pragmas = pragmas
        self._pid = os.getpid()
        self._is_closed = False
        # by thread number; a number that is given again finds an idle connection
        self._threads: dict[int, _Connection] = {}
        tell_on_fork(self)

    def query(self, sql: str, values: Sequence[object] = ()) -> list[Row]:
        """All rows. Never a cursor: one that is not read to its end holds off every writer."""
        here = self._here()
        return self._patiently(lambda: here.sql.execute(sql, values).fetchall())

    def execute(self, sql: str, values: Sequence[object] = ()) -> int:
        """Change something, inside `transaction`; return the number of the last inserted row."""
        here = self._changing()
        return self._patiently(lambda: here.sql.execute(sql, values)).lastrowid or 0

    def execute_many(self, sql: str, rows: Iterable[Sequence[object]]) -> None:
        """The same change for many rows."""
        here = self._changing()
        self._patiently(lambda: here.sql.executemany(sql, rows))

    def transaction(self) -> Transaction:
        """Everything inside is committed at the outermost exit, or nothing of it."""
        return Transaction(self)

    @property
    def is_in_transaction(self) -> bool:
        """This thread is inside `transaction`."""
        return self._here().depth > 0

    def when_done(
        self, *, committed: Callable[[], None] | None = None, undone: Callable[[], None] | None = None
    ) -> None:
        """Have one of the two called when this thread's transaction has ended one way or the other."""
        here = self._here()
        assert here.depth, "when_done outside of a transaction"
        here.done.append((committed, undone))

    def doom(self) -> None:
        """Have this thread's transaction, if it is in one, end in a rollback."""
        here = self._threads.get(get_ident())
        if here is not None and here.depth:
            here.is_doomed = True

    def migrate(self) -> None:
        """Bring the tables to the newest version, one transaction per step."""
        while True:
            with self.transaction():
                version = self._version(self._here())
                if version >= len(self._migrations):
                    return
                for statement in self._migrations[version]:
                    self.execute(statement)
                self.execute(f"PRAGMA user_version = {version + 1}")

    def check_soundness(self) -> None:
        """Raises StoreCorrupted if SQLite finds the file malformed."""
        found = self.query("PRAGMA quick_check(1)")
        if found[0][0] != "ok":
            raise StoreCorrupted(
                f"the store's database is damaged: {found[0][0]} ({self.path!r})",
                hints=["restore it from a backup of REPRIEVE_HOME; the packs beside it still hold the content"],
                data={"path": self.path},
            )

    def problems(self) -> list[str]:
        """Everything that SQLite finds wrong, indexes that do not lead to their rows included; reads the whole file."""
        try:
            found = [str(line) for (line,) in self.query("PRAGMA integrity_check(20)")]
        except StoreCorrupted as exc:
            return [exc.message]
        return [f"the store's database is damaged: {line}" for line in found if line != "ok"]

    def vacuum(self) -> None:
        """Give free pages back to the disk, outside of any transaction."""
        here = self._here()
        self._patiently(lambda: here.sql.execute("VACUUM"))

    def rest(self) -> None:
        """Between two uses by the same thread: its connection stays, without what it has read; others' are closed."""
        mine = self._threads.pop(get_ident(), None)
        others, self._threads = self._threads, {}
        for one in others.values():
            one.sql.close()
        if mine is not None:
            self._threads[get_ident()] = mine
            # pages are kept by a counter in the file, which a copy put back in its place can count to as well
            self.query("PRAGMA shrink_memory")

    def wake(self, reporter: Reporter) -> None:
        """Before the next use. Raises StoreFailed if a newer Reprieve has brought the tables further meanwhile."""
        self._reporter = reporter
        if (here := self._threads.get(get_ident())) is not None:
            self._version(here)

    def hand_over(self, reporter: Reporter) -> None:
        """For a command, after it was opened without patience and before one was known; checked as if opened now."""
        self._reporter, self._wait_s, self._busy_s = reporter, PATIENCE_S, _SAY_AFTER_S
        here = self._here()
        self.query(f"PRAGMA busy_timeout = {int(_SAY_AFTER_S * 1000)}")
        if self._version(here) < len(self._migrations):
            self.migrate()

    def close(self) -> None:
        """Close every thread's connection. In a forked child: forget them."""
        self._is_closed = True
        connections, self._threads = self._threads, {}
        if os.getpid() == self._pid:
            for one in connections.values():
                one.sql.close()

    def _changing(self) -> _Connection:
        here = self._here()
        assert here.depth, "a change outside of a transaction"
        if here.is_doomed:
            # SQLite may have rolled back by itself (full disk); then a statement would be committed on its own.
            raise StoreFailed("a part of the change failed, so nothing of it was stored")
        return here

    def _here(self) -> _Connection:
        found = self._threads.get(get_ident())
        if found is None or os.getpid() != self._pid:
            found = self._connect()
        return found

    def _connect(self) -> _Connection:
        if os.getpid() != self._pid:
            raise StoreFailed(
                "the store was opened before this process was forked", hints=["open the workspace again in the child"]
            )
        if self._is_closed:
            raise StoreFailed("the store is closed")
        uri = f"file:{_quoted(self.path)}?mode=rw"  # rw: a database that has vanished is not made anew
        try:
            sql = sqlite3.connect(uri, uri=True, timeout=self._busy_s, isolation_level=None, check_same_thread=False)
        except sqlite3.Error as exc:
            raise translate(exc, self.path) from exc
        here = self._threads[get_ident()] = _Connection(sql)
        try:
            for pragma in self._pragmas:
                self.query(pragma)
            if self._version(here) < len(self._migrations):
                self.migrate()
        except BaseException:
            del self._threads[get_ident()]
            sql.close()
            raise
        return here

    def _version(self, here: _Connection) -> int:
        version: int = self._patiently(lambda: here.sql.execute("PRAGMA user_version").fetchone())[0]
        if version > len(self._migrations):
            needs = self._patiently(lambda: here.sql.execute("SELECT value FROM meta WHERE key = 'needs'").fetchone())
            raise StoreFailed(
                f"the store's database {self.path!r} has version {version};"
                f" this Reprieve knows version {len(self._migrations)}",
                hints=[f"use {needs[0] if needs else 'the newer Reprieve that wrote it'}: pip install -U reprieve"],
                data={"schema": version, "known": len(self._migrations)},
            )
        if version == 0 and not self._is_new:
            raise StoreCorrupted(
                f"the store's database {self.path!r} is empty",
                hints=["restore it from a backup of REPRIEVE_HOME; the content in packs/ is untouched"],
            )
        return version

    def _patiently(self, attempt: Callable[[], T]) -> T:
        """Run one statement; while another process is in the way wait, after a second with a word."""
        started = monotonic()
        said = False
        while True:
            try:
                return attempt()
            except sqlite3.Error as exc:
                if not is_busy(exc):
                    self.doom()
                    raise translate(exc, self.path) from exc
                if monotonic() - started >= self._wait_s:
                    raise StoreLocked(
                        f"another process has been writing to the store for over {self._wait_s:.0f} s ({self.path!r})",
                        hints=["see who holds it: fuser " + self.path, "try again later"],
                    ) from exc
            if not said:
                self._reporter.note("waiting for another process to finish writing to the store")
                said = True

    def _forked(self) -> None:
        # Closing an inherited connection may roll back the parent's transaction on disk, or wait for ever for a
        # mutex that a thread of the parent held.
        for one in self._threads.values():
            make_immortal(one.sql)


class _Connection:
    """A thread's connection and how deep it is in transactions."""

    def __init__(self, sql: sqlite3.Connection) -> None:
        self.sql = sql
        self.depth = 0
        self.is_doomed = False  # a nested part failed: the whole must not be committed
        self.done: list[tuple[Callable[[], None] | None, Callable[[], None] | None]] = []


class Transaction:
    """`with` block; made by `Database.transaction`."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def __enter__(self) -> None:
        here = self._db._here()
        if here.depth == 0:
            self._db._patiently(lambda: here.sql.execute("BEGIN IMMEDIATE"))
            here.is_doomed = False
        here.depth += 1

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if os.getpid() != self._db._pid:
            return  # a forked child on its way out: the transaction is its parent's
        here = self._db._here()
        here.depth -= 1
        if kind is not None:
            here.is_doomed = True
        if here.depth:
            return
        done, here.done = here.done, []
        try:
            if here.is_doomed or not here.sql.in_transaction:
                # not in_transaction: SQLite itself rolled back (disk full, I/O error) and someone caught that error
                if kind is None:
                    raise StoreFailed("a part of the change failed, so nothing of it was stored")
                return
            # A busy COMMIT leaves the transaction open, so trying again is right.
            self._db._patiently(lambda: here.sql.execute("COMMIT"))
        except BaseException:
            here.is_doomed = True
            raise
        finally:
            if here.is_doomed or here.sql.in_transaction:
                self._undo(here)
                for _, undone in done:
                    if undone is not None:
                        undone()
        for committed, _ in done:
            if committed is not None:
                committed()

    def _undo(self, here: _Connection) -> None:
        if here.sql.in_transaction:
            try:
                here.sql.execute("ROLLBACK")
            except sqlite3.Error as exc:
                raise translate(exc, self._db.path) from exc


def _quoted(path: str) -> str:
    return "".join(
        chr(byte) if byte < 128 and (chr(byte).isalnum() or byte in b"/._-~") else f"%{byte:02x}"
        for byte in os.fsencode(path)
    )
