"""What a timeline is made of, whatever medium holds it: ids, the hash chain, searching. Pure apart from random ids.

    hash = SHA-256( "reprieve entry 1" NUL, prev (32 bytes),
                    then each as u64 length + bytes: workspace, seq, id, kind, created_at, actor, label, note, step,
                    delta, files, size, changed, data )

Text as UTF-8, numbers as i64, all little endian. prev of the first entry is 32 zero bytes. The workspace is covered so
that an entry cannot be passed off as another workspace's. docs/format.md outranks this code.
"""

from __future__ import annotations

import os

from reprieve.errors import StoreCorrupted
from reprieve.model.timeline import ACCEPT, FORGET, PRUNE, TimelineEntry
from reprieve.store.hashing import sha256

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from reprieve.model.timeline import Draft

FIRST_PREV = bytes(32)
NOT_POINTS = (PRUNE, FORGET, ACCEPT)  # kinds that leave the tree where it was and are no place to return to
ID_LENGTH = 10
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # no i, l, o, u: nothing to misread, no words
_TAG = b"reprieve entry 1\0"
_COVERED = (
    "seq", "id", "kind", "created_at", "actor", "label", "note", "step", "delta", "files", "size", "changed", "data"
)  # fmt: skip
_TYPES = [int, str, str, int, str, str, str, str, bytes, int, int, int, str]

# The last one that was proven: a checkpoint reads the newest entry four times, and each time all of it is compared.
_newest_sound: tuple[str, TimelineEntry] | None = None


def new_id() -> str:
    """A random id: 50 bits."""
    return "".join([_ALPHABET[byte & 31] for byte in os.urandom(ID_LENGTH)])


def is_id(text: str, *, is_whole: bool = True) -> bool:
    """Whether it looks like one, or else like the beginning of one."""
    return 0 < len(text) <= ID_LENGTH and (len(text) == ID_LENGTH or not is_whole) and not set(text) - set(_ALPHABET)


def as_stored(text: str) -> str:
    """Text as the store holds it, for what is looked up there: UTF-8 has no place for some bytes of a command line."""
    return _clean(text)


def entry_hash(workspace: str, entry: TimelineEntry) -> bytes:
    """The hash that an entry must have. Raises TypeError if a field has another type than the one it is read with.

    The database keeps 7 in a column of text as "7": its hash would fit what was given, and never what is read.
    """
    parts = [_TAG, entry.prev]
    values = (workspace, *[getattr(entry, name) for name in _COVERED])
    for name, value, wanted in zip(("workspace", *_COVERED), values, (str, *_TYPES), strict=True):
        if type(value) is not wanted:
            raise TypeError(f"{name} of an entry is {value!r}, not {wanted.__name__}")
    for value in values:
        if type(value) is str:
            raw = value.encode()
        elif type(value) is int:
            raw = value.to_bytes(8, "little", signed=True)
        else:
            raw = bytes(value)
        parts.append(len(raw).to_bytes(8, "little"))
        parts.append(raw)
    return sha256(b"".join(parts))


def next_entry(workspace: str, draft: Draft, last: tuple[int, bytes] | None, *, id: str) -> TimelineEntry:
    """The draft in its place after last, (seq, hash) of the newest entry."""
    seq, prev = last or (0, FIRST_PREV)
    fields: dict[str, Any] = {
        name: _clean(value) if isinstance(value, str) else value for name, value in draft.as_dict().items()
    }
    fields["delta"] = bytes(draft.delta)
    entry = TimelineEntry(**{**fields, "id": id, "seq": seq + 1, "prev": prev, "hash": b""})
    return entry.replace(hash=entry_hash(workspace, entry))


def is_sound(workspace: str, entry: TimelineEntry) -> bool:
    """Whether an entry is what was written: its fields, its number and its workspace fit its hash."""
    global _newest_sound
    # text that is read as bytes has the same hash, and equals nothing that anyone asks for
    if [type(getattr(entry, name)) for name in _COVERED] != _TYPES:
        return False
    if _newest_sound == (workspace, entry):
        return True
    try:
        is_it = entry_hash(workspace, entry) == entry.hash
    except (TypeError, ValueError, OverflowError):
        return False
    if is_it:
        _newest_sound = workspace, entry
    return is_it


def proven(workspace: str, entry: TimelineEntry) -> TimelineEntry:
    """The entry itself if it is sound. Raises StoreCorrupted."""
    if not is_sound(workspace, entry):
        raise damaged(f"entry {entry.seq} ({entry.id}) is not what was written")
    return entry


def damaged(fact: str) -> StoreCorrupted:
    """The error for a timeline that cannot be relied on."""
    return StoreCorrupted(
        f"the timeline is damaged: {fact}",
        hints=["see all that is damaged: reprieve verify", "restore store.db from a backup of REPRIEVE_HOME"],
    )


def breaks(workspace: str, entries: Iterable[TimelineEntry]) -> Iterator[tuple[int, str]]:
    """Problems (seq, reason) in a whole chain, oldest entry first."""
    expected, prev = 1, FIRST_PREV
    for entry in entries:
        if type(entry.seq) is not int:  # SQLite has no checksums: a number may be read as anything
            yield expected, "changed"
            expected, prev = expected + 1, entry.hash
            continue
        if entry.seq != expected:
            for seq in range(expected, min(entry.seq, expected + 1000)):
                yield seq, "missing"
        elif entry.prev != prev:
            yield entry.seq, "does not follow the entry before it"
        if not is_sound(workspace, entry):
            yield entry.seq, "changed"
        expected, prev = entry.seq + 1, entry.hash


def contains(entry: TimelineEntry, needle: str) -> bool:
    """needle (casefolded) is in what people read of an entry."""
    text = "\0".join((entry.title, entry.note, entry.step, entry.actor, entry.id))
    return needle in text.casefold()


def _clean(text: str) -> str:
    """Plain text that UTF-8 can hold: a label may come from a command line with any bytes in it, or be an Enum."""
    return str.encode(text, "utf-8", "surrogatepass").decode("utf-8", "replace")
