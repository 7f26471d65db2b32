"""Hold a live SQLite database still while its files are copied.

A plain copy of a database that is being written is corrupt more often than not. SQLite's backup API would
open the file through SQLite, which is slow to import and writes `-shm` files; so this module speaks SQLite's own
locking protocol instead, as one more reader would, and never writes a byte. The caller copies the files:

    with held(dir_fd, b"app.db") as hold:
        if hold:
            copy app.db, then app.db-journal and app.db-wal, the latter only as far as it reached when the copy began
            if not hold.is_intact(): copy again, or name a gap

What is locked, and what that stops (offsets are SQLite's, os_unix.c and wal.c):

    database file   PENDING  0x40000000          read, for the instant of getting SHARED, as every reader does
                    SHARED   0x40000002 + 510    read: nobody becomes EXCLUSIVE, so no commit or hot-journal rollback
                                                 writes the file, no mode change, and -wal and -shm are not deleted
    -shm (WAL mode) CKPT     121                 read: no checkpoint copies pages into the database file
                    READ(4)  127                 read: no writer starts the -wal over from its beginning

In rollback-journal mode the database file then stands still; a journal copied with it is either hot (of a dead
writer: the copy is recovered by it) or belongs to a transaction that has not touched the file (replaying it changes
nothing). In WAL mode writers go on appending to -wal; frames are chained by checksums, so recovery of a copy stops
at the last commit that was copied whole. (They may append faster than a copier reads, so it must not read "to the
end": a test of ours did, and never ended.) All are read locks, so files that are read-only for us work too. One read
mark is enough to stop a restart of the log, which wants all of them; taking all would starve new readers. The last
one is the one that readers try last.

A WAL database without -shm has no user at that moment, so there is nothing to lock; a user who comes while we copy
creates -shm and cannot remove it while we hold SHARED. `is_intact` looks for it.

The locks are open-file-description locks: they conflict with SQLite's POSIX locks but are dropped only by closing our
descriptor. SQLite's own locks are dropped when *any* descriptor of the file is closed in their process; where
this very process has the database open, its descriptor is borrowed and nothing is closed. A caller must do the
same when it reads such a file: `descriptor_here`.

Not covered: databases used through a VFS with other locks (unix-dotfile, unix-none). Where the platform has no such
locks (Windows, file systems without locking) the hold is true, takes no locks, and says so in `reason`.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
import time

if sys.platform != "win32":
    import fcntl

MAGIC = b"SQLite format 3\x00"
SUFFIXES = (b"-wal", b"-shm", b"-journal")
_INDEX_VERSION = 3007000

PENDING = 0x40000000
SHARED = PENDING + 2
SHARED_SIZE = 510
SHM_CKPT = 121
SHM_READ_4 = 127

# darwin/fcntl.h has the constant; some builds of Python for macOS do not export it
_OFD_SETLK: int | None = None
if sys.platform != "win32":
    _OFD_SETLK = getattr(fcntl, "F_OFD_SETLK", 90 if sys.platform == "darwin" else None)
_OPEN = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_NO_LOCKS_HERE = frozenset((errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP))


def is_database(head: bytes) -> bool:
    """True if a file that begins with `head` (at least 16 bytes) is an SQLite 3 database."""
    return head[:16] == MAGIC


def is_log_index(head: bytes) -> bool:
    """True if a file that begins with `head` is the index of a log (-shm), or is to become one: empty, or zeros."""
    return not head.strip(b"\0") or int.from_bytes(head[:4], sys.byteorder) == _INDEX_VERSION


def sidecars(path: bytes) -> tuple[bytes, bytes, bytes]:
    """The files that belong to the database at `path`: -wal, -shm and -journal, there or not."""
    return (path + b"-wal", path + b"-shm", path + b"-journal")


def owner_of(path: bytes) -> bytes:
    """The database that `path` would be a sidecar of, b"" if it is not named like one."""
    for suffix in SUFFIXES:
        if path.endswith(suffix) and not path.endswith(b"/" + suffix):
            return path[: -len(suffix)]
    return b""


def descriptor_here(dev: int, ino: int) -> int:
    """A readable descriptor that this process already has for that file, or -1.

    Read such a file with os.pread on it and don't close it: closing any descriptor of a file drops all POSIX locks
    that the process has on it, those of its own SQLite connections included.
    """
    if sys.platform == "win32":
        return -1
    for folder in ("/proc/self/fd", "/dev/fd"):
        try:
            numbers = [int(n) for n in os.listdir(folder) if n.isdigit()]
        except OSError:
            continue
        for fd in numbers:
            if _is_file(fd, dev, ino) and fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE != os.O_WRONLY:
                return fd
        return -1
    return -1


class Hold:
    """What `held` yields. True: copy now. False: don't, and `reason` says why (for a gap)."""

    def __init__(self) -> None:
        self.reason = ""
        self.is_locked = False
        self._ok = True
        self._files: list[_File] = []
        self._watch: tuple[int, bytes] | None = None  # a -shm that must not appear

    def __bool__(self) -> bool:
        return self._ok

    def is_intact(self) -> bool:
        """Ask after copying: False if a user of the database slipped in, so that the copy may be torn."""
        if not self._ok or not all(f.is_same() for f in self._files):
            return False
        return self._watch is None or not _exists(*self._watch)


class held:
    """Hold the database `name` in the directory `dir_fd` for copying; waits up to `wait_s` for a writer to finish.

    Raises OSError if the database itself cannot be opened.
    """

    def __init__(self, dir_fd: int, name: bytes, *, wait_s: float = 2.0) -> None:
        self._dir_fd = dir_fd
        self._name = name
        self._deadline = time.monotonic() + wait_s
        self._hold = Hold()

    def __enter__(self) -> Hold:
        hold = self._hold
        if _OFD_SETLK is None:
            hold.reason = "this platform has no locks that hold a live database still"
            return hold
        try:
            self._take(hold)
        except _Busy as busy:
            hold._ok, hold.reason = False, str(busy)
            self._release()
        except BaseException:
            self._release()
            raise
        return hold

    def __exit__(self, *_: object) -> None:
        self._release()

    def _take(self, hold: Hold) -> None:
        database = self._open(self._name)
        try:
            # SQLite's order. A writer that waits for readers to leave holds PENDING; queueing behind it as readers do
            # keeps a stream of captures from starving it.
            self._lock(database, PENDING, 1, "it is being written")
            self._lock(database, SHARED, SHARED_SIZE, "it is being written")
            database.unlock(PENDING, 1)
        except OSError as error:
            if error.errno not in _NO_LOCKS_HERE:
                raise
            hold.reason = "its file system has no locks that hold a live database still"
            return
        hold.is_locked = True
        if os.pread(database.fd, 2, 18) != b"\x02\x02":
            return
        shm = self._name + b"-shm"
        try:
            index = self._open(shm)
        except FileNotFoundError:
            hold._watch = (self._dir_fd, shm)
            return
        except OSError as error:
            raise _Busy(f"its -shm file cannot be opened ({os.strerror(error.errno or 0)})") from error
        self._lock(index, SHM_CKPT, 1, "it is being checkpointed")
        self._lock(index, SHM_READ_4, 1, "it is in use")

    def _open(self, name: bytes) -> _File:
        info = os.stat(name, dir_fd=self._dir_fd, follow_symlinks=False)
        borrowed = descriptor_here(info.st_dev, info.st_ino)
        fd = borrowed if borrowed >= 0 else os.open(name, _OPEN, dir_fd=self._dir_fd)
        file = _File(fd, is_ours=borrowed < 0)
        self._hold._files.append(file)
        if not stat.S_ISREG(file.mode):
            raise OSError(errno.ESTALE, "not a regular file", name)
        return file

    def _lock(self, file: _File, start: int, length: int, why: str) -> None:
        pause_s = 0.0002
        while not file.try_lock(start, length):
            left_s = self._deadline - time.monotonic()
            if left_s <= 0:
                raise _Busy(f"live SQLite database: {why}")
            time.sleep(min(pause_s, left_s))
            pause_s = min(pause_s * 1.5, 0.004)

    def _release(self) -> None:
        for file in reversed(self._hold._files):
            file.close()
        self._hold._files.clear()


class _Busy(Exception):
    pass


class _File:
    """A descriptor that carries locks: opened by us, or borrowed from a connection of this process."""

    def __init__(self, fd: int, *, is_ours: bool) -> None:
        self.fd = fd
        self._is_ours = is_ours
        info = os.fstat(fd)
        self.mode = info.st_mode
        self._key = (info.st_dev, info.st_ino)

    def is_same(self) -> bool:
        """A borrowed descriptor may be closed, and its number given away, by whoever owns it."""
        return self._is_ours or _is_file(self.fd, *self._key)

    def try_lock(self, start: int, length: int) -> bool:
        try:
            self._set(fcntl.F_RDLCK, start, length)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                return False
            raise
        return True

    def unlock(self, start: int, length: int) -> None:
        self._set(fcntl.F_UNLCK, start, length)

    def close(self) -> None:
        if self._is_ours:
            os.close(self.fd)  # takes the locks with it
        elif self.is_same():
            # The whole of our locks, on this description only: POSIX locks of the same process are not touched.
            self.unlock(0, 0)

    def _set(self, kind: int, start: int, length: int) -> None:
        assert _OFD_SETLK is not None
        fcntl.fcntl(self.fd, _OFD_SETLK, _flock(kind, start, length))


def _flock(kind: int, start: int, length: int) -> bytes:
    import struct

    if sys.platform == "darwin":
        return struct.pack("qqihh", start, length, 0, kind, os.SEEK_SET)
    return struct.pack("hhqqi0q", kind, os.SEEK_SET, start, length, 0)


def _is_file(fd: int, dev: int, ino: int) -> bool:
    try:
        info = os.fstat(fd)
    except OSError:
        return False
    return (info.st_dev, info.st_ino) == (dev, ino)


def _exists(dir_fd: int, name: bytes) -> bool:
    try:
        os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
