"""What a thread's steps changed in a long-term store, noted on its chain, and what going back means for it.

The store is somebody else's and other threads write to it too. Each change is noted before it is made, with the value
before and after it, and with the state whose step made it:

    seq 4  state B
    seq 5  items on B: ("users", "ada") / "tone":  formal → friendly
    seq 6  state C (parent B)

Going back to B leaves a key as the first change behind those of B's ancestors found it. A key that somebody else
changed since holds neither the last value noted nor the one before it: a conflict, never overwritten. Going back is
noted as well, and once more when it was done (before and after are the same then): what could not be changed, because
the store was away, still holds the value before and is due.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from reprieve.model.thread import ITEMS, STATE
from reprieve.threads.moves import point_of
from reprieve.threads.parts import Reference
from reprieve.threads.threads import Threads, counts
from reprieve.threads.values import Plain, loads

Place = tuple[tuple[str, ...], str]  # namespace and key


class Change(NamedTuple):
    """One item, before and after a step's change; None: not there."""

    place: Place
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None


class Return(NamedTuple):
    """What going back does to an item: from one of `expected` to `target`, as JSON; None: not there."""

    place: Place
    expected: tuple[Plain, Plain]
    target: Plain
    value: Reference | None  # leads to the target

    @property
    def is_due(self) -> bool:
        """By what was noted last the item is somewhere else. Only the store knows whether that was done."""
        return bool(self.expected[0] != self.target)

    def is_to_do(self, now: Plain) -> bool:
        """The item is as its thread left it (or as it was, if the process ended between note and change)."""
        return bool(now != self.target and now in self.expected)

    def is_conflict(self, now: Plain) -> bool:
        """Somebody else changed the item, and it is in the way."""
        return bool(self.is_due and now != self.target and now not in self.expected)


def note(threads: Threads, thread: str, of: str, changes: Sequence[Change]) -> None:
    """Say on the chain what is about to be changed, by the step on the state `of` ("": by going back). Durable."""
    threads.put_items(thread, of, [[list(c.place[0]), c.place[1], c.before, c.after] for c in changes])


def done(threads: Threads, thread: str, changes: Sequence[Change]) -> None:
    """Say on the chain that what was noted as going back has been changed."""
    note(threads, thread, "", [change._replace(before=change.after) for change in changes])


def returns(threads: Threads, thread: str, id: str) -> list[Return]:
    """What going back to a state means for each item that was changed behind it. Raises BadRef."""
    point, entries = point_of(threads, thread, id)
    story = threads.story(thread)
    ids = {entry.id for entry in entries if entry.kind == STATE and entry.ns == ""}
    noted: dict[Place, list[tuple[bool, Reference | None, Reference | None]]] = {}
    led_to = ""
    parts: dict[int, bool] = {}
    for entry in reversed(entries):
        if entry.kind == STATE and entry.ns == "":
            led_to = entry.id
        elif entry.kind == ITEMS and entry.id in ids:
            at = point.before.get(entry.id, 0)
            voids = [void for void in story.voids if void.id == entry.id and void.ns == ""]
            parts[entry.seq] = (entry.id != id or entry.seq < at) and bool(at) and counts(entry.seq, voids, at)
        elif entry.kind == ITEMS:
            # With durability "exit" the states in the middle of a run are never stored: the next one that is stands for
            # them. Going back itself ("") is no step.
            parts[entry.seq] = bool(entry.id) and (led_to == id or led_to in point.before)
    for entry in entries:
        if entry.kind != ITEMS:
            continue
        is_part = parts[entry.seq]
        for space, key, before, after in loads(entry.body)["items"]:
            noted.setdefault((tuple(space), key), []).append((is_part, before, after))
    found = []
    for place, changes in noted.items():
        last = max((at for at, (is_part, _, _) in enumerate(changes) if is_part), default=-1)
        if last + 1 == len(changes):
            continue  # nothing behind it
        reference = changes[last + 1][1]
        expected = (_plain(threads, changes[-1][2]), _plain(threads, changes[-1][1]))
        found.append(Return(place, expected, _plain(threads, reference), reference))
    return found


def _plain(threads: Threads, reference: Reference | None) -> Plain:
    return None if reference is None else threads.parts.plain(reference)
