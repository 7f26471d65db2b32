"""Look at what a command changed: before it runs, after it, when it is undone, and once more after that.

    look = {"argv": [...], "read": {"take": ...}, "before": hash, "after": hash}
           with `take: lines` {"removed": [hashes], "added": [hashes]} instead of before and after

A list is compared by the lines that the command took out or put in, so lines that others add are not in the way.
"""

from __future__ import annotations

import os

from reprieve.errors import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from reprieve.model.effect import Json

    Seen = str | tuple[str, ...]

LEFT, BEFORE, OTHER = "left", "before", "other"
TIMEOUT_S = 20.0
MOST = 256 * 1024  # bytes that a look may print; more is no small thing to compare
_SHORT = 60
_ERRORS = 4096
_FIELDS = ("take", "find", "json", "drop", "absent", "must")


def look(argv: Sequence[str], read: Mapping[str, object], *, cwd: str, env: Mapping[str, str]) -> Seen:
    """Run a look and read its value. Raises Refused if it can't tell, OSError if it can't be started."""
    code, output, errors = printed_by(argv, cwd=cwd, env=env)
    return read_output(argv, read, output, errors, code)


def printed_by(argv: Sequence[str], *, cwd: str, env: Mapping[str, str]) -> tuple[int, bytes, bytes]:
    """Exit code, output and error output of a look. Raises Refused if it takes too long or prints too much."""
    from reprieve.effects.command import run_bounded  # which looks, too

    fd = _unnamed()
    try:
        code, output, limit = run_bounded(
            argv, cwd=cwd, env=env, timeout_s=TIMEOUT_S, most=MOST, kept=MOST, stderr_fd=fd
        )
        errors = os.pread(fd, _ERRORS, 0)
    finally:
        os.close(fd)
    if limit:
        raise Refused(f"'{_said(argv)}' was stopped after {limit}, so Reprieve can't tell how to undo it")
    return code, output, errors


def read_output(argv: Sequence[str], read: Mapping[str, object], output: bytes, errors: bytes, code: int) -> Seen:
    """The value in what a look printed; "" or () means that there is none. Raises Refused if it can't tell."""
    import re

    take, find, drop = (str(read.get(name) or "") for name in ("take", "find", "drop"))
    text = output.decode("utf-8", "surrogateescape")
    if code != 0:
        failed = f"{code} {text}{errors.decode('utf-8', 'replace')}"
        if not read.get("optional") and not (read.get("absent") and re.search(str(read["absent"]), failed)):
            raise Refused(f"{argv[0]} failed, so Reprieve can't tell how to undo it", details=[" ".join(argv)])
        text = ""
    elif drop:
        text = "".join(line for line in text.splitlines(keepends=True) if not re.search(drop, line))
    value = () if code != 0 and take == "lines" else "" if code != 0 else _value(text, take, find, read)
    must = str(read.get("must") or "")
    if must and not re.search(must, "\n".join(value) if isinstance(value, tuple) else value):
        raise Refused(f"'{_said(argv)}' does not answer as the rule needs it, so Reprieve can't tell how to undo it")
    return value


def _value(text: str, take: str, find: str, read: Mapping[str, object]) -> Seen:
    import re

    if read.get("json"):
        return _from_json(text, str(read["json"]))
    if take == "lines":
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        if find:
            found = (re.search(find, line) for line in lines)
            lines = [match[1] for match in found if match]
        return tuple(lines)
    if find:
        found_one = re.search(find, text, re.MULTILINE)
        return found_one[1] if found_one else ""
    if take == "raw":
        return text
    if take == "word":
        return (text.split() or [""])[0]
    return text.removesuffix("\n")


def _from_json(text: str, path: str) -> str:
    import json

    try:
        value: object = json.loads(text or "null")
    except ValueError as wrong:
        raise Refused("its answer is not JSON, so Reprieve can't tell how to undo it") from wrong
    return text_of(walk(value, path))


def walk(value: object, path: str) -> object:
    """`$.a[0].b` of a JSON value; None where there is nothing."""
    import re

    for key, index in re.findall(r"\.([\w-]+)|\[(\d+)\]", path):
        if key:
            value = value.get(key) if isinstance(value, dict) else None
        else:
            value = value[int(index)] if isinstance(value, list) and int(index) < len(value) else None
    return value


def text_of(value: object) -> str:
    """A JSON scalar as text; "" for anything else."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else str(value) if isinstance(value, int | float) else ""


# -- frozen looks


def frozen(argv: Sequence[str], read: Mapping[str, object], before: Seen, after: Seen) -> Json:
    """A look as an inverse keeps it. Values are kept as hashes, so nothing secret gets into the journal by them."""
    kept: Json = {"argv": list(argv), "read": {name: read[name] for name in _FIELDS if read.get(name)}}
    if isinstance(before, str) and isinstance(after, str):
        return kept | {"before": digest(before), "after": digest(after)}
    had, has = set(before), set(after)
    return kept | {"removed": sorted(map(digest, had - has)), "added": sorted(map(digest, has - had))}


def digest(text: str) -> str:
    """The hash of a value that is only compared. A hash stays as it is, and so does "": nothing is there."""
    from hashlib import sha256

    if not text or text.startswith("sha256:"):
        return text
    return "sha256:" + sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def compare(looks: Sequence[Json], see: Callable[[Json], Seen]) -> tuple[str, str]:
    """Whether all is as the command left it or as before it, and what a look saw. Raises what `see` raises."""
    states, seen = [], ""
    for one in looks:
        now = see(one)
        states.append(_states(one, now))
        if OTHER in states[-1] or not seen:
            seen = f"'{_said(_words(one))}' says {_shown(now)}"
    for state in (LEFT, BEFORE):
        if all(state in each for each in states):
            return state, seen
    return OTHER, seen


def _states(one: Json, now: Seen) -> set[str]:
    if "added" in one:
        has = {digest(line) for line in (now if isinstance(now, tuple) else now.splitlines())}
        added, removed = set(_words(one, "added")), set(_words(one, "removed"))
        is_left, is_before = added <= has and not removed & has, removed <= has and not added & has
    else:
        mine = digest(now if isinstance(now, str) else "\n".join(now))
        is_left, is_before = mine == one.get("after"), mine == one.get("before")
    return ({LEFT} if is_left else set()) | ({BEFORE} if is_before else set()) or {OTHER}


def _words(one: Json, name: str = "argv") -> list[str]:
    words = one.get(name)
    return [str(word) for word in words] if isinstance(words, list) else []


def _said(argv: Sequence[str]) -> str:
    import shlex

    return shlex.join((os.path.basename(argv[0]), *argv[1:]))


def _shown(value: Seen) -> str:
    text = " ".join(("; ".join(value) if isinstance(value, tuple) else value).split())
    if not text:
        return "nothing"
    return f'"{text}"' if len(text) <= _SHORT else f'"{text[:_SHORT]}…"'


def _unnamed() -> int:
    import tempfile

    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
