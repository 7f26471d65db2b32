"""Read one file into the store: whole if small, in content-defined pieces if large or sparse.

Batches of ordinary small files are `native.read_rows`'s; this is the path for what needs care.
"""

from __future__ import annotations

import errno
import os

from reprieve.files import native
from reprieve.model.chunks import HOLE, decode_chunks, encode_chunks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from reprieve.store.protocols import BlobStore, Buffer

    Put = Callable[[Iterable[tuple[bytes, Buffer]]], object]

WHOLE = 1 << 20  # up to this size a file is one object
_MIN, _AVG, _MAX = 1 << 18, 1 << 20, 1 << 22
_WINDOW = 8 << 20
_TRIES = 3


class Unstable(Exception):
    """The file changed each time while it was being read."""


class Captured:
    """What was read: object id, whether it is a chunk list, and the stat of exactly those bytes."""

    __slots__ = ("content", "head", "is_chunked", "st")

    def __init__(self, content: bytes, is_chunked: bool, st: os.stat_result, head: bytes) -> None:
        self.content, self.is_chunked, self.st, self.head = content, is_chunked, st, head


def capture(fd: int, put: Put, *, prefix: bool = False) -> Captured:
    """Put the bytes behind an open regular file; retried when it changes meanwhile. Raises Unstable, OSError.

    `prefix`: the file only grows (a database's log); the bytes that it has now are what is wanted.
    """
    for _ in range(_TRIES):
        before = os.fstat(fd)
        if before.st_size <= WHOLE and not is_sparse(before):
            data = b"".join(_pieces(fd, 0, before.st_size + (0 if prefix else 1)))
            content, chunked, head = native.sha256(data), False, data[:16]
            length = len(data)
            put([(content, data)])
        else:
            head = os.pread(fd, 16, 0)
            listing = _put_chunks(fd, before.st_size, put)
            length = sum(n for n, _ in listing)
            encoded = encode_chunks(listing)
            content, chunked = native.sha256(encoded), True
            put([(content, encoded)])
        after = os.fstat(fd)
        if prefix and length == before.st_size:
            return Captured(content, chunked, before, head)
        if length == after.st_size and _stamp(before) == _stamp(after):
            return Captured(content, chunked, after, head)
    raise Unstable


def is_sparse(st: os.stat_result) -> bool:
    """Whether so little is allocated that holes must be kept as holes."""
    return st.st_size >= 1 << 16 and st.st_blocks * 512 + 4096 <= st.st_size


def read(blobs: BlobStore, content: bytes, *, is_chunked: bool) -> Iterator[tuple[int, bytes | None]]:
    """(length, bytes) pieces of a captured file in order; bytes is None for a hole. Verified on the way."""
    if not is_chunked:
        data = blobs.get(content)
        yield len(data), data
        return
    for length, id in decode_chunks(blobs.get(content)):
        yield length, None if id == HOLE else blobs.get(id)


def _stamp(st: os.stat_result) -> tuple[int, int, int, int]:
    return (st.st_size, st.st_mtime_ns, st.st_ctime_ns, st.st_ino)


def _pieces(fd: int, at: int, most: int) -> Iterator[bytes]:
    """Bytes from `at`, at most `most` of them; short reads are completed."""
    while most > 0 and (piece := os.pread(fd, min(most, _WINDOW), at)):
        yield piece
        at += len(piece)
        most -= len(piece)


def _put_chunks(fd: int, size: int, put: Put) -> list[tuple[int, bytes]]:
    listing: list[tuple[int, bytes]] = []
    for start, end, is_hole in _extents(fd, size):
        if is_hole:
            listing.append((end - start, HOLE))
            continue
        at, pending = start, b""
        while at < end or pending:
            piece = b"".join(_pieces(fd, at, min(_WINDOW, end - at)))
            at += len(piece)
            last = at >= end or not piece
            window = pending + piece
            lengths = native.cuts(window, _MIN, _AVG, _MAX)
            # the tail of a window has no boundary of its own unless the data ends there
            if not last and len(lengths) > 1:
                lengths.pop()
            view, done = memoryview(window), 0
            for length in lengths:
                chunk = view[done : done + length]
                id = native.sha256(chunk)
                put([(id, chunk)])
                listing.append((length, id))
                done += length
            pending = window[done:]
            if last and not pending:
                break
    return listing


def _extents(fd: int, size: int) -> Iterator[tuple[int, int, bool]]:
    """(start, end, is a hole) runs of the file."""
    at = 0
    while at < size:
        try:
            data = os.lseek(fd, at, os.SEEK_DATA)
        except (OSError, AttributeError) as e:
            if isinstance(e, OSError) and e.errno == errno.ENXIO:
                yield at, size, True
                return
            yield at, size, False  # no SEEK_DATA here: all of it is data
            return
        if data > at:
            yield at, min(data, size), True
        if data >= size:
            return
        end = min(os.lseek(fd, data, os.SEEK_HOLE), size)
        yield data, end, False
        at = end
