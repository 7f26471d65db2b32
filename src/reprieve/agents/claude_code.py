"""Claude Code: entries in settings.json, Claude's own payloads and answers.

VS Code, Copilot CLI and Cursor read the same files and run the same entries; `registry.host_of` tells them apart.
"""

from __future__ import annotations

from reprieve.agents.reading import Tools, claude_answer, claude_shaped
from reprieve.model.hookevent import (
    AFTER,
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
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from reprieve.agents.machine import Machine, Target

NAME = "claude-code"
TITLE = "Claude Code"
SCOPES = ("user", "project")

KINDS = {
    "SessionStart": SESSION_START,
    "UserPromptSubmit": PROMPT,
    "PreToolUse": BEFORE,
    "PostToolUse": AFTER,
    "PostToolUseFailure": FAILED,
    "PermissionDenied": FAILED,
    "PostToolBatch": OTHER,
    "Stop": TURN_END,
    "StopFailure": TURN_END,
    "SubagentStart": SUBAGENT_START,
    "SubagentStop": SUBAGENT_END,
    "SessionEnd": SESSION_END,
}
TOOLS = Tools(
    read_only=frozenset((
        "Read", "Glob", "Grep", "LS", "NotebookRead", "WebFetch", "WebSearch", "TodoWrite", "TodoRead", "BashOutput",
        "TaskOutput", "TaskList", "TaskGet", "TaskCreate", "TaskUpdate", "AskUserQuestion", "EnterPlanMode",
        "ExitPlanMode", "ToolSearch", "ListMcpResourcesTool", "ReadMcpResourceTool", "LSP",
    )),
    shells=frozenset(("Bash", "PowerShell", "Monitor")),
)  # fmt: skip
NOTED = frozenset((SESSION_START, PROMPT, BEFORE, AFTER, FAILED, SUBAGENT_START))

# Seconds. A hook that is killed lets the tool run, so there is room for a slow disk; our own budget is far below.
# SessionEnd: all hooks together have 1.5 s unless one asks for more.
_EVENTS = (
    ("SessionStart", 20), ("UserPromptSubmit", 20), ("PreToolUse", 60), ("PostToolUse", 60), ("PostToolUseFailure", 60),
    ("PostToolBatch", 60), ("Stop", 60), ("SubagentStart", 20), ("SubagentStop", 60), ("SessionEnd", 10),
)  # fmt: skip
_MATCHED = ("PreToolUse", "PostToolUse", "PostToolUseFailure")


def read(payload: Mapping[str, object], event: str | None = None) -> HookEvent:
    return claude_shaped(NAME, payload, event, kinds=KINDS, tools=TOOLS, can_ask=True)


def answer(event: HookEvent, answer: Answer) -> Reply:
    return claude_answer(event, answer, noted=NOTED)


def carries_note(event: HookEvent) -> bool:
    return event.kind in NOTED


def detect(machine: Machine) -> bool:
    return machine.has_program("claude") or machine.has_folder(_folder(machine))


def _folder(machine: Machine) -> str:
    return machine.variables.get("CLAUDE_CONFIG_DIR") or machine.in_home(".claude")


def targets(machine: Machine, scope: str) -> Sequence[Target]:
    import os

    from reprieve.agents.machine import Target

    if scope == "user":
        return (Target(path=os.path.join(_folder(machine), "settings.json"), scope=scope),)
    # The personal file: what is installed on this machine is no business of the whole team's repository.
    return (Target(path=machine.in_project(".claude", "settings.local.json"), scope=scope),)


def all_targets(machine: Machine, scope: str) -> Sequence[Target]:
    from reprieve.agents.machine import Target

    shared = Target(path=machine.in_project(".claude", "settings.json"), scope=scope)
    return (*targets(machine, scope), shared) if scope == "project" else targets(machine, scope)


def wanted(machine: Machine, file: str) -> dict[str, dict[str, object]]:
    """Our entry per event.

    One string for a shell, not Claude's `args` form: the other programs that read this file know only `command`, and
    would run us without arguments, which ends in a usage error: exit 2, which blocks every call.
    """
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
        return ()
    return ("Claude Code: answer yes when it asks whether you trust this folder; before that it runs no hooks here",)
