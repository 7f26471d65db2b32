"""The independent oracle: what a tree is, entry by entry. Shares no code with the engine.

`fingerprint` reads everything a restore has to bring back; two trees are the same when their fingerprints are
equal. It works with directory descriptors, follows no link, and uses no recursion, so that trees below PATH_MAX
can be judged as well.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

_CHUNK = 3000  # bytes of path in one open: far below PATH_MAX
_NOFOLLOW = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_SPARSE_FROM = 64 * 1024  # smaller files are one or a few blocks: "sparse" says nothing there


class Node(NamedTuple):
    """One entry, as far as a restore has to bring it back."""

    kind: str  # f, d, l, p, s, c, b
    mode: int
    uid: int
    gid: int
    size: int
    mtime_ns: int
    content: str  # sha256 of a file's bytes
    target: bytes  # of a symlink
    xattrs: tuple[tuple[str, bytes], ...]
    group: bytes  # of a file: the first path of its hard-link group inside this tree, b"" if it stands alone
    sparse: bool
    rdev: int


Fingerprint = dict[bytes, Node]

_KINDS = {
    stat.S_IFREG: "f",
    stat.S_IFDIR: "d",
    stat.S_IFLNK: "l",
    stat.S_IFIFO: "p",
    stat.S_IFSOCK: "s",
    stat.S_IFCHR: "c",
    stat.S_IFBLK: "b",
}


def fingerprint(root: Path | str | bytes, *, skip: Iterable[bytes] = ()) -> Fingerprint:
    """Every entry below root, and root itself as b"". `skip` names paths (with all below) that are left out."""
    skipped = frozenset(skip)
    found: Fingerprint = {}
    inodes: dict[tuple[int, int], list[bytes]] = {}
    root_fd = os.open(root, _NOFOLLOW | os.O_DIRECTORY)
    walk = _Walk(root_fd)
    try:
        found[b""] = _directory(root_fd, os.fstat(root_fd))
        waiting = [b""]
        while waiting:
            path = waiting.pop()
            fd = walk.go(path)
            for name in os.listdir(fd):
                raw = os.fsencode(name)
                child = path + b"/" + raw if path else raw
                if child in skipped:
                    continue
                node = _read(fd, raw, child, inodes)
                found[child] = node
                if node.kind == "d":
                    waiting.append(child)
    finally:
        walk.close()
        os.close(root_fd)
    for paths in inodes.values():
        if len(paths) > 1:
            first = min(paths)
            for path in paths:
                found[path] = found[path]._replace(group=first)
    return found


def diff_fingerprints(
    wanted: Fingerprint, got: Fingerprint, *, ignore: Iterable[str] = (), limit: int = 40
) -> list[str]:
    """One line per difference, empty when the trees are the same. `ignore` names fields that do not count."""
    dropped = frozenset(ignore)
    lines = []
    for path in sorted(wanted.keys() | got.keys()):
        a, b = wanted.get(path), got.get(path)
        if a == b:
            continue
        if a is None:
            assert b is not None
            lines.append(f"{path!r}: not wanted, but there ({b.kind}, {b.size} bytes)")
        elif b is None:
            lines.append(f"{path!r}: missing ({a.kind}, {a.size} bytes)")
        else:
            fields = [f for f in Node._fields if f not in dropped and getattr(a, f) != getattr(b, f)]
            if "dir_mtime_ns" in dropped and a.kind == "d" == b.kind:
                fields = [f for f in fields if f != "mtime_ns"]
            if fields:
                lines.append(f"{path!r}: " + ", ".join(f"{f} {_show(a, f)} -> {_show(b, f)}" for f in fields))
    if len(lines) > limit:
        lines[limit:] = [f"... and {len(lines) - limit} more"]
    return lines


def same(wanted: Fingerprint, got: Fingerprint) -> bool:
    """Whether two trees are one and the same in every field."""
    return wanted == got


def erase(root: Path | str | bytes, *, keep_root: bool = False) -> None:
    """Remove a tree of any depth and any modes, following nothing."""
    root_fd = os.open(root, _NOFOLLOW | os.O_DIRECTORY)
    walk = _Walk(root_fd, force=True)
    try:
        order = [b""]
        for path in order:  # grows while it is walked: parents come before children
            fd = walk.go(path)
            for entry in os.listdir(fd):
                raw = os.fsencode(entry)
                if stat.S_ISDIR(os.lstat(raw, dir_fd=fd).st_mode):
                    order.append(path + b"/" + raw if path else raw)
                else:
                    os.unlink(raw, dir_fd=fd)
        for path in reversed(order[1:]):
            parent, _, name = path.rpartition(b"/")
            os.rmdir(name, dir_fd=walk.go(parent))
    finally:
        walk.close()
        os.close(root_fd)
    if not keep_root:
        os.rmdir(root)


def _directory(fd: int, st: os.stat_result) -> Node:
    return Node(
        "d", stat.S_IMODE(st.st_mode), st.st_uid, st.st_gid, 0, st.st_mtime_ns, "", b"", _xattrs(fd), b"", False, 0
    )


def _read(dir_fd: int, name: bytes, path: bytes, inodes: dict[tuple[int, int], list[bytes]]) -> Node:
    st = os.lstat(name, dir_fd=dir_fd)
    kind = _KINDS[stat.S_IFMT(st.st_mode)]
    mode = stat.S_IMODE(st.st_mode)
    if kind == "f" and st.st_nlink > 1:
        inodes.setdefault((st.st_dev, st.st_ino), []).append(path)
    if kind == "l":
        target = os.readlink(name, dir_fd=dir_fd)
        return Node(kind, mode, st.st_uid, st.st_gid, 0, st.st_mtime_ns, "", target, (), b"", False, 0)
    if kind not in "fd":
        rdev = st.st_rdev if kind in "cb" else 0
        return Node(kind, mode, st.st_uid, st.st_gid, 0, st.st_mtime_ns, "", b"", (), b"", False, rdev)
    fd = _open_any(dir_fd, name, mode)
    if fd < 0:
        return Node(kind, mode, st.st_uid, st.st_gid, st.st_size, st.st_mtime_ns, "unreadable", b"", (), b"", False, 0)
    try:
        if kind == "d":
            return _directory(fd, st)
        content = hashlib.file_digest(os.fdopen(fd, "rb", buffering=0, closefd=False), "sha256").hexdigest()
        sparse = st.st_size >= _SPARSE_FROM and st.st_blocks * 512 < st.st_size // 2
        return Node(
            kind, mode, st.st_uid, st.st_gid, st.st_size, st.st_mtime_ns, content, b"", _xattrs(fd), b"", sparse, 0
        )
    finally:
        os.close(fd)


def _open_any(dir_fd: int, name: bytes, mode: int) -> int:
    try:
        return os.open(name, _NOFOLLOW, dir_fd=dir_fd)
    except PermissionError:
        return -1


def _xattrs(fd: int) -> tuple[tuple[str, bytes], ...]:
    try:
        return tuple((name, os.getxattr(fd, name)) for name in sorted(os.listxattr(fd)))
    except OSError:
        return ()


class _Walk:
    """A descriptor that goes from directory to directory below root: by one step where the next is a child or the
    parent of the last one, else from the root in pieces that fit PATH_MAX.

    From the root to each directory of a chain of 3,000 would be 4.5 million steps.
    """

    def __init__(self, root_fd: int, *, force: bool = False) -> None:
        self.root_fd, self.force = root_fd, force
        self.path, self.fd = b"", os.dup(root_fd)

    def go(self, path: bytes) -> int:
        """The descriptor of that directory, good until the next call."""
        if path == self.path:
            return self.fd
        if path and path.rpartition(b"/")[0] == self.path:
            self._step(path[len(self.path) + 1 if self.path else 0 :])
        elif self.path and self.path.rpartition(b"/")[0] == path:
            self._step(b"..", is_up=True)
        else:
            os.close(self.fd)
            self.fd, rest = os.dup(self.root_fd), path
            while rest:
                piece, rest = _piece(rest)
                self._step(piece)
        self.path = path
        return self.fd

    def _step(self, piece: bytes, *, is_up: bool = False) -> None:
        if self.force and not is_up:
            st = os.lstat(piece, dir_fd=self.fd)
            if st.st_mode & 0o700 != 0o700:
                os.chmod(piece, stat.S_IMODE(st.st_mode) | 0o700, dir_fd=self.fd)
        deeper = os.open(piece, _NOFOLLOW | os.O_DIRECTORY, dir_fd=self.fd)
        os.close(self.fd)
        self.fd = deeper

    def close(self) -> None:
        os.close(self.fd)


def _piece(path: bytes) -> tuple[bytes, bytes]:
    if len(path) <= _CHUNK:
        return path, b""
    cut = path.rfind(b"/", 0, _CHUNK)
    return path[:cut], path[cut + 1 :]


def _show(node: Node, field: str) -> str:
    value = getattr(node, field)
    if field == "mode":
        return oct(value)
    return repr(value)[:60]
