"""Check a catalog document and turn it into rules.

A mistake is named with its exact place: `git.yaml: commands[3].class: …`.
"""

from __future__ import annotations

import re

from reprieve.effects import account_files
from reprieve.errors import Misconfigured
from reprieve.model.value import Value
from reprieve.policy.catalog.model import (
    BOTH,
    Account,
    AccountFile,
    Capture,
    CommandRule,
    HttpInverse,
    HttpRule,
    Program,
    Step,
    ToolRule,
)
from reprieve.policy.classes import CLASSES, IRREVERSIBLE, READ, worst

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


NO_LOOK = "its rule has no look (a capture with `when: both`), so it is not undone"


class Rules(Value):
    """The rules of one file."""

    programs: tuple[Program, ...]
    commands: tuple[CommandRule, ...]
    requests: tuple[HttpRule, ...]
    tools: tuple[ToolRule, ...] = ()


# -- the schema: a field's name, then what it holds. `!` marks the ones that have to be there.
_TEXT, _FLAG, _TEXTS, _WORDS = "text", "yes or no", "list of texts", "words"
_PROGRAM = {
    "also": _TEXTS, "flags": _TEXTS, "values": _TEXTS, "carry": _TEXTS, "carry_flags": _TEXTS, "single_dash": _FLAG,
    "reads": "reads", "account": "account",
}  # fmt: skip
_ACCOUNT = {
    "none": _TEXT, "variables": _TEXTS, "secrets": _TEXTS, "never": _TEXTS, "files": "account files",
    "switches": _TEXTS,
}  # fmt: skip
_ACCOUNT_FILE = {"path!": _TEXT, "take": "account take", "by": _TEXTS}
_READ = {
    "sub!": _TEXT, "args": _TEXTS, "no_flags": _TEXTS, "flags": _TEXTS, "allow": _TEXTS, "values": _TEXTS,
    "where": "patterns",
}  # fmt: skip
_COMMAND = {
    "id!": _TEXT, "command!": _TEXT, "class!": "class", "note": _TEXT, "files": _FLAG, "flags": _TEXTS,
    "no_flags": _TEXTS,
    "allow": _TEXTS, "values": _TEXTS, "args": _TEXTS, "where": "patterns", "capture": "captures", "inverse": "steps",
    "settle": "time", "ambiguous": _FLAG, "idempotent": _FLAG, "window": "time", "tested": _FLAG,
}  # fmt: skip
_CAPTURE = {
    "run!": _WORDS,
    "when": "moment",
    "take": "take",
    "find": "pattern",
    "json": "path",
    "drop": "pattern",
    "optional": _FLAG,
    "absent": "pattern",
    "must": "pattern",
}
_STEP = {"run!": _WORDS, "stdin": _TEXT, "when": "claims"}
_REQUEST = {
    "id!": _TEXT, "host!": _TEXTS, "method!": _TEXTS, "path!": "pattern", "class!": "class", "note": _TEXT,
    "request": "paths", "response": "paths", "before": _TEXT, "inverse": "request", "verify": _TEXT, "gone": "numbers",
    "idempotency": _TEXT, "idempotency_window": "time", "window": "time", "redact": _TEXTS, "tested": _FLAG,
}  # fmt: skip
_INVERSE = {"method!": _TEXT, "path!": _TEXT, "query": "texts", "form": "values", "json": "values"}
_TOOL = {
    "id!": _TEXT, "server!": _TEXTS, "tool!": _TEXTS, "class!": "class", "note": _TEXT, "files": _TEXTS,
    "sql": _TEXT, "inverse": "call", "env": _TEXTS, "tested": _FLAG,
}  # fmt: skip
_CALL = {"tool!": _TEXT, "arguments!": "anything", "idempotent": _FLAG}
_TOP = {
    "provider!": _TEXT, "about": _TEXT, "programs": "programs", "commands": "commands", "requests": "requests",
    "tools": "tools",
}  # fmt: skip


def check(document: object, source: str) -> Mapping[str, Any]:
    """The document, if it follows the schema; else `Misconfigured` with the first mistake."""
    checked = _fields(document, _TOP, _Place(source))
    ids: set[str] = set()
    for kind in ("commands", "requests", "tools"):
        for number, rule in enumerate(checked.get(kind, ())):
            if rule["id"] in ids:
                raise _Place(source).at(f"{kind}[{number}].id").wrong(f"{rule['id']!r} is there twice")
            ids.add(rule["id"])
    return checked


class _Place:
    def __init__(self, source: str, path: str = "") -> None:
        self.source, self.path = source, path

    def at(self, name: str | int) -> _Place:
        part = f"[{name}]" if isinstance(name, int) else f".{name}" if self.path else name
        return _Place(self.source, self.path + part)

    def wrong(self, what: str) -> Misconfigured:
        return Misconfigured(f"{self.source}: {self.path or 'the file'}: {what}")


def _fields(value: object, schema: Mapping[str, str], place: _Place) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise place.wrong("must be a mapping")
    known = {name.rstrip("!"): kind for name, kind in schema.items()}
    for name in value:
        if name not in known:
            raise place.at(str(name)).wrong(f"is not a field; known are {', '.join(known)}")
    for name in schema:
        if name.endswith("!") and name[:-1] not in value:
            raise place.wrong(f"{name[:-1]} is missing")
    for name, inner in value.items():
        _value(inner, known[name], place.at(name))
    return value


def _value(value: object, kind: str, place: _Place) -> None:
    if kind in ("text", "time", "path", "pattern"):
        if not isinstance(value, str):
            raise place.wrong("must be a text")
        if kind == "time" and not re.fullmatch(r"\d+[smhd]", value):
            raise place.wrong(f"{value!r} is not a time like 90s, 10m, 24h or 30d")
        if kind == "path" and not value.startswith("$"):
            raise place.wrong(f"{value!r} does not begin with $")
        if kind == "pattern":
            _pattern(value, place)
    elif kind == _FLAG:
        if not isinstance(value, bool):
            raise place.wrong("must be true or false")
    elif kind in (_TEXTS, _WORDS):
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise place.wrong("must be a list of texts; numbers and yes/no need quotes")
        if kind == _WORDS and (not value or "{" in value[0] or not value[0]):
            raise place.wrong("must begin with the name of a program")
    elif kind in ("class", "moment", "take", "account take"):
        allowed = {
            "class": CLASSES, "moment": ("before", "after", "both"), "take": ("text", "raw", "word", "lines"),
            "account take": tuple(account_files.TAKES),
        }[kind]  # fmt: skip
        if value not in allowed:
            raise place.wrong(f"{value!r} is not one of {', '.join(allowed)}")
    elif kind in ("patterns", "paths", "texts", "claims", "values"):
        _mapping(value, kind, place)
    elif kind == "numbers":
        if not isinstance(value, list) or not all(isinstance(one, int) for one in value):
            raise place.wrong("must be a list of numbers")
    else:
        _nested(value, kind, place)


def _pattern(value: str, place: _Place) -> None:
    try:
        re.compile(value)
    except re.error as wrong:
        raise place.wrong(f"{value!r} is not a pattern: {wrong}") from wrong


def _mapping(value: object, kind: str, place: _Place) -> None:
    if not isinstance(value, dict):
        raise place.wrong("must be a mapping")
    for name, inner in value.items():
        if kind == "values":
            if not isinstance(inner, str | int | bool):
                raise place.at(str(name)).wrong("must be a text, a number or true or false")
        elif kind == "claims":
            words = ("present", "absent", "changed")
            if inner not in words and not (isinstance(inner, str) and inner[:1] in ("=", "!")):
                raise place.at(str(name)).wrong(f"{inner!r} is not present, absent, changed, =TEXT or !TEXT")
        else:
            _value(inner, {"patterns": "pattern", "paths": "path", "texts": "text"}[kind], place.at(str(name)))


def _nested(value: object, kind: str, place: _Place) -> None:
    if kind in ("request", "call"):
        _fields(value, _INVERSE if kind == "request" else _CALL, place)
        return
    if kind == "account":
        given = _fields(value, _ACCOUNT, place)
        if ("none" in given) == (len(given) > 1) or not given:
            raise place.wrong("needs variables, secrets or files, or else none with the reason")
        return
    if kind == "anything":
        if not isinstance(value, dict):
            raise place.wrong("must be a mapping")
        return
    if kind in ("programs", "captures"):
        if not isinstance(value, dict):
            raise place.wrong("must be a mapping")
        for name, inner in value.items():
            _fields(inner, _PROGRAM if kind == "programs" else _CAPTURE, place.at(str(name)))
        return
    if not isinstance(value, list):
        raise place.wrong("must be a list")
    for number, inner in enumerate(value):
        if kind == "reads" and isinstance(inner, str):
            continue
        if kind == "steps" and isinstance(inner, list):
            _value(inner, _WORDS, place.at(number))
            continue
        schema = {
            "reads": _READ, "steps": _STEP, "commands": _COMMAND, "requests": _REQUEST, "tools": _TOOL,
            "account files": _ACCOUNT_FILE,
        }[kind]  # fmt: skip
        _fields(inner, schema, place.at(number))


# -- from a checked document to values


def rules_of(name: str, document: Mapping[str, Any]) -> Rules:
    """The rules in a document that was checked."""
    provider = document["provider"]
    programs, reads = [], []
    for program, given in document.get("programs", {}).items():
        programs.append(
            Program(
                program, _texts(given, "also"), _texts(given, "flags"), _texts(given, "values"), _texts(given, "carry"),
                _texts(given, "carry_flags"), bool(given.get("single_dash")), _account(given.get("account")),
            )
        )  # fmt: skip
        reads += [_read_rule(program, one, provider) for one in given.get("reads", ())]
    return Rules(
        tuple(programs),
        # what only reads is looked for first: those rules are narrow, the others catch the rest
        (*reads, *(_command(one, provider) for one in document.get("commands", ()))),
        tuple(_request(one, provider) for one in document.get("requests", ())),
        tuple(_tool(one, provider) for one in document.get("tools", ())),
    )


def _seconds(time: str) -> int:
    return int(time[:-1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[time[-1]]


def _texts(given: Mapping[str, Any], name: str) -> tuple[str, ...]:
    return tuple(given.get(name, ()))


def _account(given: Mapping[str, Any] | None) -> Account | None:
    if given is None:
        return None
    files = tuple(
        AccountFile(one["path"], one.get("take", "text"), _texts(one, "by")) for one in given.get("files", ())
    )
    switches = tuple(tuple(words.split()) for words in given.get("switches", ()))
    return Account(
        _texts(given, "variables"), _texts(given, "secrets"), _texts(given, "never"), files, switches,
        given.get("none", ""),
    )  # fmt: skip


def _read_rule(program: str, given: Any, provider: str) -> CommandRule:
    one: Mapping[str, Any] = {"sub": given} if isinstance(given, str) else given
    return CommandRule(
        f"{program}.{one['sub'].replace(' ', '.')}", program, tuple(one["sub"].split()), READ,
        flags=_texts(one, "flags"), no_flags=_texts(one, "no_flags"), allow=_texts(one, "allow"), values=_texts(one,
        "values"),
        args=tuple(one["args"]) if "args" in one else None, where=tuple(one.get("where", {}).items()),
        provider=provider,
    )  # fmt: skip


def _command(given: Mapping[str, Any], provider: str) -> CommandRule:
    program, *sub = given["command"].split()
    captures = tuple(
        Capture(
            name, tuple(one["run"]), one.get("when", "before"), one.get("take", "text"), one.get("find", ""),
            one.get("json", ""), one.get("drop", ""), bool(one.get("optional")), one.get("absent", ""),
            one.get("must", ""),
        )
        for name, one in given.get("capture", {}).items()
    )  # fmt: skip
    steps = tuple(
        Step(tuple(one)) if isinstance(one, list) else
        Step(tuple(one["run"]), one.get("stdin", ""), tuple(one.get("when", {}).items()))
        for one in given.get("inverse", ())
    )  # fmt: skip
    cls, note = given["class"], given.get("note", "")
    if steps and not any(capture.when == BOTH for capture in captures):
        # an inverse that nobody looks before takes away what a person had
        cls, note, steps = worst(cls, IRREVERSIBLE), f"{note}; {NO_LOOK}" if note else NO_LOOK, ()
    return CommandRule(
        given["id"], program, tuple(sub), cls, note, bool(given.get("files")),
        _texts(given, "flags"), _texts(given, "no_flags"), _texts(given, "allow"), _texts(given, "values"),
        tuple(given["args"]) if "args" in given else None, tuple(given.get("where", {}).items()), captures, steps,
        _seconds(given.get("settle", "0s")), given.get("window", ""), bool(given.get("tested")), provider,
        bool(given.get("idempotent")), bool(given.get("ambiguous")),
    )  # fmt: skip


def _request(given: Mapping[str, Any], provider: str) -> HttpRule:
    inverse = None
    if "inverse" in given:
        one = given["inverse"]
        inverse = HttpInverse(
            one["method"], one["path"], tuple(one.get("query", {}).items()), tuple(one.get("form", {}).items()),
            tuple(one["json"].items()) if "json" in one else None,
        )  # fmt: skip
    return HttpRule(
        given["id"], _texts(given, "host"), _texts(given, "method"), given["path"], given["class"], given.get("note",
        ""),
        tuple(given.get("request", {}).items()), tuple(given.get("response", {}).items()), given.get("before", ""),
        inverse,
        given.get("verify", ""), tuple(given.get("gone", ())), given.get("idempotency", ""),
        given.get("idempotency_window", ""),
        given.get("window", ""), _texts(given, "redact"), bool(given.get("tested")), provider,
    )  # fmt: skip


def _tool(given: Mapping[str, Any], provider: str) -> ToolRule:
    undo = given.get("inverse", {})
    return ToolRule(
        given["id"], _texts(given, "server"), _texts(given, "tool"), given["class"], given.get("note", ""),
        _texts(given, "files"), undo.get("tool", ""), tuple(undo.get("arguments", {}).items()), _texts(given, "env"),
        bool(undo.get("idempotent")), bool(given.get("tested")), provider, given.get("sql", ""),
    )  # fmt: skip
