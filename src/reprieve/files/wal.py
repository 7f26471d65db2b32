"""Read SQLite's write-ahead log, to tell whether a database holds the same rows although its files differ.

When the last program that has a database open ends, or when it is told to, SQLite copies the log into the file
and removes the log. All bytes are elsewhere then, and nothing has changed.

    log     header  magic 377f0682 or 83, version, page size, number, salts (8 bytes), checksums
            frames  page number, pages in the database if this ends a transaction (else 0), salts, checksums; the page

Frames count as far as their salts are the header's, and up to the last end of a transaction. Checksums are not looked
at: a torn frame would make a difference where there is none, never the other way round.
"""

from __future__ import annotations

import struct

_MAGIC = (0x377F0682, 0x377F0683)
_HEADER, _FRAME = 32, 24


def applied(database: bytes, log: bytes) -> bytes:
    """The database as it is after its log was copied into it."""
    if len(log) < _HEADER or struct.unpack_from(">I", log)[0] not in _MAGIC:
        return database
    (page_size,) = struct.unpack_from(">I", log, 8)
    if not 512 <= page_size <= 65536:
        return database
    salts = log[16:24]
    open_pages: dict[int, int] = {}
    pages: dict[int, int] = {}  # number → where in the log its newest committed content is
    count = 0
    for at in range(_HEADER, len(log) - _FRAME - page_size + 1, _FRAME + page_size):
        number, end = struct.unpack_from(">II", log, at)
        if log[at + 8 : at + 16] != salts:
            break
        open_pages[number] = at + _FRAME
        if end:
            pages.update(open_pages)
            open_pages.clear()
            count = end
    if not count:
        return database
    made = bytearray(database[: count * page_size].ljust(count * page_size, b"\0"))
    for number, at in pages.items():
        if 1 <= number <= count:
            made[(number - 1) * page_size : number * page_size] = log[at : at + page_size]
    return bytes(made)
