"""The native functions in Python, for machines where the C extension was not built: same answers, slower.

Trees are `_twin_tree`'s, the scan is `_twin_scan`'s, opening beneath a root is `_twin_open`'s; here is content.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time
from collections.abc import Iterable, Sequence

from reprieve.files._twin_dirs import finish_dirs, make_dirs, unlink_many
from reprieve.files._twin_entries import entries, fill_stats, pack
from reprieve.files._twin_moves import look_at, move_many, with_xattrs
from reprieve.files._twin_open import Parents, birth, open_beneath, rename2, stat_many, syncfs, writer_of, writers
from reprieve.files._twin_scan import scan, scan_begin, scan_end, set_stat
from reprieve.files._twin_tree import (
    CHUNKED,
    HEADER,
    NEEDS,
    RACY,
    ROW,
    Row,
    Tree,
    check,
    diff,
    find,
    get,
    has_end,
    is_clean,
    merge,
    orphans,
    rows_with,
    totals,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing_extensions import Buffer

    Part = tuple[int, int, int, bool, bytes]
    Item = tuple[bytes, Sequence[Buffer], int, int, int, int, int]

__all__ = [
    "birth",
    "check",
    "cuts",
    "diff",
    "entries",
    "fill_stats",
    "find",
    "finish_dirs",
    "get",
    "has_end",
    "look_at",
    "make_dirs",
    "merge",
    "move_many",
    "open_beneath",
    "orphans",
    "pack",
    "read_rows",
    "rename2",
    "rows_with",
    "scan",
    "scan_begin",
    "scan_end",
    "sha256",
    "stat_many",
    "syncfs",
    "totals",
    "trim",
    "unlink_many",
    "with_xattrs",
    "write_files",
    "writers",
]


def sha256(data: Buffer, /) -> bytes:
    return hashlib.sha256(data).digest()


def trim() -> None:
    return


class _TooLarge(Exception):
    """The file has grown past max_file; the row holds its new size."""


def read_rows(
    root_fd: int, rows: bytearray, start: int, max_bytes: int, max_file: int
) -> tuple[bytes, list[Part], int, list[tuple[int, int]]]:
    if memoryview(rows).readonly:
        raise TypeError("rows must be writable")
    tree = Tree(rows)
    if not 0 <= start <= tree.count or max_file < 0:
        raise ValueError("no such row")
    chosen: list[tuple[int, Row]] = []
    planned, next = 0, -1
    for at in range(start, tree.count):
        columns = ROW.unpack_from(rows, HEADER.size + at * ROW.size)
        if columns[2] != 102 or not columns[3] & NEEDS or columns[8] > max_file:
            continue
        row = tree[at]
        if not is_clean(row.path):
            raise ValueError("packed tree: a path is malformed")
        if chosen and planned + row.size > max_bytes:
            next = at
            break
        chosen.append((at, row))
        planned += row.size + 1
    data: list[bytes] = []
    parts: list[Part] = []
    problems: list[tuple[int, int]] = []
    offset = 0
    parents = Parents(root_fd)
    try:
        for at, row in chosen:
            try:
                content, has_xattrs = _read_one(parents, row, max_file)
            except _TooLarge:
                pass
            except OSError as e:
                problems.append((at, e.errno or 0))
                continue
            else:
                parts.append((at, offset, len(content), has_xattrs, row.content))
                data.append(content)
                offset += len(content)
            ROW.pack_into(rows, HEADER.size + at * ROW.size, *ROW.unpack(row.packed()))
    finally:
        parents.close()
    return b"".join(data), parts, next, problems


def _read_one(parents: Parents, row: Row, max_file: int) -> tuple[bytes, bool]:
    try:
        dir, name = parents.open(row.path)
    except OSError as e:
        raise OSError(errno.ENOENT if e.errno in (errno.ENOTDIR, errno.ELOOP) else e.errno, "") from None
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY, dir_fd=dir)
    except OSError as e:
        code = {errno.ELOOP: errno.ESTALE, errno.ENXIO: errno.ESTALE, errno.ENOTDIR: errno.ENOENT}.get(e.errno or 0)
        raise OSError(code or e.errno, "") from None
    try:
        tries = 0
        last: tuple[os.stat_result, bytes] | None = None
        is_written = writer_of(fd) is True  # mapped, its times need not show the next write
        while tries < 3:
            before = os.fstat(fd)
            if not stat.S_ISREG(before.st_mode):
                raise OSError(errno.ESTALE, "")
            if before.st_size > max_file:
                set_stat(row, before)
                row.flags |= RACY  # it grew since the scan
                raise _TooLarge
            now = time.time_ns()
            content = _read_to_end(fd, before.st_size + 1)
            after = os.fstat(fd)
            if not _is_same(before, after) or len(content) != after.st_size:
                tries += 1
                continue
            digest = sha256(content)
            pause = _wait_ns(after, now)
            agrees = last is not None and _is_same(last[0], after) and last[1] == digest
            if pause and not agrees:  # a writer may be at work without the times showing it yet
                tries += last is not None
                last = after, digest
                time.sleep(pause / 1e9)
                continue
            times = (row.mtime_s, row.mtime_ns, row.ctime_s, row.ctime_ns)
            set_stat(row, after)
            if is_written or times != (row.mtime_s, row.mtime_ns, row.ctime_s, row.ctime_ns):
                row.flags |= RACY  # or written since the scan, so younger than its floor
            row.content = digest
            row.flags &= ~(NEEDS | CHUNKED)
            return content, _has_xattrs(fd)
        raise OSError(errno.EAGAIN, "")
    finally:
        os.close(fd)


def _read_to_end(fd: int, room: int) -> bytes:
    pieces: list[bytes] = []
    got = 0
    while got < room and (piece := os.pread(fd, room - got, got)):
        pieces.append(piece)
        got += len(piece)
    return b"".join(pieces)


def _is_same(a: os.stat_result, b: os.stat_result) -> bool:
    return (a.st_size, a.st_mtime_ns, a.st_ctime_ns) == (b.st_size, b.st_mtime_ns, b.st_ctime_ns)


def _wait_ns(st: os.stat_result, now: int) -> int:
    """How long until a reader can be sure to have seen whole writes: 2 ms + size at 200 MB/s after the last change."""
    span = 2_000_000 + st.st_size * 5
    return span if now - st.st_ctime_ns < span else 0


def _has_xattrs(fd: int) -> bool:
    try:
        return bool(os.listxattr(fd))
    except (AttributeError, OSError):  # macOS has no listxattr in Python; a file system without xattrs has none
        return False


def _gear() -> list[int]:
    seed, mask, table = 0x5265707269657665, (1 << 64) - 1, []
    for _ in range(256):
        seed = z = (seed + 0x9E3779B97F4A7C15) & mask
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & mask
        z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
        table.append(z ^ z >> 31)
    return table


_GEAR = _gear()


def cuts(data: Buffer, min: int, avg: int, max: int, /) -> list[int]:
    if not 64 <= min <= avg <= max <= 1 << 30:
        raise ValueError("cuts needs 64 <= min <= avg <= max <= 2**30")
    view = memoryview(data).cast("B")
    lengths: list[int] = []
    at = 0
    while at < len(view):
        length = _next_cut(view[at : at + max], min, avg)
        lengths.append(length)
        at += length
    return lengths


def _next_cut(view: memoryview, min: int, avg: int) -> int:
    """Length of the first chunk: a gear hash, a harder condition before avg and an easier one after (FastCDC)."""
    if len(view) <= min:
        return len(view)
    full, bits, table = (1 << 64) - 1, avg.bit_length() - 1, _GEAR
    hard, easy = full << 63 - bits & full, full << 65 - bits & full
    hash, middle = 0, avg if avg < len(view) else len(view)
    for at, byte in enumerate(view[min:middle], min + 1):
        hash = (hash << 1) + table[byte] & full
        if not hash & hard:
            return at
    for at, byte in enumerate(view[middle:], middle + 1):
        hash = (hash << 1) + table[byte] & full
        if not hash & easy:
            return at
    return len(view)


def write_files(root_fd: int, items: Iterable[Item], rooms: list[int] | None = None, /) -> list[int]:
    parents = Parents(root_fd)
    try:
        return [_write_one(parents, *item) for item in list(items)]
    finally:
        parents.close()


def _write_one(
    parents: Parents, path: bytes, buffers: Sequence[Buffer], mode: int, uid: int, gid: int, mtime_s: int, mtime_ns: int
) -> int:
    views = [memoryview(buffer).cast("B") for buffer in buffers]
    limit = 0xFFFFFFFF
    is_path = bool(path) and is_clean(path)
    if not is_path or not 0 <= mtime_ns < 1_000_000_000 or not -1 <= uid <= limit or not -1 <= gid <= limit:
        return errno.EINVAL
    try:
        dir_fd, name = parents.open(path)
        # Mode 0 until the content is whole: nobody can open a half-written file, whatever the umask.
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0, dir_fd=dir_fd)
    except OSError as e:
        return e.errno or 0
    try:
        try:
            for view in views:
                while view:
                    view = view[os.write(fd, view) :]
            if uid != -1 or gid != -1:
                os.fchown(fd, uid, gid)  # before fchmod: it takes setuid away
            os.fchmod(fd, mode & 0o7777)
            os.utime(fd, ns=(os.fstat(fd).st_atime_ns, mtime_s * 1_000_000_000 + mtime_ns))
        finally:
            os.close(fd)
    except OSError as e:
        os.unlink(name, dir_fd=dir_fd)
        return e.errno or 0
    return 0
