"""Know which of some paths are parts of one SQLite database: the file itself, its logs, and the index of its log.

A database moves as one thing, because its parts only mean something together:

    app.db           committed rows, as far as they left the log
    app.db-wal       the log. A program that has an old app.db open copies *its* log into it when it ends; so the two
    app.db-journal   always get new files together, and who has the old ones open goes on with all of the old ones
    app.db-shm       where in the log each page is: SQLite makes it anew. It has no content worth keeping and no
                     author, since reading is enough to change it. It never comes back, and goes when its database moves

What merely has such a name, and is not beside a database, is a file like any other.
"""

from __future__ import annotations

from reprieve.files import native
from reprieve.files.content import read
from reprieve.files.live_sqlite import SUFFIXES, is_database, is_log_index, owner_of, sidecars
from reprieve.model.entry import FILE, Entry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from reprieve.store.protocols import BlobStore, Buffer

INDEX = b"-shm"


def has_names(packed: Buffer, suffixes: tuple[bytes, ...] = SUFFIXES) -> bool:
    """Whether parts of a database may be among the names: most trees have none, and need no closer look."""
    return native.has_end(packed, suffixes)


def parts_of(database: bytes) -> tuple[bytes, bytes, bytes]:
    """The paths that are to hold the same state: all but the index."""
    return (database, database + b"-wal", database + b"-journal")


def index_of(database: bytes) -> bytes:
    """The path of the index of its log."""
    return database + INDEX


def find_databases(paths: Iterable[bytes], is_one: Callable[[bytes], bool]) -> dict[bytes, bytes]:
    """Each of the paths that is a part of a database → the database; those with one part only are left out.

    `is_one` is asked for a path that others are named after.
    """
    known = set(paths)
    owners = {owner_of(path) for path in known if path.endswith(SUFFIXES)} - {b""}
    found: dict[bytes, bytes] = {}
    for owner in owners:
        if owner in known and is_one(owner):
            found.update((part, owner) for part in (owner, *sidecars(owner)) if part in known)
    return found


def is_other_file(before: Entry | None, after: Entry | None) -> bool:
    """Whether it has other bytes, came or went."""
    if before is None or after is None:
        return before is not after
    return before.kind != after.kind or before.same_bytes_key != after.same_bytes_key or before.gap != after.gap


def begins_like_one(blobs: BlobStore, entry: Entry | None) -> bool:
    """Whether a captured file is a database; False if its content is not there."""
    if entry is None or entry.kind != FILE or not entry.content or not blobs.has([entry.content]):
        return False
    return is_database(_head(blobs, entry))


def begins_like_index(blobs: BlobStore, entry: Entry | None) -> bool:
    """Whether a file is the index of a log. One without content is only moved if it was seen to be one."""
    if entry is None or not entry.content or not blobs.has([entry.content]):
        return True
    return entry.kind == FILE and is_log_index(_head(blobs, entry))


def _head(blobs: BlobStore, entry: Entry) -> bytes:
    _, data = next(read(blobs, entry.content, is_chunked=entry.is_chunked), (0, None))
    return (data or b"")[:16]
