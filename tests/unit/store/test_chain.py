"""The chain of a timeline's entries."""

from __future__ import annotations

import pytest

from reprieve.model.timeline import CHECKPOINT, Draft, TimelineEntry
from reprieve.store.chain import breaks, next_entry


def chain(count: int) -> list[TimelineEntry]:
    found: list[TimelineEntry] = []
    for number in range(count):
        last = (found[-1].seq, found[-1].hash) if found else None
        found.append(next_entry("w", Draft(CHECKPOINT, number, "person"), last, id=f"id{number}"))
    return found


@pytest.mark.parametrize("number", [None, "2", b"2", 2.0])
def test_a_number_that_is_read_as_something_else_is_one_changed_entry(number: object) -> None:
    """SQLite keeps no checksums: a flipped bit makes a number text or nothing, and that must not end the look."""
    entries = chain(3)
    assert list(breaks("w", entries)) == []
    entries[1] = entries[1].replace(seq=number)
    assert list(breaks("w", entries)) == [(2, "changed")]


@pytest.mark.parametrize(
    ("field", "value"),
    [("label", 7), ("label", True), ("note", b"bytes"), ("actor", None), ("files", True), ("size", 1.0), ("data", {})],
)
def test_a_field_that_would_be_read_as_something_else_has_no_hash(field: str, value: object) -> None:
    """A hash over another type than the one that is read never fits: it must fail before anything is stored."""
    with pytest.raises(TypeError, match=f"^{field} of an entry is"):
        next_entry("w", Draft(CHECKPOINT, 1, "person").replace(**{field: value}), None, id="id")
