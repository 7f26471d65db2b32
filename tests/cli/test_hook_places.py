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


# --- what a rollback or undo leaves elsewhere


@pytest.fixture
def library(claude: Claude, tmp_path: Path, cli: Cli) -> Path:
    """A second workspace, whose file a call of an agent in the project edits."""
    path = tmp_path / "library"
    path.mkdir()
    (path / "lib.py").write_text("lib")
    cli("init", cwd=path)
    claude.env["CLAUDE_PROJECT_DIR"] = str(claude.project)
    return path


def edit(claude: Claude, call: str, path: Path, text: str) -> None:
    arguments = {"tool_name": "Write", "tool_input": {"file_path": str(path), "content": text}, "tool_use_id": call}
    claude.send("PreToolUse", **arguments)
    path.write_text(text)
    claude.send("PostToolUse", tool_response={}, **arguments)


def test_what_a_turn_did_in_another_workspace_is_named_with_the_command_for_it(
    claude: Claude, project: Path, library: Path, cli: Cli
) -> None:
    claude.prompt("explain it to me")
    claude.send("Stop")
    claude.prompt("edit the library")
    edit(claude, "c1", library / "lib.py", "LIB")
    claude.send("Stop")
    for command in (("undo", "turn:2"), ("undo", "call:c1"), ("rollback", "turn:2"), ("rollback", "turn:1")):
        done = cli(*command, check=False)
        assert done.code == 6, command
        assert "already taken back" not in done.out and "as it was" not in done.out
        assert f"not undone {library}: 1 path changed there by the same calls" in done.out
        (left,) = cli(*command, "--dry-run", "--json").json["plan"]["not_undone"]
        told = left["reason"].partition("reprieve ")[2]
        cli(*told.split())
        assert (library / "lib.py").read_text() == "lib", command
        assert cli(*command).code == 0, "it is taken back there"
        cli("redo", cwd=library)
    (library / "lib.py").write_text("lib")
    assert cli("rollback", "turn:2").code == 0, "somebody put it right by hand"


def test_an_undo_of_a_step_that_changed_nothing_does_not_claim_that_it_was_taken_back(
    claude: Claude, project: Path, cli: Cli
) -> None:
    claude.prompt("look around")
    claude.before("c1", "make test")
    claude.after("c1", "make test")
    assert "Nothing to undo: call:c1 changed no file here" in cli("undo", "call:c1").out
    edit(claude, "c2", project / "new", "new")
    cli("undo", "call:c2")
    assert "Nothing to undo: call:c2 is already taken back" in cli("undo", "call:c2").out


def test_what_a_workspace_shares_with_one_around_it_is_not_named(claude: Claude, project: Path, cli: Cli) -> None:
    """Its files are part of both: moving the outer one moves them, and moving the inner one is all that it can do."""
    cli("init", cwd=project / "src")
    claude.env["CLAUDE_PROJECT_DIR"] = str(project)
    call = {"tool_name": "Bash", "tool_input": {"command": "make"}, "tool_use_id": "c1", "cwd": str(project / "src")}
    claude.prompt("go")
    claude.send("PreToolUse", **call)
    (project / "src" / "main.py").write_text("broken")
    claude.send("PostToolUse", tool_response={}, **call)
    assert cli("rollback", "call:c1", cwd=project / "src").code == 0
    cli("redo", cwd=project / "src")
    assert cli("rollback", "call:c1").code == 0
    cli("redo")
    (project / "README.md").write_text("the call went on")
    claude.send("PreToolUse", **call | {"tool_use_id": "c2"})
    (project / "README.md").write_text("broken")
    claude.send("PostToolUse", tool_response={}, **call | {"tool_use_id": "c2"})
    done = cli("rollback", "call:c2", cwd=project / "src", check=False)
    assert done.code == 6 and f"not undone {project}: 1 path changed there" in done.out


def test_of_calls_that_look_the_same_only_the_one_that_is_undone_is_named(
    project: Path, cli: Cli, tmp_path: Path
) -> None:
    """Cline gives calls no id."""
    backend = tmp_path / "backend"
    backend.mkdir()
    rooted = Rooted("cline", project, backend)
    rooted.prompt("go")
    for name in ("one", "two"):
        rooted.before("make")
        (backend / name).write_text(name)
        (project / name).write_text(name)
        rooted.after("make")
    done = cli("undo", check=False)
    assert done.code == 6 and "1 path changed there" in done.out
    assert not (project / "two").exists() and (project / "one").exists()
    cli(*done.out.partition("take that back: reprieve ")[2].splitlines()[0].split())
    assert not (backend / "two").exists() and (backend / "one").exists()


def test_an_edit_outside_of_every_workspace_is_named_as_not_undone(
    claude: Claude, project: Path, cli: Cli, tmp_path: Path
) -> None:
    dots = tmp_path / "dots"
    dots.mkdir()
    for name in ("rc", "large", "same"):
        (dots / name).write_text("mine")
    (dots / "large").write_bytes(bytes(3 << 20))
    (project / "rc").symlink_to(dots / "rc")
    (project / "within").symlink_to(project / "README.md")
    claude.prompt("go")
    edit(claude, "c1", project / "a", "a")
    edit(claude, "c2", project / "rc", "the agent's")
    edit(claude, "c3", dots / "new", "new")
    edit(claude, "c4", dots / "large", "small")
    edit(claude, "c5", dots / "same", "mine")
    edit(claude, "c6", project / "within", "the agent's")
    claude.send("Stop")

    def left(*command: str) -> set[str]:
        done = cli(*command, "--json", check=False)
        found = {gap["path"] for gap in done.json["report"]["not_undone"]}
        assert done.code == (6 if found else 0)
        return found

    assert left("undo", "call:c1") == set()
    assert left("undo", "call:c2") == {str(dots / "rc")}
    assert left("rollback", "turn:1") == {str(dots / name) for name in ("rc", "new", "large")}
    assert "does things" in (project / "README.md").read_text()
    assert (dots / "rc").read_text() == "the agent's"
    assert "changed since 'call:c2' named it" in cli("rollback", "turn:1", "--dry-run").out
    (dots / "rc").write_text("mine")
    (dots / "new").unlink()
    assert left("rollback", "turn:1") == {str(dots / "large")}
    assert left("rollback", "call:c5") == set()
    cli("init", cwd=dots)
    claude.prompt("again")
    edit(claude, "c7", project / "rc", "the agent's")
    assert left("rollback", "turn:2") == {str(dots)}, "now it is a workspace, behind a link"
