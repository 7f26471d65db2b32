"""Every tool, over each transport and in both eras of the protocol, with answers that fit their schemas."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from reprieve.mcp.catalog import TOOLS
from support.agentdesk import MODES, Agent, Person, drive, over_http, over_stdio

NAMES = (
    "checkpoint", "status", "diff", "log", "show", "plan_rollback", "apply_plan", "undo", "redo", "revert", "track",
    "record_http", "record_reversal", "effects", "compensate", "mail_stage", "mail_pending", "mail_release",
    "mail_cancel", "thread_save", "thread_load", "thread_list", "thread_diff", "thread_rollback", "thread_fork",
    "thread_handoff", "thread_adopt", "thread_verify", "search", "doctor",
)  # fmt: skip


class Tour:
    """Calls every tool once and checks each answer against the schema that the client was given."""

    def __init__(self, agent: Agent, project: Path) -> None:
        self.agent, self.project = agent, project
        self.schemas: dict[str, Any] = {}
        self.called: set[str] = set()

    async def call(self, tool: str, **args: Any) -> dict[str, Any]:
        found = await self.agent(tool, **args)
        jsonschema.validate(found, self.schemas[f"reprieve_{tool}"])
        self.called.add(tool)
        return found

    async def __call__(self) -> None:
        listed = await self.agent.client.list_tools()
        self.schemas = {tool.name: tool.output_schema for tool in listed.tools}
        assert list(self.schemas) == [tool.full_name for tool in TOOLS]
        assert sorted(self.schemas) == sorted(f"reprieve_{name}" for name in NAMES)
        await self.files()
        await self.effects()
        await self.mail()
        await self.threads()
        await self.call("search", query="phase")
        await self.call("doctor")
        assert self.called == set(NAMES)

    async def files(self) -> None:
        readme = self.project / "README.md"
        await self.call("checkpoint", label="base", note="n", pin=True)
        await self.call("track", paths=["src/main.py"])
        readme.write_text("one")
        await self.call("status")
        await self.call("diff")
        await self.call("log")
        await self.call("show", ref="base")
        reverted = await self.call("revert", paths=["README.md"])
        await self.call("apply_plan", plan_id=reverted["plan"]["id"])
        await self.call("redo")
        readme.write_text("two")
        await self.call("checkpoint", label="two")
        await self.call("undo")
        planned = await self.call("plan_rollback", ref="base")
        done = await self.call("apply_plan", plan_id=planned["plan"]["id"])
        assert done["is_whole"]
        assert readme.read_text().startswith("# A project")

    async def effects(self) -> None:
        mark = self.project.parent / "mark"
        mark.write_text("made outside")
        await self.call("checkpoint", label="before effects")
        recorded = await self.call(
            "record_reversal", description="made a mark", argv=[shutil.which("rm"), str(mark)], idempotent=True
        )
        assert recorded["effect"]["trusted"] is False
        await self.call(
            "record_http", method="POST", url="https://api.example.org/vms", response={"id": 7},
            undo={"method": "DELETE", "url": "https://api.example.org/vms/{response.id}"}, description="a machine",
        )  # fmt: skip
        found = await self.call("effects", pending=True)
        assert [e["kind"] for e in found["effects"]] == ["http", "command"]
        planned = await self.call("compensate", ref="before effects")
        assert planned["needs_person"] is True
        assert [a["verb"] for a in planned["plan"]["actions"]] == ["undo", "undo"]
        assert mark.exists()

    async def mail(self) -> None:
        letter = {"to": ["jane@example.org"], "subject": "Offer", "body": "Hello", "from": "me@example.org"}
        first = await self.call("mail_stage", **letter, attach=["README.md"])
        assert len((await self.call("mail_pending"))["effects"]) == 1
        cancelled = await self.call("mail_cancel", ids=[first["effect"]["id"]])
        assert cancelled["cancelled"] == 1
        error = await self.agent.fails("mail_release", ids=[first["effect"]["id"]])
        assert error["code"] == "refused"
        self.called.add("mail_release")  # sending needs a server; test_mail.py has one

    async def threads(self) -> None:
        one = await self.call("thread_save", thread="t", state={"phase": 1, "notes": ["a"]}, with_files=True)
        await self.call("thread_save", thread="t", state={"phase": 2, "notes": ["a", "b"]})
        loaded = await self.call("thread_load", thread="t")
        assert loaded["state"]["values"] == {"phase": 2, "notes": ["a", "b"]}
        await self.call("thread_list")
        await self.call("thread_list", thread="t")
        await self.call("thread_diff", thread="t", before="~1")
        planned = await self.call("thread_rollback", thread="t", state=one["state"]["id"])
        await self.call("apply_plan", plan_id=planned["plan"]["id"])
        assert (await self.call("thread_load", thread="t"))["state"]["values"]["phase"] == 1
        await self.call("thread_fork", thread="t", new_thread="t2")
        handed = await self.call("thread_handoff", thread="t", to_agent="other")
        await self.call("thread_adopt", handoff=handed["handoff"], new_thread="t3")
        await self.call("thread_verify")


@contextmanager
def served(project: Path, transport: str) -> Iterator[tuple[Any, Any]]:
    if transport == "stdio":
        yield over_stdio(project), None
    else:
        with over_http(project) as (url, token):
            yield url, {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_every_tool_answers_by_its_schema(project: Path, transport: str, mode: str) -> None:
    async def scenario(agent: Agent) -> str:
        await Tour(agent, project)()
        return str(agent.client.protocol_version)

    with served(project, transport) as (target, headers):
        version = drive(target, scenario, mode=mode, person=Person(), headers=headers)
    assert version == {"auto": "2026-07-28", "legacy": "2025-11-25"}[mode]


def test_annotations_say_what_a_tool_may_do(server: Any) -> None:
    """Only what really changes nothing is read-only; whatever can replace or send is destructive."""

    async def scenario(agent: Agent) -> dict[str, Any]:
        return {tool.name.removeprefix("reprieve_"): tool for tool in (await agent.client.list_tools()).tools}

    tools = drive(server, scenario)
    destructive = {name for name, tool in tools.items() if tool.annotations.destructive_hint}
    assert destructive == {"apply_plan", "mail_release", "mail_cancel"}
    writes = {name for name, tool in tools.items() if not tool.annotations.read_only_hint}
    assert writes == destructive | {
        "checkpoint", "track", "record_http", "record_reversal", "mail_stage", "thread_save", "thread_fork",
        "thread_adopt",
    }  # fmt: skip
    for tool in tools.values():
        assert tool.title
        assert len(tool.description) > 40
        assert tool.input_schema["additionalProperties"] is False
        jsonschema.Draft202012Validator.check_schema(tool.input_schema)
        jsonschema.Draft202012Validator.check_schema(tool.output_schema)


def test_a_read_only_tool_changes_nothing(server: Any, project: Path, home: Path) -> None:
    """The timeline and the tree are the same after every tool that says it only reads."""

    async def scenario(agent: Agent) -> None:
        await agent("checkpoint", label="base")
        await agent("thread_save", thread="t", state={"a": 1})
        await agent("thread_save", thread="t", state={"a": 2})
        (project / "README.md").write_text("changed")
        args: dict[str, dict[str, Any]] = {
            "show": {"ref": "base"}, "revert": {"paths": ["README.md"]}, "thread_load": {"thread": "t"},
            "thread_diff": {"thread": "t", "before": "~1"}, "thread_rollback": {"thread": "t"},
            "thread_handoff": {"thread": "t"}, "search": {"query": "a"},
        }  # fmt: skip
        before = await agent("log")
        for tool in TOOLS:
            if tool.reads:
                await agent.result(tool.name, **args.get(tool.name, {}))
        assert (await agent("log"))["entries"] == before["entries"]
        assert (project / "README.md").read_text() == "changed"

    drive(server, scenario)


def test_errors_are_errors_with_a_code_and_hints(server: Any, project: Path) -> None:
    async def scenario(agent: Agent) -> None:
        assert (await agent.fails("status"))["code"] == "config", "nothing is protected yet"
        await agent("checkpoint", label="base")
        found = await agent.result("show", ref="nothing-like-it")
        assert found.is_error
        assert found.structured_content["error"]["code"] == "bad_ref"
        assert found.structured_content["error"]["hints"]
        assert json.loads(found.content[0].text) == found.structured_content
        for wrong in (
            {"ref": 5}, {"reff": "x"}, {"only": ["x"] * 5000}, {"on_conflict": "destroy"}, {"limit": 0},
            {"limit": True}, {"ref": "x" * 10_000},
        ):  # fmt: skip
            assert (await agent.fails("plan_rollback", **wrong))["code"] == "usage", wrong

    drive(server, scenario)
