"""Put our hooks into a TOML file between two marker comments, and take them out again.

Text to text: everything outside the markers stays byte for byte. The result is read again before it is accepted; a file
in which `hooks` is written inline can't be extended from below, and is refused.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping

from reprieve.agents.hookfile import is_ours
from reprieve.errors import Misconfigured

_BEGIN = "# >>> reprieve: undo for AI agents (remove with: reprieve unprotect codex)"
_END = "# <<< reprieve"


def has_hooks(path: str) -> bool:
    """True if a TOML file defines hooks of the person's own. A file that can't be read has none."""
    try:
        with open(path, "rb") as file:
            hooks = tomllib.load(file).get("hooks")
    except (OSError, ValueError):
        return False
    return isinstance(hooks, dict) and any(isinstance(groups, list) for groups in hooks.values())


def merge(text: str | None, wanted: Mapping[str, Mapping[str, object]], *, agent: str, name: str) -> str:
    """The text with our block at its end. Idempotent."""
    text = text or ""
    old = _parse(text, name)
    rest = unmerge(text, agent=agent, before=None, name=name)
    eol = "\r\n" if "\r\n" in text else "\n"
    lines = [_BEGIN]
    for event, entry in wanted.items():
        lines.append(f"[[hooks.{event}]]")
        handlers = entry["hooks"]
        lines += [f"{key} = {json.dumps(value)}" for key, value in entry.items() if key != "hooks"]
        assert isinstance(handlers, list)
        for handler in handlers:
            lines.append(f"[[hooks.{event}.hooks]]")
            lines += [f"{key} = {json.dumps(value)}" for key, value in handler.items()]
    lines.append(_END)
    block = "".join(line + eol for line in lines)
    result = rest + (eol if rest and not rest.endswith("\n") else "") + block
    if rest != text and block in text:
        result = text
    new = _parse(result, name)
    if _foreign(new, agent) != _foreign(old, agent):
        raise _unsafe(name)
    return result


def unmerge(text: str, *, agent: str, before: str | None, name: str) -> str:
    """The text without our block. `before`, if known, tells whether the last line had an end of its own."""
    start = text.find(_BEGIN)
    if start < 0:
        return text
    end = text.find(_END, start)
    if end < 0 or (start and text[start - 1] != "\n"):
        raise _unsafe(name)
    stop = text.find("\n", end)
    stop = len(text) if stop < 0 else stop + 1
    inside = text[start:stop]
    hooks = _parse(inside, name)
    groups = hooks.get("hooks", {})
    is_clean = set(hooks) <= {"hooks"} and isinstance(groups, dict) and all(
        isinstance(group, list) and all(is_ours(entry, agent) for entry in group) for group in groups.values()
    )  # fmt: skip
    if not is_clean:
        # Codex writes its own tables into this file and may have put one between our markers.
        raise Misconfigured(
            f"{name!r} has something of someone else's between our markers; it was left alone",
            hints=[f"move it below the line {_END!r}, then run the same command again"],
        )
    rest = text[:start] + text[stop:]
    return before if before is not None and rest in (before + "\n", before + "\r\n") else rest


def _foreign(document: Mapping[str, object], agent: str) -> object:
    """The document without our entries, to compare."""
    hooks = document.get("hooks")
    if not isinstance(hooks, dict):
        return dict(document)
    kept = {
        event: [e for e in groups if not is_ours(e, agent)] if isinstance(groups, list) else groups
        for event, groups in hooks.items()
    }
    return {**document, "hooks": {event: groups for event, groups in kept.items() if groups != []}}


def _parse(text: str, name: str) -> dict[str, object]:
    try:
        return tomllib.loads(text.removeprefix("\ufeff").replace("\r\n", "\n"))
    except tomllib.TOMLDecodeError as error:
        raise Misconfigured(
            f"{name!r} is not valid TOML, or can't take our entry; it was left alone",
            details=[str(error)],
            hints=["repair the file, or write its 'hooks' as [[hooks.Event]] tables; then run the same command again"],
        ) from error


def _unsafe(name: str) -> Misconfigured:
    return Misconfigured(
        f"{name!r} could not be edited without changing more than our own entry; it was left alone",
        hints=["remove the lines between the reprieve markers by hand"],
    )
