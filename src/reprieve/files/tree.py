"""Packed trees as Python sees them: rows to entries and back, deltas between two trees.

The byte layout is docs/format.md's; bulk work on it (scan, merge, diff) is `native`'s. Here is what touches few rows.
"""

from __future__ import annotations

import struct
from binascii import crc32

from reprieve.files import native
from reprieve.model.entry import DIR, FILE, SYMLINK, Entry
from reprieve.model.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from reprieve.store.protocols import Buffer

MAGIC = b"RPTREE01"
HEADER = struct.Struct("<8sQQQII16s8s")
ROW = struct.Struct("<IHBBIIIIQqqIIQQQQ32sII")
LONGEST_PATH = 65_535
STAGES = b".reprieve-"  # how the names of staging directories begin; they lie in the root of a file system
RACY, CHUNKED, NEEDS, GAP = 1, 2, 4, 8

# columns of a row that only the index keeps: nlink, ctime_s, ctime_ns, ino, dev
_STAT_COLUMNS = ((20, 24), (40, 48), (52, 72))
_KIND_AT, _CONTENT_AT, _EXTRA_AT = 6, 88, 120
_CRC_AT, _TAG_AT = 32, 40  # in the header
_ZERO = bytes(32)
_LARGE, _MANY = 8 << 20, 10_000  # bytes of a tree: 50,000 files; changes
_LITTLE = 100  # rows

Delta = list[tuple[bytes, Entry | None, Entry | None]]


class Stat(Value):
    """The columns that tell whether a file is still the one that was read."""

    ino: int
    dev: int
    nlink: int
    ctime_s: int
    ctime_ns: int
    is_racy: bool


NO_STAT = Stat(0, 0, 0, 0, 0, False)


class Torn(ValueError):
    """A tree would have rows without their directory: it was replaced while it was looked at, or moved in."""

    def __init__(self, orphans: list[bytes]) -> None:
        super().__init__("a directory was replaced while it was being read")
        self.orphans = orphans


def sort_key(path: bytes) -> bytes:
    """Order of rows: a directory's subtree follows it directly."""
    return path.replace(b"/", b"\0")


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


def count(tree: Buffer | None) -> int:
    """Rows in a packed tree."""
    return 0 if tree is None else int(HEADER.unpack_from(tree, 0)[1])


def length(tree: Buffer) -> int:
    """Bytes of a packed tree, by its header."""
    _, rows, paths, extras, *_ = HEADER.unpack_from(tree, 0)
    return int(HEADER.size + rows * ROW.size + paths + extras)


def tag(tree: Buffer) -> bytes:
    """The caller's tag in the header."""
    return bytes(HEADER.unpack_from(tree, 0)[6])


def entry_at(tree: Buffer, row: int) -> tuple[bytes, Entry]:
    """Path and entry of a row."""
    return native.entries(tree, Entry, row, row + 1)[0]


def stat_at(tree: Buffer, row: int) -> Stat:
    """The stat columns of a row."""
    got = native.get(tree, row)
    return Stat(got[13], got[17], got[16], got[14], got[15], bool(got[9] & RACY))


def numbers(packed: bytes) -> list[int]:
    """What `native.rows_with` found, as a list."""
    return memoryview(packed).cast("I").tolist()


def lookup(tree: Buffer | None, path: bytes) -> Entry | None:
    """The entry at path, None if there is none."""
    if tree is None:
        return None
    row = native.find(tree, path)
    return None if row < 0 else entry_at(tree, row)[1]


def entries(tree: Buffer | None) -> list[tuple[bytes, Entry]]:
    """All rows in order."""
    return native.entries(tree, Entry)


def pack(items: Iterable[tuple[bytes, Entry, Stat, int]], *, tag: bytes = bytes(16)) -> bytearray:
    """A packed tree of (path, entry, stat, extra flags) in any order."""
    return native.pack(items, tag)


def without_stat(tree: Buffer) -> bytearray:
    """The same tree as the timeline keeps it: what a restore needs and nothing of this disk's."""
    out = bytearray(tree)
    n = count(tree)
    first, end = HEADER.size, HEADER.size + n * ROW.size
    zeros = bytes(n)
    # strided slices: no Python work per row
    for start, stop in _STAT_COLUMNS:
        for column in range(start, stop):
            out[first + column : end : ROW.size] = zeros
    plain = bytes(b & ~RACY for b in range(256))
    out[first + 7 : end : ROW.size] = bytes(out[first + 7 : end : ROW.size]).translate(plain)
    fields = list(HEADER.unpack_from(out, 0))
    fields[4], fields[6] = crc32(memoryview(out)[HEADER.size :]), bytes(16)
    HEADER.pack_into(out, 0, *fields)
    return out


def contents(tree: Buffer) -> Iterator[tuple[bytes, bool]]:
    """(object id, is a chunk list) of every captured file, repeated as often as it is used."""
    n = count(tree)
    view = memoryview(tree)[HEADER.size : HEADER.size + n * ROW.size]
    for at in range(0, len(view), ROW.size):
        if view[at + 6] == FILE[0]:
            content = bytes(view[at + _CONTENT_AT : at + _CONTENT_AT + 32])
            if content != _ZERO:
                yield content, bool(view[at + 7] & CHUNKED)


def encode_delta(old: Buffer, new: Buffer) -> bytes:
    """One object for the two sides of a delta."""
    return b"".join((struct.pack("<Q", len(old)), old, new))


def split_delta(data: bytes) -> tuple[memoryview, memoryview]:
    """The two packed trees of a delta object. Raises ValueError if it is not one."""
    if len(data) < 8:
        raise ValueError("not a delta")
    (n,) = struct.unpack_from("<Q", data, 0)
    view = memoryview(data)
    old, new = view[8 : 8 + n], view[8 + n :]
    native.check(old)
    native.check(new)
    return old, new


def decode_delta(data: bytes) -> Delta:
    """(path, old, new) of every path in a delta object."""
    old, new = split_delta(data)
    before = dict(entries(old))
    after = dict(entries(new))
    return [(path, before.get(path), after.get(path)) for path in sorted(before.keys() | after.keys(), key=sort_key)]


def compare(old: Buffer, new: Buffer) -> Delta:
    """(path, old, new) of every path whose rows differ in a column that a restore would set."""
    found: Delta = []
    for a, b in native.diff(old, new):
        before = entry_at(old, a) if a >= 0 else None
        after = entry_at(new, b) if b >= 0 else None
        path = (before or after or (b"", None))[0]
        found.append((path, before[1] if before else None, after[1] if after else None))
    return found


def pack_delta(delta: Delta) -> bytes:
    """A delta object from (path, old, new)."""
    old = pack((path, before, NO_STAT, 0) for path, before, _ in delta if before is not None)
    new = pack((path, after, NO_STAT, 0) for path, _, after in delta if after is not None)
    return encode_delta(old, new)


def advance(index: Buffer | None, rows: bytearray, gone: list[bytes], *, tag: bytes = bytes(16)) -> bytearray:
    """The tree that follows on `index`; every tree that is recorded is made here. Raises Torn.

    A directory that loses a name is marked, in `rows` too, so that the next scan lists it whatever its times say: the
    name may only seem to be gone, because the directory itself was away for a moment.
    """
    losing = []
    for above in {parent(path) for path in gone}:
        row = native.find(rows, above)
        if row < 0:
            losing.append(above)
        else:
            rows[HEADER.size + row * ROW.size + 7] |= RACY
    if not gone and _has_all(rows, index):
        new = rows  # a merge would need as much memory again
        new[_TAG_AT : _TAG_AT + 16] = tag
        _seal(new)
    else:
        new = native.merge(index, rows, gone, {}, tag)
    if orphans := native.orphans(new, rows):
        raise Torn(orphans)
    marked = [row for above in losing if (row := native.find(new, above)) >= 0 and native.get(new, row)[1] == DIR]
    for row in marked:
        new[HEADER.size + row * ROW.size + 7] |= RACY
    if marked:
        _seal(new)
    return new


def _has_all(rows: Buffer, index: Buffer | None) -> bool:
    """Whether nothing of the index is left beside these rows. Asked of few only: then there is something to gain."""
    left = count(index) if index is not None else 0
    return left <= min(_LITTLE, count(rows)) and all(native.find(rows, path) >= 0 for path, _ in entries(index))


def places(index: Buffer, rows: Buffer) -> list[int]:
    """Where in `index` these rows can be set in place; [] if one is not there, is of another kind or has an extra."""
    found = []
    for row in range(count(rows)):
        got = native.get(rows, row)
        at = native.find(index, got[0])
        if at < 0 or got[12] or (there := native.get(index, at))[1] != got[1] or there[12]:
            return []
        found.append(at)
    return found


def put_rows(index: bytearray, rows: Buffer, at: Sequence[int]) -> None:
    """Set rows in place: for a few of many a tenth of what `merge` costs."""
    view = memoryview(rows)
    for row, number in enumerate(at):
        to, of = HEADER.size + number * ROW.size, HEADER.size + row * ROW.size
        index[to + _KIND_AT : to + _EXTRA_AT] = view[of + _KIND_AT : of + _EXTRA_AT]
    _seal(index)


def _seal(tree: bytearray) -> None:
    """Set the checksum anew after rows were changed in place."""
    struct.pack_into("<I", tree, _CRC_AT, crc32(memoryview(tree)[HEADER.size :]))


def explained(delta: Delta, old: Buffer, new: Buffer) -> Delta:
    """`delta` if it is all that differs; else all that does: what was in a directory went along with it, unnamed."""
    balance = sum((after is not None) - (before is not None) for _, before, after in delta)
    if count(new) - count(old) == balance:
        return delta
    return [change for change in compare(old, new) if change[1] != change[2]]


def trim(index: Buffer, delta: Delta) -> None:
    """Give unused memory back before more is needed, where that is much: for little it costs more than it gives."""
    if len(index) >= _LARGE or len(delta) >= _MANY:
        native.trim()


def parent(path: bytes) -> bytes:
    """The directory that holds path; b"" is the root (which is its own parent)."""
    return path.rpartition(b"/")[0]


def ancestors(path: bytes) -> Iterator[bytes]:
    """Directories above path, nearest first, the root last."""
    while path:
        path = parent(path)
        yield path


def describe(kind: bytes) -> str:
    """What to call an entry of this kind."""
    return {FILE: "file", DIR: "directory", SYMLINK: "symlink"}.get(kind, "special file")
