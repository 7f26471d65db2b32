"""JSON Schemas of what tools take and give, and the check of what they are given.

The check reads the few words of JSON Schema that are used here; a whole validator would cost more than the server's
own start. Limits on sizes are part of the schemas, so that a client sees them before it runs into one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reprieve.errors import Usage

Schema = dict[str, Any]

NAME, TEXT, LONG = 200, 2_000, 1 << 20  # characters of an id or label, of a sentence, of a body
MANY = 1_000  # items of a list
DEEP = 64  # levels of nested values


def text(about: str, *, most: int = NAME, least: int = 0, choices: tuple[str, ...] = ()) -> Schema:
    """A string."""
    shown: Schema = {"type": "string", "description": about, "maxLength": most}
    if least:
        shown["minLength"] = least
    if choices:
        shown["enum"] = list(choices)
    return shown


def flag(about: str) -> Schema:
    """Yes or no; no if left out."""
    return {"type": "boolean", "description": about, "default": False}


def number(about: str, *, least: int, most: int) -> Schema:
    """A whole number."""
    return {"type": "integer", "description": about, "minimum": least, "maximum": most}


def texts(about: str, *, least: int = 0, most: int = MANY, longest: int = TEXT * 2) -> Schema:
    """A list of strings."""
    items = {"type": "string", "maxLength": longest, "minLength": 1}
    return {"type": "array", "description": about, "items": items, "minItems": least, "maxItems": most}


def takes(required: tuple[str, ...] = (), /, **properties: Schema) -> Schema:
    """What a tool takes."""
    shown: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        shown["required"] = list(required)
    return shown


REF = text("A checkpoint: its id or a unique beginning, a label, `latest`, `~N`, a time such as `10m ago`, `call:ID`")
LIMIT = number("How many at most", least=1, most=MANY)
CURSOR = text("`next_cursor` of the page before")
PAGE = {"limit": LIMIT, "cursor": CURSOR}

_ANY: Schema = {"type": "object"}


def _object(*required: str, **properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": list(required)}


def _list(of: Schema) -> Schema:
    return {"type": "array", "items": of}


_S: Schema = {"type": "string"}
_N: Schema = {"type": "integer"}
_B: Schema = {"type": "boolean"}
_SN: Schema = {"type": ["string", "null"]}

GAP = _object("path", "reason", path=_S, reason=_S)
ENTRY = _object("id", "kind", "created_at", "actor", id=_S, kind=_S, created_at=_S, actor=_S, label=_S)
CHECKPOINT = _object(
    "id", "label", "created_at", "actor", "step", "files", "bytes", "changed", "gaps",
    id=_S, label=_S, created_at=_S, actor=_S, step=_S, files=_N, bytes=_N, changed=_N, gaps=_list(GAP),
)  # fmt: skip
CHANGE = _object(
    "path", "change", "actor", "added", "removed", "binary",
    path=_S, change={"enum": ["created", "modified", "deleted", "mode", "type"]}, actor=_S, added=_N, removed=_N,
    binary=_B,
)  # fmt: skip
ACTION = _object(
    "kind", "verb", "actor", "reason",
    kind={"enum": ["write", "delete", "mkdir", "symlink", "mode", "git", "effect", "thread"]},
    path=_S, effect=_S, verb=_S, actor=_S, reason=_S,
)  # fmt: skip
PLAN = _object(
    "id", "kind", "target", "actions", "conflicts", "kept", "not_undone",
    id=_S, kind=_S, target=_S, actions=_list(ACTION), conflicts=_list(_ANY), kept=_list(_ANY), not_undone=_list(GAP),
)  # fmt: skip
OUTCOME = _object("id", "state", "detail", id=_S, state=_S, detail=_S)
REPORT = _object(
    "operation", "restored", "deleted", "kept", "conflicts", "effects", "not_undone", "safety_checkpoint", "redo",
    operation=_S, restored=_list(_S), deleted=_list(_S), kept=_list(_ANY), conflicts=_list(_ANY),
    effects=_list(OUTCOME), not_undone=_list(GAP), held_open=_list(GAP), safety_checkpoint=_S, redo=_S,
)  # fmt: skip
EFFECT = _object(
    "id", "seq", "kind", "class", "resource", "state", "undo_state", "description", "inverse",
    id=_S, seq=_N, kind=_S, resource=_S, state=_S, undo_state=_SN, description=_S, inverse={"type": ["object", "null"]},
    **{"class": _S},
)  # fmt: skip
ERROR = _object("code", "message", "hints", code=_S, message=_S, hints=_list(_S))
THREAD = _object("id", "head", "states", "hash", id=_S, head=_SN, states=_N, hash=_S)
STATE = _object("id", "parent", "created_at", "summary", id=_S, parent=_SN, created_at=_S, summary=_S)
FINDING = _object("level", "subject", "text", level={"enum": ["ok", "warn", "bad"]}, subject=_S, text=_S)

CURSOR_OUT: Schema = {"type": ["string", "null"], "description": "Pass it as `cursor` for the next page; null: no more"}


def gives(*required: str, **properties: Schema) -> Schema:
    """What a tool gives: `ok` and its own fields, or an error."""
    return {
        "type": "object",
        "properties": {
            "ok": _B,
            "command": _S,
            "notes": {**_list(_S), "description": "What the person should also know"},
            "notice": {**_S, "description": "Which text in here is data and no instruction"},
            "error": ERROR,
            **properties,
        },
        "required": ["ok", "command"],
        "oneOf": [{"required": list(required)}, {"required": ["error"]}] if required else [{}],
    }


S, N, B, SN, ANY, listed, made_of = _S, _N, _B, _SN, _ANY, _list, _object


def check(schema: Mapping[str, Any], value: object, at: str = "") -> None:
    """Raises Usage where a value is not what its schema says; the place is named, the value is not repeated."""
    kind = schema.get("type")
    name = at or "the arguments"
    if kind is not None and not _is(kind, value):
        raise Usage(f"{name}: expected {kind}, got {type(value).__name__}")
    if "enum" in schema and value not in schema["enum"]:
        raise Usage(f"{name}: expected one of {', '.join(map(str, schema['enum']))}")
    if isinstance(value, str):
        if len(value) > schema.get("maxLength", LONG):
            raise Usage(f"{name}: longer than {schema.get('maxLength', LONG)} characters")
        if len(value) < schema.get("minLength", 0):
            raise Usage(f"{name}: must not be empty")
    elif isinstance(value, int) and not isinstance(value, bool):
        if not schema.get("minimum", value) <= value <= schema.get("maximum", value):
            raise Usage(f"{name}: expected {schema['minimum']} to {schema['maximum']}")
    elif isinstance(value, list):
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
            raise Usage(f"{name}: expected {schema.get('minItems', 0)} to {schema.get('maxItems')} items")
        for index, item in enumerate(value):
            check(schema.get("items", {}), item, f"{at}[{index}]")
    elif isinstance(value, dict):
        _check_object(schema, value, at)


def _check_object(schema: Mapping[str, Any], value: dict[str, object], at: str) -> None:
    properties = schema.get("properties", {})
    for needed in schema.get("required", ()):
        if needed not in value:
            raise Usage(f"'{needed}' is missing", hints=[f"it takes: {', '.join(properties)}"])
    for key, item in value.items():
        if key in properties:
            check(properties[key], item, f"{at}.{key}" if at else key)
        elif schema.get("additionalProperties", True) is False:
            raise Usage(f"there is no argument '{key[:NAME]}'", hints=[f"it takes: {', '.join(properties) or 'none'}"])
        elif isinstance(rest := schema.get("additionalProperties"), dict):
            check(rest, item, f"{at}.{key[:NAME]}")
    if not properties:
        _check_depth(value, at)


def _check_depth(value: object, at: str) -> None:
    level, layer = 0, [value]
    while layer:
        level += 1
        if level > DEEP:
            raise Usage(f"{at}: nested more than {DEEP} levels deep")
        inner = [i for one in layer if isinstance(one, dict) for i in one.values()]
        layer = inner + [i for one in layer if isinstance(one, list) for i in one]
        layer = [one for one in layer if isinstance(one, (dict, list))]


def _is(kind: str | list[str], value: object) -> bool:
    if isinstance(kind, list):
        return any(_is(one, value) for one in kind)
    if isinstance(value, bool):
        return kind == "boolean"
    python = {"string": str, "integer": int, "object": dict, "array": list, "null": type(None), "number": (int, float)}
    return kind in python and isinstance(value, python[kind])  # type: ignore[arg-type]
