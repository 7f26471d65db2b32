"""Tell whether what is at a path is what we think it is: by the index of the safety checkpoint, or by its content."""

from __future__ import annotations

import os
import stat

from reprieve.files import native, tree
from reprieve.files.beneath import Beneath
from reprieve.files.content import Unstable, capture
from reprieve.files.meta import file_type
from reprieve.model.entry import FILE, SYMLINK, Entry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from reprieve.store.protocols import Buffer

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Likeness:
    """`index` is the tree as the safety checkpoint saw it; after a crash (`recover`) only content counts."""

    def __init__(self, beneath: Beneath, index: Buffer, *, recover: bool) -> None:
        self.beneath, self.index, self.recover = beneath, index, recover
        self._given: dict[tuple[int, int], int] = {}  # files (device, inode) whose time we set: to which

    def is_expected(self, path: bytes, st: os.stat_result, before: Entry) -> bool:
        """Whether nobody touched it since the safety checkpoint."""
        if self.recover:
            return self.has_content(path, st, before)
        row = native.find(self.index, path)
        if row < 0:
            return False
        _, entry = tree.entry_at(self.index, row)
        known = tree.stat_at(self.index, row)
        if known.ino != st.st_ino or stat.S_IFMT(st.st_mode) != file_type(entry.kind):
            return False
        if entry.kind == FILE and entry.size != st.st_size:
            return False
        if known.nlink > 1:
            # moving one name of a file changes the ctime under all its names
            return self.has_time(st, entry)
        return (known.ctime_s, known.ctime_ns) == divmod(st.st_ctime_ns, 1_000_000_000)

    def gave(self, st: os.stat_result, entry: Entry) -> None:
        """What was looked at as `st` got the entry's time from us, and with it all other names of the same file."""
        if st.st_nlink > 1:
            self._given[st.st_dev, st.st_ino] = _mtime(entry)

    def has_time(self, st: os.stat_result, entry: Entry) -> bool:
        """Whether nobody wrote it: its time is the entry's, or else the one that we gave it under another name."""
        return st.st_mtime_ns == self._given.get((st.st_dev, st.st_ino), _mtime(entry))

    def columns(self, path: bytes) -> tuple[int, int, int, int, int, int, int] | None:
        """The same for `native.move_many`: (type bits, ino, size, mtime_s, mtime_ns, ctime_s, ctime_ns)."""
        row = native.find(self.index, path)
        if row < 0:
            return None
        _, kind, _, _, _, size, mtime_s, mtime_ns, _, _, _, _, _, ino, ctime_s, ctime_ns, nlink, _ = native.get(
            self.index, row
        )
        if nlink > 1:
            ctime_ns = -1
        return file_type(kind), ino, size if kind == FILE else -1, mtime_s, mtime_ns, ctime_s, ctime_ns

    def has_content(self, path: bytes, st: os.stat_result, entry: Entry) -> bool:
        """Whether it has the entry's kind and bytes."""
        if stat.S_IFMT(st.st_mode) != file_type(entry.kind):
            return False
        fd, name = self.beneath.at(path)
        if entry.kind == SYMLINK:
            return os.readlink(name, dir_fd=fd) == entry.target
        if entry.kind != FILE:
            return True
        return st.st_size == entry.size and has_bytes(fd, name, entry)


def has_bytes(dir_fd: int, name: bytes, entry: Entry) -> bool:
    """Whether a file holds what the entry says. Raises OSError."""
    try:
        return content_of(dir_fd, name) == entry.content
    except Unstable:
        return False


def content_of(dir_fd: int, name: bytes) -> bytes:
    """The id of a file's bytes. Raises OSError and Unstable."""
    fd = os.open(name, _READ, dir_fd=dir_fd)
    try:
        return capture(fd, lambda items: 0).content
    finally:
        os.close(fd)


def _mtime(entry: Entry) -> int:
    return entry.mtime_s * 1_000_000_000 + entry.mtime_ns
