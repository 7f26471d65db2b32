"""Turn what the operating system and SQLite say into the store's errors: what happened, on which disk, what to do."""

from __future__ import annotations

import errno
import os

from reprieve.errors import ReprieveError, StoreCorrupted, StoreFailed, StoreLocked

TYPE_CHECKING = False
if TYPE_CHECKING:
    import sqlite3

_FULL = (errno.ENOSPC, errno.EDQUOT)

# primary result codes of SQLite (sqlite.org/rescode.html)
_PERM, _BUSY, _LOCKED, _READONLY, _IOERR, _CORRUPT, _DISK_FULL, _CANTOPEN, _NOTADB = 3, 5, 6, 8, 10, 11, 13, 14, 26
_IOERR_NOMEM = 10 | (12 << 8)


def disk_of(path: str) -> str:
    """Where the file system that holds path is mounted."""
    here = os.path.realpath(path)
    try:
        with open("/proc/self/mountinfo", "rb") as table:
            points = [os.fsdecode(_plain(line.split(b" ", 5)[4])) for line in table]
        return max((at for at in points if f"{here}/".startswith(at.rstrip("/") + "/")), key=len, default="/")
    except OSError:
        return _by_device(here)


def _plain(field: bytes) -> bytes:
    """A path as it is, of one in the table."""
    for code, byte in ((b"\\040", b" "), (b"\\011", b"\t"), (b"\\012", b"\n"), (b"\\134", b"\\")):
        field = field.replace(code, byte)
    return field


def _by_device(here: str) -> str:
    """The same where the system has no such table: what is bound from the same device is not told apart."""
    try:
        while here != "/" and os.lstat(here).st_dev == os.lstat(os.path.dirname(here)).st_dev:
            here = os.path.dirname(here)
    except OSError:
        return os.path.dirname(here)
    return here


def failed(exc: OSError, path: str, doing: str) -> StoreFailed:
    """StoreFailed for an error of the operating system at path; `doing` says what was tried ("write pack 3")."""
    disk = disk_of(path)
    if exc.errno in _FULL:
        what = "the quota on" if exc.errno == errno.EDQUOT else ""
        fact = f"{what or 'the disk'} {disk!r} is {'used up' if what else 'full'}: cannot {doing}"
        hints = [f"free some space on {disk}, or move the store: REPRIEVE_HOME=<another disk>"]
    elif exc.errno == errno.EROFS:
        fact, hints = f"the disk {disk!r} is read-only: cannot {doing}", [f"remount {disk} for writing"]
    elif exc.errno == errno.EFBIG:
        fact = f"the disk {disk!r} or a limit of this process allows no larger file: cannot {doing}"
        hints = ["see `ulimit -f`"]
    elif exc.errno == errno.EIO:
        fact = f"the disk {disk!r} reported an input/output error: cannot {doing}"
        hints = ["look at the system log; the disk may be failing"]
    elif exc.errno in (errno.EMFILE, errno.ENFILE):
        fact, hints = f"too many open files: cannot {doing}", ["see `ulimit -n`"]
    else:
        fact, hints = f"cannot {doing}: {exc.strerror or exc} ({path!r})", []
    return StoreFailed(fact, hints=hints, data={"disk": disk, "errno": errno.errorcode.get(exc.errno or 0, "")})


def is_full(exc: ReprieveError) -> bool:
    """It failed for want of space on the disk, or of what a quota leaves of it."""
    return exc.data.get("errno") in ("ENOSPC", "EDQUOT")


def is_busy(exc: sqlite3.Error) -> bool:
    """Another connection holds the lock that this statement needs."""
    return getattr(exc, "sqlite_errorcode", 0) & 0xFF in (_BUSY, _LOCKED)


def translate(exc: sqlite3.Error, path: str) -> ReprieveError:
    """The store's error for what SQLite said about the database at path."""
    code = getattr(exc, "sqlite_errorcode", 0)
    primary = code & 0xFF
    if primary == _DISK_FULL:
        return failed(OSError(errno.ENOSPC, "disk full"), path, "write the timeline")
    if primary in (_CORRUPT, _NOTADB) or "decode to UTF-8" in str(exc):
        return StoreCorrupted(
            f"the store's database is damaged: {exc} ({path!r})",
            hints=["restore it from a backup of REPRIEVE_HOME; the packs beside it still hold the content"],
            data={"path": path},
        )
    if primary in (_BUSY, _LOCKED):
        return StoreLocked(f"another process holds the store's database ({path!r})", hints=["try again later"])
    if primary == _READONLY:
        return failed(OSError(errno.EROFS, str(exc)), path, "write the timeline")
    if primary == _IOERR and code != _IOERR_NOMEM:
        return failed(OSError(errno.EIO, str(exc)), path, f"read or write the database ({exc})")
    if primary in (_PERM, _CANTOPEN):
        return StoreFailed(f"cannot open the store's database {path!r}: {exc}", data={"path": path})
    return StoreFailed(f"the store's database failed: {exc} ({path!r})", data={"path": path})
