"""Which files are one file: give the names of an inode a common number.

A group may reach beyond what a scan returned: a name that could not be read before comes back alone, while the others
have not changed and are only in the last tree. All of them are one group again.
"""

from __future__ import annotations

import os
import struct

from reprieve.files import native, tree
from reprieve.files.beneath import Beneath
from reprieve.model.entry import FILE, Entry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from reprieve.store.protocols import Buffer

    Item = tuple[bytes, Entry, tree.Stat, int]
    Inode = tuple[int, int]  # device, number

_BASE, _ROW = tree.HEADER.size, tree.ROW.size
_KIND, _NLINK, _INO, _LINK = 6, 20, 56, 80


def group_links(
    rows: bytearray,
    *,
    last: Buffer | None,
    known: Buffer | None,
    gone: Sequence[bytes],
    is_complete: bool,
    beneath: Beneath,
) -> list[Item]:
    """Number the groups in `rows`, in place; return unchanged rows of `last` that have to take a number as well.

    `known` is where numbers are taken over from. Unless `is_complete`, a file with more names than were found keeps, or
    gets, a number: the other names may be among what could not be looked at, and must find their group again.
    """
    groups: dict[Inode, list[int]] = {}
    links: dict[Inode, int] = {}
    for row in range(tree.count(rows)):
        at = _BASE + row * _ROW
        if rows[at + _KIND] != FILE[0]:
            continue
        (nlink,) = struct.unpack_from("<I", rows, at + _NLINK)
        ino, dev = struct.unpack_from("<QQ", rows, at + _INO)
        if nlink > 1:
            groups.setdefault((dev, ino), []).append(row)
            links[dev, ino] = max(nlink, links.get((dev, ino), 0))
        else:
            struct.pack_into("<Q", rows, at + _LINK, 0)
    elsewhere = {inode for inode, members in groups.items() if len(members) < links[inode]}
    others = _find_others(last, elsewhere, rows, set(gone), beneath) if last is not None and elsewhere else {}
    joining: list[Item] = []
    used: set[int] = set()
    for inode, members in groups.items():
        olds = others.get(inode, [])
        count = len(members) + len(olds)
        number = 0
        if count > 1 or (not is_complete and count < links[inode]):
            had = {_number(known, native.get(rows, row)[0], inode[1]) for row in members} | {
                e.link for _, e, _, _ in olds
            }
            number = min(had - used - {0}, default=0) or int.from_bytes(os.urandom(7), "little") | 1
            used.add(number)
        for row in members:
            struct.pack_into("<Q", rows, _BASE + row * _ROW + _LINK, number)
        joining += [(path, e.replace(link=number), st, flags) for path, e, st, flags in olds if e.link != number]
    return joining


def members(packed: Buffer, numbers: set[int]) -> list[tuple[bytes, Entry]]:
    """Every path of these groups in a tree."""
    return [tree.entry_at(packed, row) for row, number in enumerate(_column(packed, _LINK)) if number in numbers]


def count_names(packed: Buffer) -> dict[int, int]:
    """How many names each group has in a tree."""
    counts: dict[int, int] = {}
    for number in _column(packed, _LINK):
        if number:
            counts[number] = counts.get(number, 0) + 1
    return counts


def _column(packed: Buffer, at: int) -> memoryview[int]:
    """A column of 64-bit numbers, without a Python object per row."""
    rows = memoryview(packed)[_BASE : _BASE + tree.count(packed) * _ROW]
    return rows.cast("Q")[at // 8 :: _ROW // 8]


def _number(known: Buffer | None, path: bytes, ino: int) -> int:
    """The group that path was in, 0 if none, or if it is another file now. A tree of the timeline has no inodes."""
    row = native.find(known, path) if known is not None else -1
    if known is None or row < 0 or tree.stat_at(known, row).ino not in (0, ino):
        return 0
    return tree.entry_at(known, row)[1].link


def _find_others(
    last: Buffer, wanted: set[Inode], rows: Buffer, gone: set[bytes], beneath: Beneath
) -> dict[Inode, list[Item]]:
    """Rows of `last` that are names of these inodes, are not in `rows`, and are still there."""
    numbers = {ino for _, ino in wanted}
    found: dict[Inode, list[Item]] = {}
    for row in [row for row, ino in enumerate(_column(last, _INO)) if ino in numbers]:
        path, entry = tree.entry_at(last, row)
        if entry.kind != FILE or entry.gap or path in gone or native.find(rows, path) >= 0:
            continue
        st = beneath.seen(path)
        if st is not None and (inode := (st.st_dev, st.st_ino)) in wanted:
            found.setdefault(inode, []).append((path, entry, tree.stat_at(last, row), 0))
    return found
