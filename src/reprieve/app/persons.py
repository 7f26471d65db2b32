"""Tell a person's terminal from one that an agent opened: who is above this process."""

from __future__ import annotations

import os

from reprieve.files.processes import RUN, above

TYPE_CHECKING = False
if TYPE_CHECKING:
    from reprieve.app.workspace import Workspace

# variables that coding agents set for what they start
_MARKS = ("CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT", "CODEX_SANDBOX", "GEMINI_CLI", "CURSOR_AGENT", "OPENCODE", "AI_AGENT")


def agent_above(ws: Workspace) -> str:
    """The agent or run that this process belongs to, "" if it seems to be a person's own."""
    if os.environ.get(RUN):
        return f"'reprieve run' (pid {os.environ[RUN]})"
    for mark in _MARKS:
        if os.environ.get(mark):
            return f"a coding agent ({mark} is set)"
    _, _, now = ws.capture.author()
    ancestors = set(above())
    for window in now.open:
        if window.pid and window.pid in ancestors:
            return window.actor
    return ""
