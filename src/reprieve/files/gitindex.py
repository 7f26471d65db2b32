"""Read what git's index says apart from what it merely remembers about the disk.

`git status` writes the index anew with fresh times and inodes. Two indexes with the same essence have the same files
staged, so such a write is nobody's change. Only what is needed for that is read; format: git's
Documentation/gitformat-index.
"""

from __future__ import annotations

import struct

_ID_SIZES = (20, 32)  # SHA-1, SHA-256: the index does not say which


def essence(data: bytes) -> bytes | None:
    """Paths, modes, ids and flags of all entries; None if it is not an index that can be read here."""
    return next((found for size in _ID_SIZES if (found := _essence(data, size)) is not None), None)


def _essence(data: bytes, id_size: int) -> bytes | None:
    if len(data) < 12 + id_size or data[:4] != b"DIRC":
        return None
    version, count = struct.unpack_from(">II", data, 4)
    if version not in (2, 3, 4):
        return None
    parts, at, name = [], 12, b""
    try:
        for _ in range(count):
            start = at
            mode = data[at + 24 : at + 28]
            id = data[at + 40 : at + 40 + id_size]
            (flags,) = struct.unpack_from(">H", data, at + 40 + id_size)
            at += 42 + id_size
            extended = b""
            if version >= 3 and flags & 0x4000:
                extended, at = data[at : at + 2], at + 2
            if version == 4:
                cut, at = _varint(data, at)
                end = data.index(b"\0", at)
                name = name[: len(name) - cut] + data[at:end]
                at = end + 1
            else:
                end = data.index(b"\0", at)
                name = data[at:end]
                at = start + (end - start) // 8 * 8 + 8
            parts += [mode, id, struct.pack(">H", flags & 0xF000), extended, name, b"\0"]
        while at < len(data) - id_size:
            if data[at : at + 4] == b"link":
                return None  # a split index: most of it is in another file
            (length,) = struct.unpack_from(">I", data, at + 4)
            at += 8 + length
    except (struct.error, ValueError, IndexError):
        return None
    # With ids of another size the entries would seem to end elsewhere, and some of them would go unread.
    return b"".join(parts) if at == len(data) - id_size else None


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = data[at] & 127
    while data[at] & 128:
        at += 1
        value = ((value + 1) << 7) | (data[at] & 127)
    return value, at + 1
