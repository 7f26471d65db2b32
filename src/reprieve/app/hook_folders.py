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
PROJECT = {"claude-code": "CLAUDE_PROJECT_DIR", "gemini": "GEMINI_PROJECT_DIR", "cursor": "CURSOR_PROJECT_DIR"}


def look_ahead(event: HookEvent, variables: Mapping[str, str]) -> None:
    """Begin to look at the first of them, if there will most likely be a checkpoint."""
    if event.kind in (BEFORE, AFTER, FAILED, PROMPT):
        for first in folders(event, variables, create=False)[:1]:
            ahead.begin(places.home(), first)


def named_folders(event: HookEvent, variables: Mapping[str, str]) -> list[str]:
    """The folders that the agent says it works in, as far as they are there."""
    named = [variables.get(PROJECT.get(event.agent, ""), ""), event.cwd or "", *event.roots]
    return [folder for folder in named if folder and "\0" not in folder and os.path.isdir(folder)]


def folders(event: HookEvent, variables: Mapping[str, str], *, create: bool) -> list[str]:
    """All of them that there are; where it works if it names none. Raises Misconfigured."""
    found = named_folders(event, variables)
    if found:
        return found
    # It did not say, or what it said is gone: agents start their hooks in the project.
    try:
        return [os.getcwd()]
    except FileNotFoundError as error:
        if not create:
            return []  # a step ends: it is closed wherever it was begun
        raise Misconfigured("the current directory no longer exists, and the agent names no other") from error


def node(folder: str | bytes) -> tuple[int, int]:
    """Which directory is there; (0, 0) if none."""
    try:
        st = os.stat(folder)
    except OSError:
        return (0, 0)
    return st.st_dev, st.st_ino


def is_in(path: bytes, root: bytes) -> bool:
    """Whether a path is that folder or below it, by their names."""
    return path == root or path.startswith(root.rstrip(b"/") + b"/")
