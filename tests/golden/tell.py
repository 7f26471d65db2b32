"""Tell a story in a fresh world and give what was recorded."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

from golden import stories_files, stories_git, stories_outside, stories_people, stories_steps  # noqa: F401 - add stories
from golden.answers import Json
from golden.stories import STORIES, Story
from golden.world import World
from support.worlds import scratch_base

EXPECTED = Path(__file__).parent / "expected"


def tell(story: Story) -> Json:
    """What the story gives now."""
    umask = os.umask(0o022)
    try:
        with tempfile.TemporaryDirectory(prefix="reprieve-golden-", dir=scratch_base()) as base:
            world = World(Path(base))
            story.tell(world)
            return {"known_defect": story.known_defect, "steps": world.steps}
    finally:
        os.umask(umask)


def expected(story: Story) -> Json:
    """What it gave when it was recorded."""
    found: Json = json.loads((EXPECTED / f"{story.name}.json").read_text())
    return found


def text(told: Json) -> str:
    """As it is kept; two of them can be compared line by line."""
    return json.dumps(told, indent=1, sort_keys=True) + "\n"


__all__ = ["EXPECTED", "STORIES", "expected", "tell", "text"]
