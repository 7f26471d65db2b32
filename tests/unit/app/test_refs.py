"""What a REF means, from Python."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import reprieve
from reprieve.rollback.intent import Intent, decode_intent


@pytest.mark.parametrize("label", ["latest", "~0", "call:x", "1h ago"])
def test_a_label_that_no_ref_could_mean_is_refused(project: Path, label: str) -> None:
    with reprieve.open(project) as ws:
        with pytest.raises(reprieve.Usage, match="can't be a label"):
            ws.checkpoint(label)
        assert list(ws.log()) == []


BYTES = os.fsdecode(b"caf\xe9")  # as a command line gives it


def test_a_label_that_is_not_utf_8_is_found_by_the_same_bytes(project: Path) -> None:
    with reprieve.open(project) as ws:
        made = ws.checkpoint(BYTES)
        (project / "new").touch()
        assert [change.path for change in ws.status(BYTES).changes] == [b"new"]
        assert ws.rollback(BYTES).deleted == (b"new",)
        assert ws._inner.name(made.id, BYTES + "2").title == ws._inner.resolve(BYTES + "2").title
        assert [entry.id for entry in ws._inner.log(search=BYTES + "2")] == [made.id]
        for ref in (BYTES, f"call:{BYTES}", f"step:{BYTES}", f"turn:{BYTES}", f"session:{BYTES}", "\ud800"):
            with pytest.raises(reprieve.BadRef):
                ws.rollback(ref)
            with pytest.raises(reprieve.BadRef):
                ws.undo(ref)


def test_an_effect_whose_names_are_not_utf_8_is_recorded(project: Path) -> None:
    with reprieve.open(project) as ws:
        effect = ws.record_http("POST", f"https://example.org/{BYTES}")
        assert [each.id for each in ws.effects()] == [effect.id]


def test_a_label_with_anything_in_it_survives_an_interrupted_rollback() -> None:
    """The intent, of which it is a part, can still be read."""
    intent = Intent("op", "undo", "a", f"\0{BYTES}", "", "b", b"stage", b"\1")
    read = decode_intent(intent.encode())
    assert read.replace(label="") == intent.replace(label="") and read.label.startswith(" caf")
