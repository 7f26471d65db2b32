"""Where an agent's calls reach: other folders of its project, other workspaces, files in none."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from reprieve.cli.hooking import reply
from support import Cli
from support.claude import entries, open_steps


class Rooted:
    """Cursor or Cline, whose projects have several folders; only the first is ever their current one."""

    def __init__(self, agent: str, *roots: Path) -> None:
        self.agent, self.roots = agent, [str(root) for root in roots]

    def _send(self, event: str, **fields: object) -> None:
        if self.agent == "cursor":
            fields |= {"conversation_id": "c", "generation_id": "g", "cursor_version": "3", "cwd": ""}
            fields |= {"workspace_roots": self.roots, "hook_event_name": event}
        else:
            fields |= {"clineVersion": "4", "taskId": "t", "workspaceRoots": self.roots, "hookName": event}
        assert reply([self.agent, event], json.dumps(fields).encode(), os.environ) == (b"", b"", 0)

    def prompt(self, text: str) -> None:
        if self.agent == "cursor":
            self._send("beforeSubmitPrompt", prompt=text)
        else:
            self._send("UserPromptSubmit", userPromptSubmit={"prompt": text})

    def before(self, command: str) -> None:
        if self.agent == "cursor":
            self._send("preToolUse", tool_name="Shell", tool_input={"command": command}, tool_use_id="k1")
        else:
            self._send("PreToolUse", preToolUse={"toolName": "execute_command", "parameters": {"command": command}})

    def after(self, command: str) -> None:
        if self.agent == "cursor":
            call = {"tool_name": "Shell", "tool_input": {"command": command}, "tool_use_id": "k1"}
            self._send("postToolUse", tool_output="{}", **call)
        else:
            call = {"toolName": "execute_command", "parameters": {"command": command}}
            self._send("PostToolUse", postToolUse={**call, "result": "", "success": True})


@pytest.mark.parametrize("agent", ["cursor", "cline"])
def test_every_folder_of_a_project_is_protected(agent: str, project: Path, cli: Cli, tmp_path: Path) -> None:
    """The call names no file and is made in the first one: it may reach all of them."""
    backend, gone = tmp_path / "backend", tmp_path / "gone"
    backend.mkdir()
    (backend / "b").write_text("precious")
    rooted = Rooted(agent, project, gone, backend)
    rooted.prompt("clean the backend")
    rooted.before("rm ../backend/b")
    assert len(open_steps(project)) == len(open_steps(backend)) == 1
    (backend / "b").unlink()
    rooted.after("rm ../backend/b")
    assert open_steps(project) == open_steps(backend) == []
    assert [entry.label for entry in entries(backend)] == [entry.label for entry in entries(project)]
    (backend / "mine").write_text("mine")
    cli("rollback", "turn:1", cwd=backend)
    assert (backend / "b").read_text() == "precious" and (backend / "mine").read_text() == "mine"
    assert not gone.exists()
