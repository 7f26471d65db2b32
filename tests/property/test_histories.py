"""Random trees with random histories: what is taken back is exact, and redo does what the model says.

REPRIEVE_HISTORIES sets how many are played (2,000 by default); REPRIEVE_SEED plays one seed alone.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reprieve.app import care, finding
from reprieve.errors import BadRef, Conflict, ReprieveError, Usage
from reprieve.model.reporter import Reporter
from support import worlds
from support.histories import Step, Wrong, generate, play, shrink

HISTORIES = int(os.environ.get("REPRIEVE_HISTORIES", "2000"))
PARTS = 20
SEEDS = [int(os.environ["REPRIEVE_SEED"])] if "REPRIEVE_SEED" in os.environ else []


class Engine:
    """The engine as a history sees it: the use cases of the application, in this process."""

    def __init__(self, root: Path) -> None:
        self.ws = finding.open_workspace(str(root), create=True, reporter=Reporter())

    def checkpoint(self, label: str) -> tuple[str, Any]:
        made = self.ws.checkpoint(label)
        return made.entry.id, made.gaps

    def changes(self) -> Any:
        return self.ws.status().changes

    def rollback(self, id: str) -> None:
        self._apply(self.ws.plan_rollback(id))

    def revert(self, path: bytes, id: str) -> str:
        try:
            plan = self.ws.plan_revert((_literal(path),), id)
        except (BadRef, Usage):
            return "nothing"
        return self._apply(plan)

    def redo(self) -> str:
        try:
            plan = self.ws.plan_redo()
        except (BadRef, Usage):
            return "nothing"
        except ReprieveError as error:
            if "nothing" in str(error):
                return "nothing"
            raise
        try:
            return self._apply(plan)
        except Conflict:
            return "conflict"

    def _apply(self, plan: Any) -> str:
        report = self.ws.apply(plan)
        return "done" if report.operation else "kept" if plan.kept else "nothing"

    def verify(self) -> Any:
        return care.verify(self.ws).problems

    def close(self) -> None:
        self.ws.close()


def _literal(path: bytes) -> bytes:
    return path.replace(b"[", b"[[]").replace(b"*", b"[*]").replace(b"?", b"[?]")


@pytest.fixture
def scratch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="reprieve-histories-", dir=worlds.scratch_base()) as base:
        monkeypatch.setenv("REPRIEVE_CONFIG", os.path.join(base, "config.toml"))
        yield Path(base)


def explore(
    seeds: range | list[int], scratch: Path, monkeypatch: pytest.MonkeyPatch, *, steps: int = 30
) -> dict[str, int]:
    """Play the seeds; on the first failure show its seed and the shortest history that fails in the same way."""
    counts = {"histories": 0, "steps": 0, "rollbacks": 0, "redos": 0}
    number = 0

    def attempt(history: list[Step]) -> Any:
        nonlocal number
        number += 1
        base = scratch / f"{number}"
        monkeypatch.setenv("REPRIEVE_HOME", str(base / "home"))
        return play(history, base, Engine)

    def failure(history: list[Step]) -> str:
        try:
            attempt(history)
        except (Wrong, ReprieveError, OSError, AssertionError, ValueError, TypeError) as error:
            return f"{type(error).__name__}: {error}"
        return ""

    for seed in seeds:
        history = generate(seed, steps=steps)
        try:
            game = attempt(history)
        except Exception as error:
            kind = type(error)
            short = shrink(history, lambda h, kind=kind: failure(h).startswith(kind.__name__))
            steps = "\n".join(f"    {step!r}," for step in short)
            pytest.fail(
                f"seed {seed}: {kind.__name__}: {error}\n\nshortest history:\n[\n{steps}\n]\n\n{failure(short)}"
            )
        counts["histories"] += 1
        counts["steps"] += len(history)
        counts["rollbacks"] += game.rollbacks
        counts["redos"] += game.redos
    return counts


@pytest.mark.parametrize("part", range(PARTS))
def test_random_histories_come_back_exactly(part: int, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After each rollback the tree is byte-, mode-, mtime- and link-exact; redo agrees with the model."""
    share = range(part, HISTORIES, PARTS) if not SEEDS else SEEDS[part:1]
    if not share:
        pytest.skip("REPRIEVE_SEED plays one history")
    counts = explore(share, scratch, monkeypatch)
    print(counts)
    assert counts["histories"] == len(share)
    assert counts["rollbacks"] + counts["redos"] > 0


def test_K16_redo_undo_redo_and_branches_for_200_steps(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long histories, twelve of them: the model agrees at each step."""
    counts = explore(range(900_000, 900_012), scratch, monkeypatch, steps=200)
    print(counts)
    assert counts["steps"] >= 12 * 200


def test_a_wrong_engine_is_found_and_its_history_cut_short(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The property test itself: an engine that forgets modes is found, and the history shrinks to a few steps."""
    honest = Engine.rollback

    def careless(self: Engine, id: str) -> None:
        honest(self, id)
        path = Path(os.fsdecode(self.ws.root)) / "a"
        if path.is_file() and not path.is_symlink():
            path.chmod(0o640)

    monkeypatch.setattr(Engine, "rollback", careless)
    with pytest.raises(pytest.fail.Exception) as caught:
        explore(range(200), scratch, monkeypatch)
    message = str(caught.value)
    steps = message.split("[\n", 1)[1].split("\n]", 1)[0].splitlines()
    assert "mode" in message
    assert len(steps) <= 4, message
