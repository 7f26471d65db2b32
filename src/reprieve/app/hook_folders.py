"""In which folders a step of an agent takes place, by what it says. Loaded before all the rest of a hook."""

from __future__ import annotations

import os

from reprieve.app import places
from reprieve.errors import Misconfigured
from reprieve.files import ahead
from reprieve.model.hookevent import AFTER, BEFORE, FAILED, PROMPT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from reprieve.model.hookevent import HookEvent

# What an agent tells its hooks about the project; the payload's own directory follows every `cd`.
_PROJECT = {"claude-code": "CLAUDE_PROJECT_DIR", "gemini": "GEMINI_PROJECT_DIR", "cursor": "CURSOR_PROJECT_DIR"}


def look_ahead(event: HookEvent, variables: Mapping[str, str]) -> None:
    """Begin to look at the first of them, if there will most likely be a checkpoint."""
    if event.kind in (BEFORE, AFTER, FAILED, PROMPT):
        for first in folders(event, variables, create=False)[:1]:
            ahead.begin(places.home(), first)


def folders(event: HookEvent, variables: Mapping[str, str], *, create: bool) -> list[str]:
    """All of them that there are; where it works if it names none. Raises Misconfigured."""
    named = [variables.get(_PROJECT.get(event.agent, ""), ""), event.cwd or "", *event.roots]
    found = [folder for folder in named if folder and "\0" not in folder and os.path.isdir(folder)]
    if found:
        return found
    # It did not say, or what it said is gone: agents start their hooks in the project.
    try:
        return [os.getcwd()]
    except FileNotFoundError as error:
        if not create:
            return []  # a step ends: it is closed wherever it was begun
        raise Misconfigured("the current directory no longer exists, and the agent names no other") from error
