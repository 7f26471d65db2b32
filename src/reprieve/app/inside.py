"""Which window the code that runs now is inside of: a thread or an asyncio task works in its own, whatever others do.

The timeline knows which windows are open; of several at once, only who opened one can tell which is theirs.
"""

from __future__ import annotations

from contextvars import ContextVar

_window: ContextVar[dict[str, str]] = ContextVar("reprieve_window")  # workspace → id of the innermost window

Before = dict[str, str]


def current(workspace: str) -> str:
    """Id of the window in that workspace, "" if there is none."""
    return _window.get({}).get(workspace, "")


def enter(workspace: str, window: str) -> Before:
    """From here on work is inside of this window. The answer is for `leave`."""
    before = _window.get({})
    _window.set({**before, workspace: window})
    return before


def leave(before: Before) -> None:
    """Back to what was around it. Not by a token: a block may end in another context than it began in."""
    _window.set(before)
