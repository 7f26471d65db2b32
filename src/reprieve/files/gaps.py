"""What could not be captured: where it is named, and why."""

from __future__ import annotations

import errno
import os

from reprieve.files import native, tree
from reprieve.model.change import UNREADABLE, Gap
from reprieve.model.entry import SOCKET

TYPE_CHECKING = False
if TYPE_CHECKING:
    from reprieve.files.beneath import Beneath
    from reprieve.store.protocols import Buffer

MOVED = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ESTALE)  # what was seen is no longer there
_SHORT = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)  # of descriptors or memory: to be told, not left out


def in_sight(beneath: Beneath, path: bytes) -> tuple[bytes, os.stat_result | None]:
    """The path and what is there, None if nothing is; where nobody may look, the nearest directory above it.

    A directory that may be listed and not entered tells the names in it and nothing else: not even of what kind they
    are. So the directory is what is not protected.
    """
    while True:
        try:
            return path, beneath.lstat(path)
        except PermissionError:
            if not path:
                raise
            path = tree.parent(path)


def gaps_of(index: Buffer) -> tuple[Gap, ...]:
    """Everything in a tree that is not protected."""
    found = []
    for row in tree.numbers(native.rows_with(index, tree.GAP, SOCKET)):
        path, entry = tree.entry_at(index, row)
        found.append(Gap(path, entry.gap or "a socket: recorded, but only its program can make it again"))
    return tuple(found)


def why(code: int) -> str:
    """A gap's reason for an errno. Raises OSError for what is the matter with us, and not with the path."""
    if code in _SHORT:
        raise OSError(code, os.strerror(code))
    if code in MOVED:
        return "replaced while it was being read"
    return {
        errno.EACCES: UNREADABLE,
        errno.EPERM: UNREADABLE,
        errno.EXDEV: "on another file system (cross_mounts is off)",
        errno.ENAMETOOLONG: "path is too long",
        errno.EIO: "input/output error while reading",
    }.get(code, os.strerror(code))
