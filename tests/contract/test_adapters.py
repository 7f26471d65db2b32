"""Effects of other packages' kinds: their drivers are found by entry point, and never in the workspace."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import reprieve
from support import Cli

DRIVER = '''
import pathlib
from reprieve.adapters import ALREADY, CHANGED, READY, UNDONE, UNKNOWN, Check, Outcome


class BoardDriver:
    """Takes a card off a board: a folder with a file for each."""

    def says(self, effect):
        return f"take {effect.inverse['card']} off the board"

    def check(self, effect, names):
        card = pathlib.Path(effect.inverse["card"])
        if not card.exists():
            return Check(ALREADY, "it is not there")
        return Check(READY) if card.read_text() == effect.inverse["text"] else Check(CHANGED, "somebody wrote on it")

    def undo(self, effect, names):
        pathlib.Path(effect.inverse["card"]).unlink()
        return Outcome(UNDONE, "taken off")

    def resolve(self, effect):
        return UNKNOWN

    def may_repeat(self, effect):
        return True
'''


def install(where: Path, value: str = "board_undo:BoardDriver") -> None:
    """A package as pip leaves it."""
    info = where / "board-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: board\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[reprieve.effects]\nboard = {value}\n")
    (where / "board_undo.py").write_text(DRIVER)


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed package, and the world that it changes."""
    install(tmp_path / "site")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"), prepend=":")
    (tmp_path / "board").mkdir()
    yield tmp_path / "board"
    sys.modules.pop("board_undo", None)


def put(ws: reprieve.Workspace, card: Path) -> None:
    card.write_text("todo")
    ws.record("board", {"card": str(card), "text": "todo"}, description=f"put {card.name} up", resource=str(card))


def test_P35_a_third_partys_effect_is_undone_with_the_files(project: Path, board: Path, cli: Cli) -> None:
    """By a plan's failing step, and by the command line in another process."""
    with reprieve.open(project) as ws:
        with pytest.raises(ValueError), ws.plan("p").step("a") as step:
            (project / "f").write_text("x")
            put(ws, board / "one")
            raise ValueError
        assert not (board / "one").exists() and not (project / "f").exists()
        assert step.report is not None and "put one up: undone" in str(step.report)
        before = ws.checkpoint("start")
        put(ws, board / "two")
    shown = cli("rollback", before.entry.id, "--dry-run").out
    assert f"take {board / 'two'} off the board" in shown
    cli("rollback", before.entry.id, "--yes")
    assert not (board / "two").exists()


def test_what_somebody_changed_since_is_a_conflict(project: Path, board: Path) -> None:
    with reprieve.open(project) as ws:
        before = ws.checkpoint("start")
        put(ws, board / "one")
        (board / "one").write_text("done")
        with pytest.raises(reprieve.Conflict, match="not as the agent left"):
            ws.rollback(before, effects=True)
    assert (board / "one").read_text() == "done"


def test_wrong_records_are_refused_at_once(project: Path, board: Path) -> None:
    with reprieve.open(project) as ws:
        for wrong, error in (
            (lambda: ws.record("http", {}, description="x"), reprieve.Usage),
            (lambda: ws.record("board", {"x": {1}}, description="x"), reprieve.Usage),
            (lambda: ws.record("board", {}, description="x", cls="harmless"), reprieve.Usage),
            (lambda: ws.record("board", {"password": "hunter2"}, description="x"), reprieve.Refused),
            (lambda: ws.record("nobody", {}, description="x"), reprieve.Refused),
        ):
            with pytest.raises(error):
                wrong()
        assert ws.effects() == []


def test_P35_a_driver_in_the_workspace_is_not_loaded(project: Path, home: Path) -> None:
    """An agent could have put it there; also not when Python looks for modules in the folder."""
    install(project)
    (project / "board_undo.py").write_text("open('owned', 'w').write('x')\n")
    script = "import reprieve; reprieve.open('.').record('board', {}, description='x')"
    done = subprocess.run([sys.executable, "-c", script], cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "no installed package undoes 'board'" in done.stderr
    assert not (project / "owned").exists()


def test_a_package_that_is_gone_leaves_the_effect_named(project: Path, board: Path, cli: Cli) -> None:
    with reprieve.open(project) as ws:
        before = ws.checkpoint("start")
        put(ws, board / "one")
    done = cli(
        "rollback", before.entry.id, "--yes", env={"PYTHONPATH": str(Path(reprieve.__file__).parents[1])}, check=False
    )
    assert done.code == 6 and "put one up" in done.out and (board / "one").exists()


@pytest.mark.parametrize("method", ["says", "check", "undo", "resolve", "may_repeat"])
@pytest.mark.parametrize("fault", ["raise KeyError('gone')", "return 7"])
def test_a_driver_that_fails_leaves_its_effect_named_and_the_rest_is_undone(
    project: Path, board: Path, monkeypatch: pytest.MonkeyPatch, method: str, fault: str
) -> None:
    """Whatever it raises or answers: previews show it, the files and the other effects come back."""
    import importlib

    names = ", names" if method in ("check", "undo") else ""
    made: dict[str, object] = {}
    exec(f"def broken(self, effect{names}):\n    {fault}", made)
    with reprieve.open(project) as ws:
        (project / "f").write_text("old")
        before = ws.checkpoint("start")
        value = {"x": 1}
        ws.remember("value", {"x": 1}, {"x": 2}, set=value.update)
        value["x"] = 2
        put(ws, board / "one")
        (project / "f").write_text("new")
        monkeypatch.setattr(importlib.import_module("board_undo").BoardDriver, method, made["broken"])
        ws.plan_rollback(before)
        report = ws.rollback(before, effects=True)
        assert (project / "f").read_text() == "old" and value == {"x": 1}
        theirs, ours = report.effects
        assert ours.state == "undone"
        if method in ("check", "undo"):
            assert report.is_partial and theirs.state == {"check": "failed", "undo": "manual"}[method]
            assert ("KeyError: 'gone'" if "raise" in fault else "AttributeError") in theirs.detail
        else:
            assert theirs.state == "undone" and not (board / "one").exists()
