"""Who may say yes: a person, over a channel that the agent does not hold, to one exact plan, once."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from reprieve.app import agreement
from reprieve.app.finding import open_workspace
from reprieve.mcp.server import make
from support import Cli
from support.agentdesk import MODES, Agent, Person, drive
from support.terminal import at_terminal

MARKS = ("CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT", "CODEX_SANDBOX", "GEMINI_CLI", "CURSOR_AGENT", "OPENCODE", "AI_AGENT")


@pytest.fixture(autouse=True)
def a_persons_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for mark in MARKS:
        monkeypatch.delenv(mark, raising=False)


async def broken(agent: Agent, project: Path) -> str:
    """Something to take back; the id of the plan that would."""
    await agent("checkpoint", label="before")
    (project / "README.md").write_text("broken")
    planned = await agent("plan_rollback", ref="before")
    return str(planned["plan"]["id"])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("answer", ["yes", "no", "decline", "cancel", "empty"])
def test_only_a_ticked_and_accepted_form_is_a_yes(server: Any, project: Path, mode: str, answer: str) -> None:
    person = Person(answer)

    async def scenario(agent: Agent) -> None:
        plan = await broken(agent, project)
        if answer == "yes":
            await agent("apply_plan", plan_id=plan)
        else:
            assert (await agent.fails("apply_plan", plan_id=plan))["code"] == "refused"

    drive(server, scenario, mode=mode, person=person)
    assert ((project / "README.md").read_text() == "broken") == (answer != "yes")
    assert len(person.asked) == 1


@pytest.mark.parametrize("mode", MODES)
def test_S01_without_a_form_the_yes_is_given_at_a_terminal(server: Any, project: Path, mode: str) -> None:
    """Refused with the id of what waits; after `reprieve approve` the same call does it, and only once."""

    async def scenario(agent: Agent) -> None:
        plan = await broken(agent, project)
        for _ in range(3):
            error = await agent.fails("apply_plan", plan_id=plan)
            assert error["code"] == "refused"
            assert (project / "README.md").read_text() == "broken"
        code, screen = at_terminal("approve", error["approval"], cwd=project, answer="y\n")
        assert code == 0, screen
        assert "README.md" in screen
        await agent("apply_plan", plan_id=plan)
        assert (project / "README.md").read_text() != "broken"
        (project / "README.md").write_text("broken")
        again = await agent("plan_rollback", ref="before")
        assert (await agent.fails("apply_plan", plan_id=again["plan"]["id"]))["code"] == "refused"

    drive(server, scenario, mode=mode)


def test_S01_guessed_foreign_and_denied_approvals_count_for_nothing(server: Any, project: Path, cli: Cli) -> None:
    async def scenario(agent: Agent) -> None:
        plan = await broken(agent, project)
        assert (await agent.fails("apply_plan", plan_id="0" * 16))["code"] == "bad_ref"
        for argument in ("confirm", "approve", "yes", "approval"):
            error = await agent.fails("apply_plan", plan_id=plan, **{argument: True})
            assert error["code"] == "usage", "there is no argument that stands for a person"
        error = await agent.fails("apply_plan", plan_id=plan)
        cli("deny", error["approval"])
        assert (await agent.fails("apply_plan", plan_id=plan))["approval"] != error["approval"]

        async def another(other: Agent) -> None:
            assert (await other.fails("apply_plan", plan_id=plan))["code"] == "bad_ref"
            same = await other("plan_rollback", ref="before")
            assert same["plan"]["id"] == plan
            assert (await other.fails("apply_plan", plan_id=plan))["code"] == "refused"

        waiting = (await agent.fails("apply_plan", plan_id=plan))["approval"]
        assert at_terminal("approve", waiting, cwd=project, answer="y\n")[0] == 0
        from mcp.client.client import Client

        async with Client(make(str(project))) as client:
            await another(Agent(client))  # the yes was for the first server's session
        assert (project / "README.md").read_text() == "broken"

    drive(server, scenario)


def test_an_agents_own_changes_need_no_person_and_anything_else_does(server: Any, project: Path) -> None:
    """What an agent's session changed goes by the plan's id alone; a person's edit in the same plan asks for one."""

    async def scenario(agent: Agent) -> None:
        await agent("checkpoint", label="before")
        with open_workspace(str(project)) as ws:
            _, window = ws.open_window("claude-code:s1", "call:1")
            (project / "README.md").write_text("by the agent")
            ws.close_window(window)
        own = await agent("plan_rollback", ref="before")
        assert own["needs_person"] is False
        (project / "src" / "util.py").write_text("ANSWER = 41\n")
        with open_workspace(str(project)) as ws:
            ws.checkpoint("a person's")
        everything = await agent("plan_rollback", ref="before", everything=True)
        assert everything["needs_person"] is True
        assert "changed by the user" in everything["reason"]
        own = await agent("plan_rollback", ref="before")
        assert own["needs_person"] is False
        await agent("apply_plan", plan_id=own["plan"]["id"])
        assert (project / "README.md").read_text().startswith("# A project")
        assert (project / "src" / "util.py").read_text() == "ANSWER = 41\n", "the person's stays"

    drive(server, scenario)


@pytest.mark.parametrize("mode", MODES)
def test_S03_a_shell_as_an_inverse_needs_two_yeses(server: Any, project: Path, mode: str) -> None:
    """The person sees the whole command, marked as an agent's, and is asked a second time before it runs."""
    person = Person()

    async def scenario(agent: Agent) -> None:
        await agent("checkpoint", label="before")
        await agent(
            "record_reversal", description="harmless clean-up", argv=["/bin/sh", "-c", "touch pwned; echo $(id)"]
        )
        planned = await agent("compensate", ref="before")
        person.answer = "yes"
        done = await agent("apply_plan", plan_id=planned["plan"]["id"])
        assert [e["state"] for e in done["report"]["effects"]] == ["undone"]

    drive(server, scenario, mode=mode, person=person)
    assert (project / "pwned").exists()
    assert len(person.asked) == 2
    for asked in person.asked:
        assert "touch pwned; echo $(id)" in asked
    assert "written by an agent" in person.asked[0]


def test_S03_one_yes_is_not_enough_for_a_shell(server: Any, project: Path) -> None:
    class Once(Person):
        async def __call__(self, context: Any, params: Any) -> Any:
            self.answer = "no" if self.asked else "yes"
            return await super().__call__(context, params)

    async def scenario(agent: Agent) -> None:
        await agent("checkpoint", label="before")
        await agent("record_reversal", description="clean-up", argv=["/bin/sh", "-c", "touch pwned"])
        planned = await agent("compensate", ref="before")
        assert (await agent.fails("apply_plan", plan_id=planned["plan"]["id"]))["code"] == "refused"

    drive(server, scenario, person=Once())
    assert not (project / "pwned").exists()


def test_S05_arguments_of_an_inverse_are_bytes_and_no_shell(server: Any, project: Path) -> None:
    words = ["$(touch a)", "; touch b", "*.md", "line\nbreak", "-rf"]

    async def scenario(agent: Agent) -> None:
        await agent("checkpoint", label="before")
        await agent("record_reversal", description="x", argv=[str(shutil.which("touch")), "--", *words])
        planned = await agent("compensate", ref="before")
        await agent("apply_plan", plan_id=planned["plan"]["id"])

    drive(server, scenario, person=Person())
    assert not (project / "a").exists() and not (project / "b").exists()
    assert {path.name for path in project.iterdir()} >= set(words)


def test_S04_an_inverse_that_changed_after_the_yes_is_not_run(server: Any, project: Path) -> None:
    """The plan's hash covers the inverse: what else is recorded after the yes makes it another plan."""

    async def scenario(agent: Agent) -> None:
        await agent("checkpoint", label="before")
        await agent("record_reversal", description="x", argv=[str(shutil.which("touch")), "one"])
        planned = await agent("compensate", ref="before")
        error = await agent.fails("apply_plan", plan_id=planned["plan"]["id"])
        assert at_terminal("approve", error["approval"], cwd=project, answer="y\n")[0] == 0
        await agent("record_reversal", description="y", argv=[str(shutil.which("touch")), "two"])
        error = await agent.fails("apply_plan", plan_id=planned["plan"]["id"])
        assert error["code"] == "conflict"

    drive(server, scenario)
    assert not (project / "one").exists() and not (project / "two").exists()


def test_S07_a_long_and_tricky_inverse_is_asked_about_whole_and_escaped(server: Any, project: Path) -> None:
    tricky = "\u202egnp.exe\u200b" + "x" * 7000 + "\x1b[2J"
    person = Person("no")

    async def scenario(agent: Agent) -> None:
        await agent("checkpoint", label="before")
        await agent("record_reversal", description="d\u202e", argv=[str(shutil.which("true")), tricky])
        planned = await agent("compensate", ref="before")
        await agent.fails("apply_plan", plan_id=planned["plan"]["id"])

    drive(server, scenario, person=person)
    (asked,) = person.asked
    assert "x" * 7000 in asked
    assert not any(mark in asked for mark in ("\u202e", "\u200b", "\x1b"))


def test_the_question_counts_what_it_does_not_list(server: Any, project: Path) -> None:
    person = Person("no")

    async def scenario(agent: Agent) -> None:
        await agent("checkpoint", label="before")
        for n in range(80):
            (project / f"n{n:02}").write_text("x")
        planned = await agent("plan_rollback")
        await agent.fails("apply_plan", plan_id=planned["plan"]["id"])

    drive(server, scenario, person=person)
    assert "and 30 paths more" in person.asked[0]
    assert agreement._SHOWN == 50


def test_S08_a_yes_that_is_used_twice_at_once_does_one_thing(server: Any, project: Path) -> None:
    """Five calls with one approval: one rolls back, the others are told no."""
    import anyio

    async def scenario(agent: Agent) -> None:
        plan = await broken(agent, project)
        error = await agent.fails("apply_plan", plan_id=plan)
        assert at_terminal("approve", error["approval"], cwd=project, answer="y\n")[0] == 0
        done: list[bool] = []

        async def one() -> None:
            done.append(not (await agent.result("apply_plan", plan_id=plan)).is_error)

        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(one)
        assert sorted(done) == [False, False, False, False, True]
        kinds = [entry["kind"] for entry in (await agent("log"))["entries"]]
        assert kinds.count("rollback") == 1

    drive(server, scenario)
