"""Find what would stop a restore before it begins: immutable files, directories that we may not write to."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct

from reprieve.files import native, tree
from reprieve.files.beneath import Beneath
from reprieve.model.change import Gap

_GETFLAGS = 0x80086601  # FS_IOC_GETFLAGS
_IMMUTABLE_BIT, _APPEND_ONLY_BIT = 0x10, 0x20
_IMMUTABLE = 1  # of native.look_at
_FLAGS = ("append-only (chattr +a)", "immutable (chattr +i)")
_FOREIGN = "its directory belongs to someone else and is not writable"
_AT_A_TIME = 4096  # paths; bounds memory
_READ_ONLY = "the file system is mounted read-only"
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def find_obstacles(beneath: Beneath, moves: tree.Delta) -> list[Gap]:
    """Paths that could not be moved, with the reason."""
    found: list[Gap] = []
    reasons: dict[bytes, str] = {}  # by directory
    for start in range(0, len(moves), _AT_A_TIME):
        some = moves[start : start + _AT_A_TIME]
        known = _Known(beneath, some, reasons)
        for path, before, _ in some:
            above = tree.parent(path)
            if path and above not in reasons:
                reasons[above] = known.why_closed(above, path)
            reason = reasons.get(above, "")
            if not reason and before is not None and before.kind in (b"f", b"d"):
                reason = known.why_fixed(path)
            if not reason and path and before is not None:
                reason = known.why_sticky(above, path)
            if reason:
                found.append(Gap(path, reason))
    return found


class _Known:
    """What one look at all of these paths and their directories told; where it did not, they are opened and asked."""

    def __init__(self, beneath: Beneath, moves: tree.Delta, asked: dict[bytes, str]) -> None:
        self.beneath, self.me = beneath, os.geteuid()
        firsts = {tree.parent(path): path for path, _, _ in reversed(moves) if path}
        paths = {path for path, before, _ in moves if before is not None}
        paths.update(above for above in firsts if self.me or above not in asked)
        paths.update(path for above, path in firsts.items() if above not in asked)
        wanted = sorted(paths, key=tree.sort_key)
        self.looks = dict(zip(wanted, native.look_at(beneath.root_fd, wanted), strict=True))

    def why_closed(self, above: bytes, path: bytes) -> str:
        """Why names in this directory cannot change, "" if they can. `path` is one of them."""
        look, inside = self.looks[above], self.looks[path]
        if look is None or inside is None:
            return _why_closed(self.beneath, above)
        flags, mode, uid, _ = look
        if flags < 0 or uid != self.me or mode & 0o500 != 0o500:
            return _why_closed(self.beneath, above)
        if flags:
            return f"its directory is {_FLAGS[flags & _IMMUTABLE]}"
        return _READ_ONLY if inside[3] else ""

    def why_fixed(self, path: bytes) -> str:
        look = self.looks[path]
        if look is None or look[0] < 0:
            return _why_fixed(self.beneath, path)
        return _FLAGS[look[0] & _IMMUTABLE] if look[0] else ""

    def why_sticky(self, above: bytes, path: bytes) -> str:
        if self.me == 0:
            return ""
        directory, look = self.looks[above], self.looks[path]
        if directory is None or look is None or not look[1]:
            return ""
        if not directory[1] & stat.S_ISVTX or self.me in (directory[2], look[2]):
            return ""
        return "belongs to someone else in a sticky directory"


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
    return _READ_ONLY if os.fstatvfs(fd).f_flag & os.ST_RDONLY else ""


def _may_write(beneath: Beneath, path: bytes) -> bool:
    fd, name = beneath.at(path)
    return os.access(name, os.W_OK | os.X_OK, dir_fd=fd, effective_ids=True)


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
    if not flags & (_IMMUTABLE_BIT | _APPEND_ONLY_BIT):
        return ""
    return _FLAGS[1 if flags & _IMMUTABLE_BIT else 0]
