"""A test-only build of the server for `@modelcontextprotocol/conformance`: our door and our server, plus its fixtures.

The suite cannot send a token, so the token is put on each request before the door. With `fixtures` the tools, resources
and prompts that the suite calls by name are there too; they live here and never in the product.
"""

from __future__ import annotations

import base64
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import mcp_types as types
import uvicorn
from mcp.server.lowlevel.server import Server
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError

from reprieve.mcp.http import Door, Token
from reprieve.mcp.server import make

PNG = base64.b64encode(
    bytes.fromhex(
        "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360f8cfc0f01f0005000"
        "1ff89993d1d0000000049454e44ae426082"
    )
).decode()
WAV = base64.b64encode(
    b"RIFF$\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00@\x1f\x00\x00@\x1f\x00\x00\x01\x00\x08\x00data"
    b"\x00\x00\x00\x00"
).decode()
EMPTY: dict[str, Any] = {"type": "object", "properties": {}}
Handler = Callable[[Any, dict[str, Any]], Awaitable[Any]]


class WithToken:
    """Puts the token on requests, for a client that cannot."""

    def __init__(self, app: Any, token: str) -> None:
        self._app, self._header = app, (b"authorization", f"Bearer {token}".encode())

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            scope = {**scope, "headers": [*scope["headers"], self._header]}
        await self._app(scope, receive, send)


def text(value: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=value)])


def content(*blocks: Any) -> types.CallToolResult:
    return types.CallToolResult(content=list(blocks))


async def progress(ctx: Any, args: dict[str, Any]) -> types.CallToolResult:
    for done in (0, 50, 100):
        await ctx.session.report_progress(done, 100, f"{done} %")
        await anyio.sleep(0.05)
    return text("done")


async def logging(ctx: Any, args: dict[str, Any]) -> types.CallToolResult:
    for line in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        params = types.LoggingMessageNotificationParams(level="info", data=line)
        note = types.LoggingMessageNotification(params=params)
        await ctx.session.send_notification(note, related_request_id=ctx.request_id)
        await anyio.sleep(0.05)
    return text("logged")


async def sampling(ctx: Any, args: dict[str, Any]) -> types.CallToolResult:
    message = types.SamplingMessage(role="user", content=types.TextContent(text=str(args.get("prompt", ""))))
    params = types.CreateMessageRequestParams(messages=[message], max_tokens=100)
    from mcp.shared.message import ServerMessageMetadata

    found = await ctx.session.send_request(
        types.CreateMessageRequest(params=params), types.CreateMessageResult,
        metadata=ServerMessageMetadata(related_request_id=ctx.request_id),
    )  # fmt: skip
    return text(f"LLM response: {getattr(found.content, 'text', '')}")


def asking(properties: dict[str, Any], required: list[str], said: str) -> Handler:
    async def ask(ctx: Any, args: dict[str, Any]) -> types.CallToolResult:
        schema = {"type": "object", "properties": properties, "required": required}
        found = await ctx.session.elicit_form(
            str(args.get("message", "Please answer")), schema, related_request_id=ctx.request_id
        )
        return text(f"{said}: action={found.action}, content={found.content}")

    return ask


async def failing(ctx: Any, args: dict[str, Any]) -> types.CallToolResult:
    said = types.TextContent(text="This tool intentionally returns an error for testing")
    return types.CallToolResult(content=[said], is_error=True)


def still(*blocks: Any) -> Handler:
    async def answer(ctx: Any, args: dict[str, Any]) -> types.CallToolResult:
        return content(*blocks)

    return answer


def embedded(uri: str, said: str) -> types.EmbeddedResource:
    return types.EmbeddedResource(resource=types.TextResourceContents(uri=uri, text=said, mime_type="text/plain"))


async def reconnection(ctx: Any, args: dict[str, Any]) -> types.CallToolResult:
    if ctx.close_sse_stream is not None:
        await ctx.close_sse_stream()
    await anyio.sleep(0.1)
    return text("Reconnection test completed successfully")


CHOICES = ["option1", "option2", "option3"]
TITLED = [{"const": f"value{n}", "title": f"Option {n}"} for n in (1, 2, 3)]
IMAGE = types.ImageContent(data=PNG, mime_type="image/png")
TOOLS: dict[str, tuple[dict[str, Any], Handler]] = {
    "test_simple_text": (EMPTY, still(types.TextContent(text="This is a simple text response for testing."))),
    "test_image_content": (EMPTY, still(IMAGE)),
    "test_audio_content": (EMPTY, still(types.AudioContent(data=WAV, mime_type="audio/wav"))),
    "test_embedded_resource": (EMPTY, still(embedded("test://embedded-resource", "An embedded resource."))),
    "test_multiple_content_types": (
        EMPTY,
        still(
            types.TextContent(text="Multiple content types test:"),
            IMAGE,
            types.EmbeddedResource(
                resource=types.TextResourceContents(
                    uri="test://mixed-content-resource", mime_type="application/json", text='{"test":"data"}'
                )
            ),
        ),
    ),
    "test_tool_with_logging": (EMPTY, logging),
    "test_error_handling": (EMPTY, failing),
    "test_tool_with_progress": (EMPTY, progress),
    "test_sampling": ({"type": "object", "properties": {"prompt": {"type": "string"}}}, sampling),
    "test_elicitation": (
        {"type": "object", "properties": {"message": {"type": "string"}}},
        asking({"username": {"type": "string"}, "email": {"type": "string"}}, ["username", "email"], "User response"),
    ),
    "test_elicitation_sep1034_defaults": (
        EMPTY,
        asking(
            {
                "name": {"type": "string", "default": "John Doe"},
                "age": {"type": "integer", "default": 30},
                "score": {"type": "number", "default": 95.5},
                "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
                "verified": {"type": "boolean", "default": True},
            },
            [],
            "Elicitation completed",
        ),
    ),
    "test_elicitation_sep1330_enums": (
        EMPTY,
        asking(
            {
                "untitledSingle": {"type": "string", "enum": CHOICES},
                "titledSingle": {"type": "string", "oneOf": TITLED},
                "legacyEnum": {
                    "type": "string",
                    "enum": ["opt1", "opt2", "opt3"],
                    "enumNames": ["Option One", "Option Two", "Option Three"],
                },
                "untitledMulti": {"type": "array", "items": {"type": "string", "enum": CHOICES}},
                "titledMulti": {"type": "array", "items": {"anyOf": TITLED}},
            },
            [],
            "Elicitation completed",
        ),
    ),
    "test_reconnection": (EMPTY, reconnection),
    "json_schema_2020_12_tool": (
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "$defs": {
                "address": {
                    "type": "object",
                    "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
                }
            },
            "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
            "additionalProperties": False,
        },
        still(types.TextContent(text="ok")),
    ),
}
PROMPTS: dict[str, tuple[list[types.PromptArgument], Callable[[dict[str, str]], list[Any]]]] = {
    "test_simple_prompt": ([], lambda a: [types.TextContent(text="This is a simple prompt for testing.")]),
    "test_prompt_with_arguments": (
        [types.PromptArgument(name=n, description=n, required=True) for n in ("arg1", "arg2")],
        lambda a: [types.TextContent(text=f"Prompt with arguments: arg1='{a.get('arg1')}', arg2='{a.get('arg2')}'")],
    ),
    "test_prompt_with_embedded_resource": (
        [types.PromptArgument(name="resourceUri", description="The resource", required=True)],
        lambda a: [embedded(a["resourceUri"], "Embedded resource content for testing."), types.TextContent(text="Go.")],
    ),
    "test_prompt_with_image": ([], lambda a: [IMAGE, types.TextContent(text="Please analyze the image above.")]),
}


def add_fixtures(server: Server[Any]) -> None:
    """The suite's own tools, resources and prompts, beside ours."""

    def wrapped(method: str) -> Any:
        entry = server.get_request_handler(method)
        assert entry is not None
        return entry.handler

    ours = {m: wrapped(m) for m in ("tools/list", "tools/call", "resources/list", "resources/read",
                                    "resources/templates/list", "prompts/list", "prompts/get")}  # fmt: skip

    async def list_tools(ctx: Any, params: Any) -> Any:
        found = await ours["tools/list"](ctx, params)
        more = [types.Tool(name=n, description=n, input_schema=schema) for n, (schema, _) in TOOLS.items()]
        return types.ListToolsResult(tools=[*found.tools, *more])

    async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> Any:
        if params.name in TOOLS:
            return await TOOLS[params.name][1](ctx, params.arguments or {})
        return await ours["tools/call"](ctx, params)

    async def list_resources(ctx: Any, params: Any) -> Any:
        found = await ours["resources/list"](ctx, params)
        more = [
            types.Resource(uri="test://static-text", name="static text", mime_type="text/plain"),
            types.Resource(uri="test://static-binary", name="static binary", mime_type="image/png"),
            types.Resource(uri="test://watched-resource", name="watched", mime_type="text/plain"),
        ]
        return types.ListResourcesResult(resources=[*found.resources, *more], next_cursor=found.next_cursor)

    async def list_templates(ctx: Any, params: Any) -> Any:
        found = await ours["resources/templates/list"](ctx, params)
        more = types.ResourceTemplate(uri_template="test://template/{id}/data", name="t", mime_type="application/json")
        return types.ListResourceTemplatesResult(resource_templates=[*found.resource_templates, more])

    async def read(ctx: Any, params: types.ReadResourceRequestParams) -> Any:
        uri = str(params.uri)
        if uri == "test://static-binary":
            blob = types.BlobResourceContents(uri=uri, blob=PNG, mime_type="image/png")
            return types.ReadResourceResult(contents=[blob])
        if uri in ("test://static-text", "test://watched-resource"):
            said = "This is the content of the static text resource."
        elif uri.startswith("test://template/"):
            id = uri.removeprefix("test://template/").removesuffix("/data")
            said = f'{{"id":"{id}","templateTest":true,"data":"Data for ID: {id}"}}'
        else:
            return await ours["resources/read"](ctx, params)
        kind = "application/json" if said.startswith("{") else "text/plain"
        return types.ReadResourceResult(contents=[types.TextResourceContents(uri=uri, text=said, mime_type=kind)])

    async def nothing(ctx: Any, params: Any) -> types.EmptyResult:
        return types.EmptyResult()

    async def list_prompts(ctx: Any, params: Any) -> Any:
        found = await ours["prompts/list"](ctx, params)
        more = [types.Prompt(name=n, description=n, arguments=args) for n, (args, _) in PROMPTS.items()]
        return types.ListPromptsResult(prompts=[*found.prompts, *more])

    async def get_prompt(ctx: Any, params: types.GetPromptRequestParams) -> Any:
        if params.name not in PROMPTS:
            return await ours["prompts/get"](ctx, params)
        blocks = PROMPTS[params.name][1](dict(params.arguments or {}))
        return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=block) for block in blocks])

    async def complete(ctx: Any, params: types.CompleteRequestParams) -> types.CompleteResult:
        if params.argument is None:
            raise MCPError(code=types.INVALID_PARAMS, message="no argument")
        return types.CompleteResult(completion=types.Completion(values=[], total=0, has_more=False))

    for method, kind, handler in (
        ("tools/list", types.PaginatedRequestParams, list_tools),
        ("tools/call", types.CallToolRequestParams, call_tool),
        ("resources/list", types.PaginatedRequestParams, list_resources),
        ("resources/templates/list", types.PaginatedRequestParams, list_templates),
        ("resources/read", types.ReadResourceRequestParams, read),
        ("resources/subscribe", types.SubscribeRequestParams, nothing),
        ("resources/unsubscribe", types.UnsubscribeRequestParams, nothing),
        ("prompts/list", types.PaginatedRequestParams, list_prompts),
        ("prompts/get", types.GetPromptRequestParams, get_prompt),
        ("logging/setLevel", types.SetLevelRequestParams, nothing),
        ("completion/complete", types.CompleteRequestParams, complete),
    ):
        server.add_request_handler(method, kind, handler)


def main() -> None:
    """Serve this folder on a free port; its address is the first line of standard output."""
    import socket

    server = make(os.getcwd())
    if "fixtures" in sys.argv:
        add_fixtures(server)
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen(128)
    port = listening.getsockname()[1]
    token = Token(os.path.join(os.environ["REPRIEVE_HOME"], "mcp.token"))
    os.makedirs(os.environ["REPRIEVE_HOME"], mode=0o700, exist_ok=True)
    token.make()
    settings = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    inner = server.streamable_http_app(streamable_http_path="/mcp", transport_security=settings)
    app: Any = WithToken(Door(inner, token, port, say=print), token.read())
    print(f"http://127.0.0.1:{port}/mcp", flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False)).run(sockets=[listening])


if __name__ == "__main__":
    main()
