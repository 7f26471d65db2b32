"""Pack files on disk: append to one alone, make it durable, read from many.

A writer holds an flock on each pack it appends to until its rows are committed; the next writer of that pack cuts off
whatever lies behind the committed end. After a failed write or sync a pack is left alone for the life of the process:
the kernel may have dropped the pages, so trying again would report a success that is none.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat

from reprieve.store.behind import Behind
from reprieve.store.faults import failed
from reprieve.store.frames import PACK_HEADER_SIZE, pack_header
from reprieve.store.home import sync_directory, undo_umask, write_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from reprieve.store.db import Database
    from reprieve.store.home import Home

ROLL_AT = 256 << 20  # a pack that has grown so far gets no more
_JOIN_BELOW = 64 << 10  # one write for head and payload: cheaper to copy than to call twice
_OPEN_READERS = 16
_KEEP_SIZE, _PUNCH_HOLE = 1, 2  # fallocate(2)
_NEW_TRIES = 1000  # more than there are writers at a time


class LostPack(Exception):
    """A pack is missing, not a file, or too short for what should be in it. The text says which."""


class PackWriter:
    """The packs that this process appends to between two commits."""

    def __init__(self, home: Home, db: Database, *, roll_at: int = ROLL_AT) -> None:
        self._home = home
        self._db = db
        self._roll_at = roll_at
        self._abandoned: set[int] = set()
        self._packs: list[_OpenPack] = []  # the last one is written to
        self._syncing = Behind(in_thread=True, elsewhere=True)

    def append(self, head: bytes, payload: bytes | bytearray | memoryview) -> tuple[int, int]:
        """Write one frame; return (pack number, offset). Raises StoreFailed, then `discard` is all that can be done."""
        try:
            if not self._packs or self._packs[-1].end >= self._roll_at:
                self._packs.append(self._open())
            pack = self._packs[-1]
            offset = pack.end
            if len(payload) < _JOIN_BELOW:
                write_all(pack.fd, head + payload, offset)
            else:
                write_all(pack.fd, head, offset)
                write_all(pack.fd, payload, offset + len(head))
        except OSError as exc:
            raise self._broken(exc, "write to a pack") from exc
        pack.end += len(head) + len(payload)
        return pack.number, offset

    def start_sync(self) -> None:
        """Begin to make the appended bytes durable; `sync` waits for it, and raises what went wrong."""
        fds = [pack.fd for pack in self._packs if pack.synced < pack.end]
        if not fds:
            return
        try:
            self._syncing.wait()
        except OSError as exc:
            raise self._broken(exc, "make a pack durable") from exc
        for pack in self._packs:
            pack.synced = pack.end
        self._syncing.start(lambda: _sync_all(fds), lambda _: None)

    def ends(self) -> list[tuple[int, int]]:
        """(number, new end) of each pack."""
        return [(pack.number, pack.end) for pack in self._packs]

    def sync(self) -> None:
        """Make all appended bytes durable. Raises StoreFailed."""
        try:
            self._syncing.wait()
            _sync_all([pack.fd for pack in self._packs if pack.synced < pack.end])
            if any(pack.is_new for pack in self._packs):
                sync_directory(self._home.file("packs"))
        except OSError as exc:
            raise self._broken(exc, "make a pack durable") from exc

    def avoid(self, numbers: Iterable[int]) -> None:
        """Append nothing to these packs."""
        self._abandoned.update(numbers)

    def release(self) -> None:
        """Close the packs: committed, or given up (the next writer cuts the tail)."""
        packs, self._packs = self._packs, []
        try:
            self._syncing.wait()  # it uses their descriptors
        except OSError:
            self._abandoned.update(pack.number for pack in packs)
        except BaseException:
            # interrupted: it still does, so they stay open, and nothing is ever appended to these packs
            self._abandoned.update(pack.number for pack in packs)
            self._syncing = Behind(in_thread=True, elsewhere=True)
            raise
        for pack in packs:
            os.close(pack.fd)

    def forked(self) -> None:
        """In a child, which has no thread to wait for: close the packs."""
        self._syncing = Behind(in_thread=True, elsewhere=True)
        self.release()

    def _broken(self, exc: OSError, doing: str) -> Exception:
        self._abandoned.update(pack.number for pack in self._packs)
        self.release()
        return failed(exc, self._home.file("packs"), doing)

    def _open(self) -> _OpenPack:
        mine = {pack.number for pack in self._packs} | self._abandoned
        for (number,) in self._db.query("SELECT number FROM packs WHERE end < ? AND NOT is_sealed", (self._roll_at,)):
            pack = None if number in mine else self._open_old(number)
            if pack is not None:
                return pack
        rows = self._db.query("SELECT seq FROM sqlite_sequence WHERE name = 'packs'")
        last: int = rows[0][0] if rows else 0
        for number in range(last + 1, last + _NEW_TRIES):
            pack = None if number in mine else self._open_new(number)
            if pack is not None:
                return pack
        raise OSError(errno.EEXIST, "all names for a new pack are taken")

    def _open_old(self, number: int) -> _OpenPack | None:
        """A committed pack at its committed end; None if another process writes to it or it is damaged."""
        try:
            fd = os.open(pack_path(self._home, number), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as exc:
            if exc.errno in (errno.EMFILE, errno.ENFILE):
                raise
            return None  # lost packs are `check`'s and `put`'s to name
        try:
            if _lock(fd):
                # Read the end after locking: the writer before us may have committed a moment ago.
                rows = self._db.query("SELECT end FROM packs WHERE number = ? AND NOT is_sealed", (number,))
                info = os.fstat(fd)
                if rows and stat.S_ISREG(info.st_mode) and info.st_size >= rows[0][0] and info.st_nlink == 1:
                    end: int = rows[0][0]
                    if info.st_size > end:
                        os.ftruncate(fd, end)
                    kept, fd = fd, -1
                    return _OpenPack(number, kept, end, is_new=False)
            return None
        finally:
            if fd >= 0:
                os.close(fd)

    def _open_new(self, number: int) -> _OpenPack | None:
        """A pack that no row knows, made or taken over from a writer that died before its first commit."""
        path, flags = pack_path(self._home, number), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            try:
                fd = os.open(path, flags, 0o600)
            except FileNotFoundError:  # packs/ itself was lost; what is put from now on must not be
                self._home.make_directories()
                sync_directory(self._home.path)
                fd = os.open(path, flags, 0o600)
        except OSError as exc:
            if exc.errno in (errno.ELOOP, errno.EISDIR):
                return None  # something else has that name; it is not ours to write through
            raise
        try:
            if not _lock(fd) or self._db.query("SELECT 1 FROM packs WHERE number = ?", (number,)):
                return None
            info = os.fstat(fd)
            if not stat.S_ISREG(info.st_mode) or info.st_nlink != 1:
                return None
            undo_umask(fd)
            os.ftruncate(fd, 0)
            write_all(fd, pack_header(number), 0)
            kept, fd = fd, -1
            return _OpenPack(number, kept, PACK_HEADER_SIZE, is_new=True)
        finally:
            if fd >= 0:
                os.close(fd)


class PackReader:
    """Descriptors for reading, a few kept open."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._open: dict[int, int] = {}

    def read(self, number: int, length: int, offset: int) -> bytes:
        """Exactly length bytes. Raises LostPack; OSError where the disk fails."""
        fd = self._open.get(number)
        if fd is None:
            fd = self._open_pack(number)
        data = os.pread(fd, length, offset)
        if len(data) == length:
            return data
        parts = [data]
        while data and (length := length - len(data)):
            offset += len(data)
            data = os.pread(fd, length, offset)
            parts.append(data)
        if length:
            raise LostPack(f"pack {number} is cut off")
        return b"".join(parts)

    def later(self, number: int, length: int, offset: int) -> Callable[[], bytes]:
        """For another thread: gives the bytes, or fewer of them, or those of a file that was opened since."""
        try:
            fd = self._open[number] if number in self._open else self._open_pack(number)
        except (LostPack, OSError):
            return bytes
        return lambda: os.pread(fd, length, offset)

    def announce(self, number: int, length: int, offset: int) -> None:
        """These bytes will be read soon. Only a hint: what is wrong is found by `read`."""
        if not hasattr(os, "posix_fadvise"):
            return
        try:
            fd = self._open[number] if number in self._open else self._open_pack(number)
            os.posix_fadvise(fd, offset, length, os.POSIX_FADV_WILLNEED)
        except (LostPack, OSError):
            return

    def forget(self) -> None:
        """Close all; the next read opens anew."""
        while self._open:
            os.close(self._open.popitem()[1])

    def _open_pack(self, number: int) -> int:
        try:
            # NONBLOCK: a pipe put in the pack's place must not hang us
            fd = os.open(pack_path(self._home, number), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as exc:
            if exc.errno in (errno.ENOENT, errno.ENOTDIR):
                raise LostPack(f"pack {number} is missing") from exc
            if exc.errno in (errno.ELOOP, errno.ENXIO):
                raise LostPack(f"pack {number} is not a file") from exc
            raise
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise LostPack(f"pack {number} is not a file")
        if len(self._open) >= _OPEN_READERS:
            os.close(self._open.pop(next(iter(self._open))))
        self._open[number] = fd
        return fd


class _OpenPack:
    def __init__(self, number: int, fd: int, end: int, *, is_new: bool) -> None:
        self.number = number
        self.fd = fd
        self.end = end
        self.is_new = is_new
        self.synced = 0  # a sync of the bytes before that was at least begun


def _sync_all(fds: Iterable[int]) -> None:
    for fd in fds:
        os.fdatasync(fd)


def pack_path(home: Home, number: int) -> str:
    """Where a pack lies."""
    return home.file("packs", f"{number}.pack")


def cut_pack(path: str, end: int) -> None:
    """Cut off what lies behind the committed end; leave a pack alone that is missing or not a file. Raises OSError."""
    try:
        if os.lstat(path).st_size <= end:
            return
        fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as exc:
        if exc.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.EISDIR):
            return
        raise
    try:
        info = os.fstat(fd)
        if stat.S_ISREG(info.st_mode) and info.st_nlink == 1 and info.st_size > end:
            os.ftruncate(fd, end)
            os.fsync(fd)
    finally:
        os.close(fd)


def make_holes(path: str, parts: Sequence[tuple[int, int]]) -> bool:
    """Give (offset, length) of a file back to the disk; they read as zeros then. False where the system can't."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    punch = getattr(libc, "fallocate64", None) or getattr(libc, "fallocate", None)
    if punch is None:
        return False
    punch.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    try:
        fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        for offset, length in parts:
            if length > 0 and punch(fd, _PUNCH_HOLE | _KEEP_SIZE, offset, length) != 0:
                return False
        os.fsync(fd)
    finally:
        os.close(fd)
    return True


def can_make_hole(path: str) -> bool:
    """Whether `make_holes` works on this file; tried behind its end, where there is nothing."""
    try:
        return make_holes(path, [(os.lstat(path).st_size + (1 << 20), 4096)])
    except OSError:
        return False


def _lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
