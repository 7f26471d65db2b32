"""Cline: executable files named after events, in a folder; payloads of the extension and of the SDK; `cancel` answers.

There is one file per event and folder. Where the person has one already, ours goes to the other folder that Cline
looks in, and if both are taken, installing says so instead of overwriting.
"""

from __future__ import annotations

from reprieve.agents.reading import Tools, call, event_name, inner, say, strings, text
from reprieve.model.hookevent import (
    AFTER,
    ALLOW,
    ASK,
    BEFORE,
    FAILED,
    OTHER,
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

NAME = "cline"
TITLE = "Cline"
SCOPES = ("user", "project")

KINDS = {
    "TaskStart": SESSION_START, "agent_start": SESSION_START,
    "TaskResume": SESSION_START, "agent_resume": SESSION_START,
    "UserPromptSubmit": PROMPT, "prompt_submit": PROMPT,
    "PreToolUse": BEFORE, "tool_call": BEFORE,
    "PostToolUse": AFTER, "tool_result": AFTER,
    "TaskComplete": TURN_END, "agent_end": TURN_END,
    "TaskCancel": TURN_END, "agent_abort": TURN_END,
    "TaskError": TURN_END, "agent_error": TURN_END,
    "SessionShutdown": SESSION_END, "session_shutdown": SESSION_END,
}  # fmt: skip
TOOLS = Tools(
    read_only=frozenset((
        "read_file", "read_files", "list_files", "search_files", "search_codebase", "list_code_definition_names",
        "ask_followup_question", "ask_question", "attempt_completion", "plan_mode_respond", "web_fetch", "web_search",
        "fetch_web_content", "access_mcp_resource", "focus_chain", "use_skill",
    )),
    shells=frozenset(("execute_command", "run_commands", "bash")),
)  # fmt: skip
NOTED = frozenset((SESSION_START, PROMPT, BEFORE, AFTER, FAILED))

_EVENTS = (
    "TaskStart", "TaskResume", "UserPromptSubmit", "PreToolUse", "PostToolUse", "TaskComplete", "TaskCancel",
    "TaskError", "SessionShutdown",
)  # fmt: skip
# The extension keeps each event's own fields under the event's name.
_BLOCKS = (
    "preToolUse", "postToolUse", "userPromptSubmit", "taskStart", "taskResume", "taskCancel", "taskComplete",
    "taskError", "tool_call", "tool_result",
)  # fmt: skip

# Cline lets a call run if its hook fails, whatever the exit code: only this stops one.
_BLOCK = """\
case $? in
127) why="{gone}" ;;
*) why="{ended}" ;;
esac
echo "{{\\"cancel\\": true, \\"errorMessage\\": \\"$why\\"}}"
"""


def read(payload: Mapping[str, object], event: str | None = None) -> HookEvent:
    raw_event = event_name(text(payload, "hookName"), event, KINDS)
    kind = KINDS.get(raw_event, OTHER)
    block = inner(payload, *_BLOCKS)
    sdk = inner(payload, "tool_call", "tool_result")
    roots = strings(payload.get("workspaceRoots")) or strings(payload.get("workspace_roots"))
    if kind == AFTER and (block.get("success") is False or sdk.get("error")):
        kind = FAILED
    found = call(
        NAME,
        kind,
        payload,
        tools=TOOLS,
        tool=text(block, "toolName", "tool") or text(sdk, "name"),
        # The SDK's input is typed; the extension's has every value as a string.
        arguments=inner(sdk, "input") or inner(block, "parameters"),
        session=text(payload, "taskId", "sessionId", "session_id"),
        cwd=text(payload, "cwd") or (roots[0] if roots else None),
        roots=tuple(roots),
        raw_event=raw_event,
        call_id=text(sdk, "id"),
        parent=text(payload, "agent_id") if payload.get("parent_agent_id") else None,
        error=text(block, "error", "result") if kind == FAILED else None,
        # Only the SDK knows how to ask; it is the one that sends snake_case event names.
        can_ask=not raw_event[:1].isupper(),
    )
    return found.replace(prompt=text(block, "prompt") or found.prompt) if kind == PROMPT else found


def answer(event: HookEvent, answer: Answer) -> Reply:
    output: dict[str, object] = {}
    if event.kind in (BEFORE, PROMPT) and answer.decision != ALLOW:
        if answer.decision == ASK and event.kind == BEFORE and event.can_ask:
            output = {"cancel": False, "review": True, "errorMessage": reason_of(answer)}
        else:
            output = {"cancel": True, "errorMessage": reason_of(answer, cannot_ask=True)}
    if answer.note and event.kind in NOTED:
        output = {"cancel": False, **output, "context": answer.note, "contextModification": answer.note}
    return say(output)


def carries_note(event: HookEvent) -> bool:
    return event.kind in NOTED


def detect(machine: Machine) -> bool:
    code = machine.app_data("Code")
    return machine.has_program("cline") or machine.has_folder(
        machine.in_home(".cline"),
        machine.in_home("Documents", "Cline"),
        f"{code}/User/globalStorage/saoudrizwan.claude-dev",
    )


def _folders(machine: Machine, scope: str) -> tuple[str, str]:
    """Where the extension and the SDK both look; then where only the SDK and the command line look."""
    import os

    if scope == "project":
        return machine.in_project(".clinerules", "hooks"), machine.in_project(".cline", "hooks")
    own = machine.variables.get("CLINE_DIR") or machine.in_home(".cline")
    return machine.in_home("Documents", "Cline", "Hooks"), os.path.join(own, "hooks")


def _target(machine: Machine, scope: str, folder: str, event: str) -> Target:
    import os

    from reprieve.agents.machine import Target

    name = f"{event}.ps1" if machine.is_windows else event
    return Target(path=os.path.join(folder, name), part=event, is_own=True, is_executable=True, scope=scope)


def targets(machine: Machine, scope: str) -> Sequence[Target]:
    """The first folder where the event's place is free or ours; if none is, the first, whose plan then fails."""
    chosen = []
    for event in _EVENTS:
        places = [_target(machine, scope, folder, event) for folder in _folders(machine, scope)]
        chosen.append(next((place for place in places if _is_free(place.path)), places[0]))
    return chosen


def _is_free(path: str) -> bool:
    from reprieve.agents.ownfile import is_own

    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return is_own(file.read(4096))
    except FileNotFoundError:
        return True
    except OSError:
        return False


def all_targets(machine: Machine, scope: str) -> Sequence[Target]:
    return [_target(machine, scope, folder, event) for folder in _folders(machine, scope) for event in _EVENTS]


def plan_install(text: str | None, *, target: Target, machine: Machine) -> str:
    from reprieve.agents.machine import ENDED
    from reprieve.agents.ownfile import replace_own

    command = machine.shell_command("hook", NAME, target.part)
    said = "# Undo for AI agents. Remove with: reprieve unprotect cline"
    if machine.is_windows:
        call_operator = "& " if command.startswith('"') else ""
        script = f"{said}\r\n$input | {call_operator}{command}\r\nexit 0\r\n"
    elif KINDS[target.part] == BEFORE:
        gone = machine.gone_text(target.path, "that file")
        script = f"#!/bin/sh\n{said}\n{command} && exit\n{_BLOCK.format(gone=gone, ended=ENDED)}"
    else:
        script = f"#!/bin/sh\n{said}\nexec {command}\n"
    return replace_own(text, script, name=target.path)


def plan_remove(text: str, *, target: Target, before: str | None, is_before_known: bool) -> str | None:
    from reprieve.agents.ownfile import remove_own

    return remove_own(text)


def left_to_do(machine: Machine, scope: str) -> Sequence[str]:
    return ("Cline: check that hooks are enabled in its settings",)
