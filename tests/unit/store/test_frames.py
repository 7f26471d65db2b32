"""The bytes of packs are what docs/format.md says, and damaged ones are told from whole ones."""

from __future__ import annotations

import os
import random
import struct
from binascii import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve.store.codec import BadContent, compress, decompress, decompress_start
from reprieve.store.frames import RAW, ZSTD, BadFrame, frame_head, head_size, pack_header, parse_head, walk_pack
from reprieve.store.local import LocalStore
from reprieve.testing.store_suite import blob

objects = st.lists(st.tuples(st.binary(min_size=32, max_size=32), st.integers(0, 1 << 40)), max_size=20)


@given(objects)
def test_a_head_reads_back_as_written(table: list[tuple[bytes, int]]) -> None:
    head = frame_head(table, codec=ZSTD, stored_size=77)
    parsed = parse_head(head + b"payload")
    assert (parsed.codec, parsed.objects, parsed.stored_size) == (ZSTD, table, 77)
    assert parsed.raw_size == sum(length for _, length in table)
    assert parsed.size == len(head) + 77


@given(objects, st.data())
def test_no_flipped_bit_in_a_head_goes_unseen(table: list[tuple[bytes, int]], data: st.DataObject) -> None:
    head = bytearray(frame_head(table, codec=ZSTD, stored_size=77))
    bit = data.draw(st.integers(0, len(head) * 8 - 1))
    head[bit // 8] ^= 1 << bit % 8
    with pytest.raises(BadFrame):
        parse_head(head)


def test_the_bytes_are_as_documented() -> None:
    id = bytes(range(32))
    head = frame_head([(id, 5)], codec=RAW, stored_size=5)
    blank = struct.pack("<4sBBHIIQQ16x", b"RPFR", 1, 0, 0, 1, 0, 5, 5) + id + struct.pack("<Q", 5)
    assert head == blank[:12] + struct.pack("<I", crc32(blank)) + blank[16:]
    assert pack_header(7) == b"RPPACK01" + struct.pack("<Q", 7) + bytes(16)
    assert (head_size(0), head_size(3)) == (48, 168)


@pytest.mark.parametrize("size", [0, 1, 100, 16_380, 16_390, 65_000, 131_070, 131_080, 300_000])
def test_compression_comes_back(size: int) -> None:
    data = b"some text " * (size // 10)
    codec, packed = compress(data)
    assert codec == (ZSTD if size >= 100 else RAW)
    assert (decompress(bytes(packed), len(data)) if codec == ZSTD else packed) == data


def test_the_first_objects_of_a_frame_need_only_its_first_blocks() -> None:
    data = random.Random(1).randbytes(32_000).hex().encode()
    _, packed = compress(data)
    half = bytes(packed[: len(packed) // 2])
    assert decompress_start(half, 16_000) == data[:16_000]
    with pytest.raises(BadContent):
        decompress_start(half, 60_000)


def test_incompressible_content_is_left_as_it_is() -> None:
    data = os.urandom(100_000)
    assert compress(data) == (RAW, data)


def test_a_bomb_does_not_fill_the_memory() -> None:
    _, packed = compress(bytes(50 << 20))
    with pytest.raises(BadContent):
        decompress(bytes(packed), 1000)
    with pytest.raises(BadContent):
        decompress(bytes(packed)[:-3], 50 << 20)
    with pytest.raises(BadContent):
        decompress(b"rubbish", 1000)


def test_the_object_table_can_be_made_anew_from_the_packs_alone(store: LocalStore) -> None:
    everything = dict(blob(b"%d" % n * n) for n in range(600)) | dict(blob(os.urandom(400_000)) for _ in range(3))
    pairs = list(everything.items())
    for some in (pairs[:5], pairs[5:300], pairs[300:]):
        store.blobs.put(some)
        store.blobs.flush()
    found: dict[bytes, bytes] = {}
    for number, end in store._db.query("SELECT number, end FROM packs"):
        with open(store.home.file("packs", f"{number}.pack"), "rb") as pack:
            fd = pack.fileno()
            for offset, head in walk_pack(lambda length, at, fd=fd: os.pread(fd, length, at), end):  # type: ignore[misc]
                start = offset + head_size(len(head.objects))
                payload = os.pread(fd, head.stored_size, start)
                if head.codec == ZSTD:
                    payload = decompress(payload, head.raw_size)
                at = 0
                for id, length in head.objects:
                    found[id] = payload[at : at + length]
                    at += length
    assert found == everything
