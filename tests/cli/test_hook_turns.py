"""Which turn a call belongs to, and when it is over: work in the background, sub-agents, several workspaces."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import Cli
from support.claude import Claude, entries, open_steps


@pytest.fixture
def claude(project: Path) -> Claude:
    return Claude(project)


def write(claude: Claude, call: str, path: Path) -> None:
    """A call that writes its name into a file."""
    claude.before(call)
    path.write_text(call)
    claude.after(call)


def test_turns_are_counted_on_whatever_ends_late(claude: Claude, project: Path, cli: Cli) -> None:
    """A server of the first turn ends with the second one: the third prompt still begins turn 3, and so on."""
    claude.prompt("start a server", prompt_id="p1")
    claude.before("c1", "server", run_in_background=True)
    claude.after("c1", "server", run_in_background=True)
    claude.send("Stop", background_tasks=[{"id": "b1"}])
    claude.prompt("is it up?", prompt_id="p2")
    claude.send("Stop", background_tasks=[])
    for number in (3, 4):
        claude.prompt(f"make {number}", prompt_id=f"p{number}")
        write(claude, f"c{number}", project / str(number))
        claude.send("Stop", background_tasks=[])
    for number in (2, 3, 4):
        target = cli("rollback", f"turn:{number}", "--dry-run", "--json").json["plan"]["target"]
        prompt = next(e.label for e in entries(project) if e.id == target)
        assert prompt == ("is it up?" if number == 2 else f"make {number}")
    cli("undo", "turn:3")
    assert [(project / name).exists() for name in "34"] == [False, True]
    cli("redo")
    cli("undo", "turn")
    assert [(project / name).exists() for name in "34"] == [True, False]


def test_a_call_that_ends_in_a_later_turn_stays_its_own_turns(claude: Claude, project: Path, cli: Cli) -> None:
    """A sub-agent in the background was at work when the second prompt came: what it made is the first turn's."""
    task = {"tool_name": "Task", "tool_input": {"prompt": "x", "run_in_background": True}, "tool_use_id": "c1"}
    inner = {"tool_name": "Bash", "tool_input": {"command": "make"}, "tool_use_id": "u1", "agent_id": "a1"}
    claude.prompt("look around", prompt_id="p1")
    claude.send("PreToolUse", prompt_id="p1", **task)
    claude.send("PostToolUse", prompt_id="p1", tool_response={}, **task)
    claude.send("PreToolUse", prompt_id="p1", **inner)
    claude.send("Stop", background_tasks=[{"id": "b1"}])
    claude.prompt("make b", prompt_id="p2")
    (project / "a").write_text("a")
    claude.send("PostToolUse", prompt_id="p2", tool_response={}, **inner)
    claude.send("SubagentStop", agent_id="a1", background_tasks=[])
    claude.send("Stop", background_tasks=[])
    claude.prompt("make c", prompt_id="p3")
    write(claude, "c3", project / "c")
    claude.send("Stop", background_tasks=[])
    assert "Undid turn 3" in cli("undo", "turn").out
    assert [(project / name).exists() for name in "ac"] == [True, False]
    cli("redo")
    cli("undo", "turn:1")
    assert [(project / name).exists() for name in "ac"] == [False, True]


@pytest.fixture
def other(claude: Claude, tmp_path: Path, cli: Cli) -> Path:
    """A second workspace, besides the project that the agent was started in."""
    path = tmp_path / "other"
    path.mkdir()
    (path / "mine").write_text("0")
    cli("init", cwd=path)
    claude.env["CLAUDE_PROJECT_DIR"] = str(claude.project)
    return path


def test_a_call_that_leaves_a_workspace_is_over_in_it_as_well(claude: Claude, other: Path, cli: Cli) -> None:
    """It begins in one and ends in another: what the person then edits in the first is not the agent's."""
    command = f"echo 2 > b; cd {claude.project}"
    claude.prompt("work in both")
    claude.send("PreToolUse", tool_name="Bash", tool_input={"command": command}, tool_use_id="c1", cwd=str(other))
    (other / "b").write_text("2")
    claude.after("c1", command)
    assert open_steps(other) == open_steps(claude.project) == []
    (other / "mine").write_text("mine")
    claude.before("c2")
    claude.after("c2")
    claude.send("Stop")
    cli("undo", cwd=other)
    assert not (other / "b").exists()
    assert (other / "mine").read_text() == "mine"


def test_a_failed_call_that_left_a_workspace_is_over_in_it_as_well(claude: Claude, other: Path) -> None:
    call = {"tool_name": "Bash", "tool_input": {"command": "cd .. && false"}, "tool_use_id": "c1"}
    claude.send("PreToolUse", cwd=str(other), **call)
    claude.send("PostToolUseFailure", error="exit 1", **call)
    assert open_steps(other) == open_steps(claude.project) == []


def test_the_next_prompt_ends_an_interrupted_call_in_every_workspace(claude: Claude, other: Path, cli: Cli) -> None:
    """Of a call that is interrupted nothing more is heard; the turn is counted only where it was told."""
    claude.prompt("work there")
    claude.send("PreToolUse", tool_name="Edit", tool_input={"file_path": f"{other}/b"}, tool_use_id="c1")
    (other / "b").write_text("half")
    claude.prompt("what did you do?")
    assert open_steps(other) == open_steps(claude.project) == []
    assert [e.label for e in entries(other)] == [
        f"before Edit: {other}/b",
        f"Edit: {other}/b (its end was not reported)",
    ]
    (other / "mine").write_text("mine")
    claude.before("c2")
    claude.after("c2")
    claude.send("Stop")
    cli("undo", cwd=other)
    assert not (other / "b").exists()
    assert (other / "mine").read_text() == "mine"


def test_a_prompt_leaves_work_in_the_background_elsewhere_alone(claude: Claude, other: Path) -> None:
    call = {"tool_name": "Bash", "tool_input": {"command": "server", "run_in_background": True}, "tool_use_id": "c1"}
    claude.send("PreToolUse", cwd=str(other), **call)
    claude.send("PostToolUse", tool_response={}, **call)
    claude.prompt("go on")
    assert open_steps(other) == ["call:c1"]


TASK = {"tool_name": "Task", "tool_input": {"prompt": "x"}, "tool_use_id": "task"}


def test_an_interrupted_subagent_is_over_with_the_call_that_had_it_work(
    claude: Claude, project: Path, cli: Cli
) -> None:
    """Nothing more is heard of it: what the person edits in the next turn is theirs, and that turn can be undone."""
    claude.prompt("have it looked at", prompt_id="p1")
    claude.send("PreToolUse", **TASK)
    claude.send("PreToolUse", tool_name="Bash", tool_input={"command": "x"}, tool_use_id="u1", agent_id="a1")
    (project / "a").write_text("half")
    claude.prompt("make b instead", prompt_id="p2")
    assert open_steps(project) == []
    write(claude, "c2", project / "b")
    (project / "mine").write_text("mine")
    write(claude, "c3", project / "c")
    claude.send("Stop", background_tasks=[])
    cli("undo", "turn")
    assert [(project / name).exists() for name in ("a", "b", "c", "mine")] == [True, False, False, True]
    cli("rollback", "session:s1")
    assert [(project / name).exists() for name in ("a", "b", "c", "mine")] == [False, False, False, True]
    sealed = {e.step: (e.actor, e.changed) for e in entries(project) if e.step in ("call:u1", "call:task")}
    assert sealed["call:u1"][0] == "claude-code:s1/a1"
    assert sealed["call:u1"][1] and not sealed["call:task"][1]


def test_a_subagent_that_was_not_interrupted_after_all_is_heard(claude: Claude, project: Path) -> None:
    """A prompt may come in the middle: what its call changed until it ends is still its own."""
    call = {"tool_name": "Bash", "tool_input": {"command": "x"}, "tool_use_id": "u1", "agent_id": "a1"}
    claude.send("PreToolUse", **TASK)
    claude.send("PreToolUse", **call)
    claude.prompt("and be quick")
    (project / "late").write_text("late")
    claude.send("PostToolUse", tool_response={}, **call)
    assert (entries(project)[-1].actor, entries(project)[-1].changed) == ("claude-code:s1/a1", 1)


def test_an_interrupted_subagent_is_over_in_every_workspace(claude: Claude, other: Path) -> None:
    claude.send("PreToolUse", **TASK)
    call = {"tool_name": "Edit", "tool_input": {"file_path": f"{other}/b"}, "tool_use_id": "u1", "agent_id": "a1"}
    claude.send("PreToolUse", **call)
    assert open_steps(other) == ["call:u1"]
    claude.prompt("no, wait")
    assert open_steps(other) == open_steps(claude.project) == []


def test_a_prompt_leaves_a_subagent_in_the_background_alone(claude: Claude, project: Path) -> None:
    task = {**TASK, "tool_input": {"prompt": "x", "run_in_background": True}}
    claude.send("PreToolUse", **task)
    claude.send("PostToolUse", tool_response={}, **task)
    claude.send("PreToolUse", tool_name="Bash", tool_input={"command": "x"}, tool_use_id="u1", agent_id="a1")
    claude.prompt("meanwhile")
    assert open_steps(project) == ["call:task", "call:u1"]


def test_work_in_a_workspace_inside_of_another_is_told_to_both(claude: Claude, project: Path, cli: Cli) -> None:
    """By the folder that a call is in and by the files that it names; what is only in the outer one costs no more."""
    inner = project / "inner"
    (inner / "deep").mkdir(parents=True)
    cli("init", cwd=inner)
    claude.env["CLAUDE_PROJECT_DIR"] = str(project)
    claude.prompt("work in both")
    claude.before("c1")
    assert entries(inner) == []
    claude.after("c1")
    shell = {"tool_name": "Bash", "tool_input": {"command": "make"}, "tool_use_id": "c2"}
    claude.send("PreToolUse", cwd=str(inner / "deep"), **shell)
    (inner / "made").write_text("made")
    claude.send("PostToolUse", tool_response={}, **shell)
    edit = {"tool_name": "Write", "tool_input": {"file_path": f"{inner}/new/file"}, "tool_use_id": "c3"}
    claude.send("PreToolUse", **edit)
    (inner / "new").mkdir()
    (inner / "new" / "file").write_text("written")
    claude.send("PostToolUse", tool_response={}, **edit)
    for place in (inner, project):
        assert open_steps(place) == []
        actors = {e.step: e.actor for e in entries(place) if e.step}
        assert actors["call:c2"] == actors["call:c3"] == "claude-code:s1"
    cli("undo", cwd=inner)
    assert not (inner / "new").exists() and (inner / "made").exists()


def test_a_workspace_inside_of_one_that_was_moved_is_still_found(claude: Claude, project: Path, cli: Cli) -> None:
    inner = project / "inner"
    inner.mkdir()
    cli("init", cwd=inner)
    cli("init")
    moved = project.rename(project.with_name("moved"))
    claude.env["CLAUDE_PROJECT_DIR"] = str(moved)
    claude.send("PreToolUse", tool_name="Bash", tool_input={"command": "x"}, tool_use_id="c1", cwd=str(moved / "inner"))
    assert open_steps(moved / "inner") == open_steps(moved) == ["call:c1"]


def test_what_a_person_did_after_a_turn_of_mere_words_stays(
    claude: Claude, project: Path, cli: Cli, tmp_path: Path
) -> None:
    """The agent tells of its calls, and there was none: so it was not the agent."""
    outside = tmp_path / "outside"
    outside.write_text("then")
    cli("track", str(outside))
    claude.prompt("one")
    write(claude, "c1", project / "a")
    claude.send("Stop")
    claude.prompt("explain it to me")
    claude.send("Stop")
    for mine in (project / "mine", outside):
        mine.write_text("two hours of my own work")
    kept = cli("rollback", "turn:2", "--json").json["report"]["kept"]
    assert {entry["reason"].partition(":")[0] for entry in kept} == {"changed by you"}
    assert {Path(entry["path"]).name for entry in kept} == {"mine", "outside"}
    assert {mine.read_text() for mine in (project / "mine", outside)} == {"two hours of my own work"}
    cli("rollback", "turn:2", "--everything")
    assert not (project / "mine").exists() and outside.read_text() == "then"


def test_what_a_person_did_after_a_turn_of_mere_words_stays_whatever_was_moved_since(
    claude: Claude, project: Path, cli: Cli, tmp_path: Path
) -> None:
    """A rollback, its redo, or a revert of another file says nothing about who wrote the rest."""
    outside = tmp_path / "outside"
    outside.write_text("then")
    cli("track", str(outside))
    claude.prompt("one")
    write(claude, "c1", project / "a")
    claude.send("Stop")
    claude.prompt("explain it to me")
    claude.send("Stop")
    for mine in (project / "mine", outside):
        mine.write_text("two hours of my own work")
    for moves in ((("rollback", "turn:1"), ("redo",)), (("revert", "a", "--to", "turn:1"),)):
        for move in moves:
            cli(*move)
        kept = cli("rollback", "turn:2", "--json").json["report"]["kept"]
        assert {Path(entry["path"]).name for entry in kept} == {"mine", "outside"}
        assert {mine.read_text() for mine in (project / "mine", outside)} == {"two hours of my own work"}
        assert (project / "a").read_text() == "c1"


def test_a_turn_of_mere_words_has_nothing_to_undo(claude: Claude, project: Path, cli: Cli) -> None:
    """`show` and `rollback` know it, and so does `undo`: it changed no file, and nothing else is taken for it."""
    other = Claude(project, "s2")
    for who in (other, claude):
        who.prompt("make", prompt_id="p1")
        write(who, f"{who.session}c1", project / f"{who.session}-1")
    other.prompt("make more", prompt_id="p2")
    write(other, "s2c2", project / "s2-2")
    claude.prompt("only words", prompt_id="p2")
    claude.prompt("go on", prompt_id="p3")
    write(claude, "s1c3", project / "s1-3")
    assert cli("show", "turn:2", "--json").json["entry"]["label"] == "only words"
    said = cli("undo", "turn:2")
    assert "turn 2 changed no file here" in said.out
    assert all((project / name).exists() for name in ("s1-1", "s1-3", "s2-1", "s2-2"))
    assert cli("undo", "turn:4", check=False).code == 2
    cli("undo", "turn:3")
    assert not (project / "s1-3").exists() and (project / "s2-2").exists()


def test_going_to_a_turn_of_mere_words_undoes_what_was_moved_since(claude: Claude, project: Path, cli: Cli) -> None:
    """Nobody worked there: who names it wants back what a rollback took away, but for what a person made since."""
    claude.prompt("one")
    for name in "ab":
        write(claude, f"c{name}", project / name)
    claude.send("Stop")
    claude.prompt("explain it to me")
    claude.send("Stop")
    cli("rollback", "turn:1")
    (project / "b").write_text("mine")
    assert cli("rollback", "turn:2", check=False).code == 4
    assert [(project / name).exists() for name in "ab"] == [False, True]
    assert cli("rollback", "turn:2", "--on-conflict", "keep").code == 0
    assert [(project / name).read_text() for name in "ab"] == ["ca", "mine"]


def test_a_late_end_is_heard_in_every_workspace_that_the_call_was_in(claude: Claude, other: Path, cli: Cli) -> None:
    call = {"tool_name": "Bash", "tool_input": {"command": "make"}, "tool_use_id": "c1"}
    claude.prompt("work there")
    claude.send("PreToolUse", cwd=str(other), **call)
    (other / "early").write_text("1")
    claude.prompt("go on meanwhile")
    (other / "late").write_text("2")
    claude.send("PostToolUse", tool_response={}, **call)
    cli("undo", "call:c1", cwd=other)
    assert not (other / "early").exists() and not (other / "late").exists()


def test_a_failure_of_a_call_that_never_began_makes_nothing_the_agents(claude: Claude, project: Path, cli: Cli) -> None:
    """As agents report a call whose arguments were wrong: it did nothing."""
    claude.prompt("go")
    write(claude, "c1", project / "a")
    (project / "mine").write_text("mine")
    claude.send(
        "PostToolUseFailure",
        tool_name="Bash",
        tool_input={"command": "ls"},
        tool_use_id="c2",
        error="invalid arguments",
    )
    claude.send("Stop")
    cli("rollback", "turn:1")
    assert (project / "mine").read_text() == "mine" and not (project / "a").exists()
