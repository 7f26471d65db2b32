"""Write everything that a restore will need into a private directory on the tree's own file system.

Nothing in the tree has moved while this runs: a full disk, a damaged object or a refused right is found here, and
then the staging directory is simply removed. Files are named n0, n1, …; a directory that comes back as a whole is
d0, d1, … with its content in it (`graft`); what the restore moves out of the way later gets t0, t1, ….
"""

from __future__ import annotations

import errno
import os
import stat
from time import perf_counter_ns

from reprieve.errors import Refused, StoreFailed
from reprieve.files import native
from reprieve.files.beneath import Beneath
from reprieve.files.content import read
from reprieve.files.graft import remove_graft
from reprieve.files.meta import set_meta
from reprieve.model.entry import BLOCK, CHAR, FIFO, FILE, SYMLINK, Entry
from reprieve.store.behind import Behind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from reprieve.model.reporter import Reporter
    from reprieve.store.protocols import BlobStore

_BATCH = 2 << 20  # bytes; bounds memory
_AT_A_TIME = 2048  # paths; those of a first checkpoint lie in the packs in the same order
_FEW = 8  # files that are removed while one waits
_MANY = 500  # files from which on it may pay to look where they are made
_PROBE = 8  # files
_SLOW_NS = 40_000  # for each
_TRIES = 8  # a room may be in a slow part of the disk as well
ROOMS = "d."  # how the names of those begin, see `room`; empty when they have served
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Stage:
    """The staging directory `name` under root_fd."""

    def __init__(self, root_fd: int, name: bytes, blobs: BlobStore, reporter: Reporter) -> None:
        self.root_fd, self.name, self.blobs, self.reporter = root_fd, name, blobs, reporter
        self.fd = -1
        self.lost: dict[int, list[str]] = {}
        self.below: Callable[[int], bytes] = lambda number: b""  # where it is in the stage, unless it is n{number}
        self._rooms: list[int] = []  # where to create files, see `room`; -1 is in their own place
        self._doors: list[int] = []  # all their descriptors
        self._tries = _TRIES  # rooms that may still be looked for one by one
        self._inside = Beneath(-1)
        self._clearing: Behind | None = None
        self._attic = b""  # where it is now, if that is outside of the tree
        self._trashed = 0
        self._me, self._groups = os.geteuid(), {os.getegid(), *os.getgroups()}

    def open(self) -> None:
        """Create it (0700), or open it again after a crash. Raises OSError."""
        try:
            os.mkdir(self.name, 0o700, dir_fd=self.root_fd)
        except FileExistsError:
            pass  # ours: its name is random and written in the intent before it is made
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        self.fd = os.open(self.name, flags, dir_fd=self.root_fd)
        self._inside = Beneath(self.fd)
        if os.fstat(self.fd).st_uid != os.geteuid():
            raise Refused(f"the staging directory {os.fsdecode(self.name)!r} belongs to someone else")

    def expect(self, count: int) -> None:
        """So many files will be made."""
        if count >= _MANY and not self._doors:
            self._open_rooms([-1, -1], 16)  # each of two threads begins in its own place
            self._tries = 0  # they are found by the threads themselves

    def _open_rooms(self, begin: list[int], count: int) -> None:
        from reprieve.files.room import open_rooms

        found = open_rooms(self.fd, count)
        self._doors += found
        self._rooms = [*begin, *found]

    def place(self, number: int) -> bytes:
        """The path of what has this number, inside the stage."""
        return self.below(number) or b"n%d" % number

    def make_folders(self, numbers: list[int]) -> None:
        """Make directories, parents first. Raises OSError."""
        for code in native.make_dirs(self.fd, [self.place(i) for i in numbers], self._rooms):
            if code:
                raise OSError(code, os.strerror(code))

    def make_dir(self, number: int) -> None:
        """Make d{number}, a directory that is moved to its place empty. Raises OSError."""
        os.mkdir(b"d%d" % number, 0o700, dir_fd=self.fd)

    def at(self, number: int) -> tuple[int, bytes]:
        """(descriptor of its directory, its name there)."""
        return self.spot(self.place(number))

    def spot(self, path: bytes) -> tuple[int, bytes]:
        """The same for a path inside the stage."""
        return self._inside.at(path)

    def owner(self, number: int, e: Entry) -> tuple[int, int]:
        """Owner and group to set, -1 where we may not; then that is noted."""
        if self._me == 0 or (e.uid == self._me and e.gid in self._groups):
            return e.uid, e.gid
        self.lost.setdefault(number, []).append("owner could not be set (not permitted)")
        return -1, -1

    def write(self, numbers: list[int], entry_of: Callable[[int], Entry]) -> None:
        """Write n{number} for each; directories are not staged."""
        total = len(numbers)
        for start in range(0, total, _AT_A_TIME):
            self._write_small([(i, entry_of(i)) for i in numbers[start : start + _AT_A_TIME]], is_few=total < _MANY)
            self.reporter.progress("restore", done=min(start + _AT_A_TIME, total), total=total)
        for i in numbers:
            e = entry_of(i)
            if e.kind != FILE:
                self._make(i, e)
            elif e.is_chunked:
                self._write_chunked(i, e)
            if e.xattrs:
                self._finish(i, e)

    def _write_small(self, wanted: list[tuple[int, Entry]], *, is_few: bool) -> None:
        batch: list[tuple[int, Entry, bytes]] = []
        held = 0
        by_content: dict[bytes, list[tuple[int, Entry]]] = {}
        for i, e in wanted:
            if e.kind == FILE and not e.is_chunked:
                by_content.setdefault(e.content, []).append((i, e))
        behind = Behind(in_thread=not is_few)
        try:
            for content, data in self.blobs.get_many(list(by_content)):
                for i, e in by_content[content]:
                    batch.append((i, e, data))
                held += len(data)
                # of few, some are written while the store unpacks the others
                if held >= _BATCH or (is_few and len(batch) >= _PROBE):
                    self._write_batch(batch, behind)
                    batch, held = [], 0
            self._write_batch(batch, behind)
        finally:
            behind.wait()

    def link(self, number: int, source_dir_fd: int, source: bytes) -> None:
        """n{number} becomes another name of an existing file."""
        fd, name = self.at(number)
        os.link(source, name, src_dir_fd=source_dir_fd, dst_dir_fd=fd, follow_symlinks=False)

    def trash_name(self) -> bytes:
        """A fresh name for something that is moved out of the way."""
        self._trashed += 1
        return b"t%d" % (self._trashed - 1)

    def names(self) -> list[str]:
        """What is in it."""
        return [name for name, _ in self._listed()]

    def _listed(self) -> list[tuple[str, bool]]:
        """(name, is it a directory). Through a fresh descriptor: on btrfs one lists only what was there when opened."""
        fd = os.open(b".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self.fd)
        try:
            with os.scandir(fd) as found:
                return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in found]
        finally:
            os.close(fd)

    def losses(self) -> list[tuple[int, str]]:
        """(number, what of it could not be set)."""
        return [(number, reason) for number, reasons in self.lost.items() for reason in reasons]

    def move_out(self, attic: str) -> bool:
        """Move it out of the tree with all that is in it, into that directory; False if it has to be cleared first.

        Nothing may be staged any more. Emptying it can wait then: removing a file takes longer than moving a hundred.
        """
        if self.fd < 0:
            return True
        self._close_doors()
        try:
            for name, is_dir in self._listed():
                if is_dir and not (name.startswith("d") and self._is_empty(name)):
                    return False  # not ours, or no trash
                if is_dir and not name.startswith(ROOMS):
                    os.rmdir(name, dir_fd=self.fd)
            at = os.path.join(os.fsencode(attic), self.name)
            os.rename(self.name, at, src_dir_fd=self.root_fd)
        except OSError:
            return False  # on another file system, above all
        self._attic = at
        return True

    def _is_empty(self, name: str) -> bool:
        fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.fd)
        try:
            return not os.listdir(fd)
        finally:
            os.close(fd)

    def start_clearing(self) -> None:
        """Begin to remove what is in it behind the caller's back; nothing may be staged any more."""
        if self.fd < 0 or self._clearing is not None:
            return
        files = [name for name in map(os.fsencode, self.names()) if not name.startswith(b"d")]
        self._clearing = Behind(in_thread=len(files) > _FEW)
        self._clearing.start(lambda: native.unlink_many(self.fd, files), lambda codes: _all_removed(files, codes))

    def clear(self) -> None:
        """Remove the directory with all that is in it. Only plain names of our own are there."""
        if self.fd < 0:
            return
        try:
            self._clear()
        except OSError:
            if not self._attic:
                raise  # out of the tree it is in nobody's way, and `gc` removes it

    def _clear(self) -> None:
        self._close_doors()
        self.start_clearing()
        assert self._clearing is not None
        self._clearing.wait()
        for name in map(os.fsencode, self.names()):
            self.remove(name)
        os.close(self.fd)
        self.fd = -1
        os.rmdir(self._attic or self.name, dir_fd=self.root_fd)

    def _close_doors(self) -> None:
        self._inside.close()
        self._rooms.clear()
        while self._doors:
            os.close(self._doors.pop())

    def remove(self, name: bytes) -> None:
        """Remove one thing that is in it."""
        if name.startswith(b"d"):
            remove_graft(self.fd, name)
        else:
            os.unlink(name, dir_fd=self.fd)

    def _write_batch(self, batch: list[tuple[int, Entry, bytes]], behind: Behind) -> None:
        items = []
        for i, e, data in batch:
            # with xattrs the final mode comes last: setting one needs the owner's write bit
            mode = 0o600 if e.xattrs else e.mode
            items.append((self.place(i), [data], mode, *self.owner(i, e), e.mtime_s, e.mtime_ns))
        behind.wait()
        started = perf_counter_ns()
        behind.start(lambda: native.write_files(self.fd, items, self._rooms), lambda codes: self._written(batch, codes))
        if len(items) == _PROBE and self._tries and perf_counter_ns() - started > _PROBE * _SLOW_NS:
            # few files do not pay for rooms, unless some of them tell that creating is slow here, or has become so
            self._open_rooms([], 1)
            self._tries = self._tries - 1 if self._rooms else 0

    def _written(self, batch: list[tuple[int, Entry, bytes]], codes: list[int]) -> None:
        for (i, e, data), code in zip(batch, codes, strict=True):
            if code == errno.EPERM and e.uid != -1:
                # we look like root but may not give files away; then setuid and setgid must not come back either
                item = (self.place(i), [data], e.mode & 0o1777, -1, -1, e.mtime_s, e.mtime_ns)
                code = native.write_files(self.fd, [item])[0]
                self.lost.setdefault(i, []).append("owner could not be set (not permitted)")
            if code:
                raise _failed(code)

    def _write_chunked(self, i: int, e: Entry) -> None:
        dir_fd, name = self.at(i)
        _discard(dir_fd, name)
        fd = os.open(name, _NEW, 0, dir_fd=dir_fd)  # no rights before it is whole: see Restore._sweep
        try:
            at = 0
            for length, data in read(self.blobs, e.content, is_chunked=True):
                view = memoryview(data or b"")
                while view:
                    view = view[os.pwrite(fd, view, at + length - len(view)) :]
                at += length
            os.ftruncate(fd, at)
            os.fchmod(fd, 0o600)
        except OSError as error:
            raise _failed(error.errno or 0) from error
        finally:
            os.close(fd)
        self._finish(i, e)

    def _make(self, i: int, e: Entry) -> None:
        fd, name = self.at(i)
        _discard(fd, name)
        if e.kind == SYMLINK:
            os.symlink(e.target, name, dir_fd=fd)
        elif e.kind == FIFO:
            os.mkfifo(name, 0o600, dir_fd=fd)
        elif e.kind in (CHAR, BLOCK):
            os.mknod(name, 0o600 | (stat.S_IFCHR if e.kind == CHAR else stat.S_IFBLK), e.rdev, dir_fd=fd)
        self._finish(i, e)

    def _finish(self, i: int, e: Entry) -> None:
        lost: list[str] = []
        set_meta(*self.at(i), e, lost=lost)
        if lost:
            self.lost.setdefault(i, []).extend(lost)


def _all_removed(names: list[bytes], codes: list[int]) -> None:
    for name, code in zip(names, codes, strict=True):
        if code:
            raise OSError(code, os.strerror(code), name)


def _discard(dir_fd: int, name: bytes) -> None:
    try:
        os.unlink(name, dir_fd=dir_fd)
    except FileNotFoundError:
        return


def _failed(code: int) -> StoreFailed:
    return StoreFailed(
        f"a file could not be staged for the restore: {os.strerror(code)}; nothing was changed",
        hints=["free some space on the file system of the folder and run the same command again"],
    )
