"""Where an agent's calls reach: other folders of its project, other workspaces, files in none."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from reprieve.cli.hooking import reply
from support import Cli
from support.claude import Claude, entries, open_steps


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


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


@pytest.fixture
def claude(project: Path) -> Claude:
    return Claude(project)


def test_a_project_that_a_call_deletes_is_told_and_comes_back(
    claude: Claude, project: Path, cli: Cli, tmp_path: Path
) -> None:
    claude.prompt("go")
    claude.before("c1", "rm -rf .")
    before = tree(project)
    shutil.rmtree(project)
    said = claude.after("c1", "rm -rf .")["additionalContext"]
    command = f"mkdir -p {project} && reprieve -C {project} rollback "
    for text in (said, claude.err.decode(), cli("-C", str(project), "log", cwd=tmp_path, check=False).err):
        assert command in text
    assert f"'{project}' is gone; what was in it is kept" in said
    assert not project.exists() and not os.listdir(tmp_path / "home" / "tmp")
    project.mkdir()
    assert open_steps(project) == []
    (project / "mine").write_text("mine")
    cli("rollback", "turn:1")
    assert tree(project) == {**before, "mine": b"mine"}
    cli("rollback", "turn:1")
    assert (project / "mine").read_text() == "mine"


def test_the_command_that_is_told_for_a_deleted_project_brings_it_back_whoever_did_it(
    claude: Claude, project: Path, cli: Cli, tmp_path: Path
) -> None:
    claude.prompt("explain it to me")
    claude.send("Stop")
    before = tree(project)
    shutil.rmtree(project)
    hint = cli("-C", str(project / "src"), "rollback", cwd=tmp_path, check=False).err.partition(" && reprieve ")[2]
    project.mkdir()
    cli(*hint.split(), cwd=tmp_path)
    assert tree(project) == before


def test_a_step_ends_also_for_a_hook_whose_own_folder_is_gone(claude: Claude, project: Path, tmp_path: Path) -> None:
    claude.before("c1", "rm -rf .")
    payload = {"session_id": "s1", "cwd": str(project), "hook_event_name": "Stop"}
    script = f'rm -rf "$PWD"; exec {sys.executable} -P -m reprieve hook claude-code Stop'
    done = subprocess.run(
        ["/bin/sh", "-c", script], cwd=project, input=json.dumps(payload).encode(), capture_output=True, check=True
    )
    assert b"is gone; what was in it is kept" in done.stderr
    project.mkdir()
    assert open_steps(project) == []


def test_a_project_that_a_call_renames_is_found_beside(claude: Claude, project: Path, cli: Cli) -> None:
    claude.prompt("go")
    claude.before("c1", "mv")
    before = tree(project)
    (project / "new").write_text("the agent's")
    renamed = project.rename(project.with_name("renamed"))
    assert claude.after("c1", "mv") == {}
    assert open_steps(renamed) == []
    (renamed / "mine").write_text("mine")
    cli("rollback", "turn:1", cwd=renamed)
    assert tree(renamed) == {**before, "mine": b"mine"}
