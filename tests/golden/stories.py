"""The list of stories; each module of stories adds its own by `@story`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from golden.world import World


@dataclass(frozen=True)
class Story:
    """A world that is built the same way each time, and what is asked in it."""

    name: str
    tell: Callable[[World], None]
    known_defect: str  # what is wrong in what was recorded; such a story is told, but its end may differ
    needs: str  # a program


STORIES: dict[str, Story] = {}


def story(*, known_defect: str = "", needs: str = "") -> Callable[[Callable[[World], None]], Callable[[World], None]]:
    """Add a function to the stories, by its own name."""

    def add(tell: Callable[[World], None]) -> Callable[[World], None]:
        name = tell.__name__
        assert name not in STORIES, name
        STORIES[name] = Story(name, tell, known_defect, needs)
        return tell

    return add
