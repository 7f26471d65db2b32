"""The hash chain of a thread: every entry covers the one before it, its thread and its place. Pure.

    hash = SHA-256( "reprieve thread 1" NUL, prev (32 bytes),
                    then each as u64 length + bytes: thread, seq, kind, ns, id, parent, created_at,
                    SHA-256 of the body )

The body is covered by its own hash and not by its bytes, so that what `prune` keeps of an entry's place need not hold
what the entry said. docs/format.md outranks this code.
"""

from __future__ import annotations

from collections.abc import Callable

from reprieve.model.thread import ThreadEntry
from reprieve.store.hashing import sha256

FIRST_PREV = bytes(32)
_TAG = b"reprieve thread 1\0"


def entry_hash(thread: str, entry: ThreadEntry) -> bytes:
    """The hash that an entry must have."""
    parts = [_TAG, entry.prev]
    for raw in (
        _text(thread),
        entry.seq.to_bytes(8, "little", signed=True),
        _text(entry.kind),
        _text(entry.ns),
        _text(entry.id),
        _text(entry.parent),
        entry.created_at.to_bytes(8, "little", signed=True),
        sha256(entry.body),
    ):
        parts.append(len(raw).to_bytes(8, "little"))
        parts.append(raw)
    return sha256(b"".join(parts))


def next_entry(
    thread: str,
    seq: int,
    prev: bytes,
    *,
    kind: str,
    ns: str,
    id: str,
    parent: str,
    created_at: int,
    body: bytes,
    seal: Callable[[str, ThreadEntry], bytes] | None = None,
) -> ThreadEntry:
    """An entry in its place after (seq, prev), the number and hash of the newest one. `seal`: for its body."""
    entry = ThreadEntry(seq + 1, kind, ns, id, parent, created_at, body, prev or FIRST_PREV, b"")
    if seal is not None:
        entry = entry._replace(body=seal(thread, entry))
    return entry._replace(hash=entry_hash(thread, entry))


def is_sound(thread: str, entry: ThreadEntry) -> bool:
    """Whether an entry is what was written."""
    types = (int, str, str, str, str, int, bytes, bytes, bytes)
    return tuple(map(type, entry[:9])) == types and entry_hash(thread, entry) == entry.hash


def _text(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
