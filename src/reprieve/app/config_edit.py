"""Change one setting in the user's configuration file and leave the rest of it, comments included, as it is."""

from __future__ import annotations

import os
import re
import tempfile
import tomllib

from reprieve.app.config import Key
from reprieve.errors import Misconfigured


def set_key(path: str, key: Key, value: object) -> None:
    """Write `key = value` into the file, which is made if it is not there. Raises Misconfigured."""
    _rewrite(path, key, f"{key.name.rpartition('.')[2]} = {_toml(value)}")


def unset_key(path: str, key: Key) -> None:
    """Take the key out of the file. Raises Misconfigured."""
    _rewrite(path, key, None)


def edit(text: str, key: Key, line: str | None) -> str:
    """The text with the key's line replaced, added, or (None) removed."""
    table, _, name = key.name.rpartition(".")
    lines = text.split("\n")
    first, last = _section(lines, table)
    for number in range(first, last):
        if re.match(rf"\s*(?:{re.escape(name)}|\"{re.escape(name)}\")\s*=", lines[number]):
            end = _end_of_value(lines, number, last)
            lines[number:end] = [line + _comment(lines[end - 1])] if line is not None else []
            return "\n".join(lines)
    if line is None:
        return text
    if first < 0:
        return text.rstrip("\n") + ("\n\n" if text.strip() else "") + f"[{table}]\n{line}\n"
    at = last
    while at > first and not lines[at - 1].strip():
        at -= 1
    lines.insert(at, line)
    return "\n".join(lines) if at < len(lines) - 1 else "\n".join(lines) + ("" if lines[-1] == "" else "\n")


def _section(lines: list[str], table: str) -> tuple[int, int]:
    """The lines of a table without its head, or of the top of the file; (-1, -1) if there is no such table."""
    heads = [number for number, line in enumerate(lines) if re.match(r"\s*\[", line) and _is_head(line)]
    if not table:
        return 0, heads[0] if heads else len(lines)
    for number in heads:
        if re.match(rf"\s*\[\s*{re.escape(table)}\s*\]", lines[number]):
            return number + 1, next((head for head in heads if head > number), len(lines))
    return -1, -1


def _is_head(line: str) -> bool:
    try:
        return any(isinstance(value, (dict, list)) for value in tomllib.loads(line).values())
    except tomllib.TOMLDecodeError:
        return False


def _comment(line: str) -> str:
    """What stands behind the value on its last line, with the blanks before it."""
    for at, character in enumerate(line):
        if character == "#":
            before = line[:at].rstrip()
            try:
                # a value may go over several lines; then only what closes it is here
                tomllib.loads(before if "=" in before else "x = [" + before)
            except tomllib.TOMLDecodeError:
                continue
            return line[len(before) :]
    return ""


def _end_of_value(lines: list[str], start: int, limit: int) -> int:
    """The line after a value that may go over several lines."""
    for end in range(start + 1, limit + 1):
        try:
            tomllib.loads("\n".join(lines[start:end]))
        except tomllib.TOMLDecodeError:
            continue
        return end
    return start + 1


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    if isinstance(value, str):
        import json

        return json.dumps(value, ensure_ascii=False)  # a TOML basic string escapes as JSON does
    return str(value)


def _rewrite(path: str, key: Key, line: str | None) -> None:
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except FileNotFoundError:
        text = ""
    except (OSError, UnicodeDecodeError) as error:
        raise Misconfigured(f"cannot read '{path}': {error}") from error
    changed = edit(text, key, line)
    try:
        expected, got = tomllib.loads(text), tomllib.loads(changed)
        wanted = tomllib.loads(line) if line is not None else {}
    except tomllib.TOMLDecodeError as error:
        raise Misconfigured(f"'{path}' cannot be changed by this command: {error}", hints=[f"edit '{path}'"]) from error
    table, _, name = key.name.rpartition(".")
    inner = expected.setdefault(table, {}) if table else expected
    inner.pop(name, None)
    inner.update(wanted)
    if _without_empty(expected) != _without_empty(got):
        raise Misconfigured(f"'{key.name}' cannot be changed by this command in '{path}'", hints=[f"edit '{path}'"])
    _write(path, changed)


def _without_empty(document: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in document.items() if value != {}}


def _write(path: str, text: str) -> None:
    """Replace the file whole, so that a crash leaves the old or the new one. Where it is a link, its target."""
    path = os.path.realpath(path)
    folder = os.path.dirname(path)
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        fd, name = tempfile.mkstemp(prefix=".config-", dir=folder)
        try:
            with os.fdopen(fd, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        raise Misconfigured(f"cannot write '{path}': {error.strerror}") from error
