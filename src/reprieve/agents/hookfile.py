"""Put our entries into a JSON file of hooks, and take them out again, leaving the rest byte for byte as it was.

Most agents share one shape: `{"hooks": {"<Event>": [entry, …]}}`, where an entry either is a command or holds a list of
them under `hooks`. Pure text to text; the files themselves are `foreign`'s. An edit is checked by reading the
result again: if it does not say exactly what was meant, nothing is written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

from reprieve.agents import jsonc
from reprieve.agents.machine import GUARD
from reprieve.errors import Misconfigured

Entry = Mapping[str, object]

_BEYOND = re.compile(r"[;&|<>()`\n]")  # what makes more of a line than one command
# `Machine.hook_command`, whatever somebody made of the part behind its beginning
_GUARDED = re.compile(rf"/bin/sh -c '{re.escape(GUARD)}[^']*' (.+)", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_.-]+")
_COMMAND_KEYS = ("command", "bash", "powershell", "windows", "linux", "osx", "commandWindows", "exec")


def calls_us(command: str, agent: str | None = None) -> bool:
    """True if a command line is our hook (for that agent) as we write it, whichever path leads to our program.

    One that has more in it is the person's, who wraps us: `notify-send done && reprieve hook claude-code Stop`.
    """
    line = command.strip().removeprefix("& ").removesuffix(" || true").removesuffix("; exit 0")
    if guarded := _GUARDED.fullmatch(line):
        line = guarded[1]
    if line[:1] not in ("'", '"') and _BEYOND.search(line):
        return False
    return any(_is_hook(words, agent) for words in (_words(line, is_posix=True), _words(line, is_posix=False)))


def _words(line: str, *, is_posix: bool) -> list[str]:
    import shlex

    try:
        words = shlex.split(line, posix=is_posix)
    except ValueError:  # a quotation mark is open
        return []
    return words if is_posix else [word.strip('"') for word in words]


def _is_hook(words: Sequence[str], agent: str | None) -> bool:
    """PROGRAM hook AGENT [EVENT], where the program may be Python with our module."""
    if words[1:3] == ["-m", "reprieve"]:
        words = words[2:]
    if not 3 <= len(words) <= 4 or words[1] != "hook" or not all(_NAME.fullmatch(word) for word in words[2:]):
        return False
    return _is_program(words[0]) and (agent is None or words[2] == agent)


def _is_program(word: str) -> bool:
    name = word.replace("\\", "/").rsplit("/", 1)[-1].lower()
    return name.removesuffix(".exe").removesuffix(".cmd") == "reprieve"


def mentions_us(text: str) -> bool:
    """True if our hook is called somewhere in a text, be it by a line of somebody else's."""
    words = _BEYOND.sub(" ", text.replace('"', " ").replace("'", " ")).split()
    return any(_is_program(name) and verb == "hook" for name, verb in pairwise(words))


def wrappers(text: str | None) -> list[str]:
    """Command lines in a file of hooks that are not ours and call us among other things."""
    try:
        value = jsonc.parse(text or "", inside="hooks").value()
    except jsonc.NotJson:
        return []
    hooks = value.get("hooks") if isinstance(value, dict) else None
    return [line for line in dict.fromkeys(strings(hooks)) if mentions_us(line) and not calls_us(line)]


def strings(value: object) -> list[str]:
    """Every text in a value that is no key."""
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for each in inner for text in strings(each)]


def is_ours(entry: object, agent: str) -> bool:
    """True if an entry, or one of the handlers in it, calls us."""
    if not isinstance(entry, Mapping):
        return False
    if _calls(entry, agent):
        return True
    handlers = entry.get("hooks")
    return isinstance(handlers, list) and any(_calls(handler, agent) for handler in handlers)


def _calls(handler: object, agent: str) -> bool:
    if not isinstance(handler, Mapping):
        return False
    commands = [value for key in _COMMAND_KEYS if isinstance(value := handler.get(key), str)]
    args = handler.get("args")
    if isinstance(args, list):
        commands = [" ".join([c, *(a for a in args if isinstance(a, str))]) for c in commands]
    return bool(commands) and all(calls_us(command, agent) for command in commands)


def merge(
    text: str | None, wanted: Mapping[str, Entry], *, agent: str, extras: Mapping[str, object] | None = None, name: str
) -> str:
    """The text with our entry under each event of `wanted`. `extras`: members that the agent demands at the top.

    Idempotent: an entry of ours that is already right stays where it is, one that is not is replaced in place.
    """
    extras = extras or {}
    if text is None or not text.strip("\ufeff \t\r\n"):
        head = "\ufeff" if text and text.startswith("\ufeff") else ""
        eol = "\r\n" if text and "\r\n" in text else "\n"
        body = json.dumps({**extras, "hooks": {event: [entry] for event, entry in wanted.items()}}, indent=2)
        return head + (body + "\n").replace("\n", eol)
    text = _tidy(text, wanted, agent, name)
    doc = _parse(text, name)
    edits: list[jsonc.Edit] = []
    hooks = doc.root.get("hooks")
    top: list[tuple[str | None, object]] = [(k, v) for k, v in extras.items() if doc.root.get(k) is None]
    if hooks is None:
        top.append(("hooks", {event: [entry] for event, entry in wanted.items()}))
    else:
        fresh: list[tuple[str | None, object]] = []
        for event, entry in wanted.items():
            array = hooks.get(event)
            if array is None:
                fresh.append((event, [entry]))
            elif not any(_is_all_ours(doc.value(item.node), agent) for item in array.items):
                edits += jsonc.insert(doc, array, [(None, entry)])
        if fresh:
            edits += jsonc.insert(doc, hooks, fresh)
    if top:
        edits += jsonc.insert(doc, doc.root, top)
    result = jsonc.apply(text, edits)
    _check(result, _with_ours(doc.value(), wanted, agent, extras), name)
    return result


def unmerge(
    text: str, *, agent: str, before: str | None, is_before_known: bool, extras: Sequence[str] = (), name: str
) -> str | None:
    """The text without our entries; None if nothing is left of a file that was not there before.

    `before` is what the file held before we first wrote to it. It decides whether an emptied list was the user's
    own; without it (`is_before_known` false) lists that only we used are taken away.
    """
    if not text.strip("\ufeff \t\r\n"):
        return text
    doc = _parse(text, name)
    hooks = doc.root.get("hooks")
    if hooks is None:
        return text
    was = _parse(before, name) if is_before_known and before is not None and before.strip("\ufeff \t\r\n") else None
    was_hooks = was.root.get("hooks") if was else None
    edits: list[jsonc.Edit] = []
    emptied: set[int] = set()
    for index, member in enumerate(hooks.items):
        array = member.node
        gone = {i for i, item in enumerate(array.items) if _is_all_ours(doc.value(item.node), agent)}
        edits += _out_of_groups(doc, array, gone, agent)
        if not gone:
            continue
        same = was_hooks.get(member.key or "") if was_hooks else None
        if len(gone) < len(array.items):
            edits += jsonc.remove(doc, array, gone)
        elif same is not None and was is not None:
            edits += _emptied(doc, array, was, same)
        else:
            emptied.add(index)
    if emptied and len(emptied) == len(hooks.items):
        if was_hooks is not None and was is not None:
            edits = _emptied(doc, hooks, was, was_hooks)
        else:
            at = [i for i, item in enumerate(doc.root.items) if item.key == "hooks"]
            edits = jsonc.remove(doc, doc.root, {at[-1]})
    elif emptied:
        edits += jsonc.remove(doc, hooks, emptied)
    result = jsonc.apply(text, edits)
    left = _parse(result, name)
    had = {item.key for item in was.root.items} if was else set()
    added = {i for i, item in enumerate(left.root.items) if item.key in extras and item.key not in had}
    if is_before_known and (was is not None or len(added) == len(left.root.items)):
        result = jsonc.apply(result, jsonc.remove(left, left.root, added))
        left = _parse(result, name)
    elif not is_before_known and len(added) == len(left.root.items):
        return None if not _has_comment(left) else result
    if is_before_known and not left.root.items:
        if was is None:
            return result if _has_comment(left) else before
        there = was.text[was.root.start : was.root.end]
        if not was.root.items and _is_same(result[left.root.start : left.root.end], there):
            result = jsonc.apply(result, [(left.root.start, left.root.end, there)])
    if is_ours_anywhere(result, agent, name):
        raise _unsafe(name)
    return result


def is_ours_anywhere(text: str | None, agent: str, name: str) -> bool:
    """True if a file of hooks has an entry of ours."""
    if text is None or not text.strip("\ufeff \t\r\n"):
        return False
    doc = _parse(text, name)
    hooks = doc.root.get("hooks")
    return hooks is not None and any(
        is_ours(doc.value(item.node), agent) for member in hooks.items for item in member.node.items
    )


def differing(one: str, other: str) -> list[str]:
    """The events whose entries differ between two files of hooks; none if one can't be read."""
    try:
        both = [_parse(text, "").value() for text in (one, other)]
    except Misconfigured:
        return []
    was, now = (value.get("hooks") or {} for value in both if isinstance(value, dict))
    return [event for event in {**was, **now} if was.get(event) != now.get(event)]


def _is_all_ours(entry: object, agent: str) -> bool:
    """True if nothing of the user's is in the entry."""
    if not isinstance(entry, Mapping):
        return False
    handlers = entry.get("hooks")
    if isinstance(handlers, list):
        return bool(handlers) and all(_calls(handler, agent) for handler in handlers)
    return _calls(entry, agent)


def _out_of_groups(doc: jsonc.Doc, array: jsonc.Node, gone: set[int], agent: str) -> list[jsonc.Edit]:
    """Our handlers out of groups that the person shares with us."""
    edits: list[jsonc.Edit] = []
    for i, item in enumerate(array.items):
        handlers = item.node.get("hooks")
        if i not in gone and handlers is not None and handlers.kind == "[":
            ours = {n for n, h in enumerate(handlers.items) if _calls(doc.value(h.node), agent)}
            edits += jsonc.remove(doc, handlers, ours)
    return edits


def _tidy(text: str, wanted: Mapping[str, Entry], agent: str, name: str) -> str:
    """Bring entries of ours up to date where they are; drop those that are repeated, no longer wanted, or in a group of
    the person's, whose matcher may keep calls from us."""
    doc = _parse(text, name)
    hooks = doc.root.get("hooks")
    edits: list[jsonc.Edit] = []
    for member in hooks.items if hooks else ():
        ours = [i for i, item in enumerate(member.node.items) if _is_all_ours(doc.value(item.node), agent)]
        edits += _out_of_groups(doc, member.node, set(ours), agent)
        entry = wanted.get(member.key or "")
        if entry is not None and ours:
            node = member.node.items[ours[0]].node
            if doc.value(node) != entry:
                edits += jsonc.replace(doc, node, entry)
            ours = ours[1:]
        edits += jsonc.remove(doc, member.node, set(ours))
    return jsonc.apply(text, edits)


def _with_ours(value: object, wanted: Mapping[str, Entry], agent: str, extras: Mapping[str, object]) -> object:
    assert isinstance(value, dict)
    hooks = dict(value.get("hooks") or {})
    for event, entry in wanted.items():
        have = hooks.get(event, [])
        hooks[event] = have if any(_is_all_ours(e, agent) for e in have) else [*have, entry]
    return {**extras, **value, "hooks": hooks}


def _emptied(doc: jsonc.Doc, node: jsonc.Node, was: jsonc.Doc, same: jsonc.Node) -> list[jsonc.Edit]:
    """All items out of a container that the user had, with the bytes between its brackets that were there then."""
    edits = jsonc.remove(doc, node, set(range(len(node.items))))
    inside = jsonc.apply(doc.text[node.start : node.end], [(a - node.start, b - node.start, c) for a, b, c in edits])
    there = was.text[same.start : same.end]
    if same.items or not _is_same(inside, there):
        return edits
    return [(node.start, node.end, there)]


def _is_same(one: str, other: str) -> bool:
    """True but for white space."""
    return "".join(one.split()) == "".join(other.split())


def _has_comment(doc: jsonc.Doc) -> bool:
    outside = doc.text[: doc.root.start] + doc.text[doc.root.start + 1 : doc.root.end - 1] + doc.text[doc.root.end :]
    return bool(outside.strip("\ufeff \t\r\n"))


def _parse(text: str, name: str) -> jsonc.Doc:
    """Read it and make sure that it has the shape of a file of hooks."""
    try:
        doc = jsonc.parse(text, inside="hooks")
    except jsonc.NotJson as error:
        raise Misconfigured(
            f"{name!r} is not valid JSON; it was left alone",
            details=[str(error)],
            hints=["repair the file, then run the same command again"],
        ) from error
    hooks = doc.root.get("hooks") if doc.root.kind == "{" else None
    wrong = None
    if doc.root.kind != "{":
        wrong = "an object is expected at the top"
    elif hooks is not None and hooks.kind != "{":
        wrong = "'hooks' is expected to be an object"
    elif hooks is not None:
        lists = [item.key for item in hooks.items if item.node.kind != "["]
        wrong = f"'hooks.{lists[0]}' is expected to be a list" if lists else None
    if wrong:
        raise Misconfigured(
            f"{name!r} has another shape than its agent reads; it was left alone",
            details=[wrong],
            hints=["correct the file, then run the same command again"],
        )
    return doc


def _check(result: str, expected: object, name: str) -> None:
    if _parse(result, name).value() != expected:
        raise _unsafe(name)


def _unsafe(name: str) -> Misconfigured:
    return Misconfigured(
        f"{name!r} could not be edited without changing more than our own entry; it was left alone",
        hints=["simplify the 'hooks' part of the file (repeated names?), then run the same command again"],
    )
