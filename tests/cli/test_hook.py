"""The hook: what it records of what an agent does."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from reprieve.agents import registry
from reprieve.cli.hooking import reply
from reprieve.model.talk import talk_of
from reprieve.model.window import standing
from support import Cli
from support.claude import Claude, entries, open_steps

NAMES = registry.NAMES


class Idless:
    """Gemini or Crush, which give calls no id."""

    def __init__(self, project: Path, agent: str = "gemini") -> None:
        self.project, self.agent = project, agent

    def _send(self, event: str, command: str, **fields: object) -> None:
        payload = {"session_id": "g1", "cwd": str(self.project), "tool_input": {"command": command}, **fields}
        if self.agent == "gemini":
            payload |= {"hook_event_name": event, "tool_name": "run_shell_command", "timestamp": "2026-11-15T10:00:00Z"}
        else:
            payload |= {"event": event, "tool_name": "bash"}
        assert reply([self.agent, event], json.dumps(payload).encode(), os.environ) == (b"", b"", 0)

    def before(self, command: str = "make") -> None:
        self._send("BeforeTool" if self.agent == "gemini" else "PreToolUse", command)

    def after(self, command: str = "make", **fields: object) -> None:
        self._send("AfterTool", command, **{"tool_response": {}, **fields})


@pytest.fixture
def claude(project: Path) -> Claude:
    return Claude(project)


def test_a_prompt_begins_a_turn_that_is_named_by_it_without_its_secrets(claude: Claude, project: Path) -> None:
    claude.prompt("deploy it\nwith password=hunter2 please", prompt_id="p1")
    (entry,) = entries(project)
    assert entry.label == "deploy it"
    assert "hunter2" not in entry.note
    assert "password=***" in entry.note
    talk = talk_of(entry.data)
    assert talk is not None
    assert (talk.who, talk.turn, talk.turn_id) == ("claude-code:s1", 1, "p1")


def test_a_call_is_a_window_with_redacted_arguments(claude: Claude, project: Path) -> None:
    claude.before("c1", "curl -H 'Authorization: Bearer abcdef123456' x")
    (project / "README.md").write_text("changed")
    claude.after("c1", "curl -H 'Authorization: Bearer abcdef123456' x")
    first, last = entries(project)
    assert (last.step, last.actor, last.changed) == ("call:c1", "claude-code:s1", 1)
    assert "abcdef123456" not in first.label + first.note + first.data + last.label
    assert "class: opaque" in first.note


def test_what_only_reads_costs_nothing(claude: Claude, project: Path, home: Path) -> None:
    claude.send("PreToolUse", tool_name="Read", tool_input={"file_path": "x"}, tool_use_id="c1")
    claude.send("PostToolUse", tool_name="Read", tool_input={"file_path": "x"}, tool_use_id="c1")
    claude.send("SessionStart", source="startup")
    assert not home.exists()


def test_the_same_call_reported_twice_is_one_step(claude: Claude, project: Path) -> None:
    """Two scopes, or two programs that read each other's files, run the entry twice."""
    for _ in range(2):
        claude.prompt("go", prompt_id="p1")
    for _ in range(2):
        claude.before("c1")
    (project / "x").write_text("x")
    for _ in range(2):
        claude.after("c1")
    assert [entry.label for entry in entries(project)] == ["go", "before Bash: make", "Bash: make"]


def test_a_call_without_an_id_that_is_reported_twice_ends_with_the_second_end(project: Path) -> None:
    def send(event: str, **fields: object) -> None:
        payload = {
            "session_id": "g1", "cwd": str(project), "hook_event_name": event, "timestamp": "2026-11-15T10:00:00Z",
            "tool_name": "run_shell_command", "tool_input": {"command": "make"}, **fields,
        }  # fmt: skip
        assert reply(["gemini", event], json.dumps(payload).encode(), os.environ) == (b"", b"", 0)

    send("BeforeTool")
    send("BeforeTool")
    send("AfterTool", tool_response={})
    assert len(open_steps(project)) == 1
    (project / "x").write_text("x")
    send("AfterTool", tool_response={})
    assert open_steps(project) == []
    assert entries(project)[-1].actor == "gemini:g1"


def test_a_call_without_an_id_that_is_reported_twice_is_what_a_rollback_takes_back(project: Path, cli: Cli) -> None:
    """The entries that count the reports are not checkpoints that somebody asked for."""
    gemini, before = Idless(project), (project / "README.md").read_bytes()
    gemini.before()
    gemini.before()
    (project / "README.md").write_text("by the agent")
    gemini.after()
    gemini.after()
    assert [change["path"] for change in cli("status", "--json").json["changes"]] == ["README.md"]
    cli("rollback")
    assert (project / "README.md").read_bytes() == before


def test_a_call_whose_beginning_was_not_seen_is_what_a_rollback_takes_back(claude: Claude, cli: Cli) -> None:
    readme = claude.project / "README.md"
    claude.before("c1")
    claude.after("c1")
    before = readme.read_bytes()
    readme.write_text("by the agent")
    claude.after("c2")
    cli("rollback")
    assert readme.read_bytes() == before
    cli("redo")
    cli("rollback", "call:c2")
    assert readme.read_bytes() == before


@pytest.mark.parametrize("end", ["PostToolUse", "PostToolUseFailure"])
def test_a_call_that_goes_on_while_the_person_says_more_is_one_step(claude: Claude, cli: Cli, end: str) -> None:
    """The prompt seemed to end it; what it wrote until its end, well or badly, is its own and goes with it."""
    a, b, mine = (claude.project / name for name in ("a", "b", "mine"))
    claude.prompt("build", prompt_id="p1")
    claude.before("c1")
    a.write_text("early")
    claude.prompt("and be quick", prompt_id="p2")
    b.write_text("late")
    claude.send(end, tool_name="Bash", tool_input={"command": "make"}, tool_use_id="c1", error="exit 1")
    claude.send("Stop")
    mine.write_text("a person's")
    for words in (["undo", "call:c1"], ["undo"], ["rollback", "call:c1"], ["rollback", "session:s1"]):
        cli(*words)
        assert [path.exists() for path in (a, b, mine)] == [False, False, True], words
        cli("redo")


def test_a_refusal_that_is_reported_makes_nothing_the_agents(claude: Claude) -> None:
    claude.before("c1")
    claude.after("c1")
    (claude.project / "mine").write_text("a person's")
    why = {"error": "Error: Reprieve: this step can't be taken back"}
    for event, more in (("PermissionDenied", {}), ("PostToolUseFailure", why)):
        claude.send(event, tool_name="Bash", tool_input={"command": "make"}, tool_use_id="c2", **more)
    claude.before("c3")
    (by,) = {entry.actor for entry in entries(claude.project) if entry.changed and entry.seq > 1}
    assert by == "person"


@pytest.mark.parametrize("event", ["Stop", "SessionEnd", "UserPromptSubmit"])
def test_an_end_that_never_comes_is_concluded_from_what_comes_next(claude: Claude, project: Path, event: str) -> None:
    claude.before("c1", "sleep 600")
    (project / "half").write_text("half")
    claude.send(event, prompt="go on")
    assert open_steps(project) == []
    (project / "mine").write_text("mine")
    claude.before("c2")
    sealed, mine = [e for e in entries(project) if e.changed][-2:]
    assert (sealed.step, sealed.actor) == ("call:c1", "claude-code:s1")
    assert "its end was not reported" in sealed.label
    assert mine.actor == "person"


def test_A10_what_goes_on_in_the_background_stays_the_agents(claude: Claude, project: Path, cli: Cli) -> None:
    """The call returns at once, the process writes on, over the end of the turn and the next prompt."""
    claude.prompt("start a server", prompt_id="p1")
    claude.before("c1", "server", run_in_background=True)
    claude.after("c1", "server", run_in_background=True)
    claude.send("Stop", background_tasks=[{"id": "b1"}])
    claude.prompt("and now?", prompt_id="p2")
    (project / "server.log").write_text("late")
    assert open_steps(project) == ["call:c1"]
    claude.send("Stop", background_tasks=[])
    assert open_steps(project) == []
    assert {e.actor for e in entries(project) if e.changed and e.seq > 1} == {"claude-code:s1"}


def test_A10_a_call_that_was_put_into_the_background_while_it_ran_goes_on(claude: Claude, cli: Cli) -> None:
    """Ctrl-B, or its time was up: its end is reported, and it is none."""
    project = claude.project
    claude.prompt("build", prompt_id="p1")
    claude.before("c1")
    response = {"stdout": "", "interrupted": False, "backgroundTaskId": "b1", "backgroundedByUser": True}
    claude.send(
        "PostToolUse", tool_name="Bash", tool_input={"command": "make"}, tool_use_id="c1", tool_response=response
    )
    assert open_steps(project) == ["call:c1"]
    claude.send("Stop", background_tasks=[{"id": "b1"}])
    claude.prompt("and now?", prompt_id="p2")
    (project / "late").write_text("late")
    claude.send("Stop", background_tasks=[])
    assert open_steps(project) == []
    cli("undo", "call:c1")
    assert not (project / "late").exists()


def test_A10_work_that_was_sent_to_the_background_later_is_watched_too(claude: Claude, project: Path) -> None:
    claude.before("c1")
    claude.after("c1")
    claude.send("Stop", background_tasks=[{"id": "b1"}])
    (project / "late").write_text("late")
    claude.send("Stop", background_tasks=[])
    assert entries(project)[-1].actor == "claude-code:s1"
    assert open_steps(project) == []


def test_a_subagents_calls_inside_of_the_call_that_started_it_are_its_own(
    claude: Claude, project: Path, cli: Cli
) -> None:
    task = {"tool_name": "Task", "tool_input": {"prompt": "explore"}, "tool_use_id": "outer"}
    inner = {"tool_name": "Bash", "tool_input": {"command": "make"}, "agent_id": "a7"}
    claude.prompt("go", prompt_id="p1")
    claude.send("PreToolUse", **task)
    for call in ("c1", "c2"):
        claude.send("PreToolUse", tool_use_id=call, **inner)
        (project / call).write_text(call)
        claude.send("PostToolUse", tool_use_id=call, tool_response={}, **inner)
    (project / "outer").write_text("outer")
    claude.send("PostToolUse", tool_response={}, **task)
    actors = {entry.step: entry.actor for entry in entries(project) if entry.step}
    assert actors == {
        "call:c1": "claude-code:s1/a7", "call:c2": "claude-code:s1/a7", "call:outer": "claude-code:s1",
    }  # fmt: skip
    cli("undo", "call:c1", "--yes")
    assert [(project / name).exists() for name in ("c1", "c2", "outer")] == [False, True, True]
    cli("redo")
    cli("undo", "call:outer", "--yes")
    assert not any((project / name).exists() for name in ("c1", "c2", "outer"))
    cli("redo")
    cli("undo", "turn:1", "--yes")
    assert not any((project / name).exists() for name in ("c1", "c2", "outer"))


class Short:
    """A process that was there before us and is gone when the call ends."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.process = subprocess.Popen(["sleep", "60"])
        monkeypatch.setattr("reprieve.app.hooks.patron", lambda: self.process.pid)

    def die(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="needs /proc")
def test_a_killed_agent_does_not_stay_at_work(
    claude: Claude, project: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = Short(monkeypatch)
    claude.before("c1")
    (project / "half").write_text("half")
    agent.die()
    cli("checkpoint", "somebody looks")
    (project / "mine").write_text("mine")
    cli("checkpoint", "later")
    by_label = {entry.label: entry.actor for entry in entries(project)}
    assert by_label["somebody looks"] == "unknown"
    assert by_label["later"] == "person"


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="needs /proc")
@pytest.mark.parametrize("agent", ["gemini", "crush"])
def test_an_agent_that_was_killed_and_goes_on_with_the_same_call_is_at_work_again(
    agent: str, project: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without call ids the new call looks like the one that died with the agent."""
    idless = Idless(project, agent)
    first = Short(monkeypatch)
    idless.before()
    first.die()
    second = Short(monkeypatch)
    idless.before()
    assert len(open_steps(project)) == 1
    (project / "README.md").write_text("by the agent")
    idless.before("ls")
    second.die()
    (by,) = {e.actor for e in entries(project) if e.changed and e.seq > 1}
    assert by == f"{agent}:g1"


def test_an_agent_that_tells_only_beginnings_ends_a_call_with_the_same_one(project: Path) -> None:
    crush = Idless(project, "crush")
    crush.before()
    (project / "README.md").write_text("by the first")
    crush.before()
    assert [entry.changed for entry in entries(project) if entry.step] == [1]
    assert len(open_steps(project)) == 1


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="needs /proc")
def test_a_call_whose_end_is_reported_was_the_agents_whatever_died_in_between(
    claude: Claude, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = Short(monkeypatch)
    claude.before("c1")
    (project / "made").write_text("made")
    agent.die()
    claude.after("c1")
    assert entries(project)[-1].actor == "claude-code:s1"


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="needs /proc")
def test_A10_a_process_that_a_shell_left_behind_is_not_taken_for_a_person(
    claude: Claude, project: Path, cli: Cli
) -> None:
    claude.before("c1", "sh -c 'server &'")
    script = "(while :; do sleep 0.1; done) >/dev/null 2>&1 & echo $!"
    done = subprocess.run(["/bin/sh", "-c", script], cwd=project, stdout=subprocess.PIPE, text=True, check=True)
    server = int(done.stdout)
    try:
        claude.after("c1", "sh -c 'server &'")
        assert [pid for pid, _ in standing(entries(project)[-1].data).left] == [server]
        (project / "server.log").write_text("late")
        cli("rollback", "call:c1", "--yes")
        assert not (project / "server.log").exists()
    finally:
        os.kill(server, 9)


def test_A10_parallel_calls_and_subagents_are_told_apart(claude: Claude, project: Path) -> None:
    claude.before("c1")
    claude.send("PreToolUse", tool_name="Bash", tool_input={}, tool_use_id="c2", agent_id="a7")
    assert open_steps(project) == ["call:c1", "call:c2"]
    claude.send("SubagentStop", agent_id="a7")
    assert open_steps(project) == ["call:c1"]
    assert standing(entries(project)[1].data).open[1].actor == "claude-code:s1/a7"


def test_WB45_sessions_have_steps_of_their_own(project: Path, cli: Cli) -> None:
    """One rolls back, the other's work stays."""
    a, b = Claude(project, "a"), Claude(project, "b")
    a.prompt("first")
    b.prompt("second")
    a.before("c1")
    (project / "of-a").write_text("a")
    a.after("c1")
    b.before("c1")
    (project / "of-b").write_text("b")
    b.after("c1")
    cli("rollback", "--actor", "claude-code:a", "session:claude-code:a", "--yes")
    assert not (project / "of-a").exists()
    assert (project / "of-b").exists()


@pytest.mark.parametrize(
    "session", ["日本語のセッション" * 20, "a,b", "x/y", "\udcff", "", "a\nb", "../../etc", "s" * 5000]
)
def test_WB37_any_session_id_is_a_session(project: Path, session: str) -> None:
    claude = Claude(project, session)
    claude.prompt("go")
    claude.before("c\n1 日")
    (project / "x").write_text("x")
    claude.after("c\n1 日")
    last = entries(project)[-1]
    assert last.actor.startswith("claude-code:")
    assert not set(last.actor + last.step) & set(",/\n日 ")


@pytest.mark.parametrize("odd", ["\ud800", "\udcff", "a\0b", "x" * 100_000, "\u202e", "\x1b[31m", "日本"])
def test_WB37_odd_text_in_any_field_is_recorded(project: Path, odd: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)  # where an agent's odd directory is not there, that is what its hook protects
    claude = Claude(project, odd)
    for fields in (
        {"tool_name": odd, "tool_input": {"command": odd}},
        {"tool_name": "Write", "tool_input": {"file_path": f"{project}/{odd}"}},
        {"tool_name": "Write", "tool_input": {"file_path": f"/{odd}/x"}, "cwd": odd, "transcript_path": odd},
        {"tool_name": "Bash", "tool_input": {odd: odd}, "agent_id": odd, "prompt_id": odd},
    ):
        assert claude.send("PreToolUse", tool_use_id=odd + str(fields), **fields) == {}
    assert claude.prompt(odd, prompt_id=odd) == {}
    assert claude.send("Stop") == {}
    assert open_steps(project) == []
    assert all(entry.label.isprintable() for entry in entries(project))


def test_EC20_effects_are_observed_not_guessed_from_the_command(claude: Claude, project: Path, cli: Cli) -> None:
    """A command that looks harmless, and the files that it deletes."""
    claude.before("c1", "true")
    (project / ".env").unlink()
    (project / "data.bin").unlink()
    claude.after("c1", "true")
    cli("rollback", "call:c1", "--yes")
    assert (project / ".env").read_text() == "TOKEN=secret\n"
    assert (project / "data.bin").exists()


def test_EC21_any_tool_that_is_not_known_to_read_is_a_step(claude: Claude, project: Path) -> None:
    for n, tool in enumerate(("mcp__db__query", "execute_code", "Task", "SomethingNew")):
        claude.send("PreToolUse", tool_name=tool, tool_input={}, tool_use_id=f"c{n}")
    assert len(open_steps(project)) == 4


def test_EC21_the_folder_in_which_the_agent_works_is_protected_as_well(claude: Claude, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    claude.env["CLAUDE_PROJECT_DIR"] = str(claude.project)
    claude.send("PreToolUse", tool_name="Bash", tool_input={"command": "x"}, tool_use_id="c1", cwd=str(other))
    assert open_steps(claude.project) == open_steps(other) == ["call:c1"]
    claude.after("c1")
    assert open_steps(claude.project) == []
    claude.send("Stop")
    assert open_steps(other) == []


def test_EC21_a_call_ends_where_it_began_wherever_the_agent_went(claude: Claude, tmp_path: Path) -> None:
    claude.before("c1", "cd elsewhere")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    claude.send("PostToolUse", tool_name="Bash", tool_input={}, tool_use_id="c1", cwd=str(elsewhere))
    assert open_steps(claude.project) == []


def test_EC23_every_step_is_on_the_log_with_its_id(claude: Claude, cli: Cli) -> None:
    claude.before("c1", "make")
    claude.after("c1", "make")
    assert "step call:c1" in cli("log").out


def test_files_outside_of_every_workspace_are_named_as_not_protected(claude: Claude, project: Path) -> None:
    arguments = {"file_path": "/etc/hosts", "content": ""}
    claude.send("PreToolUse", tool_name="Write", tool_input=arguments, tool_use_id="c1")
    assert "not protected, because outside of every workspace: /etc/hosts" in entries(project)[-1].note


def test_a_rollback_is_told_to_the_agent_once(claude: Claude, project: Path, cli: Cli) -> None:
    claude.before("c1")
    (project / "README.md").write_text("broken")
    (project / "new.txt").write_text("new")
    claude.after("c1")
    cli("rollback", "call:c1", "--yes")
    told = claude.before("c2")["additionalContext"]
    assert "README.md" in told
    assert "deleted: new.txt" in told
    assert claude.after("c2") == {}
    assert claude.prompt("next") == {}
    other = Claude(project, "begins later")
    assert other.prompt("hello") == {}


def test_EC24_a_rollback_is_told_in_the_first_answer_that_can_carry_it(project: Path, cli: Cli) -> None:
    """Codex reads no notes before a tool; it is told after it."""

    def send(event: str, **fields: object) -> bytes:
        payload = {
            "session_id": "x1", "turn_id": "t1", "model": "m", "cwd": str(project), "hook_event_name": event,
            "tool_name": "Bash", "tool_input": {"command": "make"}, **fields,
        }  # fmt: skip
        return reply(["codex", event], json.dumps(payload).encode(), os.environ)[0]

    send("PreToolUse", tool_use_id="c1")
    (project / "README.md").write_text("broken")
    send("PostToolUse", tool_use_id="c1")
    cli("rollback", "call:c1", "--yes")
    assert send("PreToolUse", tool_use_id="c2") == b""
    assert b"README.md" in send("PostToolUse", tool_use_id="c2")
    assert send("PreToolUse", tool_use_id="c3") == b""
    assert send("PostToolUse", tool_use_id="c3") == b""
