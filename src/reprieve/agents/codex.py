"""OpenAI Codex CLI: hooks.json (or tables in config.toml where the person keeps hooks there), Claude's payload shape.

Codex cannot ask a person from a hook, and takes an `allow` or `ask` for a broken hook that it then ignores: the only
thing that stops a call is a deny with a reason.
"""

from __future__ import annotations

from reprieve.agents.reading import Tools, claude_answer, claude_shaped, text
from reprieve.model.hookevent import (
    AFTER,
    BEFORE,
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

NAME = "codex"
TITLE = "Codex CLI"
SCOPES = ("user", "project")

KINDS = {
    "SessionStart": SESSION_START,
    "UserPromptSubmit": PROMPT,
    "PreToolUse": BEFORE,
    "PostToolUse": AFTER,
    "Stop": TURN_END,
    "StopFailure": TURN_END,
    "SubagentStart": SUBAGENT_START,
    "SubagentStop": SUBAGENT_END,
    "SessionEnd": SESSION_END,
    "agent-turn-complete": TURN_END,
}
TOOLS = Tools(
    read_only=frozenset((
        "update_plan", "view_image", "web_search", "read_file", "list_dir", "grep_files", "list_mcp_resources",
        "list_mcp_resource_templates", "read_mcp_resource", "request_user_input", "wait_agent", "get_goal",
    )),
    shells=frozenset(("Bash", "shell", "shell_command", "local_shell", "exec_command", "unified_exec", "write_stdin")),
)  # fmt: skip
NOTED = frozenset((SESSION_START, PROMPT, AFTER))

# Order and text are part of what the person trusts: a new event goes to the end. Rewording an old one means that the
# person has to trust it again, and that Codex ignores it until then.
_EVENTS = (
    ("SessionStart", 20), ("UserPromptSubmit", 20), ("PreToolUse", 60), ("PostToolUse", 60), ("Stop", 60),
    ("SubagentStart", 20), ("SubagentStop", 60),
)  # fmt: skip
_MATCHED = ("PreToolUse", "PostToolUse")


def read(payload: Mapping[str, object], event: str | None = None) -> HookEvent:
    if payload.get("type") == "agent-turn-complete":  # the older `notify` program
        return HookEvent(
            agent=NAME,
            kind=TURN_END,
            session=text(payload, "thread-id"),
            turn=text(payload, "turn-id"),
            cwd=text(payload, "cwd"),
            raw_event="agent-turn-complete",
        )
    return claude_shaped(NAME, payload, event, kinds=KINDS, tools=TOOLS)


def answer(event: HookEvent, answer: Answer) -> Reply:
    return claude_answer(event, answer, noted=NOTED)


def carries_note(event: HookEvent) -> bool:
    return event.kind in NOTED


def detect(machine: Machine) -> bool:
    return machine.has_program("codex") or machine.has_folder(_folder(machine))


def _folder(machine: Machine) -> str:
    return machine.variables.get("CODEX_HOME") or machine.in_home(".codex")


def targets(machine: Machine, scope: str) -> Sequence[Target]:
    """hooks.json; but config.toml where that has hooks already: Codex warns of two sources."""
    import os

    from reprieve.agents import fenced

    both = all_targets(machine, scope)
    if not os.path.exists(both[0].path) and fenced.has_hooks(both[1].path):
        return both[1:]
    return both[:1]


def all_targets(machine: Machine, scope: str) -> Sequence[Target]:
    import os

    from reprieve.agents.machine import Target

    folder = _folder(machine) if scope == "user" else machine.in_project(".codex")
    return (
        Target(path=os.path.join(folder, "hooks.json"), scope=scope),
        Target(path=os.path.join(folder, "config.toml"), part="toml", scope=scope),
    )


def wanted(machine: Machine, file: str) -> dict[str, dict[str, object]]:
    entries: dict[str, dict[str, object]] = {}
    for event, timeout in _EVENTS:
        command = machine.hook_command(NAME, event, kind=KINDS[event], file=file)
        handler = {"type": "command", "command": command, "timeout": timeout}
        entries[event] = {"matcher": "*", "hooks": [handler]} if event in _MATCHED else {"hooks": [handler]}
    return entries


def plan_install(text: str | None, *, target: Target, machine: Machine) -> str:
    if target.part == "toml":
        from reprieve.agents import fenced

        return fenced.merge(text, wanted(machine, target.path), agent=NAME, name=target.path)
    from reprieve.agents.hookfile import merge

    return merge(text, wanted(machine, target.path), agent=NAME, name=target.path)


def plan_remove(text: str, *, target: Target, before: str | None, is_before_known: bool) -> str | None:
    if target.part == "toml":
        from reprieve.agents import fenced

        return fenced.unmerge(text, agent=NAME, before=before, name=target.path)
    from reprieve.agents.hookfile import unmerge

    return unmerge(text, agent=NAME, before=before, is_before_known=is_before_known, name=target.path)


def left_to_do(machine: Machine, scope: str) -> Sequence[str]:
    return (
        "Codex: open /hooks in Codex and trust the entries of reprieve; until then it drops them without a word",
        "Codex: `codex exec` may skip hooks; use `reprieve run -- codex exec …` there",
    )
