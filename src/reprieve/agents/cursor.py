"""Cursor: flat entries in hooks.json with the event's name in our command, `permission` answers."""

from __future__ import annotations

from reprieve.agents.reading import Tools, call, event_name, inner, say, strings, text
from reprieve.model.hookevent import (
    AFTER,
    ALLOW,
    BEFORE,
    FAILED,
    OTHER,
    PROMPT,
    SESSION_END,
    SESSION_START,
    SUBAGENT_END,
    SUBAGENT_START,
    TURN_END,
    Answer,
    HookEvent,
    Reply,
    reason_of,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from reprieve.agents.machine import Machine, Target

NAME = "cursor"
TITLE = "Cursor"
SCOPES = ("user", "project")

KINDS = {
    "sessionStart": SESSION_START,
    "beforeSubmitPrompt": PROMPT,
    "preToolUse": BEFORE,
    "beforeShellExecution": BEFORE,
    "beforeMCPExecution": BEFORE,
    "beforeReadFile": BEFORE,
    "postToolUse": AFTER,
    "afterShellExecution": AFTER,
    "afterMCPExecution": AFTER,
    "postToolUseFailure": FAILED,
    # An edit is reported here as well as by postToolUse, without the call's id: nothing is opened or closed by it.
    "afterFileEdit": OTHER,
    "stop": TURN_END,
    "subagentStart": SUBAGENT_START,
    "subagentStop": SUBAGENT_END,
    "sessionEnd": SESSION_END,
}
# Events of older versions that stand for a tool and do not name it.
_IMPLIED = {
    "beforeShellExecution": "Shell", "afterShellExecution": "Shell", "beforeMCPExecution": "MCP",
    "afterMCPExecution": "MCP", "beforeReadFile": "Read",
}  # fmt: skip
# Entries of Claude's that Cursor runs come under Claude's names.
_CLAUDE = {
    "SessionStart": "sessionStart", "UserPromptSubmit": "beforeSubmitPrompt", "PreToolUse": "preToolUse",
    "PostToolUse": "postToolUse", "PostToolUseFailure": "postToolUseFailure", "Stop": "stop",
    "SubagentStart": "subagentStart", "SubagentStop": "subagentStop", "SessionEnd": "sessionEnd",
}  # fmt: skip
TOOLS = Tools(
    read_only=frozenset((
        "Read", "Grep", "Glob", "LS", "List", "SemanticSearch", "WebSearch", "WebFetch", "TodoWrite", "ReadLints",
    )),
    shells=frozenset(("Shell", "Bash", "run_terminal_cmd")),
)  # fmt: skip
NOTED = frozenset((SESSION_START, AFTER))

_EVENTS = (
    ("sessionStart", 20), ("beforeSubmitPrompt", 20), ("preToolUse", 60), ("postToolUse", 60),
    ("postToolUseFailure", 60), ("subagentStart", 20), ("subagentStop", 60), ("stop", 60), ("sessionEnd", 20),
)  # fmt: skip


def read(payload: Mapping[str, object], event: str | None = None) -> HookEvent:
    raw_event = event_name(text(payload, "hook_event_name"), event, {**KINDS, **_CLAUDE})
    name = _CLAUDE.get(raw_event, raw_event)
    arguments = inner(payload, "tool_input")
    if name in _IMPLIED and not arguments:
        arguments = {k: v for k, v in payload.items() if k in ("command", "file_path", "tool_name", "url", "cwd")}
    roots = strings(payload.get("workspace_roots"))
    return call(
        NAME,
        KINDS.get(name, OTHER),
        payload,
        tools=TOOLS,
        tool=text(payload, "tool_name") or _IMPLIED.get(name),
        arguments=arguments,
        session=text(payload, "conversation_id", "session_id"),
        cwd=text(payload, "cwd") or text(arguments, "cwd", "working_directory") or (roots[0] if roots else None),
        roots=tuple(roots),
        raw_event=raw_event,
        turn=text(payload, "generation_id"),
        call_id=text(payload, "tool_use_id"),
        parent=text(payload, "subagent_id", "parent_conversation_id"),
        error=text(payload, "error_message", "error") if name == "postToolUseFailure" else None,
        can_ask=True,
        is_refused=text(payload, "failure_type") == "permission_denied",
    )


def answer(event: HookEvent, answer: Answer) -> Reply:
    if event.kind == BEFORE and answer.decision != ALLOW:
        reason = reason_of(answer)
        return say({"permission": answer.decision, "user_message": reason, "agent_message": reason})
    if event.kind == PROMPT and answer.decision != ALLOW:
        return say({"continue": False, "user_message": reason_of(answer, cannot_ask=True)})
    if answer.note and event.kind in NOTED:
        return say({"additional_context": answer.note})
    return say({})


def carries_note(event: HookEvent) -> bool:
    return event.kind in NOTED


def detect(machine: Machine) -> bool:
    return machine.has_program("cursor", "cursor-agent") or machine.has_folder(
        machine.in_home(".cursor"), machine.app_data("Cursor")
    )


def targets(machine: Machine, scope: str) -> Sequence[Target]:
    from reprieve.agents.machine import Target

    place = machine.in_home if scope == "user" else machine.in_project
    return (Target(path=place(".cursor", "hooks.json"), scope=scope),)


def wanted(machine: Machine, file: str) -> dict[str, dict[str, object]]:
    entries: dict[str, dict[str, object]] = {}
    for event, timeout in _EVENTS:
        command = machine.hook_command(NAME, event, kind=KINDS[event], file=file)
        entries[event] = {"command": command, "timeout": timeout}
        if KINDS[event] == BEFORE:
            entries[event]["failClosed"] = True  # also where Cursor itself ends a hook that takes too long
    return entries


def plan_install(text: str | None, *, target: Target, machine: Machine) -> str:
    from reprieve.agents.hookfile import merge

    return merge(text, wanted(machine, target.path), agent=NAME, extras={"version": 1}, name=target.path)


def plan_remove(text: str, *, target: Target, before: str | None, is_before_known: bool) -> str | None:
    from reprieve.agents.hookfile import unmerge

    return unmerge(
        text, agent=NAME, before=before, is_before_known=is_before_known, extras=("version",), name=target.path
    )


def left_to_do(machine: Machine, scope: str) -> Sequence[str]:
    more = () if scope == "user" else ("Cursor: hooks of a project run only in a workspace that you trust",)
    return ("Cursor: restart it, it reads hooks only when it starts", *more)
