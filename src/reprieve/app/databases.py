"""Find the databases of a workspace for a plan: what is beside what, and which file begins like one.

What follows from that is `rollback.databases`'s.
"""

from __future__ import annotations

from reprieve.files import live_sqlite, tree
from reprieve.files.content import read
from reprieve.files.databases import has_names, index_of
from reprieve.model.entry import FILE, Entry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from reprieve.app.workspace import Workspace
    from reprieve.files.snapshot import Snapshot
    from reprieve.rollback.databases import Difference


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

    def is_index(self, path: bytes, *states: Entry | None) -> bool:
        """Whether it is the index of the log of a database that is there, or was in one of these states."""
        database = live_sqlite.owner_of(path)
        return bool(database) and path == index_of(database) and self.is_one(database, (self.there(database), *states))

    def join(self, differences: list[Difference]) -> tuple[list[Difference], dict[bytes, bytes]]:
        """`rollback.databases.join`, where there may be something to join."""
        is_needed = any(path.endswith(live_sqlite.SUFFIXES) for path, _, _ in differences)
        if not is_needed and not (differences and has_names(self._seen.index)):
            return differences, {}
        from reprieve.rollback.databases import join  # only here: most trees have no databases that are in use

        return join(differences, there=self.there, is_database=self.is_one)

    def _head(self, path: bytes, entry: Entry | None) -> bytes:
        """How a file begins, or began."""
        if entry is None or entry.kind != FILE or not entry.content:
            return b""
        blobs = self._ws.store.blobs
        if blobs.has([entry.content]):
            _, data = next(read(blobs, entry.content, is_chunked=entry.is_chunked), (0, None))
        else:
            data = self._ws.current_bytes(path)  # a preview keeps nothing
        return (data or b"")[:16]
