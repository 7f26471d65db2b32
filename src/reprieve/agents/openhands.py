"""OpenHands: hooks.json in Claude's shape, payloads with `event_type`; deny only, no asking, no call ids."""

from __future__ import annotations

from reprieve.agents.reading import Tools, claude_shaped, say, text
from reprieve.model.hookevent import (
    AFTER,
    ALLOW,
    BEFORE,
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

NAME = "openhands"
TITLE = "OpenHands"
SCOPES = ("user", "project")

KINDS = {
    "SessionStart": SESSION_START, "session_start": SESSION_START,
    "UserPromptSubmit": PROMPT, "user_prompt_submit": PROMPT,
    "PreToolUse": BEFORE, "pre_tool_use": BEFORE,
    "PostToolUse": AFTER, "post_tool_use": AFTER,
    "Stop": TURN_END, "stop": TURN_END,
    "SessionEnd": SESSION_END, "session_end": SESSION_END,
}  # fmt: skip
TOOLS = Tools(
    read_only=frozenset(("think", "finish", "task_tracker", "glob", "grep")),
    shells=frozenset(("terminal", "execute_bash", "bash", "BashTool")),
)

_EVENTS = (
    ("SessionStart", 20), ("UserPromptSubmit", 20), ("PreToolUse", 60), ("PostToolUse", 60), ("Stop", 60),
    ("SessionEnd", 20),
)  # fmt: skip
_MATCHED = ("PreToolUse", "PostToolUse")


def read(payload: Mapping[str, object], event: str | None = None) -> HookEvent:
    found = claude_shaped(NAME, payload, event, kinds=KINDS, tools=TOOLS)
    arguments = payload.get("tool_input")
    is_view = isinstance(arguments, dict) and arguments.get("command") == "view"
    if is_view and found.tool in ("file_editor", "str_replace_editor"):
        return found.replace(is_read_only=True, paths=())
    if found.kind == PROMPT and found.prompt is None:
        return found.replace(prompt=text(payload, "message"))
    return found


def answer(event: HookEvent, answer: Answer) -> Reply:
    output: dict[str, object] = {}
    if event.kind in (BEFORE, PROMPT) and answer.decision != ALLOW:
        output = {"decision": "deny", "reason": reason_of(answer, cannot_ask=True)}
    if answer.note and event.kind == PROMPT:
        output["additionalContext"] = answer.note
    return say(output)


def carries_note(event: HookEvent) -> bool:
    return event.kind == PROMPT


def detect(machine: Machine) -> bool:
    return machine.has_program("openhands") or machine.has_folder(machine.in_home(".openhands"))


def targets(machine: Machine, scope: str) -> Sequence[Target]:
    from reprieve.agents.machine import Target

    place = machine.in_home if scope == "user" else machine.in_project
    return (Target(path=place(".openhands", "hooks.json"), scope=scope),)


def wanted(machine: Machine, file: str) -> dict[str, dict[str, object]]:
    entries: dict[str, dict[str, object]] = {}
    for event, timeout in _EVENTS:
        command = machine.hook_command(NAME, event, kind=KINDS[event], file=file)
        handler = {"type": "command", "command": command, "timeout": timeout}
        entries[event] = {"matcher": "*", "hooks": [handler]} if event in _MATCHED else {"hooks": [handler]}
    return entries


def plan_install(text: str | None, *, target: Target, machine: Machine) -> str:
    from reprieve.agents.hookfile import merge

    return merge(text, wanted(machine, target.path), agent=NAME, name=target.path)


def plan_remove(text: str, *, target: Target, before: str | None, is_before_known: bool) -> str | None:
    from reprieve.agents.hookfile import unmerge

    return unmerge(text, agent=NAME, before=before, is_before_known=is_before_known, name=target.path)


def left_to_do(machine: Machine, scope: str) -> Sequence[str]:
    if scope == "user":
        return ("OpenHands: a project's own .openhands/hooks.json hides this one; protect such a project by itself",)
    return ()
