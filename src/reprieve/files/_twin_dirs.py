"""Many directories at once in Python: the twin of _native_dirs.c."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable

from reprieve.files._twin_open import Parents, is_name
from reprieve.files._twin_tree import is_clean

_HAS_XATTRS = -1
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def make_dirs(root_fd: int, paths: Iterable[bytes], rooms: list[int] | None = None, /) -> list[int]:
    parents = Parents(root_fd)
    try:
        return [_make(parents, path) for path in list(paths)]
    finally:
        parents.close()


def _make(parents: Parents, path: bytes) -> int:
    if not isinstance(path, bytes):
        raise TypeError("paths must be bytes")
    if not path or not is_clean(path):
        return errno.EINVAL
    try:
        fd, name = parents.open(path)
        os.mkdir(name, 0o700, dir_fd=fd)
    except OSError as e:
        return e.errno or 0
    return 0


def finish_dirs(root_fd: int, items: Iterable[tuple[bytes, int, int, int, int, int]], /) -> list[int]:
    parents = Parents(root_fd)
    try:
        return [_finish(parents, *item) for item in list(items)]
    finally:
        parents.close()


def _finish(parents: Parents, path: bytes, mode: int, uid: int, gid: int, mtime_s: int, mtime_ns: int) -> int:
    limit = 0xFFFFFFFF
    is_path = bool(path) and is_clean(path)
    if not is_path or not 0 <= mtime_ns < 1_000_000_000 or not -1 <= uid <= limit or not -1 <= gid <= limit:
        return errno.EINVAL
    try:
        dir_fd, name = parents.open(path)
        fd = os.open(name, _OPEN, dir_fd=dir_fd)
        try:
            if _has_xattrs(fd):
                return _HAS_XATTRS
            st = os.fstat(fd)
            if (uid != -1 and uid != st.st_uid) or (gid != -1 and gid != st.st_gid):
                os.fchown(fd, uid, gid)
            os.fchmod(fd, mode & 0o7777)
            wanted_ns = mtime_s * 1_000_000_000 + mtime_ns
            if st.st_mtime_ns != wanted_ns:
                os.utime(fd, ns=(st.st_atime_ns, wanted_ns))
            return 0 if stat.S_IMODE(os.fstat(fd).st_mode) == mode & 0o7777 else errno.EPERM
        finally:
            os.close(fd)
    except OSError as e:
        return e.errno or 0


def _has_xattrs(fd: int) -> bool:
    try:
        return bool(os.listxattr(fd))
    except OSError:
        return False  # this file system has none


def unlink_many(dir_fd: int, names: Iterable[bytes], /) -> list[int]:
    return [_unlink(dir_fd, name) for name in list(names)]


def _unlink(dir_fd: int, name: bytes) -> int:
    if not isinstance(name, bytes):
        raise TypeError("names must be bytes")
    if not is_name(name):
        return errno.EINVAL
    try:
        os.unlink(name, dir_fd=dir_fd)
    except OSError as e:
        return e.errno or 0
    return 0
