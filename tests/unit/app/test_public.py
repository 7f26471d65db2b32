"""The Python API says early what it can't do, and stores nothing that it could not read again."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest

import reprieve


class Moment(StrEnum):
    START = "at the start"


class Said(str):
    def __str__(self) -> str:
        return "not this"


@pytest.mark.parametrize("value", [7, 0, True, None, 1.5, b"bytes", Path("here")])
def test_a_label_or_note_that_is_no_text_is_refused_and_harms_nothing(project: Path, value: Any) -> None:
    """Its hash would be over something that no database gives back: from then on the timeline counts as damaged."""
    with reprieve.open(project) as ws:
        first = ws.checkpoint("first")
        (project / "README.md").write_text("the agent was here\n")
        with pytest.raises(reprieve.Usage, match=r"label .* is no text"):
            ws.checkpoint(value)
        with pytest.raises(reprieve.Usage, match=r"note .* is no text"):
            ws.checkpoint("second", note=value)
        assert [entry.label for entry in ws.log()] == ["first"]
        assert ws.rollback(first, on_conflict="theirs") and not list(ws._inner.timeline.verify())


@pytest.mark.parametrize(("label", "stored"), [(Moment.START, "at the start"), (Said("this"), "this")])
def test_a_label_may_be_a_kind_of_text(project: Path, label: str, stored: str) -> None:
    """It is stored as the text that it is."""
    with reprieve.open(project) as ws:
        made = ws.checkpoint(label, note=label)
    with reprieve.open(project) as ws:
        (entry,) = ws.log()
        assert entry == made.entry
        assert type(entry.label) is str and entry.label == entry.note == stored
        assert ws.rollback(made)
