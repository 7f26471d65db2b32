"""Tools about what happens outside of the folder: note it with its reversal, list it, plan to undo it."""

from __future__ import annotations

import os

from reprieve.app import effects, planned
from reprieve.errors import Usage
from reprieve.mcp import schemas as s
from reprieve.mcp.tool import Call, Json, Tool, page
from reprieve.mcp.tools_files import _PLANNED, plan


def _record_http(call: Call) -> Json:
    undo = call.args.get("undo")
    with call.workspace(create=True) as ws:
        effect = effects.record_http(
            ws,
            method=call.text("method"),
            url=call.text("url"),
            undo=undo,
            response=call.args.get("response"),
            description=call.text("description"),
            resource=call.text("resource"),
            depends=call.texts("depends"),
            is_agents_word=True,
        )
        return {"effect": effects.json_of(effect)}


def _record_reversal(call: Call) -> Json:
    with call.workspace(create=True) as ws:
        (folder,) = planned.inner_paths(ws, [call.text("cwd") or "."])
        cwd = os.path.join(os.fsdecode(ws.root), os.fsdecode(folder)) if folder else os.fsdecode(ws.root)
        if os.fsencode(os.path.realpath(cwd)) != os.path.normpath(os.path.join(os.path.realpath(ws.root), folder)):
            raise Usage(f"'{call.text('cwd')}' leads through a link")
        effect = effects.record_command(
            ws,
            call.texts("argv"),
            description=call.text("description"),
            cwd=cwd,
            env=call.texts("env"),
            resource=call.text("resource"),
            depends=call.texts("depends"),
            is_idempotent=call.flag("idempotent"),
            is_agents_word=True,
        )
        return {"effect": effects.json_of(effect)}


def _effects(call: Call) -> Json:
    with call.workspace() as ws:
        found, cursor = page(effects.effects_since(ws, call.maybe("since"), is_open=call.flag("pending")), call)
        return {"effects": [effects.json_of(effect) for effect in found], "next_cursor": cursor}


def _compensate(call: Call) -> Json:
    return plan(call, "compensate", {"ref": call.args["ref"]} if call.maybe("ref") else {})


_TELLING = {
    "description": s.text("What was done, for people", most=s.TEXT),
    "resource": s.text("What it changed; effects on one thing are undone in order", most=s.TEXT),
    "depends": s.texts("What it needs; that is not undone before this one is", most=50),
}
_RECORDED = s.gives("effect", effect=s.EFFECT)

TOOLS = (
    Tool(
        "record_http", "Note an HTTP call with its reversal",
        "Note an HTTP call that you made and that changed something, with the request that reverses it. Call it right "
        "after the call. Credentials only by reference (`env:NAME`, `keyring:SERVICE/USER`), never as they are. "
        "`{response.NAME}` in the undo is filled in from `response`. Nothing is sent now.",
        _record_http,
        s.takes(
            ("method", "url"),
            method=s.text("Method of the call", most=20, least=1),
            url=s.text("Where it went", most=8_000, least=1),
            response={"description": "What it answered, as JSON", "type": ["object", "array", "null"]},
            undo=s.takes(
                ("method", "url"),
                method=s.text("Method that reverses it", most=20, least=1),
                url=s.text("Where that goes, the same host", most=8_000, least=1),
                headers={"type": "object", "additionalProperties": s.text("", most=s.TEXT),
                         "description": "Header values, credentials by reference"},
                json={"description": "Its body as JSON", "type": ["object", "array", "null"]},
                form={"type": "object", "additionalProperties": s.text("", most=s.TEXT),
                      "description": "Its body as a form"},
                text=s.text("Its body as text", most=100_000),
                is_idempotent=s.flag("It may be sent again when nobody knows whether it arrived"),
                is_gone_done=s.flag("404 or 410 to it means that it is gone; only if you saw it at that very URL"),
            ),
            **_TELLING,
        ),
        _RECORDED, has_foreign_text=True,
    ),
    Tool(
        "record_reversal", "Note the command that reverses something",
        "Note something that you did outside of the folder, with the command that reverses it: a program and its "
        "arguments, never a shell line. Nothing is run now; a person sees it whole before it ever runs.",
        _record_reversal,
        s.takes(
            ("description", "argv"),
            argv=s.texts("The program and its arguments", least=1, most=200, longest=8_000),
            cwd=s.text("The folder to run it in, relative to the root", most=4_000),
            env=s.texts("Names of variables that it needs", most=50),
            idempotent=s.flag("It may be run again when nobody knows whether it worked"),
            **_TELLING,
        ),
        _RECORDED, has_foreign_text=True,
    ),
    Tool(
        "effects", "List effects",
        "What was done outside of the folder, newest first, with class, inverse and state.",
        _effects,
        s.takes(since=s.REF, pending=s.flag("Only those that are neither undone nor kept"), **s.PAGE),
        s.gives("effects", effects=s.listed(s.EFFECT), next_cursor=s.CURSOR_OUT),
        reads=True, repeats=True, has_foreign_text=True,
    ),
    Tool(
        "compensate", "Plan to undo effects alone",
        "Plan to run the inverses of the effects since a checkpoint (default: the latest), and leave files alone. "
        "Nothing is sent yet: it answers with a plan; reprieve_apply_plan carries it out after a person's yes.",
        _compensate, s.takes(ref=s.REF, **s.PAGE), _PLANNED, reads=True, repeats=True, has_foreign_text=True,
    ),
)  # fmt: skip
