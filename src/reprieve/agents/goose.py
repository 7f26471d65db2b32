"""Goose: a plugin folder of our own with two files; Claude's payload shape under other field names; exit 2 refuses."""

from __future__ import annotations

from reprieve.agents.reading import Tools, claude_shaped, refuse_by_exit, text
from reprieve.model.hookevent import (
    AFTER,
    ALLOW,
    BEFORE,
    FAILED,
    OTHER,
    PROMPT,
    SESSION_END,
    SESSION_START,
    SILENT,
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

NAME = "goose"
TITLE = "Goose"
SCOPES = ("user", "project")

KINDS = {
    "SessionStart": SESSION_START,
    "UserPromptSubmit": PROMPT,
    "PreToolUse": BEFORE,
    "PostToolUse": AFTER,
    "PostToolUseFailure": FAILED,
    "SubagentStart": SUBAGENT_START,
    "SubagentStop": SUBAGENT_END,
    "Stop": TURN_END,
    "SessionEnd": SESSION_END,
    # These repeat PreToolUse and PostToolUse for one kind of tool; nothing is opened or closed by them.
    "BeforeReadFile": OTHER, "AfterFileEdit": OTHER, "BeforeShellExecution": OTHER, "AfterShellExecution": OTHER,
}  # fmt: skip
TOOLS = Tools(
    read_only=frozenset(("developer__tree", "developer__read_image", "developer__analyze", "todo__todo_write")),
    shells=frozenset(("developer__shell", "shell")),
)

_EVENTS = (
    ("SessionStart", 20), ("UserPromptSubmit", 20), ("PreToolUse", 60), ("PostToolUse", 60), ("PostToolUseFailure", 60),
    ("Stop", 60), ("SubagentStart", 20), ("SubagentStop", 60), ("SessionEnd", 20),
)  # fmt: skip


def read(payload: Mapping[str, object], event: str | None = None) -> HookEvent:
    found = claude_shaped(NAME, payload, event, kinds=KINDS, tools=TOOLS)
    arguments = payload.get("tool_input")
    if isinstance(arguments, dict) and found.tool == "developer__text_editor" and arguments.get("command") == "view":
        return found.replace(is_read_only=True, paths=())
    if found.kind == PROMPT and found.prompt is None:
        return found.replace(prompt=text(payload, "message"))
    return found


def answer(event: HookEvent, answer: Answer) -> Reply:
    if event.kind == BEFORE and answer.decision != ALLOW:
        return refuse_by_exit(event, answer)
    return SILENT


def carries_note(event: HookEvent) -> bool:
    return False


def detect(machine: Machine) -> bool:
    import os

    return machine.has_program("goose") or machine.has_folder(os.path.join(machine.config_home(), "goose"))


def targets(machine: Machine, scope: str) -> Sequence[Target]:
    from reprieve.agents.machine import Target

    place = machine.in_home if scope == "user" else machine.in_project
    return (
        Target(path=place(".agents", "plugins", "reprieve", "plugin.json"), part="plugin", is_own=True, scope=scope),
        Target(path=place(".agents", "plugins", "reprieve", "hooks", "hooks.json"), is_own=True, scope=scope),
    )


def wanted(machine: Machine, file: str) -> dict[str, dict[str, object]]:
    entries: dict[str, dict[str, object]] = {}
    for event, timeout in _EVENTS:
        command = machine.hook_command(NAME, event, kind=KINDS[event], file=file)
        handler = {"type": "command", "command": command, "timeout": timeout}
        entries[event] = {"hooks": [handler]}
    return entries


_PLUGIN = """{
  "name": "reprieve",
  "version": "1.0.0",
  "description": "Undo for AI agents. Remove with: reprieve unprotect goose"
}
"""


def plan_install(text: str | None, *, target: Target, machine: Machine) -> str:
    if target.part == "plugin":
        from reprieve.agents.ownfile import replace_own

        return replace_own(text, _PLUGIN, name=target.path)
    from reprieve.agents.hookfile import merge

    return merge(text, wanted(machine, target.path), agent=NAME, name=target.path)


def plan_remove(text: str, *, target: Target, before: str | None, is_before_known: bool) -> str | None:
    if target.part == "plugin":
        from reprieve.agents.ownfile import remove_own

        return remove_own(text)
    from reprieve.agents.hookfile import unmerge

    return unmerge(text, agent=NAME, before=before, is_before_known=is_before_known, name=target.path)


def left_to_do(machine: Machine, scope: str) -> Sequence[str]:
    return ("Goose: check that its config.yaml does not say `enabled: false` for this plugin",)
