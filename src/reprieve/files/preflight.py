"""Find what would stop a restore before it begins: immutable files, directories that we may not write to."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct

from reprieve.files import tree
from reprieve.files.beneath import Beneath
from reprieve.model.change import Gap

_GETFLAGS = 0x80086601  # FS_IOC_GETFLAGS
_IMMUTABLE, _APPEND_ONLY = 0x10, 0x20
_FOREIGN = "its directory belongs to someone else and is not writable"
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def find_obstacles(beneath: Beneath, moves: tree.Delta) -> list[Gap]:
    """Paths that could not be moved, with the reason."""
    found: list[Gap] = []
    parents: dict[bytes, str] = {}
    for path, before, _ in moves:
        above = tree.parent(path)
        if path and above not in parents:
            parents[above] = _why_closed(beneath, above)
        reason = parents.get(above, "")
        if not reason and before is not None and before.kind in (b"f", b"d"):
            reason = _why_fixed(beneath, path)
        if not reason and path and before is not None:
            reason = _why_sticky(beneath, above, path)
        if reason:
            found.append(Gap(path, reason))
    return found


def _why_closed(beneath: Beneath, path: bytes) -> str:
    """Why names in this directory cannot change, "" if they can. One that does not exist yet is ours to make."""
    try:
        fd = beneath.dir(path)
    except OSError as e:
        st = beneath.lstat(path)
        if st is None or not stat.S_ISDIR(st.st_mode):
            return ""
        if st.st_uid != os.geteuid() and not _may_write(beneath, path):
            return _FOREIGN
        return f"its directory cannot be opened: {e.strerror}"
    if reason := _fixed(fd):
        return f"its directory is {reason}"
    if os.fstat(fd).st_uid != os.geteuid() and not _may_write(beneath, path):
        return _FOREIGN
    if os.fstatvfs(fd).f_flag & os.ST_RDONLY:
        return "the file system is mounted read-only"
    return ""


def _may_write(beneath: Beneath, path: bytes) -> bool:
    fd, name = beneath.at(path)
    return os.access(name, os.W_OK | os.X_OK, dir_fd=fd, effective_ids=True)


def _why_sticky(beneath: Beneath, above: bytes, path: bytes) -> str:
    me = os.geteuid()
    if me == 0:
        return ""
    directory, st = beneath.lstat(above), beneath.lstat(path)
    if directory is None or st is None or not directory.st_mode & stat.S_ISVTX or me in (directory.st_uid, st.st_uid):
        return ""
    return "belongs to someone else in a sticky directory"


def _why_fixed(beneath: Beneath, path: bytes) -> str:
    fd, name = beneath.at(path)
    try:
        file = os.open(name, _READ, dir_fd=fd)
    except OSError:
        return ""  # gone or unreadable: not immutable for all we can know; the apply step is checked anyway
    try:
        return _fixed(file)
    finally:
        os.close(file)


def _fixed(fd: int) -> str:
    try:
        raw = fcntl.ioctl(fd, _GETFLAGS, bytes(8))
    except OSError as e:
        if e.errno in (errno.ENOTTY, errno.ENOTSUP, errno.EINVAL, errno.EPERM, errno.ENOSYS):
            return ""  # this file system has no such flags
        raise
    (flags,) = struct.unpack_from("<I", raw)
    if flags & _IMMUTABLE:
        return "immutable (chattr +i)"
    if flags & _APPEND_ONLY:
        return "append-only (chattr +a)"
    return ""
