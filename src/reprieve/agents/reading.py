"""What payload readers and answer writers share: looking into untrusted JSON without ever raising, and saying JSON.

A payload comes from another program and another version of it. A field that is missing or of another type reads as "not
said". Loaded before every tool call: nothing heavy is imported here.
"""

from __future__ import annotations

import os

from reprieve.model.hookevent import (
    AFTER,
    ALLOW,
    BEFORE,
    FAILED,
    OTHER,
    PROMPT,
    SILENT,
    Answer,
    HookEvent,
    Reply,
    reason_of,
)
from reprieve.model.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    Payload = Mapping[str, object]


class Tools(Value):
    """What is known about an agent's tools by name. Unknown tools count as able to change anything."""

    read_only: frozenset[str]
    shells: frozenset[str]


# Fields by which tools of all agents name the files that they write.
_PATH_KEYS = (
    "file_path", "filePath", "path", "notebook_path", "notebookPath", "absolute_path", "target_file", "targetFile",
    "filename", "fileName", "relative_path", "dirPath", "destination", "source",
)  # fmt: skip
_PATH_LISTS = ("files", "paths", "filePaths", "file_paths")
_EDIT_LISTS = ("edits", "replacements", "changes")
_PATCH_KEYS = ("patch", "input", "patchText", "command", "diff", "explanation")
_PATCH_LINES = ("*** Add File: ", "*** Update File: ", "*** Delete File: ", "*** Move to: ")
_COMMAND_KEYS = ("command", "cmd", "script", "commands", "command_line", "commandLine", "input")
_MAX_PATHS = 1000
# Tools of all agents that have a sub-agent work.
_SPAWNERS = frozenset((
    "Task", "Agent", "task", "agent", "spawn_agent", "runSubagent", "Subagent", "use_subagents", "delegate",
))  # fmt: skip


def text(payload: Payload, *keys: str) -> str | None:
    """The first of these fields that is a non-empty string (a number counts: some ids are)."""
    for key in keys:
        value = payload.get(key)
        if isinstance(value, str) and value:
            return value
        if isinstance(value, int) and not isinstance(value, bool):
            try:
                return str(value)
            except ValueError:  # an int of more than 4300 digits has no decimal form
                continue
    return None


def inner(payload: Payload, *keys: str) -> dict[str, object]:
    """The first of these fields that is an object, or a string that holds one; else an empty object."""
    for key in keys:
        value = payload.get(key)
        if isinstance(value, str) and value.lstrip()[:1] == "{":
            value = parsed(value)
        if isinstance(value, dict):
            return value
    return {}


def parsed(source: str) -> object:
    """The JSON value in `source`, None if there is none."""
    from reprieve.model.quickjson import loads

    try:
        return loads(source)
    except (ValueError, RecursionError):
        return None


def event_name(said: str | None, event: str | None, kinds: Mapping[str, str]) -> str:
    """What an event is called: as the payload says or, if that means nothing to us, the command line.

    Agents rename events. The word on the command line we wrote ourselves, for the event that it stands at.
    """
    return (event if said not in kinds and event in kinds else said or event) or ""


def strings(value: object) -> list[str]:
    """The strings of a list; a lone string is a list of one."""
    if isinstance(value, str):
        return [value] if value else []
    if isinstance(value, list):
        return [v for v in value if isinstance(v, str) and v]
    return []


def command_of(arguments: Payload) -> str | None:
    """The shell text of a shell tool's call."""
    for key in _COMMAND_KEYS:
        value = arguments.get(key)
        if isinstance(value, str) and value:
            return value
        if isinstance(value, list):
            parts = [part if isinstance(part, str) else text(part, "command", "cmd") or "" for part in value
                     if isinstance(part, str | dict)]  # fmt: skip
            parts = [p for p in parts if p]
            if not parts:
                continue
            if key == "commands":
                return "\n".join(parts)
            # ["bash", "-lc", "make"] is a shell with one script; the script is what matters.
            if len(parts) == 3 and parts[1].startswith("-") and parts[1].endswith("c"):
                return parts[2]
            return " ".join(parts)
    return None


def paths_of(arguments: Payload, cwd: str | None) -> tuple[str, ...]:
    """The files that an edit tool's call names, absolute where `cwd` is known, in order, once each."""
    found: list[str] = []
    for key in _PATH_KEYS:
        found += strings(arguments.get(key))
    for key in _PATH_LISTS:
        found += strings(arguments.get(key))
    for key in (*_EDIT_LISTS, *_PATH_LISTS):
        value = arguments.get(key)
        if isinstance(value, list):
            for edit in value:
                if isinstance(edit, dict):
                    for name in _PATH_KEYS:
                        found += strings(edit.get(name))
    for key in _PATCH_KEYS:
        value = arguments.get(key)
        if isinstance(value, str) and "*** " in value:
            found += patch_paths(value)
    out: dict[str, None] = {}
    for path in found:
        if "\0" in path or "\n" in path or "://" in path:
            continue
        if path.startswith("~/"):
            path = os.path.expanduser(path)
        elif cwd and not os.path.isabs(path):
            path = os.path.join(cwd, path)
        out[path] = None
        if len(out) == _MAX_PATHS:
            break
    return tuple(out)


def patch_paths(patch: str) -> list[str]:
    """File names out of the patch format of `apply_patch`."""
    found = []
    for line in patch.splitlines():
        for lead in _PATCH_LINES:
            if line.startswith(lead):
                found.append(line[len(lead) :].strip())
    return [name for name in found if name]


def shown(arguments: Payload) -> dict[str, object] | None:
    """Arguments for people: redacted, shortened."""
    from reprieve.policy.redact import for_people

    value = for_people(dict(arguments))
    return value if isinstance(value, dict) and value else None


def key_of(tool: str | None, arguments: object) -> str:
    """The same for "before" and "after" of one call; pairs them for agents that give calls no id. Not a secure hash."""
    from zlib import adler32, crc32

    from reprieve.model.quickjson import dumps

    try:
        data = dumps(arguments, sort_keys=True).encode()
    except (ValueError, TypeError, RecursionError):
        data = b"?"
    name = (tool or "").encode("ascii", "backslashreplace").decode()
    return f"{name}:{crc32(data):08x}{adler32(data):08x}{len(data):x}"


def call(
    agent: str,
    kind: str,
    payload: Payload,
    *,
    tools: Tools,
    tool: str | None,
    arguments: Payload,
    session: str | None,
    cwd: str | None,
    raw_event: str,
    **more: str | tuple[str, ...] | bool | None,
) -> HookEvent:
    """A HookEvent with what all agents' tool events have in common worked out."""
    is_call = kind in (BEFORE, AFTER, FAILED)
    is_shell = tool in tools.shells
    is_read_only = tool in tools.read_only
    error = more.get("error")
    # an agent that takes our refusal for a failure tells it with our own words
    is_ours = isinstance(error, str) and error.removeprefix("Error: ").startswith(("Reprieve", "Blocked by Reprieve"))
    values: dict[str, object] = {
        "session": session,
        "cwd": cwd,
        "raw_event": raw_event,
        "prompt": text(payload, "prompt", "user_prompt") if kind == PROMPT else None,
        "transcript_path": text(payload, "transcript_path", "transcriptPath"),
        **more,
    }
    if is_call:
        values.update(
            tool=tool,
            is_read_only=is_read_only,
            arguments=shown(arguments),
            input_key="" if more.get("call_id") else key_of(tool, arguments),
            is_container=tool in _SPAWNERS,
            command=command_of(arguments) if is_shell else None,
            paths=() if is_shell or is_read_only else paths_of(arguments, cwd),
            is_refused=kind == FAILED and (is_ours or more.get("is_refused") is True),
        )
    return HookEvent(agent=agent, kind=kind, **values)  # type: ignore[arg-type]


def claude_shaped(
    agent: str, payload: Payload, event: str | None, *, kinds: Mapping[str, str], tools: Tools, can_ask: bool = False
) -> HookEvent:
    """Read the payload that Claude Code defined and that Codex, VS Code, Goose, Crush and OpenHands copied."""
    raw_event = event_name(text(payload, "hook_event_name", "hookEventName", "event", "event_type"), event, kinds)
    kind = kinds.get(raw_event, OTHER)
    arguments = inner(payload, "tool_input", "toolInput")
    batch = payload.get("tool_calls")
    ended = [text(c, "tool_use_id", "id") for c in batch if isinstance(c, dict)] if isinstance(batch, list) else []
    is_background = bool(payload.get("background_tasks")) or arguments.get("run_in_background") is True
    # a call that the person, or its time limit, put into the background while it ran
    is_background = is_background or text(inner(payload, "tool_response"), "backgroundTaskId") is not None
    return call(
        agent,
        kind,
        payload,
        tools=tools,
        tool=text(payload, "tool_name", "toolName"),
        arguments=arguments,
        session=text(payload, "session_id", "sessionId"),
        cwd=text(payload, "cwd", "working_dir"),
        raw_event=raw_event,
        turn=text(payload, "turn_id", "prompt_id"),
        call_id=text(payload, "tool_use_id", "toolUseId"),
        parent=text(payload, "agent_id", "agentId"),
        error=text(payload, "error") if kind == FAILED else None,
        ended=tuple(i for i in ended if i),
        is_background=is_background,
        can_ask=can_ask,
        is_refused=raw_event == "PermissionDenied",
    )


def claude_answer(event: HookEvent, answer: Answer, *, noted: frozenset[str]) -> Reply:
    """Say it as Claude Code wants it. `noted`: the kinds of event on which its model reads `additionalContext`."""
    output: dict[str, object] = {}
    specific: dict[str, object] = {}
    if event.kind == BEFORE and answer.decision != ALLOW:
        specific["permissionDecision"] = answer.decision if event.can_ask else "deny"
        specific["permissionDecisionReason"] = reason_of(answer, cannot_ask=not event.can_ask)
    elif event.kind == PROMPT and answer.decision != ALLOW:
        output = {"decision": "block", "reason": reason_of(answer, cannot_ask=True)}
    if answer.note and event.kind in noted:
        specific["additionalContext"] = answer.note
    if specific:
        output["hookSpecificOutput"] = {"hookEventName": event.raw_event, **specific}
    return say(output)


def say(output: Mapping[str, object]) -> Reply:
    """One JSON object on stdout, or nothing at all; exit 0."""
    if not output:
        return SILENT
    from reprieve.model.quickjson import dumps

    return (dumps(output).encode() + b"\n", b"", 0)


def refuse_by_exit(event: HookEvent, answer: Answer) -> Reply:
    """For agents that understand only exit 2 with a reason on stderr."""
    reason = reason_of(answer, cannot_ask=True)
    return (b"", reason.encode("utf-8", "backslashreplace") + b"\n", 2)
