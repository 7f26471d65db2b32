"""Resources, prompts and instructions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

from support.agentdesk import MODES, Agent, drive


@pytest.mark.parametrize("mode", MODES)
def test_resources_are_the_tools_answers(server: Any, project: Path, mode: str) -> None:
    async def scenario(agent: Agent) -> None:
        cp = (await agent("checkpoint", label="base"))["checkpoint"]["id"]
        (project / "README.md").write_text("changed")
        second = (await agent("checkpoint", label="later"))["checkpoint"]["id"]
        (project / "new").write_text("x")
        plan = (await agent("plan_rollback"))["plan"]

        async def read(uri: str) -> Any:
            (found,) = (await agent.client.read_resource(uri)).contents
            assert found.mime_type == "application/json"
            return json.loads(found.text)

        assert [e["label"] for e in (await read("reprieve://timeline"))["entries"]] == ["later", "base"]
        assert (await read(f"reprieve://checkpoint/{cp}"))["entry"]["id"] == cp
        assert [c["path"] for c in (await read("reprieve://diff/latest"))["changes"]] == ["new"]
        assert [c["path"] for c in (await read(f"reprieve://diff/{cp}/{second}"))["changes"]] == ["README.md"]
        assert (await read(f"reprieve://plan/{plan['id']}"))["plan"] == plan
        for uri in ("reprieve://nothing", "reprieve://checkpoint/none-such", "reprieve://plan/0", "file:///etc/passwd",
                    "reprieve://checkpoint/..%2f..%2fetc%2fpasswd"):  # fmt: skip
            with pytest.raises(MCPError):
                await agent.client.read_resource(uri)

    drive(server, scenario, mode=mode)


def test_resources_are_listed_in_pages(server: Any, project: Path) -> None:
    async def scenario(agent: Agent) -> None:
        assert len((await agent.client.list_resources()).resources) == 2, "nothing is protected yet"
        for n in range(60):
            await agent("checkpoint", label=f"c{n}")
        first = await agent.client.list_resources()
        second = await agent.client.list_resources(cursor=first.next_cursor)
        assert (len(first.resources), len(second.resources)) == (52, 10)
        assert second.next_cursor is None
        assert len({str(r.uri) for r in (*first.resources, *second.resources)}) == 62
        with pytest.raises(MCPError):
            await agent.client.list_resources(cursor="../x")

    drive(server, scenario)


@pytest.mark.parametrize("mode", MODES)
def test_prompts_have_descriptions_and_take_their_arguments(server: Any, mode: str) -> None:
    async def scenario(agent: Agent) -> None:
        listed = (await agent.client.list_prompts()).prompts
        assert [p.name for p in listed] == ["checkpoint_first", "what_changed", "take_back"]
        assert all(p.description and p.title for p in listed)
        got = await agent.client.get_prompt("checkpoint_first", {"task": "tidy up"})
        assert "reprieve_checkpoint" in got.messages[0].content.text
        assert "tidy up" in got.messages[0].content.text
        with pytest.raises(MCPError):
            await agent.client.get_prompt("checkpoint_first", {})
        with pytest.raises(MCPError):
            await agent.client.get_prompt("none", {})
        assert "record" in str(agent.client.instructions)

    drive(server, scenario, mode=mode)
