"""Which paths of a tree are mounts of their own, by the kernel's table.

A stat does not tell: a file or folder bound from the same file system has its device. One more call for every path
would make each scan slower, so the table is read once. It also names mounts that something else hides by now: each of
the few that lie in the tree is asked for the number of the mount that it is on.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from reprieve.files.beneath import Beneath

_TABLE = "/proc/self/mountinfo"
_ESCAPES = ((b"\\134", b"\\"), (b"\\040", b" "), (b"\\011", b"\t"), (b"\\012", b"\n"))
_LOOK = getattr(os, "O_PATH", os.O_RDONLY) | os.O_NOFOLLOW | os.O_CLOEXEC


def may_have_mounts(root_fd: int) -> bool:
    """Whether the table names one below the root."""
    return bool(_table(root_fd)[0])


def mounts_inside(beneath: Beneath) -> frozenset[bytes]:
    """Paths below the root at which something is mounted; none where the system has no such table."""
    table, root = _table(beneath.root_fd)
    numbers: dict[bytes, set[bytes]] = {}  # several may lie on top of each other
    for line in table.splitlines():
        number, _, _, _, point = line.split(b" ", 5)[:5]
        at = plain(point)
        if at.startswith(root) and at != root:
            numbers.setdefault(at[len(root) :], set()).add(number)
    return frozenset(path for path, some in numbers.items() if _number_at(beneath, path) in some)


def _table(root_fd: int) -> tuple[bytes, bytes]:
    """The table, or nothing if it names none below the root, and how those begin."""
    try:
        table = read_proc(_TABLE)
        root = os.readlink(b"/proc/self/fd/%d" % root_fd).rstrip(b"/") + b"/"
    except OSError:
        return b"", b""
    return (table if b" " + _escaped(root) in table else b""), root


def plain(field: bytes) -> bytes:
    """A path as it is, of one in the table."""
    for code, byte in _ESCAPES[1:] + _ESCAPES[:1]:
        field = field.replace(code, byte)
    return field


def _escaped(path: bytes) -> bytes:
    for code, byte in _ESCAPES:
        path = path.replace(byte, code)
    return path


def _number_at(beneath: Beneath, path: bytes) -> bytes:
    """The number of the mount that a path is on, b"" if that can't be told."""
    try:
        dir_fd, name = beneath.at(path)
        fd = os.open(name, _LOOK, dir_fd=dir_fd)
    except OSError:
        return b""  # not there, or behind a door: then the scan comes no further either
    try:
        lines = read_proc(f"/proc/self/fdinfo/{fd}").splitlines()
    except OSError:
        return b""
    finally:
        os.close(fd)
    return next((line.split()[1] for line in lines if line.startswith(b"mnt_id:")), b"")


def read_proc(path: str) -> bytes:
    """A file of the kernel's, whole: its size is not known before."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while part := os.read(fd, 1 << 16):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(fd)
