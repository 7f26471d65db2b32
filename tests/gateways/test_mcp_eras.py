"""A client of the official SDK through the gateway, in both eras, before a server on stdio and one over HTTP."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp import StdioServerParameters
from mcp.client import Client
from mcp.types import ElicitResult

from gateways.conftest import HERE
from support import Cli
from support.terminal import at_terminal

SERVER = str(HERE / "sdk_server.py")


@pytest.fixture
def address(home: Path) -> Iterator[str]:
    """A server over HTTP."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, SERVER, str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        until = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert process.poll() is None and time.monotonic() < until
                time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        process.wait()


def through(project: Path, *options: str) -> StdioServerParameters:
    """The gateway, as a client starts it."""
    given = options or ("--", sys.executable, SERVER)
    return StdioServerParameters(
        command=sys.executable, args=["-m", "reprieve", "gateway", *given], env=dict(os.environ), cwd=str(project)
    )


async def drive(server: StdioServerParameters, mode: Any, project: Path) -> dict[str, Any]:
    found: dict[str, Any] = {"progress": [], "asked": []}

    async def elicited(context: Any, params: Any) -> ElicitResult:
        found["asked"].append(params.message)
        is_ours = "Reprieve" in params.message
        return ElicitResult(action="accept", content={"allow": True} if is_ours else {"proceed": True})

    async def progressed(progress: float, total: float | None, message: str | None) -> None:
        found["progress"].append((progress, total))

    async with Client(server, mode=mode, elicitation_callback=elicited) as client:
        found["tools"] = sorted(tool.name for tool in (await client.list_tools()).tools)
        found["instructions"] = client.instructions
        found["resource"] = (await client.read_resource("test://one")).contents[0].text  # type: ignore[union-attr]
        found["prompt"] = (await client.get_prompt("hello", {"name": "ada"})).messages[0].content.text  # type: ignore[union-attr]
        found["count"] = await client.call_tool("count", {"n": 3}, progress_callback=progressed)
        found["confirm"] = await client.call_tool("confirm", {})
        found["write"] = await client.call_tool("write", {"path": str(project / "README.md"), "text": "x"})
        found["confirm_write"] = await client.call_tool("confirm_write", {"path": str(project / "tool.sh")})
        found["note"] = await client.call_tool("create_note", {"folder": str(project.parent / "notes"), "text": "x"})
        found["version"] = client.protocol_version
    return found


@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.parametrize("by", ["stdio", "http"])
def test_the_sdks_client_works_through_the_gateway(
    mode: str, by: str, project: Path, cli: Cli, request: pytest.FixtureRequest, a_persons_terminal: None
) -> None:
    options = () if by == "stdio" else ("--url", request.getfixturevalue("address"))
    notes = project.parent / "notes"
    notes.mkdir()
    cli("checkpoint", "base")
    found = asyncio.run(asyncio.wait_for(drive(through(project, *options), mode, project), 60))
    assert found["version"] == ("2025-11-25" if mode == "legacy" else "2026-07-28")
    assert found["tools"] == ["confirm", "confirm_write", "count", "create_note", "delete_note", "write"]
    assert found["instructions"] == "instructions of the server's own"
    assert found["resource"] == "the resource" and found["prompt"] == "hello ada"
    assert found["count"].structured_content == {"counted": 3}
    assert found["progress"] == [(1, 3), (2, 3), (3, 3)]
    assert found["confirm"].content[0].text == "the person said True" and "go on?" in found["asked"]
    states = {e["description"]: e["state"] for e in cli("effects", "--json").json["effects"]}
    assert not found["write"].is_error and (project / "README.md").read_text() == "x"
    assert not found["confirm_write"].is_error and (project / "tool.sh").read_text() == "True"
    assert sorted(states.values()) == ["done", "done", "done"]  # one each, also where the server asked back
    assert sum("Reprieve" in text for text in found["asked"]) == 3
    assert os.listdir(notes) == ["note-1"]
    asked = cli("rollback", "base", "--yes", "--json", check=False)
    assert asked.code == 5 and os.listdir(notes) == ["note-1"]
    code, screen = at_terminal("approve", asked.json["error"]["approval"], cwd=project, answer="y\n")
    assert code == 0 and "delete_note" in screen and (SERVER if by == "stdio" else options[1]) in screen
    cli("rollback", "base", "--yes", check=False)
    assert os.listdir(notes) == []  # the server was asked again, in the same era
    assert (project / "README.md").read_text() != "x"
