"""Whole sessions of every agent, through the installed command, and back: the call, the turn, the session."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support import Cli

from .playing import Play, tree
from .recorded import NAMES

# Crush tells only when a call begins: no prompts, so no turns, and no ends.
TURNS = [name for name in NAMES if name != "crush"]


@pytest.fixture
def play(request: pytest.FixtureRequest, project: Path, tmp_path: Path) -> Play:
    return Play(request.param, project, tmp_path)


def said(play: Play) -> str:
    return "\n".join(f"{a.name}: {a.code} {a.out!r} {a.err}" for a in play.answers)


def step_of(cli: Cli, label: str) -> str:
    """The id on the log of the step with this label: agents without call ids get names from us."""
    entries = cli("log", "--json").json["entries"]
    return str(next(e["id"] for e in entries if label in e["label"] and e["step"]))


@pytest.mark.parametrize("play", TURNS, indirect=True)
def test_a_session_and_back_by_call_by_turn_and_whole(play: Play, project: Path, cli: Cli) -> None:
    """Bytes exact at every station, and what the person wrote in between stays."""
    start = tree(project)
    play.first_turn()
    one = tree(project)
    play.second_turn()
    two = tree(project)
    play.send("session-end", turn=2)
    assert {a.code for a in play.answers} == {0}, said(play)
    assert not any(a.out or a.err for a in play.answers), said(play)
    mine = {"notes.txt": start.get("notes.txt", one["notes.txt"])}

    cli("undo", step_of(cli, "rm -f .env"), "--yes")
    shell = {path: start[path] for path in (".env", "empty")}
    assert tree(project) == {**two, **shell}, "the call"
    cli("redo")
    assert tree(project) == two

    cli("undo", "turn:2", "--yes")
    assert tree(project) == one, "the turn"
    cli("redo")
    assert tree(project) == two

    cli("rollback", "turn:1", "--yes")
    assert tree(project) == {**start, **mine}, "back to where the turn began"
    cli("redo")
    cli("rollback", "--actor", play.actor, f"session:{play.actor}", "--yes")
    assert tree(project) == {**start, **mine}, "the session"
    cli("redo")
    assert tree(project) == two


def test_crush_which_tells_only_beginnings_comes_back_too(project: Path, tmp_path: Path, cli: Cli) -> None:
    play = Play("crush", project, tmp_path)
    start = tree(project)
    play.first_turn(with_person=False)
    play.second_turn()
    two = tree(project)
    assert {a.code for a in play.answers} == {0}, said(play)
    cli("undo", step_of(cli, "rm -f .env"), "--yes")
    assert tree(project) == {**two, **{path: start[path] for path in (".env", "empty")}}
    # its last call never ends, so what runs below its process counts as the agent, and redo is a person's
    assert cli("redo", check=False).code == 5
    cli("rollback", f"session:{play.actor}", "--yes")
    assert tree(project) == start


@pytest.mark.parametrize("play", [n for n in NAMES if n in ("claude-code", "codex", "cursor", "vscode")], indirect=True)
def test_calls_are_named_by_the_agents_own_ids_and_subagents_are_told_apart(
    play: Play, project: Path, cli: Cli
) -> None:
    play.first_turn()
    play.second_turn()
    entries = cli("log", "--json").json["entries"]
    by_step = {e["step"]: e for e in entries if e["step"]}
    assert set(by_step) == {f"call:call_{n}" for n in (2, 3, 4, 5, 6, 8, 9)}
    assert by_step["call:call_3"]["actor"] == play.actor
    assert by_step["call:call_6"]["actor"] == f"{play.actor}/agent_7"
    cli("rollback", "call:call_3", "--dry-run")
    cli("rollback", "--actor", f"{play.actor}/agent_7", f"session:{play.actor}", "--yes")
    assert (project / "src" / "util.py").read_text() == "ANSWER = 42\n"
    assert "bye" in (project / "src" / "main.py").read_text()


def test_what_opencodes_sub_agent_did_is_taken_back_by_its_call_by_the_outer_one_and_by_the_turn(
    project: Path, cli: Cli
) -> None:
    """Its session is another one than that which a person talks to."""

    def send(event: str, **fields: object) -> None:
        payload = {"directory": str(project), "worktree": str(project), "serverUrl": "", **fields}
        cli("hook", "opencode", event, input=json.dumps(payload))

    main = {"sessionID": "ses_main", "rootID": "ses_main"}
    child = {"sessionID": "ses_child", "rootID": "ses_main"}
    task = {**main, "callID": "c1", "tool": "task", "args": {"prompt": "edit it"}}
    edit = {**child, "callID": "c2", "tool": "edit", "args": {"filePath": str(project / "made")}}
    start = tree(project)
    send("prompt", **main, messageID="m1", prompt="refactor")
    send("before", **task)
    send("before", **edit)
    (project / "made").write_text("x")
    send("after", **edit)
    send("session.idle", **child)
    send("after", **task)
    send("session.idle", **main)
    for step in ("call:c2", "call:c1", "turn"):
        cli("undo", step, "--yes")
        assert tree(project) == start
        cli("redo")
        assert (project / "made").exists()
    assert any(e["actor"] == "opencode:ses_main/ses_child" for e in cli("log", "--json").json["entries"])
