"""Claude Code at work in a project, as our hook hears of it, and what the timeline says then."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from reprieve.app.finding import open_workspace
from reprieve.cli.hooking import reply
from reprieve.model.timeline import TimelineEntry
from reprieve.model.window import standing


class Claude:
    """Claude Code at work in a project, with our hook in the same process."""

    def __init__(self, project: Path, session: str = "s1") -> None:
        self.project, self.session = project, session
        self.env: dict[str, str] = dict(os.environ)
        self.handle: Any = None

    def send(self, event: str, **fields: object) -> dict[str, Any]:
        """What the model is told, {} if nothing."""
        payload = {"session_id": self.session, "cwd": str(self.project), "hook_event_name": event, **fields}
        out, self.err, code = reply(["claude-code", event], json.dumps(payload).encode(), self.env, self.handle)
        assert code == 0
        return dict(json.loads(out)["hookSpecificOutput"]) if out else {}

    def prompt(self, text: str, **fields: object) -> dict[str, Any]:
        return self.send("UserPromptSubmit", prompt=text, **fields)

    def before(self, call: str, command: str = "make", **fields: object) -> dict[str, Any]:
        arguments = {"command": command, **fields}
        return self.send("PreToolUse", tool_name="Bash", tool_input=arguments, tool_use_id=call)

    def after(self, call: str, command: str = "make", **fields: object) -> dict[str, Any]:
        arguments = {"command": command, **fields}
        return self.send("PostToolUse", tool_name="Bash", tool_input=arguments, tool_use_id=call, tool_response={})


def entries(project: Path) -> list[TimelineEntry]:
    """Oldest first."""
    with open_workspace(str(project)) as ws:
        return list(reversed(list(ws.log())))


def open_steps(project: Path) -> list[str]:
    return [window.step for window in standing(entries(project)[-1].data).open]
