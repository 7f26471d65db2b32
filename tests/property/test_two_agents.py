"""Two agents and a person on the same files: whatever is rolled back, the others' lines stay and nothing is lost.

REPRIEVE_HISTORIES sets how many are played (5,000 by default); REPRIEVE_SEED plays one seed alone.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reprieve.app import moves
from reprieve.errors import ReprieveError
from support import worlds
from support.coauthors import Play, endings, generate
from support.histories import Step, Wrong, shrink
from support.tree import erase

HISTORIES = int(os.environ.get("REPRIEVE_HISTORIES", "5000"))
PARTS = 20
SEEDS = [int(os.environ["REPRIEVE_SEED"])] if "REPRIEVE_SEED" in os.environ else []


@pytest.fixture
def scratch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="reprieve-authors-", dir=worlds.scratch_base()) as base:
        monkeypatch.setenv("REPRIEVE_CONFIG", os.path.join(base, "config.toml"))
        monkeypatch.setenv("REPRIEVE_HOME", os.path.join(base, "home"))
        yield Path(base)


def attempt(history: list[Step], tries: list[Step], base: Path) -> Counter[str]:
    """Play a history, then each ending from where it left the tree."""
    base.mkdir()
    try:
        play = Play(base)
        try:
            play.run(history)
            for ending in tries:
                try:
                    play.there_and_back(ending)
                except Wrong as wrong:
                    raise Wrong(f"at the end {ending!r}: {wrong}") from None
        finally:
            play.close()
        return Counter(play.counts)
    finally:
        erase(base)


def explore(seeds: range | list[int], scratch: Path, make: Callable[[int], list[Step]] = generate) -> Counter[str]:
    """Play the seeds; the first that fails is shown with the shortest history that fails in the same way."""
    counts: Counter[str] = Counter()
    number = 0

    def failure(history: list[Step], tries: list[Step]) -> str:
        nonlocal number
        number += 1
        try:
            attempt(history, tries, scratch / f"again{number}")
        except (Wrong, ReprieveError, OSError, AssertionError, ValueError, TypeError, KeyError) as error:
            return f"{type(error).__name__}: {error}"
        return ""

    for seed in seeds:
        history, tries = make(seed), endings(seed)
        try:
            counts += attempt(history, tries, scratch / f"{seed}")
        except Exception as error:
            kind = type(error).__name__
            tries = next(([t] for t in tries if failure(history, [t]).startswith(kind)), tries)
            short = shrink(history, lambda h, kind=kind, tries=tries: failure(h, tries).startswith(kind))
            steps = "\n".join(f"    {step!r}," for step in short)
            pytest.fail(
                f"seed {seed}: {kind}: {error}\n\nshortest history:\n[\n{steps}\n]\nthen {tries!r}\n\n"
                f"{failure(short, tries)}"
            )
        counts["histories"] += 1
    return counts


@pytest.mark.parametrize("part", range(PARTS))
def test_what_a_person_wrote_stays_whoever_is_taken_back(part: int, scratch: Path) -> None:
    """After a rollback of either agent or both: all lines of others are there, or it is a conflict and nothing moved.

    Redo gives exactly the state before, nothing changed that the report does not name, and what could not be taken back
    is named as kept.
    """
    share = range(part, HISTORIES, PARTS) if not SEEDS else SEEDS[part:1]
    if not share:
        pytest.skip("REPRIEVE_SEED plays one history")
    counts = explore(share, scratch)
    print(dict(counts))
    assert counts["histories"] == len(share)
    if len(share) > 50:
        assert counts["merges"] and counts["conflicts"] and counts["redos"], "the histories are all alike"


def test_an_engine_that_forgets_the_person_is_found(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The property itself: who takes a person's lines back as well is found, and the history shrinks to a few steps."""
    monkeypatch.setattr(moves, "is_persons", lambda link: False)
    with pytest.raises(pytest.fail.Exception) as caught:
        explore(range(200), scratch)
    message = str(caught.value)
    steps = message.split("[\n", 1)[1].split("\n]", 1)[0].splitlines()
    assert "lines of others are gone" in message
    assert len(steps) <= 6, message
