"""Which objects the timelines of a store still need."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from reprieve.errors import StoreCorrupted
from reprieve.files import native, tree
from reprieve.model.chunks import HOLE, MAGIC, decode_chunks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from reprieve.model.timeline import TimelineEntry
    from reprieve.store.protocols import BlobStore, Buffer, Timeline


def live_objects(blobs: BlobStore, timeline: Timeline, intents: Iterable[bytes] = ()) -> set[bytes]:
    """Every object that a kept entry of this timeline leads to. Raises StoreCorrupted rather than leave one out."""
    live: set[bytes] = set()
    chunked: set[bytes] = set()
    for id in _payloads(timeline.fulls(), timeline.after(0), intents):
        data, parts = _payload(blobs, id)
        live.update(parts)
        for packed in _trees(data):
            for content, is_chunked in tree.contents(packed):
                live.add(content)
                if is_chunked:
                    chunked.add(content)
    for id in chunked:
        if id in blobs.has([id]):  # content that was forgotten, or is damaged, leads nowhere
            live.update(piece for _, piece in decode_chunks(blobs.get(id)) if piece != HOLE)
    return live


def contents_of(blobs: BlobStore, timeline: Timeline) -> Iterator[tuple[bytes, bytes, bool]]:
    """(path, object id, is a chunk list) of every captured file in every kept entry, with repetitions."""
    for id in _payloads(timeline.fulls(), timeline.after(0), ()):
        data, _ = _payload(blobs, id)
        for packed in _trees(data):
            for path, entry in tree.entries(packed):
                if entry.content:
                    yield path, entry.content, entry.is_chunked


def lists_with(blobs: BlobStore, packed: Buffer, lost: set[bytes]) -> set[bytes]:
    """Ids of the other chunk lists in a tree that name one of these objects, or cannot be read."""
    found: set[bytes] = set()
    lists = {native.get(packed, row)[8] for row in tree.numbers(native.rows_with(packed, tree.CHUNKED))}
    for id in lists - lost:
        try:
            if not lost.isdisjoint(piece for _, piece in decode_chunks(blobs.get(id))):
                found.add(id)
        except (StoreCorrupted, ValueError):
            found.add(id)
    return found


def survey(
    blobs: BlobStore, timeline: Timeline, forgotten: set[bytes]
) -> tuple[dict[bytes, bytes], set[bytes], list[str]]:
    """(a path for every content, ids of all objects, what could not be read): goes on where `live_objects` refuses.

    Content that was forgotten is not among them; a piece of a file that was not is, though it went with another.
    """
    users: dict[bytes, bytes] = {}
    ids: set[bytes] = set()
    unread: list[str] = []
    chunked: set[bytes] = set()
    for id in _payloads(timeline.fulls(), timeline.readable(), ()):
        ids.add(id)
        try:
            data, parts = _payload(blobs, id)
            ids |= parts
            for packed in _trees(data):
                for path, entry in tree.entries(packed):
                    if entry.content:
                        users.setdefault(entry.content, path)
                        if entry.is_chunked:
                            chunked.add(entry.content)
        except (StoreCorrupted, ValueError) as e:
            unread.append(f"tree data: {e}")
    needed = users.keys() - forgotten
    for id in chunked & blobs.has(sorted(chunked)):
        try:
            pieces = decode_chunks(blobs.get(id))
        except (StoreCorrupted, ValueError):
            continue  # named with all other objects by whoever checks them
        for _, piece in pieces:
            if piece != HOLE:
                users.setdefault(piece, users[id])
                needed.add(piece)
    return users, ids | needed, unread


def _payloads(
    fulls: Iterable[tuple[int, bytes]], entries: Iterable[TimelineEntry], intents: Iterable[bytes]
) -> Iterator[bytes]:
    """Ids of all deltas and full trees that are still needed."""
    yield from intents
    yield from (id for _, id in fulls)
    had_predecessor = True
    for entry in entries:
        # the delta of a kept entry whose predecessor is pruned leads from a state that was given up
        if entry.delta and not entry.is_pruned and had_predecessor:
            yield entry.delta
        had_predecessor = not entry.is_pruned


def _payload(blobs: BlobStore, id: bytes) -> tuple[bytes, set[bytes]]:
    data = blobs.get(id)
    if data[:8] != MAGIC:
        return data, {id}
    pieces = [piece for _, piece in decode_chunks(data)]
    return b"".join(blobs.get(piece) for piece in pieces), {id, *pieces}


def _trees(data: bytes) -> tuple[Buffer, ...]:
    return (data,) if data[:8] == tree.MAGIC else tree.split_delta(data)
