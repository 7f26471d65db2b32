"""Bugs to be planted into the engine inside a forked child, to prove that the sweeps find such bugs.

Each plant replaces a function at a seam of the real engine. When the engine changes so far that a plant no longer fits,
the test of that plant fails: adapt it, don't drop it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any


def plant(name: str) -> None:
    """Plant the bug of that name into this process."""
    PLANTS[name]()


def _rows_first(*, trusting: bool) -> None:
    """Rows are committed before the bytes that they name are in the pack."""
    from reprieve.store.packs import LocalPacks

    def flush(self: Any) -> None:
        held: list[tuple[Any, bytes, Any, int]] = []
        writer = self._writer
        append = writer.append

        def later(head: bytes, payload: Any) -> tuple[int, int]:
            if not writer._packs:
                writer._packs.append(writer._open())
            pack = writer._packs[-1]
            offset = pack.end
            held.append((pack, head, bytes(payload), offset))
            pack.end += len(head) + len(payload)
            return pack.number, offset

        def write_now() -> None:
            for pack, head, payload, offset in held:
                fd = os.open(f"{self._home.file('packs')}/{pack.number}.pack", os.O_RDWR)
                os.pwrite(fd, head + payload, offset)
                os.fdatasync(fd)
                os.close(fd)

        writer.append = later
        try:
            honest(self)
        finally:
            writer.append = append
        if self._db.is_in_transaction:
            self._db.when_done(committed=write_now)
        else:
            write_now()

    honest = LocalPacks.flush
    LocalPacks.flush = flush  # type: ignore[method-assign]
    if trusting:
        _trust_what_is_there()


def _trust_what_is_there() -> None:
    """ "Already there" counts as done, without a look at the bytes."""
    from reprieve.store.packs import LocalPacks

    def trusted(self: Any, ids: list[bytes]) -> set[bytes]:
        return {row[0] for row in self._places.rows(ids)}

    LocalPacks._trusted = trusted  # type: ignore[method-assign]
    LocalPacks._look_at_packs = lambda self: None  # type: ignore[method-assign]


def _no_fsync() -> None:
    """The pack is not synced before its rows are committed."""
    from reprieve.store import packfile

    packfile.PackWriter.sync = packfile.PackWriter.start_sync = lambda self: None  # type: ignore[method-assign]


def _no_sync_of_the_tree() -> None:
    """Files are renamed into the tree, and the move recorded, without a sync of the tree's file system."""
    from reprieve.files import native

    native.syncfs = lambda fd: None  # type: ignore[assignment]


def _lost_redo() -> None:
    """A recovered move is finished but not written down, so there is nothing to redo."""
    from reprieve.rollback import execute

    honest = execute._record

    def record(capture: Any, intent: Any, restore: Any, *rest: Any, **named: Any) -> Any:
        if not restore.recover:
            return honest(capture, intent, restore, *rest, **named)
        restore.settle()
        with capture.store.transaction():
            capture.timeline.set_intent(b"")
        return execute.Report("")

    execute._record = record


def _follow_links() -> None:
    """Times are set through a symlink instead of on it."""
    honest = os.utime

    def utime(path: Any, *args: Any, follow_symlinks: bool = True, **named: Any) -> None:
        try:
            honest(path, *args, follow_symlinks=True, **named)
        except FileNotFoundError:
            honest(path, *args, follow_symlinks=False, **named)

    os.utime = utime  # type: ignore[assignment]


def _no_intent() -> None:
    """The tree is moved without a word written ahead: after a kill nobody knows."""
    from reprieve.store import timeline

    for kind in vars(timeline).values():
        if isinstance(kind, type) and hasattr(kind, "set_intent"):
            kind.set_intent = lambda self, intent: None  # type: ignore[attr-defined]


def _in_place() -> None:
    """Files are overwritten where they are instead of being staged and renamed."""
    from reprieve.files.steps import Steps

    honest = Steps.replace

    def replace(self: Any, i: int, path: bytes, st: Any, after: Any) -> None:
        if after.kind != b"f":
            honest(self, i, path, st, after)
            return
        fd, name = self.doors.parent(path)
        stage = self.stage_of(path)
        staged = os.open(stage.place(i), os.O_RDONLY, dir_fd=stage.fd)
        out = os.open(name, os.O_WRONLY | os.O_TRUNC, dir_fd=fd)
        while data := os.read(staged, 1000):
            os.write(out, data)
        os.close(staged)
        os.close(out)
        self.done.add(path)

    Steps.replace = replace  # type: ignore[method-assign]


def _prune_alone() -> None:
    """No bug: as if every prune were killed just before it collects the garbage that it has made."""
    from reprieve.store.blobs import LocalBlobs

    LocalBlobs.drop = lambda self, live: 0  # type: ignore[method-assign]
    LocalBlobs.collect = lambda self, live: (0, 0)  # type: ignore[method-assign]


def _migration() -> None:
    """No bug: a program that knows one more version of the tables."""
    from reprieve.store import db, schema

    step = (
        "CREATE TABLE later (n INTEGER PRIMARY KEY, text TEXT NOT NULL)",
        "INSERT INTO later SELECT seq, label FROM entries",
        "CREATE INDEX later_text ON later (text)",
        "INSERT OR REPLACE INTO meta VALUES ('needs', 'a later Reprieve')",
    )
    schema.MIGRATIONS = (*schema.MIGRATIONS, step)
    honest = db.Database.__init__

    def init(self: Any, *args: Any, **named: Any) -> None:
        named.setdefault("migrations", schema.MIGRATIONS)
        honest(self, *args, **named)

    db.Database.__init__ = init  # type: ignore[method-assign]


PLANTS: dict[str, Callable[[], None]] = {
    "blob in place": lambda: _rows_first(trusting=True),
    "row before blob": lambda: _rows_first(trusting=False),
    "no fsync": _no_fsync,
    "no sync of the tree": _no_sync_of_the_tree,
    "lost redo": _lost_redo,
    "followed symlink": _follow_links,
    "no intent": _no_intent,
    "restore in place": _in_place,
    "prune alone": _prune_alone,
    "migration": _migration,
}
