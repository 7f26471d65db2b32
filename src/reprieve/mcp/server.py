"""Put the server together, and run it over standard input and output."""

from __future__ import annotations

from typing import Any

import anyio
import mcp_types as types
from mcp.server.lowlevel.server import Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity

from reprieve.mcp import answering, resources, teaching
from reprieve.mcp.answering import Context
from reprieve.mcp.catalog import BY_NAME, TOOLS
from reprieve.mcp.stdio import Answers, Requests, own_stdin, own_stdout
from reprieve.mcp.tool import Desk, Tool
from reprieve.mcp.workers import Workers
from reprieve.version import VERSION

NAME = "reprieve"
_WORKERS = 8  # calls at once; the store lets one writer in at a time anyway


def make(start: str) -> Server[Any]:
    """A server for the folder `start`."""
    desk, workers = Desk(start), Workers(_WORKERS)
    tools = [_described(tool) for tool in TOOLS]

    async def list_tools(ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=tools)

    async def call_tool(
        ctx: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        return await answering.call_tool(desk, ctx, params, workers)

    async def list_resources(ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
        cursor = (params.cursor if params is not None else None) or ""
        found, following = await workers.run(lambda: resources.listed(desk, cursor))
        return types.ListResourcesResult(resources=found, next_cursor=following)

    async def list_templates(
        ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult(resource_templates=list(resources.TEMPLATES))

    async def read_resource(ctx: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        uri, owner = str(params.uri), answering.owner_of(ctx)
        text = await workers.run(lambda: resources.read(desk, uri, owner))
        found = types.TextResourceContents(uri=uri, text=text, mime_type="application/json")
        return types.ReadResourceResult(contents=[found])

    async def list_prompts(ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=teaching.prompts())

    async def get_prompt(ctx: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        return teaching.prompt(params.name, dict(params.arguments or {}))

    server: Server[Any] = Server(
        NAME,
        title="Reprieve",
        version=VERSION,
        description="Undo for AI agents: checkpoints, diffs, rollbacks, held mail, agent state",
        instructions=teaching.INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
        get_tool_input_schema=lambda name: BY_NAME[name].takes if name in BY_NAME else None,
    )
    # what a client hands back between two rounds of one call is sealed with a key of this process
    server.middleware.append(RequestStateBoundary(RequestStateSecurity.ephemeral(), default_audience=NAME))
    return server


def _described(tool: Tool) -> types.Tool:
    return types.Tool(
        name=tool.full_name,
        title=tool.title,
        description=tool.about,
        input_schema=tool.takes,
        output_schema=tool.gives,
        annotations=types.ToolAnnotations(
            title=tool.title,
            read_only_hint=tool.reads,
            destructive_hint=tool.destroys,
            idempotent_hint=tool.repeats,
            open_world_hint=tool.reaches,
        ),
    )


def serve_stdio(start: str) -> None:
    """Serve one client over standard input and output, until it closes them."""

    async def serve() -> None:
        server = make(start)
        with own_stdin() as lines, own_stdout() as outlet:
            try:
                await server.run(Requests(lines, outlet), Answers(outlet), server.create_initialization_options())
            finally:
                await outlet.finish()

    try:
        anyio.run(serve)
    except BaseExceptionGroup as several:
        # A signal that arrives while a task runs comes out with whatever that did to the others.
        raise _stop_in(several) or several from None


def _stop_in(several: BaseExceptionGroup[BaseException]) -> BaseException | None:
    """What asked the process to end, like Ctrl-C: no error of ours, and so no Exception."""
    for one in several.exceptions:
        found = _stop_in(one) if isinstance(one, BaseExceptionGroup) else one
        if found is not None and not isinstance(found, Exception):
            return found
    return None
