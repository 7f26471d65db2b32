"""What a client can read by address: the timeline, checkpoints, diffs and plans. They are the tools' own answers."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import unquote

import mcp_types as types
from mcp.shared.exceptions import MCPError

from reprieve.app import planned
from reprieve.app.render import plan_json
from reprieve.errors import BadRef, Misconfigured, ReprieveError
from reprieve.mcp import answering
from reprieve.mcp.catalog import BY_NAME
from reprieve.mcp.tool import DATA, Call, Desk, Json
from reprieve.model.reporter import Reporter
from reprieve.model.timeline import CHECKPOINT

_JSON = "application/json"
_PAGE = 50
_STATIC = (
    types.Resource(
        uri="reprieve://timeline", name="timeline", title="Timeline", mime_type=_JSON,
        description="The newest entries: checkpoints, effects, and what was taken back",
    ),
    types.Resource(
        uri="reprieve://diff/latest", name="diff", title="Changes since the latest checkpoint", mime_type=_JSON,
        description="What differs between the latest checkpoint and now, as changes and as a patch",
    ),
)  # fmt: skip
TEMPLATES = (
    types.ResourceTemplate(
        uri_template="reprieve://checkpoint/{ref}", name="checkpoint", title="A checkpoint", mime_type=_JSON,
        description="One entry of the timeline with what it changed",
    ),
    types.ResourceTemplate(
        uri_template="reprieve://diff/{ref}", name="diff-since", title="Changes since a checkpoint", mime_type=_JSON,
        description="What differs between a checkpoint and now",
    ),
    types.ResourceTemplate(
        uri_template="reprieve://diff/{from}/{to}", name="diff-between", title="Changes between checkpoints",
        mime_type=_JSON, description="What differs between two checkpoints",
    ),
    types.ResourceTemplate(
        uri_template="reprieve://plan/{id}", name="plan", title="A plan", mime_type=_JSON,
        description="What a plan of this session would do now; its id changes when that changes",
    ),
)  # fmt: skip


def listed(desk: Desk, cursor: str) -> tuple[list[types.Resource], str | None]:
    """The fixed ones and the newest checkpoints, a page at a time."""
    if cursor and not (cursor.isdecimal() and len(cursor) < 12):
        raise MCPError(code=types.INVALID_PARAMS, message="'cursor' is none that this server gave")
    start = int(cursor or 0)
    found: list[types.Resource] = [] if start else list(_STATIC)
    try:
        with desk.workspace(Reporter()) as ws:
            entries = list(ws.log(limit=start + _PAGE + 1, kinds=(CHECKPOINT,)))[start:]
    except Misconfigured:
        entries = []  # nothing is protected yet
    for entry in entries[:_PAGE]:
        label = answering.clean(entry.title)
        found.append(
            types.Resource(
                uri=f"reprieve://checkpoint/{entry.id}",
                name=f"checkpoint {entry.id}",
                title=f"Checkpoint {entry.id}",
                description=f"Its label, as data: {label!a}" if label else "A checkpoint without a label",
                mime_type=_JSON,
            )
        )
    return found, str(start + _PAGE) if len(entries) > _PAGE else None


def read(desk: Desk, uri: str, owner: str) -> str:
    """The text behind an address. Raises MCPError where there is nothing."""
    kind, _, rest = uri.removeprefix("reprieve://").partition("/")
    words = [unquote(word) for word in rest.split("/")] if rest else []
    readers: dict[tuple[str, int], Callable[[], Json]] = {
        ("timeline", 0): lambda: _tool("log", desk, {}),
        ("checkpoint", 1): lambda: _tool("show", desk, {"ref": words[0]}),
        ("diff", 1): lambda: _tool("diff", desk, {"from": words[0]}),
        ("diff", 2): lambda: _tool("diff", desk, {"from": words[0], "to": words[1]}),
        ("plan", 1): lambda: _plan(desk, words[0], owner),
    }
    reader = readers.get((kind, len(words))) if uri.startswith("reprieve://") else None
    try:
        if reader is None:
            raise BadRef("there is no such resource")
        return answering.text_of(answering.clean({**reader(), "notice": DATA}))
    except BadRef as error:
        raise MCPError(code=types.INVALID_PARAMS, message=error.message, data={"uri": uri}) from error
    except ReprieveError as error:
        data = {"uri": uri, "code": error.code, "hints": list(error.hints)}
        raise MCPError(code=types.INTERNAL_ERROR, message=error.message, data=data) from error


def _tool(name: str, desk: Desk, args: Json) -> Json:
    return answering.run(BY_NAME[f"reprieve_{name}"], Call(desk, args, Reporter()))


def _plan(desk: Desk, id: str, owner: str) -> Json:
    kind, asked = desk.recall(owner, id)
    with desk.workspace(Reporter()) as ws:
        return {"plan": plan_json(planned.make(ws, kind, asked))}
