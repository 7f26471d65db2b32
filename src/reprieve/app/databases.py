"""Find the databases of a workspace for a plan: what is beside what, and which file begins like one.

What follows from that is `rollback.databases`'s.
"""

from __future__ import annotations

from reprieve.files import live_sqlite, tree
from reprieve.files.content import read
from reprieve.files.databases import has_names, index_of, parts_of
from reprieve.model.entry import FILE, Entry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from reprieve.app.workspace import Workspace
    from reprieve.files.snapshot import Snapshot
    from reprieve.model.plan import Conflicted
    from reprieve.rollback.databases import Difference
    from reprieve.rollback.takeout import Read


class Databases:
    """The databases of one look at a tree."""

    def __init__(self, ws: Workspace, seen: Snapshot) -> None:
        self._ws, self._seen = ws, seen

    def there(self, path: bytes) -> Entry | None:
        """What is at a path now."""
        return tree.lookup(self._seen.index, path)

    def is_one(self, path: bytes, states: Sequence[Entry | None]) -> bool:
        """Whether a file is, or was in one of these states, a database."""
        return any(live_sqlite.is_database(self._head(path, entry)) for entry in dict.fromkeys(states))

    def is_index(self, path: bytes, states: Sequence[Entry | None]) -> bool:
        """Whether all that is, or was, at such a name is an index of a log; else it is a file like any other."""
        there = [entry for entry in dict.fromkeys(states) if entry is not None]
        return all(entry.kind == FILE and live_sqlite.is_log_index(self._head(path, entry)) for entry in there)

    def is_of_no_one(self, path: bytes, states: Sequence[Entry | None]) -> bool:
        """Whether it is the index of the log of a database that is there."""
        database = live_sqlite.owner_of(path)
        is_named = bool(database) and path == index_of(database)
        return is_named and self.is_one(database, (self.there(database),)) and self.is_index(path, states)

    def join(self, differences: list[Difference]) -> tuple[list[Difference], dict[bytes, bytes]]:
        """`rollback.databases.join`, where there may be something to join."""
        is_needed = any(path.endswith(live_sqlite.SUFFIXES) for path, _, _ in differences)
        if not is_needed and not (differences and has_names(self._seen.index)):
            return differences, {}
        from reprieve.rollback.databases import join  # only here: most trees have no databases that are in use

        return join(differences, there=self.there, is_database=self.is_one, is_index=self.is_index)

    def settle(self, move: tree.Delta, differences: tree.Delta, conflicts: list[Conflicted], read: Read) -> None:
        """Of what is not as a move has left it: a database that holds the same rows is, wherever they are by now."""
        from reprieve.rollback.databases import holds_the_same

        at = {path: (before, after) for path, before, after in move}
        bad = {conflict.path for conflict in conflicts}
        for database in {live_sqlite.owner_of(path) or path for path in bad}:
            parts = parts_of(database)
            now = [self.there(path) for path in parts]
            left = [at[path][1] if path in at else there for path, there in zip(parts, now, strict=True)]
            if not self.is_one(database, (now[0], left[0])) or not holds_the_same(left, now, read):
                continue
            conflicts[:] = [conflict for conflict in conflicts if conflict.path not in parts]
            known = {path for path, _, _ in differences}
            for path, there in zip(parts, now, strict=True):
                if path in at and path not in known and at[path][0] != there:
                    differences.append((path, at[path][0], there))

    def _head(self, path: bytes, entry: Entry | None) -> bytes:
        """How a file begins, or began."""
        if entry is None or entry.kind != FILE or not (entry.content or entry.gap):
            return b""
        blobs = self._ws.store.blobs
        if entry.content and blobs.has([entry.content]):
            _, data = next(read(blobs, entry.content, is_chunked=entry.is_chunked), (0, None))
        else:
            data = self._ws.current_bytes(path)  # a preview keeps nothing, nor does a gap
        return (data or b"")[:16]
