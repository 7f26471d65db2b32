"""Plans, reports, exit codes and trees are what they were: sixty stories told by `reprieve` as a process."""

from __future__ import annotations

import difflib
import shutil

import pytest

from golden.tell import EXPECTED, STORIES, expected, tell, text


@pytest.mark.parametrize("name", sorted(STORIES))
def test_a_story_ends_as_it_was_recorded(name: str) -> None:
    story = STORIES[name]
    if story.needs and not shutil.which(story.needs):
        pytest.skip(f"{story.needs} is not installed")
    told = tell(story)
    if story.known_defect:
        return
    old, new = text(expected(story)), text(told)
    difference = "".join(difflib.unified_diff(old.splitlines(True), new.splitlines(True), "recorded", "now", n=4))
    if difference:
        pytest.fail(f"{name}\n{difference}", pytrace=False)


def test_every_recorded_answer_belongs_to_a_story() -> None:
    assert {path.stem for path in EXPECTED.glob("*.json")} == set(STORIES)
