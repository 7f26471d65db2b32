"""A server of the official SDK, over stdio or HTTP: what both eras of the protocol can do."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.resolve import Elicit, Resolve
from mcp.types import ToolAnnotations
from pydantic import BaseModel

mcp = MCPServer("sdk", instructions="instructions of the server's own")


class Confirm(BaseModel):
    proceed: bool


async def ask() -> Elicit[Confirm]:
    return Elicit("go on?", Confirm)


@mcp.tool(annotations=ToolAnnotations(read_only_hint=True))
async def count(n: int, ctx: Context[Any]) -> dict[str, int]:
    for i in range(n):
        await ctx.report_progress(i + 1, n)
    return {"counted": n}


@mcp.tool(annotations=ToolAnnotations(destructive_hint=True))
def write(path: str, text: str) -> str:
    Path(path).write_text(text)
    return "written"


@mcp.tool(annotations=ToolAnnotations(read_only_hint=True))
async def confirm(ok: Annotated[Confirm, Resolve(ask)]) -> str:
    return f"the person said {ok.proceed}"


@mcp.tool()
async def confirm_write(path: str, ok: Annotated[Confirm, Resolve(ask)]) -> str:
    Path(path).write_text(f"{ok.proceed}")
    return "written"


@mcp.tool()
def create_note(folder: str, text: str) -> dict[str, str]:
    id = f"note-{len(list(Path(folder).iterdir())) + 1}"
    (Path(folder) / id).write_text(text)
    return {"id": id, "folder": folder}


@mcp.tool()
def delete_note(folder: str, note_id: str) -> dict[str, bool]:
    (Path(folder) / note_id).unlink()
    return {"ok": True}


@mcp.resource("test://one", name="one")
def one() -> str:
    return "the resource"


@mcp.prompt(description="a prompt")
def hello(name: str) -> str:
    return f"hello {name}"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        mcp.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
    else:
        mcp.run("stdio")
