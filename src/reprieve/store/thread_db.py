"""Threads in an SQLite database of their own: `threads.db` in a folder, or `threads/<workspace>.db` in the store.

Apart from store.db because agents' states are written many times a second by many threads, and the hook that runs
before every tool call must wait for none of them. Same rules (db.py): one connection per thread, every change between
BEGIN IMMEDIATE and COMMIT, everything on disk when a call returns.

Write-ahead log, unlike store.db: a turn of an agent is five commits, each one sync of one file instead of five syncs of
two (40 to 70 ms a turn became 5 to 10), and nobody who reads holds up a writer. The price is that it works on local
disks only (docs/design/0008-threads.md).
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import RLock

from reprieve.errors import Misconfigured, StoreFailed
from reprieve.model.reporter import Reporter
from reprieve.model.thread import STATE, ThreadEntry, ThreadRecord
from reprieve.store.db import Database
from reprieve.store.faults import failed
from reprieve.store.home import create_file, sync_directory
from reprieve.store.locks import PATIENCE_S, wait_for_flock
from reprieve.store.thread_chain import FIRST_PREV

# Step n takes a database from user_version n-1 to n, in one transaction. A released step is never changed.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        "PRAGMA application_id = 0x52505448",
        "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
        "INSERT INTO meta VALUES ('sweeps', '0')",
        "CREATE TABLE threads (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, seq INTEGER NOT NULL,"
        " hash BLOB NOT NULL, created_at INTEGER NOT NULL, deleted_at INTEGER NOT NULL, is_deleted INTEGER NOT NULL)",
        "CREATE TABLE entries (thread INTEGER NOT NULL, seq INTEGER NOT NULL, kind TEXT NOT NULL, ns TEXT NOT NULL,"
        " id TEXT NOT NULL, parent TEXT NOT NULL, created_at INTEGER NOT NULL, body BLOB NOT NULL, prev BLOB NOT NULL,"
        " hash BLOB NOT NULL, is_current INTEGER NOT NULL, PRIMARY KEY (thread, seq))",
        "CREATE INDEX entries_about ON entries (thread, ns, id)",
        "CREATE TABLE heads (thread INTEGER NOT NULL, ns TEXT NOT NULL, id TEXT NOT NULL, PRIMARY KEY (thread, ns))"
        " WITHOUT ROWID",
        "CREATE TABLE parts (number INTEGER PRIMARY KEY, hash BLOB NOT NULL UNIQUE, body BLOB NOT NULL)",
        "CREATE TABLE uses (thread INTEGER NOT NULL, part INTEGER NOT NULL, PRIMARY KEY (thread, part)) WITHOUT ROWID",
        "CREATE INDEX uses_part ON uses (part)",
    ),
)
_PRAGMAS = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",  # the log is synced at every commit; NORMAL would lose the last ones in a power cut
    "PRAGMA wal_autocheckpoint = 500",  # a log of 2 MB
    "PRAGMA secure_delete = ON",
    "PRAGMA temp_store = MEMORY",
    "PRAGMA cache_size = -4000",
)
_COLUMNS = "seq, kind, ns, id, parent, created_at, body, prev, hash, is_current"
_MANY = 400  # values in one statement; SQLite's limit may be 999


class SqliteThreads:
    """A store of threads in one file. Use it from any thread; after a fork open another."""

    def __init__(self, db: Database) -> None:
        """Made by `open`."""
        self._db = db
        # Threads of one process queue here: SQLite's own waiting is a sleep that doubles.
        self._lock = RLock()
        self._pid = os.getpid()
        self._numbers: dict[str, int] = {}  # a thread's number never changes

    @classmethod
    def open(cls, path: str, *, reporter: Reporter | None = None, create: bool = True) -> SqliteThreads:
        """Open the file at path; make it, with its folder, if it is not there yet."""
        path = os.path.abspath(path)
        reporter = reporter or Reporter()
        if not os.path.lexists(path):
            if not create:
                raise StoreFailed(f"there are no threads at {path!r}", data={"path": path})
            _create(path, reporter)
        _check(path)
        return cls(Database(path, reporter=reporter, migrations=MIGRATIONS, pragmas=_PRAGMAS))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Alone among all threads and processes; committed at the outermost exit."""
        if os.getpid() != self._pid:  # before the lock: a thread of the parent may have held it
            raise StoreFailed("the store was opened before this process was forked", hints=["open it again"])
        with self._lock, self._db.transaction():
            yield

    @property
    def sweeps(self) -> int:
        """How often parts were removed."""
        return int(self._db.query("SELECT value FROM meta WHERE key = 'sweeps'")[0][0])

    def thread(self, id: str) -> ThreadRecord | None:
        """The record of a thread, deleted or not."""
        rows = self._db.query(
            "SELECT id, seq, hash, created_at, deleted_at, is_deleted, number FROM threads WHERE id = ?", (_key(id),)
        )
        if not rows:
            return None
        self._numbers[id] = rows[0][6]
        return _record(rows[0])

    def threads(self) -> list[ThreadRecord]:
        """All of them, oldest first."""
        rows = self._db.query(
            "SELECT id, seq, hash, created_at, deleted_at, is_deleted FROM threads ORDER BY created_at, number"
        )
        return [_record(row) for row in rows]

    def save_thread(self, record: ThreadRecord) -> None:
        """Insert or update by id."""
        with self.transaction():
            # a number that is not committed after all will be given to another thread
            self._db.when_done(undone=self._numbers.clear)
            self._db.execute(
                "INSERT INTO threads (id, seq, hash, created_at, deleted_at, is_deleted) VALUES (?, ?, ?, ?, ?, ?)"
                " ON CONFLICT (id) DO UPDATE SET seq = excluded.seq, hash = excluded.hash,"
                " created_at = excluded.created_at, deleted_at = excluded.deleted_at, is_deleted = excluded.is_deleted",
                (_key(record.id), *record[1:]),
            )

    def clear_thread(self, id: str) -> None:
        """Remove everything but the record."""
        with self.transaction():
            number = self._number(id)
            self._db.execute("DELETE FROM entries WHERE thread = ?", (number,))
            self._db.execute("DELETE FROM heads WHERE thread = ?", (number,))
            self.keep_parts(id, set())

    def append(self, thread: str, entry: ThreadEntry) -> None:
        """Add an entry at the end of a thread that has a record."""
        with self.transaction():
            number = self._number(thread)
            if entry.kind == STATE:
                self._db.execute(
                    "UPDATE entries SET is_current = 0 WHERE thread = ? AND ns = ? AND id = ? AND kind = 'state'",
                    (number, _key(entry.ns), _key(entry.id)),
                )
            self._db.execute(
                f"INSERT INTO entries (thread, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    number, entry.seq, entry.kind, _key(entry.ns), _key(entry.id), _key(entry.parent),
                    entry.created_at, entry.body, entry.prev, entry.hash, int(entry.is_current),
                ),
            )  # fmt: skip
            self._db.execute("UPDATE threads SET seq = ?, hash = ? WHERE number = ?", (entry.seq, entry.hash, number))

    def entries(
        self, thread: str, *, kinds: Sequence[str] = (), ns: str | None = None, after: int = 0, old: bool = True
    ) -> list[ThreadEntry]:
        """Oldest first."""
        where, values = "seq > ?", [after]
        return self._select(thread, where, values, kinds=kinds, ns=ns, old=old, order="seq")

    def about(self, thread: str, ns: str, ids: Sequence[str]) -> list[ThreadEntry]:
        """The current state and the writes of each."""
        found: list[ThreadEntry] = []
        for start in range(0, len(ids), _MANY):
            some = [_key(id) for id in ids[start : start + _MANY]]
            where = f"ns = ? AND id IN ({','.join('?' * len(some))}) AND is_current"
            # "+": without it SQLite takes the index that is in this order, and reads the whole thread
            found += self._select(thread, where, [_key(ns), *some], kinds=("state", "writes"), order="+seq")
        return found if len(ids) <= _MANY else sorted(found)

    def states(
        self, thread: str, ns: str | None, *, limit: int = 0, before_seq: int = 0, before_id: str = ""
    ) -> list[ThreadEntry]:
        """Current states, newest first."""
        where = "is_current"
        values: list[object] = []
        if before_seq:
            where, values = where + " AND seq < ?", [*values, before_seq]
        if before_id:
            where, values = where + " AND id < ?", [*values, _key(before_id)]
        order = "seq DESC" + (f" LIMIT {int(limit)}" if limit else "")
        return self._select(thread, where, values, kinds=(STATE,), ns=ns, order=order)

    def seq_of(self, thread: str, ns: str, id: str) -> int:
        """0 if there is no such state."""
        rows = self._db.query(
            "SELECT seq FROM entries WHERE thread = ? AND ns = ? AND id = ? AND kind = 'state' AND is_current",
            (self._number(thread), _key(ns), _key(id)),
        )
        return rows[0][0] if rows else 0

    def drop(self, thread: str, seqs: Iterable[int]) -> None:
        """Remove entries."""
        with self.transaction():
            number = self._number(thread)
            self._db.execute_many("DELETE FROM entries WHERE thread = ? AND seq = ?", [(number, seq) for seq in seqs])

    def heads(self, thread: str) -> dict[str, str]:
        """By namespace."""
        rows = self._db.query("SELECT ns, id FROM heads WHERE thread = ?", (self._number(thread),))
        return {_text(ns): _text(id) for ns, id in rows}

    def set_heads(self, thread: str, heads: Mapping[str, str]) -> None:
        """Insert or replace; others stay."""
        with self.transaction():
            number = self._number(thread)
            self._db.execute_many(
                "INSERT OR REPLACE INTO heads VALUES (?, ?, ?)",
                [(number, _key(ns), _key(id)) for ns, id in heads.items()],
            )

    def put_parts(self, thread: str, parts: Mapping[bytes, bytes]) -> None:
        """Keep parts for a thread."""
        with self.transaction():
            number = self._number(thread)
            self._db.execute_many("INSERT OR IGNORE INTO parts (hash, body) VALUES (?, ?)", list(parts.items()))
            self._db.execute_many(
                "INSERT OR IGNORE INTO uses SELECT ?, number FROM parts WHERE hash = ?",
                [(number, hash) for hash in parts],
            )

    def share_parts(self, source: str, target: str) -> None:
        """Keep all parts of source for target too."""
        with self.transaction():
            self._db.execute(
                "INSERT OR IGNORE INTO uses SELECT ?, part FROM uses WHERE thread = ?",
                (self._number(target), self._number(source)),
            )

    def parts(self, hashes: Sequence[bytes]) -> dict[bytes, bytes]:
        """Those that are there."""
        found: dict[bytes, bytes] = {}
        for start in range(0, len(hashes), _MANY):
            some = hashes[start : start + _MANY]
            found.update(
                self._db.query(f"SELECT hash, body FROM parts WHERE hash IN ({','.join('?' * len(some))})", some)
            )
        return found

    def part_hashes(self, thread: str) -> list[bytes]:
        """Of all parts kept for a thread."""
        sql = "SELECT p.hash FROM uses u JOIN parts p ON p.number = u.part WHERE u.thread = ?"
        return [hash for (hash,) in self._db.query(sql, (self._number(thread),))]

    def keep_parts(self, thread: str, live: set[bytes]) -> int:
        """Let go of all others."""
        with self.transaction():
            number = self._number(thread)
            rows = self._db.query(
                "SELECT p.number, p.hash FROM uses u JOIN parts p ON p.number = u.part WHERE u.thread = ?", (number,)
            )
            gone = [part for part, hash in rows if hash not in live]
            self._db.execute_many("DELETE FROM uses WHERE thread = ? AND part = ?", [(number, part) for part in gone])
            self._db.execute_many(
                "DELETE FROM parts WHERE number = ? AND NOT EXISTS (SELECT 1 FROM uses WHERE part = parts.number)",
                [(part,) for part in gone],
            )
            self._db.execute("UPDATE meta SET value = value + 1 WHERE key = 'sweeps'")
        return len(gone)

    def mark(self) -> str:
        """What `set_mark` said."""
        rows = self._db.query("SELECT value FROM meta WHERE key = 'seal'")
        return str(rows[0][0]) if rows else ""

    def set_mark(self, text: str) -> None:
        """Keep a word about the whole."""
        with self.transaction():
            self._db.execute("INSERT OR REPLACE INTO meta VALUES ('seal', ?)", (text,))

    def problems(self) -> list[str]:
        """What SQLite finds wrong."""
        return self._db.problems()

    def compact(self) -> None:
        """Give free pages back to the disk, and leave nothing of what was removed in the log."""
        with self._lock:
            self._db.vacuum()
            self.settle()

    def settle(self) -> None:
        """Bring everything into the main file and empty the log, in which removed rows could still be read."""
        self._db.query("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

    def _number(self, thread: str) -> int:
        found = self._numbers.get(thread)
        if found is None:
            self.thread(thread)
            found = self._numbers.get(thread, 0)
        return found

    def _select(
        self,
        thread: str,
        where: str,
        values: Sequence[object],
        *,
        kinds: Sequence[str] = (),
        ns: str | None = None,
        old: bool = True,
        order: str,
    ) -> list[ThreadEntry]:
        values = [self._number(thread), *values]
        if ns is not None:
            where, values = where + " AND ns = ?", [*values, _key(ns)]
        if kinds:
            where += f" AND kind IN ({','.join('?' * len(kinds))})"
            values += kinds
        if not old:
            where += " AND is_current"
        rows = self._db.query(f"SELECT {_COLUMNS} FROM entries WHERE thread = ? AND {where} ORDER BY {order}", values)
        return [
            ThreadEntry(r[0], r[1], _text(r[2]), _text(r[3]), _text(r[4]), r[5], r[6], r[7], r[8], bool(r[9]))
            for r in rows
        ]


def _create(path: str, reporter: Reporter) -> None:
    """Make the file under another name, whole, and then give it its own: killed anywhere, there is all or nothing."""
    folder = os.path.dirname(path)
    try:
        os.makedirs(folder, 0o700, exist_ok=True)
        _check_folder(folder)
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as exc:
        raise failed(exc, folder, f"create the folder {folder!r}") from exc
    try:
        wait_for_flock(
            fd, fcntl.LOCK_EX | fcntl.LOCK_NB, what="creating the store", wait_s=PATIENCE_S, reporter=reporter
        )
        if os.path.lexists(path):
            return  # another process was first
        new = path + ".new"
        for leftover in (new, new + "-journal"):
            if os.path.lexists(leftover):
                os.unlink(leftover)
        os.close(create_file(new))
        # with a plain journal: the file must be whole under its new name without another one beside it
        db = Database(new, reporter=reporter, is_new=True, migrations=MIGRATIONS)
        try:
            db.migrate()
        finally:
            db.close()
        if os.path.lexists(new + "-journal"):
            os.unlink(new + "-journal")
        os.rename(new, path)
        sync_directory(folder)
    except OSError as exc:
        raise failed(exc, path, f"create {path!r}") from exc
    finally:
        os.close(fd)


def _check(path: str) -> None:
    _check_folder(os.path.dirname(path))
    info = os.lstat(path)
    if not stat.S_ISREG(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & 0o077:
        raise Misconfigured(
            f"{path!r} is not a file of yours that only you can read; it is not opened",
            hints=["see what it is: ls -l " + path, "chmod 600 " + path],
        )


def _check_folder(folder: str) -> None:
    info = os.lstat(folder)
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & 0o022:
        # who can write to the folder can put a journal there, from which SQLite would "recover" whatever it says
        raise Misconfigured(
            f"{folder!r} is not a directory of yours that only you can write to; it cannot hold threads",
            hints=[f"chmod go-w {folder}", "or use another folder"],
        )


def _record(row: Sequence[object]) -> ThreadRecord:
    id, seq, hash, created_at, deleted_at, is_deleted = row[:6]
    assert isinstance(seq, int) and isinstance(created_at, int) and isinstance(deleted_at, int)
    assert isinstance(hash, bytes)
    return ThreadRecord(_text(id), seq, hash or FIRST_PREV, created_at, deleted_at, bool(is_deleted))


def _key(text: str) -> str | bytes:
    """Text as SQLite takes it; with lone surrogates, which UTF-8 cannot hold, as bytes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
    return text


def _text(value: object) -> str:
    return value.decode("utf-8", "surrogatepass") if isinstance(value, bytes) else str(value)
