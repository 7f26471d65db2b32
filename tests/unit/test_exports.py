"""The public Python names: all there, all of them, and they do what the contract shows."""

from __future__ import annotations

from pathlib import Path

import pytest

import reprieve


def test_every_exported_name_can_be_loaded() -> None:
    """`__all__` names nothing that is not there."""
    for name in reprieve.__all__:
        assert getattr(reprieve, name) is not None


def test_a_name_that_is_not_exported_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError):
        reprieve.nothing_like_that  # noqa: B018


def test_a_checkpoint_is_taken_back_from_python(project: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """open, checkpoint, rollback, redo as in the contract."""
    monkeypatch.setenv("REPRIEVE_HOME", str(home))
    with reprieve.open(project) as ws:
        before = ws.checkpoint("before refactor")
        assert before.label == "before refactor" and ws.status(before.id).changes == ()
        (project / "README.md").write_text("wrecked\n")
        assert [change.path for change in ws.status().changes] == [b"README.md"]
        assert ws.rollback(before).restored == (b"README.md",)
        assert (project / "README.md").read_text() != "wrecked\n"
        ws.redo()
        assert (project / "README.md").read_text() == "wrecked\n"
        assert ws.revert("README.md", to=before).restored == (b"README.md",)
        with pytest.raises(reprieve.BadRef):
            ws.rollback("nothing-of-that-name")


def test_an_empty_reference_or_path_is_no_default(project: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that was never set must not take back everything."""
    monkeypatch.setenv("REPRIEVE_HOME", str(home))
    with reprieve.open(project) as ws:
        ws.checkpoint("a")
        (project / "README.md").write_text("mine\n")
        for move in (lambda: ws.rollback(""), lambda: ws.undo(""), lambda: ws.revert("README.md", to="")):
            with pytest.raises(reprieve.Usage):
                move()
        for move in (lambda: ws.revert(""), lambda: ws.rollback("a", only=[""])):
            with pytest.raises(reprieve.Usage):
                move()
        assert (project / "README.md").read_text() == "mine\n"
