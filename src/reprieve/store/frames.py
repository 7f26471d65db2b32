"""The bytes of a pack: self-describing frames, each with a table of the objects in it.

    pack    "RPPACK01"  u64 number  16 zero bytes  then frames back to back
    frame   "RPFR"  u8 version (1)  u8 flags  u16 zero  u32 count  u32 crc  u64 payload length  u64 raw length
            16 zero bytes (room for a key's name)
            count times: 32 bytes object id, u64 length
            payload: the objects back to back, compressed as a whole if the flags say so

Little endian. crc is the CRC-32 of header and table with crc itself as zero. Pure, no I/O.
docs/format.md outranks this code.
"""

from __future__ import annotations

import struct
from binascii import crc32

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

PACK_HEADER_SIZE = 32
RAW, ZSTD = 0, 1
ENCRYPTED = 0x80  # reserved

_PACK = struct.Struct("<8sQ16x")
_PACK_MAGIC = b"RPPACK01"
_HEADER = struct.Struct("<4sBBHIIQQ16x")
_CRC = struct.Struct("<I")
_CRC_AT = 12
_ROW = struct.Struct("<32sQ")
_MAGIC = b"RPFR"
_VERSION = 1

HEADER_SIZE = _HEADER.size


class BadFrame(ValueError):
    """Bytes that are not a whole, undamaged frame."""


class FrameHead:
    """What the head of a frame says."""

    def __init__(self, codec: int, objects: list[tuple[bytes, int]], stored_size: int, raw_size: int) -> None:
        self.codec = codec
        self.objects = objects  # (id, length) in payload order
        self.stored_size = stored_size
        self.raw_size = raw_size

    @property
    def size(self) -> int:
        """Of the whole frame, in bytes."""
        return head_size(len(self.objects)) + self.stored_size


def pack_header(number: int) -> bytes:
    """The first bytes of a pack."""
    return _PACK.pack(_PACK_MAGIC, number)


def head_size(count: int) -> int:
    """Bytes before the payload of a frame with count objects."""
    return _HEADER.size + count * _ROW.size


def frame_head(objects: Sequence[tuple[bytes, int]], *, codec: int, stored_size: int) -> bytes:
    """Header and table of a frame."""
    raw_size = sum(length for _, length in objects)
    head = bytearray(_HEADER.pack(_MAGIC, _VERSION, codec, 0, len(objects), 0, stored_size, raw_size))
    pack = _ROW.pack
    head += b"".join([pack(id, length) for id, length in objects])
    _CRC.pack_into(head, _CRC_AT, crc32(head))
    return bytes(head)


def parse_head(data: bytes | bytearray | memoryview) -> FrameHead:
    """Read a frame's header and table from data that begins with them. Raises BadFrame."""
    if len(data) < _HEADER.size:
        raise BadFrame("cut off")
    magic, version, flags, _, count, crc, stored_size, raw_size = _HEADER.unpack_from(data)
    if magic != _MAGIC:
        raise BadFrame("no frame begins here")
    size = head_size(count)
    if len(data) < size:
        raise BadFrame("cut off")
    head = bytearray(data[:size])
    head[_CRC_AT : _CRC_AT + 4] = bytes(4)
    if crc32(head) != crc:
        raise BadFrame("the frame's head is damaged")
    if version != _VERSION or flags not in (RAW, ZSTD):
        raise BadFrame(f"frame version {version} with flags {flags:#x} is unknown to this Reprieve")
    objects = list(_ROW.iter_unpack(head[_HEADER.size :]))
    if sum(length for _, length in objects) != raw_size or (flags == RAW and stored_size != raw_size):
        raise BadFrame("the frame's lengths do not add up")
    return FrameHead(flags, objects, stored_size, raw_size)


def walk_pack(read: Callable[[int, int], bytes], end: int) -> Iterator[tuple[int, FrameHead]]:
    """(offset, head) of each frame up to end; read(length, offset) gives bytes of the pack. Raises BadFrame.

    All that is needed to make the object table anew from packs alone.
    """
    header = read(PACK_HEADER_SIZE, 0)
    if header[:8] != _PACK_MAGIC:
        raise BadFrame("not a pack")
    offset = PACK_HEADER_SIZE
    while offset < end:
        start = read(_HEADER.size, offset)
        if len(start) < _HEADER.size or start[:4] != _MAGIC:
            raise BadFrame(f"no frame begins at byte {offset}")
        (count,) = struct.unpack_from("<I", start, 8)
        if offset + head_size(count) > end:
            raise BadFrame(f"the frame at byte {offset} is cut off")
        head = parse_head(read(head_size(count), offset))
        yield offset, head
        offset += head.size
