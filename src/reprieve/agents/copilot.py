"""GitHub Copilot CLI: a file of our own among its hooks, which VS Code reads too; payloads in two spellings.

Before a call any exit other than 0 denies it, which is what a crash of ours should do. The answer itself always exits
with 0 and has a deny on stdout, which carries the reason. All other events end in `|| true`. Copilot gives calls no id.
"""

from __future__ import annotations

from reprieve.agents.reading import Tools, call, event_name, inner, key_of, say, text
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

NAME = "copilot"
TITLE = "GitHub Copilot CLI"
SCOPES = ("user", "project")

KINDS = {
    "sessionStart": SESSION_START, "SessionStart": SESSION_START,
    "userPromptSubmitted": PROMPT, "UserPromptSubmit": PROMPT,
    "preToolUse": BEFORE, "PreToolUse": BEFORE,
    "postToolUse": AFTER, "PostToolUse": AFTER,
    "postToolUseFailure": FAILED, "PostToolUseFailure": FAILED,
    "agentStop": TURN_END, "Stop": TURN_END,
    "subagentStart": SUBAGENT_START, "SubagentStart": SUBAGENT_START,
    "subagentStop": SUBAGENT_END, "SubagentStop": SUBAGENT_END,
    "sessionEnd": SESSION_END, "SessionEnd": SESSION_END,
}  # fmt: skip
TOOLS = Tools(
    # Its own names, and Claude's, under which it reports them to entries in Claude's files.
    read_only=frozenset((
        "view", "grep", "rg", "glob", "web_fetch", "web_search", "ask_user", "update_todo", "read_bash", "list_bash",
        "report_intent", "Read", "Grep", "Glob", "WebFetch", "WebSearch", "AskUserQuestion", "TodoWrite",
    )),
    shells=frozenset(("bash", "powershell", "write_bash", "Bash")),
)  # fmt: skip
# What a tool is called to entries in Claude's files, of those that may change something.
_CLAUDES = {"create": "Write", "edit": "Edit", "str_replace_editor": "Edit", "apply_patch": "Edit", "task": "Agent",
            "Task": "Agent"}  # fmt: skip
NOTED = frozenset((SESSION_START, AFTER, FAILED, SUBAGENT_START))

_EVENTS = (
    ("sessionStart", 20), ("userPromptSubmitted", 20), ("preToolUse", 60), ("postToolUse", 60),
    ("postToolUseFailure", 60), ("agentStop", 60), ("subagentStart", 20), ("subagentStop", 60), ("sessionEnd", 20),
)  # fmt: skip


def read(payload: Mapping[str, object], event: str | None = None) -> HookEvent:
    raw_event = event_name(text(payload, "hook_event_name", "hookEventName"), event, KINDS) or _guess(payload)
    kind = KINDS.get(raw_event, OTHER)
    # toolArgs comes as a JSON string in some versions.
    arguments = inner(payload, "toolArgs", "tool_input")
    found = call(
        NAME,
        kind,
        payload,
        tools=TOOLS,
        tool=text(payload, "toolName", "tool_name"),
        arguments=arguments,
        session=text(payload, "sessionId", "session_id"),
        cwd=text(payload, "cwd"),
        raw_event=raw_event,
        call_id=text(payload, "toolCallId", "tool_use_id"),
        parent=text(payload, "agentId", "agent_id", "agentName", "agent_name"),
        error=text(payload, "error") if kind == FAILED else None,
        can_ask=True,
    )
    return found.replace(input_key=_key(found, arguments)) if found.tool else found


def _key(event: HookEvent, arguments: Mapping[str, object]) -> str:
    """By what it runs or which files it writes: to entries in Claude's files a call is reported once more, as Claude's.

    Its tool has another name there, and perhaps its arguments.
    """
    if event.command is not None:
        return key_of("shell", event.command)
    name = _CLAUDES.get(event.tool or "", event.tool)
    return key_of(name, list(event.paths) if name in ("Write", "Edit") and event.paths else arguments)


def _guess(payload: Mapping[str, object]) -> str:
    """The camelCase payload does not name its event; ours is on the command line, unless somebody moved the entry."""
    if "toolName" in payload:
        if "toolResult" in payload:
            return "postToolUse"
        return "postToolUseFailure" if "error" in payload else "preToolUse"
    return "userPromptSubmitted" if "prompt" in payload else ""


def answer(event: HookEvent, answer: Answer) -> Reply:
    output: dict[str, object] = {}
    is_pascal = event.raw_event[:1].isupper()
    if event.kind == BEFORE and answer.decision != ALLOW:
        output = {"permissionDecision": answer.decision, "permissionDecisionReason": reason_of(answer)}
    if answer.note and event.kind in NOTED:
        output["additionalContext"] = answer.note
    if output and is_pascal:
        # VS Code calls in the same shape and reads only this.
        output["hookSpecificOutput"] = {"hookEventName": event.raw_event, **output}
    return say(output)


def carries_note(event: HookEvent) -> bool:
    return event.kind in NOTED


def detect(machine: Machine) -> bool:
    return machine.has_program("copilot") or machine.has_folder(_folder(machine))


def _folder(machine: Machine) -> str:
    return machine.variables.get("COPILOT_HOME") or machine.in_home(".copilot")


def targets(machine: Machine, scope: str) -> Sequence[Target]:
    import os

    from reprieve.agents.machine import Target

    if scope == "user":
        return (Target(path=os.path.join(_folder(machine), "hooks", "reprieve.json"), is_own=True, scope=scope),)
    return (Target(path=machine.in_project(".github", "hooks", "reprieve.json"), is_own=True, scope=scope),)


def wanted(machine: Machine, file: str) -> dict[str, dict[str, object]]:
    entries: dict[str, dict[str, object]] = {}
    for event, timeout in _EVENTS:
        command = machine.shell_command("hook", NAME, event)
        guarded = machine.hook_command(NAME, event, kind=KINDS[event], file=file)
        entries[event] = {
            "type": "command",
            "bash": guarded if KINDS[event] == BEFORE else f"{command} || true",
            # PowerShell 5 has no `||`; a quoted program needs the call operator.
            "powershell": f"{'& ' if command.startswith(chr(34)) else ''}{command}; exit 0",
            "timeoutSec": timeout,
        }
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
    note = "Copilot CLI and VS Code read the same file: protecting or unprotecting one does the same to the other"
    return (note,) if scope == "user" else (note, "Copilot CLI: hooks of a project run only in a folder that you trust")
