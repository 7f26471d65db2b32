"""Claude Code at work behind the gate: its hook events in this process, with a process of its own to live in."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from reprieve.cli.hooking import reply


class Agent:
    """Claude Code at work, with our hook in the same process."""

    def __init__(self, project: Path) -> None:
        self.project = project

    def _send(self, event: str, command: str, call: str, **more: object) -> dict[str, Any]:
        payload = {
            "session_id": "s1", "cwd": str(self.project), "hook_event_name": event, "tool_name": "Bash",
            "tool_input": {"command": command, **more}, "tool_use_id": call, "tool_response": {},
        }  # fmt: skip
        out, self.err, code = reply(["claude-code", event], json.dumps(payload).encode(), os.environ)
        assert code == 0
        return dict(json.loads(out)["hookSpecificOutput"]) if out else {}

    def asks(self, command: str, call: str = "c1", **more: object) -> tuple[str, str]:
        """What the hook answers: the decision, and why."""
        answer = self._send("PreToolUse", command, call, **more)
        return str(answer.get("permissionDecision", "allow")), str(answer.get("permissionDecisionReason", ""))

    def ran(self, command: str, call: str = "c1") -> None:
        self._send("PostToolUse", command, call)

    def was_told_no(self, command: str, call: str = "c1") -> None:
        self._send("PermissionDenied", command, call)


@contextmanager
def agent_at_work(project: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Agent]:
    for mark in ("CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT", "AI_AGENT"):
        monkeypatch.delenv(mark, raising=False)
    with subprocess.Popen(["sleep", "600"]) as process:  # the person's terminal is not inside of the agent's process
        monkeypatch.setattr("reprieve.app.hooks.patron", lambda: process.pid)
        yield Agent(project)
        process.kill()
