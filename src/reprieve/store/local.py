"""A store in a directory of this machine: home, database, packs and locks put together."""

from __future__ import annotations

import fcntl
import os

from reprieve.errors import StoreFailed
from reprieve.model.reporter import Reporter
from reprieve.model.timeline import WorkspaceRecord
from reprieve.store.chain import damaged
from reprieve.store.db import Database
from reprieve.store.faults import failed
from reprieve.store.home import open_home
from reprieve.store.locks import PATIENCE_S, Locks, is_plain_name, wait_for_flock
from reprieve.store.timeline import SqliteTimeline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from reprieve.store.blobs import LocalBlobs
    from reprieve.store.db import Transaction
    from reprieve.store.home import Home
    from reprieve.store.kept import Kept
    from reprieve.store.locks import Lock


class LocalStore:
    """Store in REPRIEVE_HOME. Use it from any thread, close it when done; after a fork open another."""

    def __init__(self, home: Home, db: Database, *, reporter: Reporter, kept: Kept | None = None) -> None:
        """Made by `open`."""
        self.home = home
        self._db = db
        self._kept = kept
        self._reporter = reporter
        self._locks = Locks(home, reporter=reporter)
        self._blobs: LocalBlobs | None = None

    @classmethod
    def open(
        cls, path: str, *, reporter: Reporter | None = None, create: bool = True, kept: Kept | None = None
    ) -> LocalStore:
        """Open the store at path; make it, or finish making it, if it is not there yet.

        `kept` is the caller's: it has the database open already, or will have it from here on.
        """
        reporter = reporter or Reporter()
        home = open_home(path, create=create)
        if not home.is_ready:
            _create(home, reporter)
        if kept:
            db = kept.database(home, reporter)
        else:
            db = _early_database(home, reporter) or Database(home.file("store.db"), reporter=reporter)
        return cls(home, db, reporter=reporter, kept=kept)

    @property
    def blobs(self) -> LocalBlobs:
        """The content."""
        if self._blobs is None:
            from reprieve.store.blobs import LocalBlobs  # not needed for looking at the timeline

            self._blobs = LocalBlobs(self.home, self._db, self._locks)
        return self._blobs

    def workspaces(self) -> list[WorkspaceRecord]:
        """All of them, oldest first."""
        rows = self._db.query(
            "SELECT w.id, w.root, w.dev, w.ino, w.born_at, w.created_at, w.settings, coalesce(i.intent, x'')"
            " FROM workspaces w LEFT JOIN intents i ON i.workspace = w.id ORDER BY w.created_at, w.id"
        )
        for row in rows:
            if tuple(map(type, row)) != (str, bytes, int, int, int, int, str, bytes) or not is_plain_name(row[0]):
                raise damaged(f"the row of workspace {row[0]!r} is not what was written")
        return [
            WorkspaceRecord(id, root, _unsigned(dev), _unsigned(ino), born_at, created_at, settings, intent)
            for id, root, dev, ino, born_at, created_at, settings, intent in rows
        ]

    def save_workspace(self, record: WorkspaceRecord) -> None:
        """Insert or update by id (intent excluded)."""
        _check_id(record.id)
        with self._db.transaction():
            self._db.execute(
                "INSERT OR REPLACE INTO workspaces VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    record.id, record.root, _signed(record.dev), _signed(record.ino), record.born_at,
                    record.created_at, record.settings,
                ),
            )  # fmt: skip

    def problems(self) -> list[str]:
        """What is wrong with the database itself."""
        found = self._db.problems()
        if not found:
            known = {record.id for record in self.workspaces()}
            found = [f"workspace {id!r} has a timeline, but no row of its own" for id in self.timelines() - known]
        return found

    def timelines(self) -> set[str]:
        """Workspaces that have entries, by their entries."""
        return {id for (id,) in self._db.query("SELECT DISTINCT workspace FROM entries NOT INDEXED")}

    def timeline(self, workspace_id: str) -> SqliteTimeline:
        """The workspace's timeline; an unknown workspace has an empty one."""
        _check_id(workspace_id)
        return SqliteTimeline(workspace_id, db=self._db, home=self.home)

    def transaction(self) -> Transaction:
        """Everything inside becomes durable together at the outermost exit, or not at all."""
        return self._db.transaction()

    def lock(self, workspace_id: str, *, wait_s: float = PATIENCE_S) -> Lock:
        """Alone on a workspace, and no garbage collection meanwhile."""
        return self._locks.workspace(workspace_id, wait_s=wait_s, left=self._left)

    def _left(self) -> None:
        """What was read for something that came to nothing must not hold gc off while this process idles."""
        if self._blobs is None:
            return
        try:
            self._blobs.leave()
        except StoreFailed:
            self._reporter.note("what was read last is not kept")  # nothing relies on it

    def gc_lock(self, *, wait_s: float = PATIENCE_S) -> Lock:
        """Alone in the whole store."""
        return self._locks.gc(wait_s=wait_s)

    def close(self) -> None:
        """Let go of everything; what was not flushed or committed is not kept."""
        if self._blobs is not None:
            self._blobs.close()
        self._locks.close()
        if self._kept is None:
            self._db.close()
        else:
            self._kept.rest()


_early: tuple[tuple[int, int], Database] | None = None  # which file, and the connection to it


def open_early(path: str, root: bytes) -> None:
    """Have a connection before it is known which command this process will run, and read what each reads first.

    Holds no lock and waits for nobody: raises instead. `LocalStore.open` uses it if that is the same file then; whether
    its content still is, SQLite looks at each statement.
    """
    global _early
    home = open_home(path, create=False)
    if not home.is_ready:
        return
    file = home.file("store.db")
    before = _identity(file)
    db = Database(file, wait_s=0, busy_s=0)
    try:
        store = LocalStore(home, db, reporter=Reporter())
        for record in store.workspaces():
            if record.root == root:
                timeline = store.timeline(record.id)
                timeline.intent()
                next(timeline.backwards(), None)
        if _identity(file) != before:
            raise OSError(116, "the database was exchanged", file)
        db.rest()
    except BaseException:
        db.close()
        raise
    _early = before, db


def _early_database(home: Home, reporter: Reporter) -> Database | None:
    global _early
    if _early is None:
        return None
    (identity, db), _early = _early, None
    if db.path == home.file("store.db") and _identity(db.path) == identity:
        db.hand_over(reporter)
        return db
    db.close()
    return None


def _identity(path: str) -> tuple[int, int]:
    try:
        info = os.lstat(path)
    except OSError as exc:
        raise failed(exc, path, f"open {path!r}") from exc
    return info.st_dev, info.st_ino


def _create(home: Home, reporter: Reporter) -> None:
    """Every step can be repeated, and the format line comes last: killed anywhere, the next opening goes on."""
    try:
        fd = os.open(home.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as exc:
        raise failed(exc, home.path, f"open the store {home.path!r}") from exc
    try:
        wait_for_flock(
            fd, fcntl.LOCK_EX | fcntl.LOCK_NB, what="creating the store", wait_s=PATIENCE_S, reporter=reporter
        )
        if open_home(home.path, create=False).is_ready:
            return  # another process was first
        home.make_parts()
        db = Database(home.file("store.db"), reporter=reporter, is_new=True)
        try:
            db.migrate()
        finally:
            db.close()
        home.complete()
        from reprieve.store.ballast import make_ballast

        make_ballast(home.path)
    finally:
        os.close(fd)


def _check_id(workspace_id: str) -> None:
    if not is_plain_name(workspace_id):
        raise ValueError(f"not a workspace id: {workspace_id!r}")


def _signed(number: int) -> int:
    """SQLite's integers are signed; inode numbers use all 64 bits."""
    return number - (1 << 64) if number >= 1 << 63 else number


def _unsigned(number: int) -> int:
    return number + (1 << 64) if number < 0 else number
