"""Any step of a random history can be undone and redone, or what depends on it is named, and truly does.

REPRIEVE_HISTORIES scales how many are played (300 by default); REPRIEVE_SEED plays one seed alone.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reprieve.errors import Conflict
from support import worlds
from support.coauthors import PERSON, Play, generate
from support.histories import Step, Wrong
from support.tree import erase, fingerprint

HISTORIES = int(os.environ.get("REPRIEVE_HISTORIES", "5000")) * 3 // 50
PARTS = 6
SEEDS = [int(os.environ["REPRIEVE_SEED"])] if "REPRIEVE_SEED" in os.environ else []


@pytest.fixture
def scratch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="reprieve-steps-", dir=worlds.scratch_base()) as base:
        monkeypatch.setenv("REPRIEVE_CONFIG", os.path.join(base, "config.toml"))
        monkeypatch.setenv("REPRIEVE_HOME", os.path.join(base, "home"))
        yield Path(base)


class Undoing(Play):
    """A history in which each window is a step that can be undone."""

    def __init__(self, base: Path) -> None:
        super().__init__(base)
        self.ended: dict[
            str, tuple[str, int]
        ] = {}  # id of the entry that a span ends with → who, its last step's number
        self.number = 0

    def run(self, history: list[Step]) -> None:  # type: ignore[override]
        for self.number, step in enumerate(history):
            known = self.ws.timeline.head()
            self.step(step)
            head = self.ws.timeline.head()
            if head is not None and (known is None or head.seq != known.seq):
                who = step[1] if step[0] == "close" else PERSON
                self.ended[head.id] = (who, self.number)

    def undo(self, name: str, *, tail: bool = False) -> Any:
        """The report, or the Conflict with which it was refused; then nothing was touched."""
        before = fingerprint(self.root)
        try:
            return self.ws.undo(f"step:{name}", tail=tail)[1]
        except Conflict as refused:
            self._same(before, "a refused undo")
            return refused


def dependants(refused: Conflict) -> list[str]:
    return list(refused.data["dependants"])


def history_of(seed: int) -> list[Step]:
    return generate(seed, spans=8, overlap=0, moves=False)


def check(seed: int, scratch: Path) -> Counter[str]:
    """Undo a random step of the history of that seed; judge what happened, and what was said if nothing did."""
    rnd = random.Random(seed)
    history = history_of(seed)
    counts: Counter[str] = Counter()
    play = _played(history, scratch / "whole")
    try:
        if not play.spans:
            return counts
        at = rnd.randrange(len(play.spans))
        _, name = play.spans[at]
        before, lines = fingerprint(play.root), play.lines()
        answer = play.undo(name)
        if not isinstance(answer, Conflict):
            counts["undone"] += 1
            own = {line for line, (_, when) in play.facts.written.items() if play.span_of(when) == name}
            left = {line for found in play.lines().values() for line in found}
            lost = {line for found in lines.values() for line in found} - left - own
            if lost:
                raise Wrong(f"undo of {name} lost lines of others: {sorted(lost)}")
            if play.is_plain and own & left:
                raise Wrong(f"undo of {name} left its lines: {sorted(own & left)}")
            if answer.operation:
                play.ws.redo()
                play._same(before, "undo and redo")
            return counts
        counts["refused"] += 1
        named = dependants(answer)
        if not named:
            raise Wrong(f"refused without naming a dependant: {answer}, {answer.data}")
        _are_true(play, history, name, named, scratch, counts)
        taken = play.undo(name, tail=True)
        if isinstance(taken, Conflict):
            by = {play.ended[id][0] if id in play.ended else PERSON for id in dependants(taken)}
            if PERSON not in by:
                raise Wrong(f"--tail was refused although only steps depend on it: {taken}, {taken.data}")
            counts["a person's in the way"] += 1
        else:
            counts["tails"] += 1
            play.ws.redo()
            play._same(before, "undo with its tail, and redo")
        return counts
    finally:
        play.close()
        erase(scratch / "whole")


def _are_true(
    play: Undoing, history: list[Step], name: str, named: list[str], scratch: Path, counts: Counter[str]
) -> None:
    """With the history up to each of them it is refused because of it; without the only one it is possible.

    Where it is not, something else that comes later and that it kept apart from the step is in the way now.
    """
    numbers = sorted(play.ended[id][1] if id in play.ended else len(history) - 1 for id in named)
    for number in numbers:
        counts["proofs"] += 1
        if number not in _in_the_way(history[: number + 1], name, scratch):
            raise Wrong(f"undo of {name} names step {number}, but with the history up to it it is possible")
    if len(numbers) == 1:
        begin, end = _before(history, numbers[0]), numbers[0]
        if history[end][0] == "edit":
            end += 1
        edits = sum(step[0] == "edit" for step in history[begin:end])
        # passed over, not left out: steps keep their numbers and so their names
        idle: list[Step] = [("pass",) if begin <= n < end and s[0] == "edit" else s for n, s in enumerate(history)]
        assert edits
        others = _in_the_way(idle, name, scratch)
        counts["alone"] += 1
        counts["possible without it"] += not others
        if numbers[0] in others:
            raise Wrong(f"undo of {name} names step {numbers[0]}, which did nothing")


def _in_the_way(history: list[Step], name: str, scratch: Path) -> set[int]:
    """Numbers of the steps that an undo names; empty if it is possible."""
    play = _played(history, scratch / "short")
    try:
        answer = play.undo(name)
        if not isinstance(answer, Conflict):
            return set()
        return {play.ended[id][1] if id in play.ended else len(history) - 1 for id in dependants(answer)}
    finally:
        play.close()
        erase(scratch / "short")


def _before(history: list[Step], number: int) -> int:
    """Where the span that ends with that step begins."""
    while number > 0 and history[number - 1][0] == "edit":
        number -= 1
    return number


def _played(history: list[Step], base: Path) -> Undoing:
    base.mkdir()
    play = Undoing(base)
    play.run(history)
    return play


@pytest.mark.parametrize("part", range(PARTS))
def test_a_step_is_undone_and_redone_or_its_dependants_are_named(part: int, scratch: Path) -> None:
    share = range(part, HISTORIES, PARTS) if not SEEDS else SEEDS[part:1]
    if not share:
        pytest.skip("REPRIEVE_SEED plays one history")
    counts: Counter[str] = Counter()
    for seed in share:
        try:
            counts += check(seed, scratch)
        except Wrong as wrong:
            steps = "\n".join(f"    {step!r}," for step in history_of(seed))
            pytest.fail(f"seed {seed}: {wrong}\n[\n{steps}\n]")
    print(dict(counts))
    if len(share) > 30:
        assert counts["undone"] and counts["proofs"] and counts["tails"], "the histories are all alike"
        assert counts["possible without it"] >= counts["alone"] * 0.7, "what is named is seldom the reason"
