"""Compare a tree on disk with its index, in Python: the twin of _native.c's scan.

Two passes like there: all rows of the index in order, with a chain of open directories; then the new directories that
were met on the way, each depth first.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Callable, Iterable

from reprieve.files._twin_open import DIR_FLAGS, open_beneath
from reprieve.files._twin_tree import (
    CHUNKED,
    GAP,
    NEEDS,
    PATH_LIMIT,
    RACY,
    Row,
    Tree,
    is_below,
    pack,
    parent,
    sort_key,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing_extensions import Buffer

_WINDOW = 11  # directories open at a time
_OPEN, _GONE, _KEPT = range(3)  # _KEPT: cannot be looked into, so what is known below it stays
_MISSING = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_TORN = "a directory that was not to be looked at is not there"
_U64 = 0xFFFFFFFFFFFFFFFF
_KINDS = {
    stat.S_IFREG: 102,
    stat.S_IFDIR: 100,
    stat.S_IFLNK: 108,
    stat.S_IFIFO: 112,
    stat.S_IFSOCK: 115,
    stat.S_IFCHR: 99,
    stat.S_IFBLK: 98,
}


class _Level:
    """One open directory of the chain; fd is -1 while it is outside the window."""

    def __init__(self, fd: int, state: int, path: bytes, st: os.stat_result | None) -> None:
        self.fd, self.state, self.path = fd, state, path
        self.inode = None if st is None else (st.st_dev, st.st_ino)
        self.names: list[tuple[bytes, bool]] = []  # still to be visited, last first


def kind_of(mode: int) -> int:
    """The kind column for a file type."""
    return _KINDS.get(stat.S_IFMT(mode), 98)


def set_stat(row: Row, st: os.stat_result) -> None:
    """Fill the stat columns. A directory's size says nothing that a restore could use."""
    row.kind, row.mode, row.uid, row.gid = kind_of(st.st_mode), st.st_mode & 0o7777, st.st_uid, st.st_gid
    row.nlink, row.size = st.st_nlink & 0xFFFFFFFF, 0 if row.kind == 100 else st.st_size
    row.mtime_s, row.mtime_ns = divmod(st.st_mtime_ns, 1_000_000_000)
    row.ctime_s, row.ctime_ns = divmod(st.st_ctime_ns, 1_000_000_000)
    row.ino, row.dev = st.st_ino, st.st_dev & _U64
    row.rdev = st.st_rdev & _U64 if row.kind in b"cb" else 0


class _Scan:
    def __init__(
        self,
        root_fd: int,
        index: Buffer | None,
        floor: tuple[int, int],
        cross_mounts: bool,
        accept: Callable[[bytes, bool], object] | None,
        skip: frozenset[bytes],
        look: Buffer | None,
    ) -> None:
        self.root_fd, self.floor, self.accept, self.skip = root_fd, floor, accept, skip
        self.cross_mounts, self.root_dev = cross_mounts, os.fstat(root_fd).st_dev
        self.index = Tree(index).rows()
        _check_parents(self.index)
        self.known = {row.path: row for row in self.index}
        self.rows = self.index if look is None else _picked(self.index, look)
        self.is_partial = look is not None
        self.found: dict[bytes, Row] = {}
        self.gone: set[bytes] = set()
        self.problems: list[tuple[bytes, int, bool]] = []
        self.jobs: list[tuple[bytes, Row | None]] = []
        self.chain: list[_Level] = []

    def run(self) -> None:
        try:
            if self.index:
                self.walk_known()
            else:
                self.jobs.append((b"", None))
            while self.jobs:
                self.walk_new(*self.jobs.pop())
        finally:
            while self.chain:
                self.pop(reopen=False)

    def take_along(self) -> None:
        """What is below a directory that went is gone, though nobody looked at it."""
        for row in self.index:
            above = parent(row.path)
            now = self.found.get(above)
            if row.path and (above in self.gone or (now is not None and now.kind != 100)):
                self.gone.add(row.path)

    # -- the chain of open directories

    def push(self, fd: int, state: int, path: bytes, st: os.stat_result | None = None) -> _Level:
        level = _Level(fd, state, path, st)
        self.chain.append(level)
        if fd >= 0 and len(self.chain) > _WINDOW and (out := self.chain[-1 - _WINDOW]).fd >= 0:
            os.close(out.fd)
            out.fd = -1
        return level

    def pop(self, *, reopen: bool = True) -> None:
        level = self.chain.pop()
        if reopen and self.chain and self.chain[-1].state == _OPEN and self.chain[-1].fd < 0:
            self.reopen(self.chain[-1], level.fd)
        if level.fd >= 0:
            os.close(level.fd)

    def reopen(self, level: _Level, child: int) -> None:
        """`..` first: going by path would make a tree of depth n cost n * n. The inode says whether it led back."""
        code = errno.ESTALE
        for by_path in (False, True) if child >= 0 else (True,):
            try:
                if by_path:
                    fd = open_beneath(self.root_fd, level.path, DIR_FLAGS)
                else:
                    fd = os.open("..", DIR_FLAGS, dir_fd=child)
            except OSError as e:
                code = e.errno or 0
                continue
            st = os.fstat(fd)
            if (st.st_dev, st.st_ino) == level.inode:
                level.fd = fd
                return
            os.close(fd)
            code = errno.ESTALE
        level.state = _KEPT
        self.problems.append((level.path, code, True))

    # -- rows of the index

    def walk_known(self) -> None:
        for row in self.rows:
            path = row.path
            while self.chain and not is_below(path, self.chain[-1].path):
                self.pop()
            if self.is_partial and path:
                self.push_ancestors(path)
            state = self.chain[-1].state if self.chain else _OPEN
            if state == _GONE:
                self.gone.add(path)
            elif state == _OPEN and path in self.skip:
                state = _KEPT
            if state != _OPEN:
                if row.kind == 100:
                    self.push(-1, state, path)
                continue
            dir, name = (self.chain[-1].fd, path.rpartition(b"/")[2]) if path else (self.root_fd, b".")
            if row.flags & GAP and path and self.is_left_alone(dir, name, row):
                continue
            if row.kind == 100:
                self.enter(dir, name, path, row, was_dir=True)
            else:
                self.leaf(dir, name, path, row)
        while self.chain:
            self.pop()

    def push_ancestors(self, path: bytes) -> None:
        """Open the directories on the way that are not to be looked at."""
        above = parent(path)
        while not self.chain or self.chain[-1].path != above:
            at = self.chain[-1].path if self.chain else None
            if at is None:
                name, down, fd = b".", b"", self.root_fd
            else:
                name = above[len(at) + 1 if at else 0 :].partition(b"/")[0]
                down, fd = at + b"/" + name if at else name, self.chain[-1].fd
            if self.chain and self.chain[-1].state != _OPEN:
                self.push(-1, self.chain[-1].state, down)
                continue
            row = self.known.get(down)
            try:
                opened = os.open(name, DIR_FLAGS, dir_fd=fd)
            except OSError as e:
                raise LookupError(_TORN) from e
            st = os.fstat(opened)
            self.push(opened, _OPEN, down, st)  # it is closed with the chain, whatever follows
            if down in self.skip or self.is_elsewhere(st) or row is None or row.flags & GAP:
                raise LookupError(_TORN)

    def is_left_alone(self, dir: int, name: bytes, row: Row) -> bool:
        """What was left out on purpose is the caller's to look at again, unless something else is there now."""
        try:
            st = os.stat(name, dir_fd=dir, follow_symlinks=False)
        except OSError:
            return False
        is_dir = stat.S_ISDIR(st.st_mode)
        if row.kind != kind_of(st.st_mode) and self.is_accepted(row.path, is_dir):
            return False
        if row.kind == 100:
            self.push(-1, _KEPT if is_dir else _GONE, row.path)
        return True

    # -- new directories

    def walk_new(self, path: bytes, known: Row | None) -> None:
        if not path:
            if path not in self.skip:
                self.enter(self.root_fd, b".", path, known, was_dir=False)
        else:
            try:
                fd = open_beneath(self.root_fd, parent(path), DIR_FLAGS)
            except OSError as e:
                if known is not None and e.errno in _MISSING:
                    self.gone.add(path)
                else:
                    self.problems.append((path, e.errno or 0, True))
                return
            self.push(fd, _OPEN, parent(path), os.fstat(fd))
            self.enter(fd, path.rpartition(b"/")[2], path, known, was_dir=False)
        while self.chain:
            top = self.chain[-1]
            if top.state != _OPEN or not top.names:
                self.pop()
            else:
                self.visit_new(top.fd, top.path, *top.names.pop(), descend=True)

    def visit_new(self, dir: int, dir_path: bytes, name: bytes, is_dir: bool, *, descend: bool) -> None:
        path = dir_path + b"/" + name if dir_path else name
        if path in self.skip:
            return
        if len(path) > PATH_LIMIT:
            self.problems.append((path, errno.ENAMETOOLONG, is_dir))
        elif not self.is_accepted(path, is_dir):
            return
        elif not is_dir:
            self.leaf(dir, name, path, None)
        elif not descend:
            self.jobs.append((path, None))
        else:
            self.enter(dir, name, path, None, was_dir=False)

    def is_accepted(self, path: bytes, is_dir: bool) -> bool:
        return self.accept is None or bool(self.accept(path, is_dir))

    # -- one entry

    def enter(self, dir: int, name: bytes, path: bytes, known: Row | None, *, was_dir: bool) -> None:
        """A directory, or what has taken its place. was_dir: its children are rows of the index and will follow."""
        fd, code, st = -1, 0, None
        for _ in range(3):
            try:
                fd, code = os.open(name, DIR_FLAGS, dir_fd=dir), 0
            except OSError as e:
                fd, code = -1, e.errno or 0
            try:
                st = os.fstat(fd) if fd >= 0 else os.stat(name, dir_fd=dir, follow_symlinks=False)
            except OSError as e:
                if known is not None and e.errno == errno.ENOENT:
                    self.gone.add(path)
                else:  # if it is missing: it was listed, so it, or a directory above it, moved
                    self.problems.append((path, e.errno or 0, True))
                if was_dir:
                    self.push(-1, _GONE if e.errno == errno.ENOENT else _KEPT, path)
                return
            if fd >= 0 or not stat.S_ISDIR(st.st_mode) or code not in _MISSING:
                break  # else it was replaced between the two calls
        assert st is not None
        below = _KEPT
        if not stat.S_ISDIR(st.st_mode):
            below = _GONE
            self.leaf(dir, name, path, known)
        elif self.is_elsewhere(st):
            self.problems.append((path, errno.EXDEV, True))
        else:
            changed = known is None or self.is_changed(known, st)
            if changed:
                self.emit(path, st, known)
            if fd >= 0:
                self.look_into(self.push(fd, _OPEN, path, st), changed, was_dir)
                return
            self.problems.append((path, code, True))
        if fd >= 0:
            os.close(fd)
        if was_dir:
            self.push(-1, below, path)

    def look_into(self, level: _Level, changed: bool, was_dir: bool) -> None:
        if not changed:
            return
        try:
            with os.scandir(level.fd) as entries:
                names = [(os.fsencode(e.name), e.is_dir(follow_symlinks=False)) for e in entries]
        except OSError as e:
            self.problems.append((level.path, e.errno or 0, True))
            level.state = _KEPT if was_dir else _OPEN
            return
        names.sort(reverse=not was_dir)
        if not was_dir:
            level.names = names
            return
        for name, is_dir in names:
            if (level.path + b"/" + name if level.path else name) not in self.known:
                self.visit_new(level.fd, level.path, name, is_dir, descend=False)

    def leaf(self, dir: int, name: bytes, path: bytes, known: Row | None) -> None:
        """Something that was no directory when last seen: one stat, and the target if it is a link."""
        for _ in range(3):
            try:
                st = os.stat(name, dir_fd=dir, follow_symlinks=False)
            except OSError as e:
                if e.errno != errno.ENOENT:
                    self.problems.append((path, e.errno or 0, known is not None and known.kind == 100))
                elif known is not None:
                    self.gone.add(path)
                return
            if self.is_elsewhere(st):
                self.problems.append((path, errno.EXDEV, stat.S_ISDIR(st.st_mode)))
            elif stat.S_ISDIR(st.st_mode):
                self.jobs.append((path, known))
            elif known is None or self.is_changed(known, st):
                try:
                    target = os.readlink(name, dir_fd=dir) if stat.S_ISLNK(st.st_mode) else b""
                except OSError as e:
                    if e.errno in (errno.EINVAL, errno.ENOENT):
                        continue  # replaced since the stat
                    self.problems.append((path, e.errno or 0, False))
                    return
                self.emit(path, st, known, target)
            return
        self.problems.append((path, errno.EAGAIN, False))

    def is_elsewhere(self, st: os.stat_result) -> bool:
        return not self.cross_mounts and st.st_dev != self.root_dev

    def is_changed(self, row: Row, st: os.stat_result) -> bool:
        now = Row((0,) * 20, b"", b"")
        set_stat(now, st)
        same = [
            "kind", "mode", "uid", "gid", "ino", "mtime_s", "mtime_ns", "ctime_s", "ctime_ns",
        ]  # fmt: skip
        if row.kind != 100:
            same += ["size", "nlink"]
        if row.kind in b"cb":
            same.append("rdev")
        return (
            bool(row.flags & (RACY | NEEDS))
            or any(getattr(row, name) != getattr(now, name) for name in same)
            # Device numbers change over a reboot; being on the root's device does not.
            or (row.dev == self.index[0].dev) != (st.st_dev == self.root_dev)
        )

    def is_young(self, seconds: int, ns: int) -> bool:
        return (seconds, ns) >= self.floor or (ns == 0 and self.floor[0] - seconds <= 2)

    def emit(self, path: bytes, st: os.stat_result, known: Row | None, target: bytes = b"") -> None:
        row = Row((0,) * 20, path, b"")
        row.content = bytes(32)
        set_stat(row, st)
        row.flags = NEEDS if row.kind == 102 else 0
        if self.is_young(row.mtime_s, row.mtime_ns) or self.is_young(row.ctime_s, row.ctime_ns):
            row.flags |= RACY
        if known is not None and known.kind == row.kind:
            row.content, row.link = known.content, known.link
            row.flags |= known.flags & CHUNKED
        if row.kind == 108:
            row.extra = struct.pack("<I", len(target)) + target + bytes(4)
        self.found[path] = row


def _picked(rows: list[Row], look: Buffer) -> list[Row]:
    view = memoryview(look)
    numbers = list(view.cast("B").cast("I")) if view.nbytes % 4 == 0 else [1, 0]
    if sorted(set(numbers)) != numbers or (numbers and numbers[-1] >= len(rows)):
        raise ValueError("look must hold rising numbers of rows")
    return [rows[number] for number in numbers]


def _check_parents(rows: list[Row]) -> None:
    dirs = {row.path for row in rows if row.kind == 100}
    if rows and (rows[0].path or any(row.path and parent(row.path) not in dirs for row in rows)):
        raise ValueError("packed tree: a row without its directory")


def scan(
    root_fd: int,
    index: Buffer | None,
    floor_s: int,
    floor_ns: int,
    cross_mounts: bool = False,
    accept: Callable[[bytes, bool], object] | None = None,
    skip: Iterable[bytes] = frozenset(),
    look: Buffer | None = None,
) -> tuple[bytearray, list[bytes], list[tuple[bytes, int, bool]]]:
    s = _Scan(root_fd, index, (floor_s, floor_ns), cross_mounts, accept, frozenset(skip), look)
    s.run()
    if look is not None:
        s.take_along()
    rows = sorted(s.found.values(), key=lambda row: sort_key(row.path))
    gone = [row.path for row in s.index if row.path in s.gone]
    problems = sorted(s.problems, key=lambda p: (sort_key(p[0]), p[1]))
    return pack(rows, bytes(16)), gone, problems


def scan_begin(
    root_fd: int,
    index: Buffer | None,
    floor_s: int,
    floor_ns: int,
    cross_mounts: bool = False,
    accept: None = None,
    skip: Iterable[bytes] = frozenset(),
) -> object | None:
    return None  # two threads of Python run in turns


def scan_end(scan: object, /) -> tuple[bytearray, list[bytes], list[tuple[bytes, int, bool]]]:
    raise ValueError("this scan is over, or another process's")
