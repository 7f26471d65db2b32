"""Run one tool for a client: check what it sent, work in a thread, ask a person where that is needed, answer.

    arguments ─▶ check ─▶ worker thread: the use case ─▶ structured content
                              │ Refused, with an approval that waits
                              ▼
                  the client has a form for its person?  ── no ──▶ error: `reprieve approve ID` in a terminal
                              │ yes: the question, whole
                              ▼
                  yes: write it down, run the tool again      no, or anything else: error

The same loop serves both eras of the protocol: before 2026-07-28 the question is a request of the server in the middle
of the call; since then it is the answer to the call, which the client makes again with what the person said.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
import traceback
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import Any

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types.version import is_version_at_least

from reprieve.app import agreement
from reprieve.app.render import error_json
from reprieve.errors import Refused, ReprieveError, Usage
from reprieve.mcp import schemas
from reprieve.mcp.catalog import BY_NAME
from reprieve.mcp.tool import DATA, Call, Desk, Json, Tool
from reprieve.mcp.workers import Workers
from reprieve.model.reporter import Reporter

Context = ServerRequestContext[Any, Any]
Send = Callable[[float, float | None, str], Coroutine[Any, Any, None]]

ASKS_BY_ANSWER = "2026-07-28"  # since this revision a question to the person is an answer to the call
_QUESTIONS = 3  # of one call: the plan, an inverse that an agent wrote, and no more
_LARGEST = 1 << 20  # characters of an answer
_INTERVAL_S = 0.1
_FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "approve": {
            "type": "boolean",
            "title": "Do exactly this, once",
            "description": "Choose yes only if you want what is written above",
            "default": False,
        }
    },
    "required": ["approve"],
}


class Wire(Reporter):
    """Progress to the client while it waits; notes and warnings into the answer."""

    def __init__(self, send: Send | None, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._send, self._loop = send, loop
        self._last = time.monotonic()  # what takes less than the interval has no progress to tell of
        self._telling: Future[None] | None = None  # the last progress; a client that is behind gets no second one
        self.notes: list[str] = []

    def progress(self, stage: str, *, done: int, total: int = 0, unit: str = "files", extra: int = 0) -> None:
        if self._send is None or self._loop is None:
            return
        now = time.monotonic()
        if now - self._last < _INTERVAL_S or (self._telling is not None and not self._telling.done()):
            return  # never waits: the work holds locks, and the client may read nothing any more
        self._last = now
        telling = self._send(float(done), float(total) if total else None, f"{stage}: {unit}")
        try:
            if self._telling is not None:
                self._telling.result()
            self._telling = asyncio.run_coroutine_threadsafe(telling, self._loop)
        except (MCPError, anyio.BrokenResourceError, anyio.ClosedResourceError, RuntimeError, CancelledError):
            telling.close()
            self._send = None  # nobody listens any more; the work goes on

    def note(self, text: str) -> None:
        self.notes.append(text)

    def warn(self, text: str) -> None:
        self.notes.append(text)


async def call_tool(
    desk: Desk, ctx: Context, params: types.CallToolRequestParams, workers: Workers
) -> types.CallToolResult | types.InputRequiredResult:
    """Answer one call."""
    tool = BY_NAME.get(params.name)
    if tool is None:
        raise MCPError(code=types.INVALID_PARAMS, message=f"there is no tool '{params.name[:100]}'")

    wire = Wire(ctx.session.report_progress, asyncio.get_running_loop())
    call, work = Call(desk, params.arguments or {}, wire, owner_of(ctx)), workers.run
    try:
        if params.request_state:
            await work(partial(_take_answer, call, params))
        for _ in range(_QUESTIONS):
            try:
                return result(tool, await work(partial(run, tool, call)), call)
            except Refused as refused:
                asked = str(refused.data.get("approval", ""))
                if not asked or not can_ask(ctx):
                    raise
                question = await work(partial(_question, call, asked))
                if is_version_at_least(ctx.protocol_version, ASKS_BY_ANSWER):
                    return types.InputRequiredResult(
                        input_requests={"approve": types.ElicitRequest(params=_form(question))},
                        request_state=json.dumps({"approval": asked}),
                    )
                said = await ctx.session.elicit_form(question, _FORM, related_request_id=ctx.request_id)
                await work(partial(_decide, call, asked, said))
        raise Refused("the same thing was asked too often; nothing was touched")
    except ReprieveError as error:
        return failure(tool, error, call)
    except MCPError:
        raise
    except Exception as error:  # noqa: BLE001 - a bug in one call must not end the server for every client
        traceback.print_exc(file=sys.stderr)
        return failure(tool, ReprieveError(f"this is a bug in Reprieve: {type(error).__name__}"), call)


def run(tool: Tool, call: Call) -> Json:
    """Check the arguments and do it, in this thread."""
    schemas.check(tool.takes, dict(call.args))
    return tool.run(call)


def owner_of(ctx: Context) -> str:
    """The session that plans and their approvals belong to; "" where the transport has one client or no sessions."""
    headers = getattr(ctx.request, "headers", None)
    return str(headers.get("mcp-session-id", "")) if headers is not None else ""


def can_ask(ctx: Context) -> bool:
    """Whether the client can put a form before its person. Before there were modes, the bare word meant forms."""
    capabilities = ctx.session.client_capabilities
    elicitation = capabilities.elicitation if capabilities is not None else None
    return elicitation is not None and (elicitation.form is not None or elicitation.url is None)


def _form(question: str) -> types.ElicitRequestFormParams:
    return types.ElicitRequestFormParams(message=question, requested_schema=_FORM)


def _question(call: Call, asked: str) -> str:
    with call.workspace() as ws:
        waiting = agreement.waiting(ws, asked)
        return f"An agent asks for this in {ws.root.decode('utf-8', 'replace')} [{waiting.cls}]: {waiting.action}"


def _take_answer(call: Call, params: types.CallToolRequestParams) -> None:
    """What the person said to the question of the round before. The state is sealed: the client cannot have made it."""
    asked = str(json.loads(params.request_state or "{}").get("approval", ""))
    said = (params.input_responses or {}).get("approve")
    _decide(call, asked, said if isinstance(said, types.ElicitResult) else None)


def _decide(call: Call, asked: str, said: types.ElicitResult | None) -> None:
    """Only an accepted form with its box ticked is a yes."""
    is_yes = said is not None and said.action == "accept" and (said.content or {}).get("approve") is True
    with call.workspace() as ws:
        agreement.decide(ws, asked, is_approved=is_yes)
    if not is_yes:
        raise Refused("the person did not agree; nothing was touched", data={"denied": asked})


def result(tool: Tool, fields: Json, call: Call) -> types.CallToolResult:
    """A good answer: as structured content, and as text for clients that read only that."""
    shown: Json = {"ok": True, "command": tool.name, **fields}
    notes = [*getattr(call.reporter, "notes", ()), *call.notes]
    if notes:
        shown["notes"] = notes
    if tool.has_foreign_text:
        shown["notice"] = DATA
    told, size = _answer(shown, is_error=False)
    if size > _LARGEST and not tool.destroys:
        raise Usage(f"the answer has {size:,} characters", hints=["ask for less: limit, cursor, paths"])
    for most in (1000, 100, 10):
        if size <= _LARGEST:
            break
        notes = [*notes, f"Lists in this answer were cut to {most} items; reprieve_show has all."]
        told, size = _answer({**_shortened(shown, most), "notes": notes}, is_error=False)
    return told


def failure(tool: Tool, error: ReprieveError, call: Call) -> types.CallToolResult:
    """An error as an error: the code and what to do next."""
    shown: Json = {"ok": False, "command": tool.name, "error": dict(error_json(error))}
    if notes := [*getattr(call.reporter, "notes", ()), *call.notes]:
        shown["notes"] = notes
    told, size = _answer(shown, is_error=True)
    return told if size <= _LARGEST else _answer(_shortened(shown, 10), is_error=True)[0]


def _answer(shown: Json, *, is_error: bool) -> tuple[types.CallToolResult, int]:
    """The answer, and how many characters of text it has."""
    told = clean(shown)
    text = text_of(told)
    made = types.CallToolResult(content=[types.TextContent(text=text)], structured_content=told, is_error=is_error)
    return made, len(text)


def text_of(shown: Json) -> str:
    """An answer as text."""
    # ASCII only, and no angle brackets: nothing in it moves a cursor or becomes a tag wherever it is shown
    return json.dumps(shown, ensure_ascii=True).replace("<", "\\u003c").replace(">", "\\u003e")


def clean(value: Any) -> Any:
    """The same without lone surrogates, which no JSON writer of the SDK can write: a byte becomes \\udcXX as text."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {clean(key): clean(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean(item) for item in value]
    return value


def _shortened(value: Any, most: int) -> Any:
    if isinstance(value, dict):
        return {key: _shortened(item, most) for key, item in value.items()}
    if isinstance(value, list):
        return [_shortened(item, most) for item in value[:most]]
    return value
