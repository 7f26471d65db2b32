"""Directory descriptors beneath the root: every path is reached component by component, no symlink is followed."""

from __future__ import annotations

import errno
import os

from reprieve.files import native
from reprieve.files.tree import parent

_OPEN_DIR = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LEAP = 64  # further than this from an open directory, one on the way is kept open too
_USUAL = 4  # levels to climb before every open directory is asked whether it is above
_KEEP = 128  # open directories at a time: those of a usual change; fewer where descriptors are few


class Beneath:
    """Opens parents of paths under one root and keeps the last few open."""

    def __init__(self, root_fd: int) -> None:
        self.root_fd = root_fd
        self._open: dict[bytes, int] = {}
        allowed = os.sysconf("SC_OPEN_MAX") if hasattr(os, "sysconf") else 512
        self._keep = max(16, min(_KEEP, allowed // 8))

    def dir(self, path: bytes) -> int:
        """A descriptor of the directory at path, owned by this object. Raises OSError."""
        if not path:
            return self.root_fd
        fd = self._open.pop(path, -1)
        if fd < 0:
            fd = self._open_from_nearest(path)
            if len(self._open) >= self._keep:
                os.close(self._open.pop(next(iter(self._open))))
        self._open[path] = fd
        return fd

    def _open_from_nearest(self, path: bytes) -> int:
        """Open from the nearest directory that is open; in a deep tree the way from the root is long."""
        near = self._nearest(path)
        if path.count(b"/", len(near)) > _LEAP:
            near = path.rsplit(b"/", _LEAP // 2)[0]
            self.dir(near)
        if not near:
            return native.open_beneath(self.root_fd, path, _OPEN_DIR)
        return native.open_beneath(self._open[near], path[len(near) + 1 :], _OPEN_DIR)

    def _nearest(self, path: bytes) -> bytes:
        above = path
        for _ in range(_USUAL):
            above = parent(above)
            if not above or above in self._open:
                return above
        return max((known for known in self._open if path.startswith(known + b"/")), key=len, default=b"")

    def at(self, path: bytes) -> tuple[int, bytes]:
        """(descriptor of the parent directory, last component). The root itself is (root, b".")."""
        if not path:
            return self.root_fd, b"."
        return self.dir(parent(path)), path.rpartition(b"/")[2]

    def lstat(self, path: bytes) -> os.stat_result | None:
        """What is at path, None if nothing is."""
        try:
            fd, name = self.at(path)
            return os.stat(name, dir_fd=fd, follow_symlinks=False)
        except OSError as e:
            if e.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                return None
            raise

    def seen(self, path: bytes) -> os.stat_result | None:
        """The same, None also where nobody may look."""
        try:
            return self.lstat(path)
        except PermissionError:
            return None

    def forget(self, path: bytes) -> None:
        """Close descriptors at or below path: it is about to be replaced."""
        for known in [p for p in self._open if p == path or p.startswith(path + b"/")]:
            os.close(self._open.pop(known))

    def close(self) -> None:
        """Close all but the root."""
        while self._open:
            os.close(self._open.popitem()[1])


def is_listed(dir_fd: int, name: bytes) -> bool:
    """Whether a directory really has a name. A stat may answer from a cache (FUSE), or for another case of it."""
    fd = os.open(b".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=dir_fd)
    try:
        return name in map(os.fsencode, os.listdir(fd))
    finally:
        os.close(fd)
