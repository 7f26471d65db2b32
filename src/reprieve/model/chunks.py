"""Chunk lists: how a large or sparse file is written down as a sequence of objects and holes.

    "RPCHUNK1"  then per piece  u64 length, 32 bytes object id (32 zero bytes: a hole)

The id of a chunked file is the SHA-256 of this list.
"""

from __future__ import annotations

import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

MAGIC = b"RPCHUNK1"
HOLE = bytes(32)
_PIECE = struct.Struct("<Q32s")


def encode_chunks(pieces: Iterable[tuple[int, bytes]]) -> bytes:
    """The chunk list of (length, object id or HOLE) pieces."""
    return MAGIC + b"".join(_PIECE.pack(length, id) for length, id in pieces)


def decode_chunks(data: bytes) -> list[tuple[int, bytes]]:
    """Pieces of a chunk list. Raises ValueError if it is not one."""
    if data[:8] != MAGIC or (len(data) - 8) % _PIECE.size:
        raise ValueError("not a chunk list")
    return list(_PIECE.iter_unpack(data[8:]))
