"""Many names at once between a tree and a stage beside it, in Python: the twin of _native_moves.c."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
from collections.abc import Iterable

from reprieve.files._twin_open import DIR_FLAGS, Parents, is_name, rename2
from reprieve.files._twin_tree import Tree, is_clean

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing_extensions import Buffer

    Move = tuple[int, bytes, bytes, int, int, int, int, int, int, int]
    Look = tuple[int, int, int, bool]

_SWAP, _OUT, _IN = 0, 1, 2
_NOREPLACE, _EXCHANGE = 1, 2
_LOOK_CLOSER = -1
_GETFLAGS = 0x80086601  # FS_IOC_GETFLAGS
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def move_many(root_fd: int, stage_fd: int, items: Iterable[Move], /) -> list[int]:
    moves = list(items)
    for what, path, name, *_ in moves:
        if not isinstance(path, bytes) or not isinstance(name, bytes):
            raise TypeError("paths and names must be bytes")
        if what not in (_SWAP, _OUT, _IN) or not is_name(name):
            raise ValueError("move_many: no such move, or no single name")
    parents, codes, is_stopped = Parents(root_fd), [], False
    try:
        for item in moves:
            codes.append(_LOOK_CLOSER if is_stopped else _move(parents, stage_fd, *item))
            is_stopped = is_stopped or codes[-1] > 0
    finally:
        parents.close()
    return codes


def _move(
    parents: Parents, stage: int, what: int, path: bytes, name: bytes, type: int, ino: int, size: int,
    mtime_s: int, mtime_ns: int, ctime_s: int, ctime_ns: int,
) -> int:  # fmt: skip
    if not path or not is_clean(path):
        return _LOOK_CLOSER
    try:
        dir, last = parents.open(path)
        door = os.fstat(dir)
        if door.st_mode & 0o700 != 0o700 and door.st_uid == os.geteuid():
            return _LOOK_CLOSER
        was = os.stat(last, dir_fd=dir, follow_symlinks=False)
        is_there = True
    except FileNotFoundError:
        is_there = False
    except OSError:
        return _LOOK_CLOSER
    if is_there is (what == _IN) or parents.fd < 0:
        return _LOOK_CLOSER
    if what != _IN:
        moment, known = (
            (was.st_ctime_ns, ctime_s * 1_000_000_000 + ctime_ns)
            if ctime_ns >= 0
            else (was.st_mtime_ns, mtime_s * 1_000_000_000 + mtime_ns)
        )
        is_same = (was.st_ino, stat.S_IFMT(was.st_mode), moment) == (ino, type, known)
        if not is_same or size not in (-1, was.st_size):
            return _LOOK_CLOSER
    last = path.rpartition(b"/")[2]
    try:
        if what == _IN:
            rename2(stage, name, dir, last, _NOREPLACE)
            return 0
        if what == _SWAP:
            rename2(stage, name, dir, last, _EXCHANGE)
        else:
            rename2(dir, last, stage, name, _NOREPLACE)
    except OSError:
        return _LOOK_CLOSER
    try:
        now = os.stat(name, dir_fd=stage, follow_symlinks=False)
        if (now.st_ino, now.st_size, now.st_mtime_ns) == (was.st_ino, was.st_size, was.st_mtime_ns):
            return 0
        # somebody was faster: what came out is not what was looked at, so it goes back
        rename2(stage, name, dir, last, _EXCHANGE if what == _SWAP else _NOREPLACE)
    except OSError as e:
        return e.errno or errno.EIO
    return _LOOK_CLOSER


def look_at(root_fd: int, paths: Iterable[bytes], /) -> list[Look | None]:
    parents = Parents(root_fd)
    try:
        return [_look(parents, path) for path in list(paths)]
    finally:
        parents.close()


def _look(parents: Parents, path: bytes) -> Look | None:
    if not isinstance(path, bytes):
        raise TypeError("paths must be bytes")
    if not is_clean(path):
        return None
    try:
        dir, name = parents.open(path) if path else (parents.root_fd, b".")
    except OSError:
        return None
    is_read_only = bool(os.fstatvfs(dir).f_flag & os.ST_RDONLY)
    try:
        st = os.stat(name, dir_fd=dir, follow_symlinks=False)
    except OSError:
        return -1, 0, 0, is_read_only
    return _flags(dir, name, st), st.st_mode, st.st_uid, is_read_only


def _flags(dir: int, name: bytes, st: os.stat_result) -> int:
    """1 immutable, 2 append-only; -1 where the system does not tell."""
    if not (stat.S_ISREG(st.st_mode) or stat.S_ISDIR(st.st_mode)):
        return -1  # opening it may do something
    try:
        fd = os.open(name, _READ, dir_fd=dir)
    except OSError:
        return -1
    try:
        (flags,) = struct.unpack_from("<I", fcntl.ioctl(fd, _GETFLAGS, bytes(8)))
    except OSError:
        return -1
    finally:
        os.close(fd)
    return (1 if flags & 0x10 else 0) | (2 if flags & 0x20 else 0)


def with_xattrs(root_fd: int, rows: Buffer, /) -> list[int]:
    tree = Tree(rows)
    parents = Parents(root_fd)
    try:
        return [at for at in range(tree.count) if tree[at].kind == b"d"[0] and _may_have(parents, tree[at].path)]
    finally:
        parents.close()


def _may_have(parents: Parents, path: bytes) -> bool:
    if not is_clean(path):
        raise ValueError("packed tree: a path is malformed")
    try:
        dir, name = parents.open(path) if path else (parents.root_fd, b".")
        fd = os.open(name, DIR_FLAGS, dir_fd=dir)
    except OSError:
        return True
    try:
        return bool(os.listxattr(fd))
    except OSError as e:
        return e.errno not in (errno.ENOTSUP, errno.ENODATA)
    finally:
        os.close(fd)
