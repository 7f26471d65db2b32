"""Between packed rows and entries in Python: the twin of _native_entries.c."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable

from reprieve.files._twin_open import stat_many
from reprieve.files._twin_tree import CHUNKED, GAP, HEADER, MAGIC, PATH_LIMIT, RACY, ROW, Tree, is_clean, sort_key

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    from typing_extensions import Buffer

    T = TypeVar("T")

_ZERO = bytes(32)
_FILE = 102


def encode_extra(target: bytes, xattrs: tuple[tuple[bytes, bytes], ...], gap: str) -> bytes:
    """The variable part of a row, b"" when there is none."""
    if not target and not xattrs and not gap:
        return b""
    reason = gap.encode()
    parts = [struct.pack("<I", len(target)), target, struct.pack("<H", len(xattrs))]
    for name, value in xattrs:
        parts += [struct.pack("<H", len(name)), name, struct.pack("<I", len(value)), value]
    parts += [struct.pack("<H", len(reason)), reason]
    return b"".join(parts)


def decode_extra(extra: bytes) -> tuple[bytes, tuple[tuple[bytes, bytes], ...], str]:
    """Target, xattrs, gap reason of an extra that was checked."""
    if not extra:
        return b"", (), ""
    (n,) = struct.unpack_from("<I", extra, 0)
    target, at = extra[4 : 4 + n], 4 + n
    (count,) = struct.unpack_from("<H", extra, at)
    at += 2
    xattrs = []
    for _ in range(count):
        (n,) = struct.unpack_from("<H", extra, at)
        name = extra[at + 2 : at + 2 + n]
        at += 2 + n
        (n,) = struct.unpack_from("<I", extra, at)
        xattrs.append((name, extra[at + 4 : at + 4 + n]))
        at += 4 + n
    (n,) = struct.unpack_from("<H", extra, at)
    return target, tuple(xattrs), extra[at + 2 : at + 2 + n].decode()


def entries(tree: Buffer | None, make: type[T], first: int = 0, last: int = -1, /) -> list[tuple[bytes, T]]:
    if not issubclass(make, tuple):
        raise TypeError("entries are made as tuples")
    opened = Tree(tree)
    last = opened.count if last < 0 else last
    if not 0 <= first <= last <= opened.count:
        raise IndexError("no such row")
    found: list[tuple[bytes, T]] = []
    for at in range(first, last):
        r = opened[at]
        is_file = r.kind == _FILE
        target, xattrs, gap = decode_extra(r.extra)
        content = r.content if is_file and r.content != _ZERO else b""
        size, is_chunked = r.size if is_file else 0, bool(r.flags & CHUNKED)
        entry: Any = (
            bytes([r.kind]), r.mode, r.uid, r.gid, size, r.mtime_s, r.mtime_ns, content, is_chunked, target, xattrs,
            r.link, r.rdev, gap,
        )  # fmt: skip
        found.append((r.path, tuple.__new__(make, entry)))
    return found


def fill_stats(root_fd: int, rows: bytearray, /) -> list[int]:
    if memoryview(rows).readonly:
        raise TypeError("rows must be writable")
    opened, missing = Tree(rows), []
    paths = []
    for at in range(opened.count):
        paths.append(opened[at].path)
        if not is_clean(paths[-1]):
            raise ValueError("packed tree: a path is malformed")
    for at, st in enumerate(stat_many(root_fd, paths)):
        if st is None:
            missing.append(at)
            continue
        base = HEADER.size + at * ROW.size
        rows[base + 7] |= RACY
        struct.pack_into("<I", rows, base + 20, st[3])
        struct.pack_into("<q", rows, base + 40, st[10])
        struct.pack_into("<I", rows, base + 52, st[11])
        struct.pack_into("<QQ", rows, base + 56, st[4], st[5])
    return missing


def pack(items: Iterable[tuple[bytes, Any, Any, int]], tag: Buffer, /) -> bytearray:
    if len(tag := bytes(tag)) != 16:
        raise ValueError("tag must be 16 bytes")
    rows, paths, extras = [], bytearray(), bytearray()
    last = None
    for path, entry, stat, more in sorted(items, key=lambda item: sort_key(item[0])):
        if path == last:
            raise ValueError(f"two entries at {path!r}")
        if len(path) > PATH_LIMIT:
            raise ValueError("a path, a target or a reason is too long for a packed tree")
        last = path
        kind, mode, uid, gid, size, mtime_s, mtime_ns, content, is_chunked, target, xattrs, link, rdev, gap = entry
        ino, dev, nlink, ctime_s, ctime_ns, is_racy = stat
        extra = encode_extra(target, xattrs, gap)
        flags = more | (CHUNKED if is_chunked else 0) | (GAP if gap else 0) | (RACY if is_racy else 0)
        rows.append(
            ROW.pack(
                len(paths), len(path), kind[0], flags, mode, uid, gid, nlink, size, mtime_s, ctime_s, mtime_ns,
                ctime_ns, ino, dev, rdev, link, content or _ZERO, len(extras) if extra else 0, len(extra),
            )
        )  # fmt: skip
        paths += path
        extras += extra
    body = b"".join(rows) + bytes(paths) + bytes(extras)
    return bytearray(HEADER.pack(MAGIC, len(rows), len(paths), len(extras), zlib.crc32(body), 0, tag, 0) + body)
