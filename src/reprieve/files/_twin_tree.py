"""Packed trees in Python: the twin of _native.c's merge, find, get, check and diff."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing_extensions import Buffer

MAGIC = b"RPTREE01"
HEADER = struct.Struct("<8sQQQII16sQ")
ROW = struct.Struct("<IHBBIIIIQqqIIQQQQ32sII")
RACY, CHUNKED, NEEDS, GAP = 1, 2, 4, 8
PATH_LIMIT = 65535
_ZERO = bytes(32)
_U32 = 0xFFFFFFFF


class Row:
    """One row, by name."""

    path_off: int
    path_len: int
    kind: int
    flags: int
    mode: int
    uid: int
    gid: int
    nlink: int
    size: int
    mtime_s: int
    ctime_s: int
    mtime_ns: int
    ctime_ns: int
    ino: int
    dev: int
    rdev: int
    link: int
    content: bytes
    extra_off: int
    extra_len: int
    path: bytes
    extra: bytes

    def __init__(self, columns: Iterable[object], path: bytes, extra: bytes) -> None:
        for name, value in zip(_COLUMNS, columns, strict=True):
            setattr(self, name, value)
        self.path, self.extra = path, extra

    def packed(self) -> bytes:
        """The 128 bytes."""
        return ROW.pack(*(getattr(self, name) for name in _COLUMNS))


_COLUMNS = (
    "path_off", "path_len", "kind", "flags", "mode", "uid", "gid", "nlink", "size", "mtime_s", "ctime_s", "mtime_ns",
    "ctime_ns", "ino", "dev", "rdev", "link", "content", "extra_off", "extra_len",
)  # fmt: skip


class Tree:
    """A packed tree, checked row by row as rows are asked for."""

    def __init__(self, buffer: Buffer | None) -> None:
        view = memoryview(b"" if buffer is None else buffer).cast("B")
        self.view, self.count, self.tag, self.crc = view, 0, bytes(16), 0
        if buffer is None:
            return
        if len(view) < HEADER.size:
            raise ValueError("not a packed tree")
        magic, self.count, self.paths_len, self.extra_len, self.crc, zero, self.tag, zero2 = HEADER.unpack_from(view)
        if magic != MAGIC or zero or zero2:
            raise ValueError("not a packed tree")
        if HEADER.size + self.count * ROW.size + self.paths_len + self.extra_len != len(view):
            raise ValueError("packed tree has the wrong length")
        self.paths_at = HEADER.size + self.count * ROW.size
        self.extras_at = self.paths_at + self.paths_len

    def __getitem__(self, at: int) -> Row:
        columns = ROW.unpack_from(self.view, HEADER.size + at * ROW.size)
        path_off, path_len, kind, flags, mode = columns[:5]
        extra_off, extra_len = columns[-2:]
        if path_off + path_len > self.paths_len or extra_off + extra_len > self.extra_len:
            raise ValueError("packed tree: a row points outside")
        if (
            kind not in b"fdlpscb"
            or flags > 15
            or mode > 0o7777
            or columns[11] > 999_999_999
            or columns[12] > 999_999_999
            or (path_len == 0 and kind != 100)
        ):
            raise ValueError("packed tree: a row has an impossible value")
        path = bytes(self.view[self.paths_at + path_off : self.paths_at + path_off + path_len])
        extra = bytes(self.view[self.extras_at + extra_off : self.extras_at + extra_off + extra_len])
        check_extra(extra)
        return Row(columns, path, extra)

    def rows(self) -> list[Row]:
        """All rows, their order and paths checked."""
        found: list[Row] = []
        last: bytes | None = None
        for at in range(self.count):
            row = self[at]
            key = sort_key(row.path)
            if last is not None and key <= last:
                raise ValueError("packed tree: rows are not in order")
            if not is_clean(row.path):
                raise ValueError("packed tree: a path is malformed")
            last = key
            found.append(row)
        return found


def sort_key(path: bytes) -> bytes:
    """`/` is the smallest byte, so that a directory's subtree follows it at once."""
    return path.replace(b"/", b"\0")


def is_clean(path: bytes) -> bool:
    """No NUL and no empty, `.` or `..` component."""
    return not path or (b"\0" not in path and not any(part in (b"", b".", b"..") for part in path.split(b"/")))


def parent(path: bytes) -> bytes:
    """The directory of a path."""
    return path.rpartition(b"/")[0]


def is_below(path: bytes, dir: bytes) -> bool:
    """Whether path is inside dir, at any depth."""
    return bool(path) if not dir else path.startswith(dir + b"/")


def check_extra(extra: bytes) -> None:
    """ValueError if the parts of an extra do not add up."""
    if not extra:
        return
    try:
        at = 4 + _u32(extra, 0)
        (count,) = struct.unpack_from("<H", extra, at)
        at += 2
        for _ in range(count):
            at += 2 + _u16(extra, at)
            at += 4 + _u32(extra, at)
        at += 2 + _u16(extra, at)
    except struct.error:
        at = -1
    if at != len(extra):
        raise ValueError("packed tree: an extra is malformed")


def _u16(data: bytes, at: int) -> int:
    return int(struct.unpack_from("<H", data, at)[0])


def _u32(data: bytes, at: int) -> int:
    return int(struct.unpack_from("<I", data, at)[0])


def pack(rows: Iterable[Row], tag: bytes) -> bytearray:
    """A packed tree of rows that are in order already."""
    packed, paths, extras, path_off, extra_off = [], [], [], 0, 0
    for row in rows:
        row.path_off, row.path_len = path_off, len(row.path)
        row.extra_off, row.extra_len = extra_off if row.extra else 0, len(row.extra)
        path_off += len(row.path)
        extra_off += len(row.extra)
        if path_off > _U32 or extra_off > _U32:
            raise OverflowError("tree too large for one packed tree")
        packed.append(row.packed())
        paths.append(row.path)
        extras.append(row.extra)
    body = b"".join(packed + paths + extras)
    header = HEADER.pack(MAGIC, len(packed), path_off, extra_off, zlib.crc32(body), 0, tag, 0)
    return bytearray(header + body)


def merge(
    index: Buffer | None, rows: Buffer, gone: Iterable[bytes], extras: dict[int, bytes] | None, tag: Buffer
) -> bytearray:
    if len(tag := bytes(tag)) != 16:
        raise ValueError("tag must be 16 bytes")
    old, new = Tree(index).rows(), Tree(rows).rows()
    missing = set(gone)
    if not all(isinstance(path, bytes) for path in missing):
        raise TypeError("gone must hold bytes")
    for at, extra in (extras or {}).items():
        if not isinstance(extra, bytes):
            raise TypeError("extras must be a dict of row: bytes")
        if not 0 <= at < len(new):
            raise ValueError("extras: no such row")
        check_extra(extra)
        new[at].extra = extra
    kept: list[Row] = []
    dropped: bytes | None = None  # a directory that is one no more: its subtree goes with it
    for a, b in _side_by_side(old, new):
        is_gone = False
        if a >= 0:
            path = old[a].path
            is_gone = path in missing
            if dropped is not None and is_below(path, dropped):
                is_gone = True
            elif is_gone or (b >= 0 and new[b].kind != 100):
                dropped = path
        if b >= 0:
            kept.append(new[b])
        elif not is_gone:
            kept.append(old[a])
    return pack(kept, tag)


def _side_by_side(old: list[Row], new: list[Row]) -> Iterator[tuple[int, int]]:
    """(row in old or -1, row in new or -1) in path order."""
    a = b = 0
    while a < len(old) or b < len(new):
        x = sort_key(old[a].path) if a < len(old) else None
        y = sort_key(new[b].path) if b < len(new) else None
        if y is None or (x is not None and x < y):
            yield a, -1
            a += 1
        elif x is None or y < x:
            yield -1, b
            b += 1
        else:
            yield a, b
            a += 1
            b += 1


def find(tree: Buffer | None, path: bytes, /) -> int:
    opened, key = Tree(tree), sort_key(bytes(path))
    low, high = 0, opened.count
    while low < high:
        middle = (low + high) // 2
        row = opened[middle]
        found = sort_key(row.path)
        if found == key:
            return middle if row.path == path else -1
        if found < key:
            low = middle + 1
        else:
            high = middle
    return -1


def orphans(tree: Buffer | None, rows: Buffer, /) -> list[bytes]:
    opened, some = Tree(tree), Tree(rows)
    paths = [some[at].path for at in range(some.count)]
    sound: dict[bytes, bool] = {}
    for above in map(parent, paths):
        if above not in sound:
            at = find(tree, above)
            sound[above] = at >= 0 and opened[at].kind == 100
    return [path for path in paths if not sound[parent(path)]]


def totals(tree: Buffer, /) -> tuple[int, int]:
    opened = Tree(tree)
    rows = opened.view[HEADER.size : HEADER.size + opened.count * ROW.size]
    kinds = bytes(rows[6 :: ROW.size])  # no Python object per row
    sizes = rows.cast("Q")[3 :: ROW.size // 8]
    return opened.count - kinds.count(b"d"), sum(size for size, kind in zip(sizes, kinds, strict=True) if kind == 102)


def rows_with(tree: Buffer, flags: int, kinds: bytes = b"", linked: bool = False, /) -> bytes:
    found = [
        number
        for number, row in enumerate(Tree(tree).rows())
        if row.flags & flags or row.kind in kinds or (linked and row.kind != 100 and row.nlink != 1)
    ]
    return struct.pack(f"={len(found)}I", *found)


def has_end(tree: Buffer, ends: tuple[bytes, ...], /) -> bool:
    return any(row.path.endswith(ends) for row in Tree(tree).rows())


def get(tree: Buffer, row: int, /) -> tuple[object, ...]:
    opened = Tree(tree)
    if not 0 <= row < opened.count:
        raise IndexError("no such row")
    r = opened[row]
    content = b"" if r.content == _ZERO else r.content
    return (
        r.path, bytes([r.kind]), r.mode, r.uid, r.gid, r.size, r.mtime_s, r.mtime_ns, content, r.flags, r.link, r.rdev,
        r.extra, r.ino, r.ctime_s, r.ctime_ns, r.nlink, r.dev,
    )  # fmt: skip


def check(tree: Buffer, /) -> None:
    opened = Tree(memoryview(tree))
    if zlib.crc32(opened.view[HEADER.size :]) != opened.crc:
        raise ValueError("packed tree: checksum differs")
    opened.rows()


def diff(old: Buffer | None, new: Buffer | None, /) -> list[tuple[int, int]]:
    a, b = Tree(old).rows(), Tree(new).rows()
    return [(i, j) for i, j in _side_by_side(a, b) if i < 0 or j < 0 or _differ(a[i], b[j])]


_RESTORABLE = (
    "kind", "mode", "uid", "gid", "size", "mtime_s", "mtime_ns", "content", "link", "rdev", "extra",
)  # fmt: skip


def _differ(a: Row, b: Row) -> bool:
    return (
        bool((a.flags | b.flags) & NEEDS)
        or bool((a.flags ^ b.flags) & (CHUNKED | GAP))
        or any(getattr(a, name) != getattr(b, name) for name in _RESTORABLE)
    )
