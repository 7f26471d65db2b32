"""Drive our MCP server as a client of the SDK does: in memory, over standard input and output, or over HTTP."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters

MODES = ("auto", "legacy")  # the two eras of the protocol
Scenario = Callable[["Agent"], Awaitable[Any]]


class Agent:
    """A client with short words."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.progress: list[tuple[float, float | None, str | None]] = []

    async def result(self, tool: str, **args: Any) -> types.CallToolResult:
        async def note(done: float, total: float | None, message: str | None) -> None:
            self.progress.append((done, total, message))

        return await self.client.call_tool(f"reprieve_{tool}", args, progress_callback=note)

    async def __call__(self, tool: str, **args: Any) -> dict[str, Any]:
        """Call a tool that has to work."""
        found = await self.result(tool, **args)
        assert not found.is_error, found.structured_content or found.content
        assert found.structured_content["ok"] is True
        return dict(found.structured_content)

    async def fails(self, tool: str, **args: Any) -> dict[str, Any]:
        """Call a tool that has to refuse; the error object."""
        found = await self.result(tool, **args)
        assert found.is_error, found.structured_content
        assert found.structured_content["ok"] is False
        return dict(found.structured_content["error"])


class Person:
    """Who answers the client's forms; remembers what was asked."""

    def __init__(self, answer: str = "yes") -> None:
        self.answer, self.asked = answer, list[str]()

    async def __call__(self, context: Any, params: Any) -> types.ElicitResult:
        self.asked.append(params.message)
        if self.answer in ("decline", "cancel"):
            return types.ElicitResult(action=self.answer)
        if self.answer == "empty":
            return types.ElicitResult(action="accept", content={})
        return types.ElicitResult(action="accept", content={"approve": self.answer == "yes"})


def drive(
    target: Any, scenario: Scenario, *, mode: str = "auto", person: Person | None = None, headers: Any = None
) -> Any:
    """Run a scenario against a server object, the command of one, or an address."""

    async def main() -> Any:
        from mcp.client.streamable_http import streamable_http_client

        if isinstance(target, str):
            import httpx2

            async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
                transport = streamable_http_client(target, http_client=http)
                async with Client(transport, mode=mode, elicitation_callback=person) as client:
                    return await scenario(Agent(client))
        async with Client(target, mode=mode, elicitation_callback=person) as client:
            return await scenario(Agent(client))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # the SDK's own streams, closed by its garbage collection
        return anyio.run(main)


def over_stdio(project: Path, env: Mapping[str, str] | None = None) -> StdioServerParameters:
    """The command that a client starts."""
    return StdioServerParameters(
        command=sys.executable, args=["-m", "reprieve", "mcp"], cwd=str(project), env={**os.environ, **(env or {})}
    )


@contextmanager
def over_http(project: Path) -> Iterator[tuple[str, str]]:
    """A server on a free port of loopback: its address and its token."""
    process = subprocess.Popen(
        [sys.executable, "-m", "reprieve", "mcp", "--http", "--port", "0"],
        cwd=project, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        first, second = process.stderr.readline(), process.stderr.readline()
        url = first.rpartition(" at ")[2].strip()
        assert url.startswith("http://127.0.0.1:"), first + second + process.stderr.read()
        yield url, Path(second.rpartition(" in ")[2].strip()).read_text().strip()
    finally:
        process.terminate()
        process.wait(30)
        process.stderr.close()
