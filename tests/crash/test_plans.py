"""A failing step of a plan, and undo and redo of a turn, killed on the way: whoever comes next finishes it.

After a kill files and messages agree; the same again ends where it should; then the next point begins in that world.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support import SRC, planacts
from support.forkserver import Fault, ForkServer
from support.sweep import Tally, points_of
from support.tree import Fingerprint, diff_fingerprints, fingerprint

SUPPORT = Path(planacts.__file__).resolve().parent
POINTS = 10
WHOLE, SHORT = ["a", "made a", "b", "made b"], ["a", "made a"]


class World:
    """A folder with a conversation of two turns, and the tree after each."""

    def __init__(self, engine: ForkServer, base: Path) -> None:
        self.engine, self.root, self.home = engine, base / "tree", base / "home"
        self.root.mkdir()
        self.env = {"REPRIEVE_HOME": str(self.home), "REPRIEVE_CONFIG": str(base / "config.toml"), "HOME": str(base)}
        self.do("make")
        self.whole = fingerprint(self.root)
        self.do("undo")
        self.short = fingerprint(self.root)
        self.do("redo")

    def run(self, act: str, fault: Fault | None = None) -> Any:
        return self.engine.run(
            [act, str(self.root)], cwd=self.root, env=self.env, fault=fault, roots=[self.root, self.home]
        )

    def kill(self, act: str, point: int, tally: Tally) -> Any:
        """Struck at that call, or at one shortly before: there may be some fewer than when they were counted."""
        tally.points += 1
        ran = self.run(act, Fault("kill", at=point))
        while ran.code == 0 and point > 1:
            self.do({"undo": "redo", "redo": "undo", "step": "look"}[act])
            point -= 2
            ran = self.run(act, Fault("kill", at=point))
        tally.fired += bool(ran.fired) and ran.code == -9
        return ran

    def do(self, act: str) -> Any:
        ran = self.run(act)
        assert ran.code == 0, ran
        return ran

    def is_like(self, wanted: Fingerprint) -> list[str]:
        return diff_fingerprints(wanted, fingerprint(self.root), ignore=["dir_mtime_ns"])

    def turn(self) -> str:
        """Whether both turns are there or one, in the files and in the messages alike."""
        seen = self.do("look").json  # who opens it finishes what was begun
        assert seen["said"] in (WHOLE, SHORT) and seen["redo"] == (seen["said"] == SHORT), seen
        assert self.is_like(self.whole if seen["said"] == WHOLE else self.short) == [], seen
        return "whole" if seen["said"] == WHOLE else "short"


@pytest.fixture(scope="module")
def engine() -> Iterator[ForkServer]:
    if sys.platform != "linux" or shutil.which("gcc") is None:
        pytest.skip("fault injection needs Linux (LD_PRELOAD) and gcc")
    server = ForkServer(entry="planacts:main", paths=[str(SRC), str(SUPPORT)])
    yield server
    server.close()


@pytest.mark.parametrize("act", ["undo", "redo"])
def test_CT20_killed_in_the_middle_of_a_turn_going_back(
    engine: ForkServer, tmp_path: Path, act: str, counted: Callable[[Tally], None]
) -> None:
    world = World(engine, tmp_path)
    other, ends = ("redo", "short") if act == "undo" else ("undo", "whole")
    if act == "redo":
        world.do("undo")
    total = world.run(act, Fault("kill")).seen
    assert total > 20
    tally = Tally(f"conversation {act} kill")
    for point in points_of(total, shard=0, shards=1, limit=POINTS):
        world.do(other)
        ran = world.kill(act, point, tally)
        try:
            now = world.turn()
            assert "ack" not in ran.out or now == ends
            world.do(act)
            assert world.turn() == ends
        except AssertionError as error:
            tally.unsound.append(f"{act} {point} ({ran.call} {ran.path}): {str(error)[:500]}")
    counted(tally)


def test_P06_killed_in_the_middle_of_a_step_that_fails(
    engine: ForkServer, tmp_path: Path, counted: Callable[[Tally], None]
) -> None:
    """Before and after it nothing of the step is left, however far it and its undo had come."""
    world = World(engine, tmp_path)
    total = world.run("step", Fault("kill")).seen
    assert total > 40 and world.is_like(world.whole) == []
    tally = Tally("plan step kill")
    for point in points_of(total, shard=0, shards=1, limit=POINTS):
        ran = world.kill("step", point, tally)
        try:
            state = world.do("look").json["steps"].get("s")
            left = world.is_like(world.whole)
            assert state in (None, "taken back", "failed", "broken off"), state
            assert not left or state in ("failed", "broken off"), (state, left)
            world.do("step")
            assert world.do("look").json["steps"] == {"s": "taken back"}
            assert world.is_like(world.whole) == []
        except AssertionError as error:
            tally.unsound.append(f"step {point} ({ran.call} {ran.path}): {str(error)[:500]}")
    counted(tally)
