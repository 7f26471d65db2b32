"""What an agent is told of rollbacks: everything that is no longer as it left it, nothing else, and once."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from reprieve.cli.hooking import reply
from support import Cli
from support.claude import Claude, entries


@pytest.fixture
def claude(project: Path) -> Claude:
    return Claude(project)


def write(claude: Claude, call: str, path: Path) -> None:
    """A call that writes its name into a file."""
    claude.before(call)
    path.write_text(call)
    claude.after(call)


def note(answer: dict[str, str]) -> str:
    return answer.get("additionalContext", "")


def test_of_what_redo_brought_back_nothing_is_told(claude: Claude, project: Path, cli: Cli) -> None:
    """Every byte is as the agent left it; that it is not would be false."""
    write(claude, "c1", project / "a")
    write(claude, "c2", project / "README.md")
    cli("rollback", "call:c1", "--yes")
    cli("redo")
    assert (project / "README.md").read_text() == "c2"
    assert claude.prompt("next") == {}
    cli("rollback", "call:c1", "--yes")
    cli("redo")
    cli("revert", "a", "--to", "call:c1")
    told = note(claude.prompt("go on"))
    assert "deleted: a" in told
    assert "README.md" not in told
    assert "(revert)" in told


def test_a_redo_after_the_agent_was_told_is_told_too(claude: Claude, project: Path, cli: Cli) -> None:
    write(claude, "c1", project / "a")
    cli("rollback", "call:c1", "--yes")
    assert "deleted: a" in note(claude.prompt("next"))
    cli("redo")
    assert "restored: a" in note(claude.prompt("go on"))
    assert claude.prompt("and on") == {}


class Gemini:
    """It names neither turns nor calls."""

    def __init__(self, project: Path) -> None:
        self.project = project

    def send(self, event: str, **fields: object) -> str:
        payload = {
            "session_id": "g1", "cwd": str(self.project), "hook_event_name": event,
            "timestamp": "2026-11-15T10:00:00Z", **fields,
        }  # fmt: skip
        return reply(["gemini", event], json.dumps(payload).encode(), os.environ)[0].decode()

    def write(self, text: str) -> list[str]:
        call = {"tool_name": "run_shell_command", "tool_input": {"command": f"echo {text} > f"}}
        before = self.send("BeforeTool", **call)
        (self.project / "f").write_text(text)
        return [before, self.send("AfterTool", tool_response={}, **call)]


def test_the_same_words_after_a_rollback_begin_a_turn_and_are_told_once(project: Path, cli: Cli) -> None:
    gemini = Gemini(project)
    gemini.send("BeforeAgent", prompt="start")
    gemini.write("1")
    gemini.send("BeforeAgent", prompt="continue")
    gemini.send("AfterAgent", prompt="continue")
    cli("rollback", "turn:1", "--yes")
    assert "deleted: f" in gemini.send("BeforeAgent", prompt="continue")
    assert gemini.send("BeforeAgent", prompt="continue") == ""  # the entry of another scope
    assert gemini.write("2") == ["", ""]
    assert [e.label for e in entries(project)].count("continue") == 2
    cli("undo", "turn:3", "--yes")
    assert not (project / "f").exists()


def test_an_answer_to_what_is_not_recorded_tells_nothing(claude: Claude, project: Path, cli: Cli) -> None:
    """Nobody would know that it was told."""
    claude.prompt("start", prompt_id="p1")
    write(claude, "c1", project / "a")
    claude.prompt("next", prompt_id="p2")
    cli("rollback", "call:c1", "--yes")
    assert claude.prompt("next", prompt_id="p2") == {}  # reported once more
    assert "deleted: a" in note(claude.before("c2"))
    assert claude.after("c2") == {}


def test_a_rollback_in_a_second_workspace_is_told_where_the_agent_works_in_it(
    claude: Claude, project: Path, tmp_path: Path, cli: Cli
) -> None:
    library = tmp_path / "library"
    library.mkdir()
    cli("init", cwd=library)
    claude.prompt("start")
    edit = {"tool_name": "Write", "tool_input": {"file_path": str(library / "l.py"), "content": "x"}}
    claude.send("PreToolUse", tool_use_id="c1", **edit)
    (library / "l.py").write_text("x")
    claude.send("PostToolUse", tool_use_id="c1", tool_response={}, **edit)
    write(claude, "c2", project / "a")
    cli("rollback", "call:c1", "--yes", cwd=library)
    cli("rollback", "call:c2", "--yes")
    assert not (library / "l.py").exists()
    told = note(claude.send("PreToolUse", tool_use_id="c3", **edit))
    for folder, path in ((library, "l.py"), (project, "a")):
        assert f"files in {folder} " in told
        assert f"deleted: {path}" in told
    assert claude.send("PostToolUse", tool_use_id="c3", tool_response={}, **edit) == {}
    assert claude.prompt("next") == {}


def inner(claude: Claude, event: str, call: str, agent: str = "a1") -> str:
    """A sub-agent's call."""
    fields = {"tool_name": "Bash", "tool_input": {"command": "x"}, "tool_use_id": call, "agent_id": agent}
    return note(claude.send(event, **fields, **({} if event == "PreToolUse" else {"tool_response": {}})))


def test_a_sub_agent_that_is_told_does_not_hear_it_for_the_main_agent(claude: Claude, project: Path, cli: Cli) -> None:
    task = {"tool_name": "Task", "tool_input": {"prompt": "y", "run_in_background": True}, "tool_use_id": "t1"}
    claude.prompt("start")
    write(claude, "c1", project / "m")
    claude.send("PreToolUse", **task)
    claude.send("PostToolUse", tool_response={}, **task)
    claude.send("Stop", background_tasks=[{"id": "a1"}])
    cli("revert", "m", "--to", "call:c1")
    assert "deleted: m" in inner(claude, "PreToolUse", "i1")
    assert inner(claude, "PostToolUse", "i1") == ""
    assert inner(claude, "PreToolUse", "i2") == ""
    assert inner(claude, "PostToolUse", "i2") == ""
    assert "deleted: m" in inner(claude, "PreToolUse", "k1", "a2")  # each for itself
    assert "deleted: m" in note(claude.prompt("next"))
    assert claude.before("c2") == {}
    assert claude.after("c2") == {}
    assert inner(claude, "PostToolUse", "k1", "a2") == ""
    assert inner(claude, "PreToolUse", "l1", "a3") == ""  # began when all was known


def test_a_rollback_after_a_sub_agent_was_told_of_one_is_told_to_it_alone(
    claude: Claude, project: Path, cli: Cli
) -> None:
    """To the main agent, which heard of neither, both are told."""
    claude.prompt("start")
    for name in ("one", "two"):
        write(claude, name, project / name)
    cli("revert", "one", "--to", "call:one")
    assert "deleted: one" in inner(claude, "PreToolUse", "i1")
    cli("revert", "two", "--to", "call:two")
    said = inner(claude, "PostToolUse", "i1")
    assert "deleted: two" in said
    assert "deleted: one" not in said
    told = note(claude.prompt("next"))
    assert "deleted: one" in told
    assert "deleted: two" in told
