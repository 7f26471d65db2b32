"""Gemini CLI: entries in settings.json (time limits in milliseconds), its own event names, `decision` answers.

Gemini gives calls no id. stdout must be one JSON object or nothing: any other text counts as "allow".
"""

from __future__ import annotations

from reprieve.agents.reading import Tools, claude_shaped, inner, say, text
from reprieve.model.hookevent import (
    AFTER,
    ALLOW,
    ASK,
    BEFORE,
    FAILED,
    PROMPT,
    SESSION_END,
    SESSION_START,
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

NAME = "gemini"
TITLE = "Gemini CLI"
SCOPES = ("user", "project")

KINDS = {
    "SessionStart": SESSION_START,
    "BeforeAgent": PROMPT,
    "BeforeTool": BEFORE,
    "AfterTool": AFTER,
    "AfterAgent": TURN_END,
    "SessionEnd": SESSION_END,
}
TOOLS = Tools(
    read_only=frozenset((
        "read_file", "read_many_files", "list_directory", "glob", "search_file_content", "grep_search",
        "google_web_search", "web_fetch", "write_todos", "ask_user", "get_internal_docs", "activate_skill",
        "enter_plan_mode", "exit_plan_mode",
    )),
    shells=frozenset(("run_shell_command",)),
)  # fmt: skip
NOTED = frozenset((SESSION_START, PROMPT, AFTER, FAILED))

_EVENTS = (
    ("SessionStart", 20_000), ("BeforeAgent", 20_000), ("BeforeTool", 60_000), ("AfterTool", 60_000),
    ("AfterAgent", 60_000), ("SessionEnd", 10_000),
)  # fmt: skip
_MATCHED = ("BeforeTool", "AfterTool")


def read(payload: Mapping[str, object], event: str | None = None) -> HookEvent:
    found = claude_shaped(NAME, payload, event, kinds=KINDS, tools=TOOLS, can_ask=True)
    if found.kind == AFTER:
        error = inner(payload, "tool_response").get("error")
        if error:
            message = text(error, "message", "type") if isinstance(error, dict) else str(error)
            return found.replace(kind=FAILED, error=message)
    return found


def answer(event: HookEvent, answer: Answer) -> Reply:
    output: dict[str, object] = {}
    if answer.decision != ALLOW and event.kind == BEFORE:
        reason = reason_of(answer)
        output = {"decision": "deny", "reason": reason}
        if answer.decision == ASK:
            # Read from the scheduler's source, where it leads to the confirmation dialog; the reason is shown there.
            output = {"decision": "ask", "reason": reason, "systemMessage": reason}
    elif answer.decision != ALLOW and event.kind == PROMPT:
        output = {"decision": "deny", "reason": reason_of(answer, cannot_ask=True)}
    if answer.note and event.kind in NOTED:
        output["hookSpecificOutput"] = {"hookEventName": event.raw_event, "additionalContext": answer.note}
    return say(output)


def carries_note(event: HookEvent) -> bool:
    return event.kind in NOTED


def detect(machine: Machine) -> bool:
    return machine.has_program("gemini") or machine.has_folder(machine.in_home(".gemini"))


def targets(machine: Machine, scope: str) -> Sequence[Target]:
    from reprieve.agents.machine import Target

    place = machine.in_home if scope == "user" else machine.in_project
    return (Target(path=place(".gemini", "settings.json"), scope=scope),)


def wanted(machine: Machine, file: str) -> dict[str, dict[str, object]]:
    entries: dict[str, dict[str, object]] = {}
    for event, timeout in _EVENTS:
        command = machine.hook_command(NAME, event, kind=KINDS[event], file=file)
        handler = {"name": "reprieve", "type": "command", "command": command, "timeout": timeout}
        entries[event] = {"matcher": ".*", "hooks": [handler]} if event in _MATCHED else {"hooks": [handler]}
    return entries


def plan_install(text: str | None, *, target: Target, machine: Machine) -> str:
    from reprieve.agents.hookfile import merge

    return merge(text, wanted(machine, target.path), agent=NAME, name=target.path)


def plan_remove(text: str, *, target: Target, before: str | None, is_before_known: bool) -> str | None:
    from reprieve.agents.hookfile import unmerge

    return unmerge(text, agent=NAME, before=before, is_before_known=is_before_known, name=target.path)


def left_to_do(machine: Machine, scope: str) -> Sequence[str]:
    return ("Gemini CLI: trust the folder (/permissions trust); where it does not trust the folder it runs no hooks",)
