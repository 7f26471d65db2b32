"""Put our server into an MCP client's configuration, and take it out again, leaving the rest byte for byte as it was.

Pure, text to text, in three languages: JSON with comments, TOML, YAML. The files themselves are `foreign`'s. Every
result is read again: if it does not say exactly what was meant, nothing is written.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from reprieve.agents import jsonc
from reprieve.errors import Misconfigured

NAME = "reprieve"
_BEGIN = "# >>> reprieve: undo for AI agents (remove with: reprieve mcp uninstall"
_END = "# <<< reprieve"

Entry = Mapping[str, object]


def is_ours(entry: object) -> bool:
    """Whether an entry starts our server."""
    if not isinstance(entry, Mapping):
        return False
    words: list[object] = []
    for key in ("command", "cmd", "args"):
        value = entry.get(key)
        words += value if isinstance(value, list) else [value]
    texts = [word for word in words if isinstance(word, str)]
    names = [word.replace("\\", "/").rsplit("/", 1)[-1].lower().removesuffix(".exe") for word in texts]
    return NAME in names and "mcp" in texts


# -- JSON


def merge_json(text: str | None, entry: Entry, *, key: str, name: str) -> str:
    """The text with our server under `key`. Idempotent; an entry of ours that is not right is replaced in place."""
    if text is None or not text.strip("\ufeff \t\r\n"):
        head = "\ufeff" if text and text.startswith("\ufeff") else ""
        eol = "\r\n" if text and "\r\n" in text else "\n"
        return head + (json.dumps({key: {NAME: entry}}, indent=2) + "\n").replace("\n", eol)
    doc = _json(text, key, name)
    servers = doc.root.get(key)
    if servers is None:
        edits = jsonc.insert(doc, doc.root, [(key, {NAME: entry})])
    else:
        there = servers.get(NAME)
        if there is None:
            edits = jsonc.insert(doc, servers, [(NAME, entry)])
        else:
            _refuse_foreign(doc.value(there), name)
            edits = [] if doc.value(there) == entry else jsonc.replace(doc, there, entry)
    result = jsonc.apply(text, edits)
    was = doc.value()
    assert isinstance(was, dict)
    had = was.get(key)
    expected = {**was, key: {**(had if isinstance(had, dict) else {}), NAME: entry}}
    if _json(result, key, name).value() != expected:
        raise _unsafe(name)
    return result


def unmerge_json(text: str, *, before: str | None, is_before_known: bool, key: str, name: str) -> str | None:
    """The text without our server; None if nothing is left of a file that was not there before."""
    if not text.strip("\ufeff \t\r\n"):
        return text
    doc = _json(text, key, name)
    servers = doc.root.get(key)
    there = servers.get(NAME) if servers is not None else None
    if servers is None or there is None or not is_ours(doc.value(there)):
        return text
    old = _json(before, key, name) if before is not None and before.strip("\ufeff \t\r\n") else None
    was = doc.value()
    assert isinstance(was, dict)
    inner = was[key]
    left = {name: value for name, value in inner.items() if name != NAME}
    expected: dict[str, object] = {**was, key: left}
    at = {i for i, item in enumerate(servers.items) if item.key == NAME}
    if len(at) == len(servers.items) and (old is None or old.root.get(key) is None):
        whole = {i for i, item in enumerate(doc.root.items) if item.key == key}
        result = jsonc.apply(text, jsonc.remove(doc, doc.root, whole))
        del expected[key]
    else:
        result = jsonc.apply(text, jsonc.remove(doc, servers, at))
    after = _json(result, key, name)
    if after.value() != expected:
        raise _unsafe(name)
    is_bare = not result[: after.root.start].strip("\ufeff \t\r\n") and not result[after.root.end :].strip()
    is_bare = is_bare and not result[after.root.start + 1 : after.root.end - 1].strip()
    if not after.root.items and is_bare and is_before_known and old is None:
        return before
    return result


def _json(text: str, key: str, name: str) -> jsonc.Doc:
    try:
        doc = jsonc.parse(text, inside=key)
    except jsonc.NotJson as error:
        raise Misconfigured(
            f"{name!r} is not valid JSON; it was left alone",
            details=[str(error)],
            hints=["repair the file, then run the same command again"],
        ) from error
    servers = doc.root.get(key) if doc.root.kind == "{" else None
    if doc.root.kind != "{" or (servers is not None and servers.kind != "{"):
        what = f"'{key}' is expected to be an object" if servers is not None else "an object is expected at the top"
        raise Misconfigured(
            f"{name!r} has another shape than its client reads; it was left alone",
            details=[what],
            hints=["correct the file, then run the same command again"],
        )
    return doc


# -- TOML


def merge_toml(text: str | None, entry: Entry, *, key: str, name: str, client: str) -> str:
    """The text with a table of ours at its end, between two marker comments. Idempotent."""
    text = text or ""
    old = _toml(text, name)
    rest = _without_block(text, name)
    _refuse_foreign_table(_toml(rest, name), key, name)
    eol = "\r\n" if "\r\n" in text else "\n"
    lines = [f"{_BEGIN} {client})", f"[{key}.{NAME}]"]
    lines += [f"{field} = {json.dumps(value)}" for field, value in entry.items()]
    block = "".join(line + eol for line in (*lines, _END))
    if block in text:
        return text
    result = rest + (eol if rest and not rest.endswith("\n") else "") + block
    new = _toml(result, name)
    if _others(new, key) != _others(old, key) or new[key][NAME] != dict(entry):  # type: ignore[index]
        raise _unsafe(name)
    return result


def unmerge_toml(text: str, *, before: str | None, is_before_known: bool, key: str, name: str) -> str | None:
    """The text without our table."""
    rest = _without_block(text, name)
    if rest == text:
        return text
    if _others(_toml(rest, name), key) != _others(_toml(text, name), key):
        raise _unsafe(name)
    if is_before_known and before is None and not rest:
        return None
    return before if before is not None and rest in (before + "\n", before + "\r\n") else rest


def _toml(text: str, name: str) -> dict[str, object]:
    import tomllib

    try:
        return tomllib.loads(text.removeprefix("\ufeff").replace("\r\n", "\n"))
    except tomllib.TOMLDecodeError as error:
        raise Misconfigured(
            f"{name!r} is not valid TOML, or can't take our entry; it was left alone",
            details=[str(error)],
            hints=["repair the file, or write its servers as tables; then run the same command again"],
        ) from error


def _others(document: Mapping[str, object], key: str) -> object:
    """The document without our entry, to compare."""
    servers = document.get(key)
    kept = {n: v for n, v in servers.items() if n != NAME} if isinstance(servers, dict) else servers
    return {**{n: v for n, v in document.items() if n != key}, **({key: kept} if kept else {})}


def _refuse_foreign_table(document: Mapping[str, object], key: str, name: str) -> None:
    servers = document.get(key)
    if isinstance(servers, dict) and NAME in servers:
        raise Misconfigured(
            f"{name!r} has an entry '{key}.{NAME}' that we did not write; it was left alone",
            hints=["rename or remove that entry, then run the same command again"],
        )


def _without_block(text: str, name: str) -> str:
    start = text.find(_BEGIN)
    if start < 0:
        return text
    end = text.find(_END, start)
    if end < 0 or (start and text[start - 1] != "\n"):
        raise _unsafe(name)
    stop = text.find("\n", end)
    return text[:start] + (text[stop + 1 :] if stop >= 0 else "")


# -- YAML


def merge_yaml(text: str | None, entry: Entry, *, key: str, name: str) -> str:
    """The text with our server as the first one under `key`. Idempotent."""
    text = text or ""
    old = _yaml(text, name)
    servers = old.get(key)
    if isinstance(servers, dict) and NAME in servers:
        _refuse_foreign(servers[NAME], name)
        if servers[NAME] == dict(entry):
            return text
        text = _without_yaml(text, key, name)
    eol = "\r\n" if "\r\n" in text else "\n"
    lines = text.splitlines(keepends=True)
    at = _line_of(lines, key)
    indent = _indent_below(lines, at) if at is not None else "  "
    block = [f"{indent}{NAME}:", *(f"{indent}  {field}: {json.dumps(value)}" for field, value in entry.items())]
    new = [line + eol for line in block]
    if at is None:
        if key in old:
            raise _unsafe(name)
        gap = [eol] if lines and not lines[-1].endswith("\n") else []
        result = "".join([*lines, *gap, f"{key}:{eol}", *new])
    else:
        head = lines[at].rstrip("\r\n")
        if head.rstrip() not in (f"{key}:", f"{key}: {{}}"):
            raise _unsafe(name)
        lines[at] = f"{key}:{eol}"
        result = "".join([*lines[: at + 1], *new, *lines[at + 1 :]])
    expected = {**old, key: {**(servers if isinstance(servers, dict) else {}), NAME: dict(entry)}}
    if _yaml(result, name) != expected:
        raise _unsafe(name)
    return result


def unmerge_yaml(text: str, *, before: str | None, is_before_known: bool, key: str, name: str) -> str | None:
    """The text without our server."""
    document = _yaml(text, name)
    servers = document.get(key)
    if not isinstance(servers, dict) or not is_ours(servers.get(NAME)):
        return text
    result = _without_yaml(text, key, name)
    left = {n: v for n, v in servers.items() if n != NAME}
    if not left:
        lines = result.splitlines(keepends=True)
        at = _line_of(lines, key)
        assert at is not None
        had = _yaml(before, name) if before else {}
        lines[at : at + 1] = [lines[at].replace(f"{key}:", f"{key}: {{}}", 1)] if key in had else []
        result = "".join(lines)
    now, expected = _yaml(result, name), {**document, key: left}
    if not left and key not in now:
        del expected[key]
    if now != expected:
        raise _unsafe(name)
    return None if is_before_known and before is None and not result.strip() else result


def _without_yaml(text: str, key: str, name: str) -> str:
    lines = text.splitlines(keepends=True)
    at = _line_of(lines, key)
    indent = _indent_below(lines, at) if at is not None else ""
    starts = [i for i, line in enumerate(lines) if at is not None and i > at and line.startswith(f"{indent}{NAME}:")]
    if at is None or not starts:
        raise _unsafe(name)
    stop = starts[0] + 1
    while stop < len(lines) and lines[stop].startswith(indent + " "):
        stop += 1
    return "".join(lines[: starts[0]] + lines[stop:])


def _line_of(lines: list[str], key: str) -> int | None:
    found = [i for i, line in enumerate(lines) if line.startswith(f"{key}:")]
    return found[0] if len(found) == 1 else None


def _indent_below(lines: list[str], at: int) -> str:
    for line in lines[at + 1 :]:
        if line.strip() and not line.lstrip().startswith("#"):
            return line[: len(line) - len(line.lstrip(" "))] or "  "
    return "  "


def _yaml(text: str, name: str) -> dict[str, object]:
    try:
        import yaml
    except ImportError as missing:
        raise Misconfigured(
            f"{name!r} is YAML, and the YAML reader is not installed; it was left alone",
            hints=["pip install 'reprieve[policy]', or put the printed lines in by hand"],
        ) from missing
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise Misconfigured(
            f"{name!r} is not valid YAML; it was left alone",
            details=[" ".join(str(error).split())],
            hints=["repair the file, then run the same command again"],
        ) from error
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise Misconfigured(
            f"{name!r} has another shape than its client reads; it was left alone",
            hints=["correct the file, then run the same command again"],
        )
    return document


# -- all


def _refuse_foreign(entry: object, name: str) -> None:
    if not is_ours(entry):
        raise Misconfigured(
            f"{name!r} has a server called '{NAME}' that is not ours; it was left alone",
            hints=["rename or remove that entry, then run the same command again"],
        )


def _unsafe(name: str) -> Misconfigured:
    return Misconfigured(
        f"{name!r} could not be edited without changing more than our own entry; it was left alone",
        hints=["put the entry in, or take it out, by hand: reprieve mcp install CLIENT prints it"],
    )
