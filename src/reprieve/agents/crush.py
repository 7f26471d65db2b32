"""Crush: one event (before a tool of the top-level agent) in crush.json, Claude's payload shape under other names.

No "after", no prompt, no sub-agents: a step ends when the next one begins.
"""

from __future__ import annotations

from reprieve.agents.reading import Tools, claude_shaped, say
from reprieve.model.hookevent import ALLOW, BEFORE, OTHER, Answer, HookEvent, Reply, reason_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from reprieve.agents.machine import Machine, Target

NAME = "crush"
TITLE = "Crush"
SCOPES = ("user", "project")

# Crush takes event names in any spelling.
KINDS = {"PreToolUse": BEFORE, "pre_tool_use": BEFORE, "PreCompact": OTHER}
TOOLS = Tools(
    read_only=frozenset((
        "view", "ls", "glob", "grep", "fetch", "sourcegraph", "diagnostics", "references", "job_output", "todos",
        "web_search", "web_fetch", "lsp_diagnostics", "lsp_references", "read_mcp_resource", "list_mcp_resources",
    )),
    shells=frozenset(("bash",)),
)  # fmt: skip


def read(payload: Mapping[str, object], event: str | None = None) -> HookEvent:
    return claude_shaped(NAME, payload, event, kinds=KINDS, tools=TOOLS).replace(tells_end=False)


def answer(event: HookEvent, answer: Answer) -> Reply:
    if event.kind != BEFORE:
        return say({})
    output: dict[str, object] = {}
    if answer.decision != ALLOW:
        output = {"decision": "deny", "reason": reason_of(answer, cannot_ask=True)}
    if answer.note:
        output["context"] = answer.note
    return say(output)


def carries_note(event: HookEvent) -> bool:
    return event.kind == BEFORE


def detect(machine: Machine) -> bool:
    import os

    return machine.has_program("crush") or machine.has_folder(os.path.join(machine.config_home(), "crush"))


def targets(machine: Machine, scope: str) -> Sequence[Target]:
    import os

    from reprieve.agents.machine import Target

    if scope == "user":
        return (Target(path=os.path.join(machine.config_home(), "crush", "crush.json"), scope=scope),)
    plain, hidden = machine.in_project("crush.json"), machine.in_project(".crush.json")
    return (Target(path=plain if os.path.exists(plain) else hidden, scope=scope),)


def all_targets(machine: Machine, scope: str) -> Sequence[Target]:
    from reprieve.agents.machine import Target

    if scope == "user":
        return targets(machine, scope)
    return tuple(Target(path=machine.in_project(name), scope=scope) for name in ("crush.json", ".crush.json"))


def wanted(machine: Machine, file: str) -> dict[str, dict[str, object]]:
    command = machine.hook_command(NAME, "PreToolUse", kind=BEFORE, file=file)
    return {"PreToolUse": {"name": "reprieve", "command": command, "timeout": 60}}


def plan_install(text: str | None, *, target: Target, machine: Machine) -> str:
    from reprieve.agents.hookfile import merge

    return merge(text, wanted(machine, target.path), agent=NAME, name=target.path)


def plan_remove(text: str, *, target: Target, before: str | None, is_before_known: bool) -> str | None:
    from reprieve.agents.hookfile import unmerge

    return unmerge(text, agent=NAME, before=before, is_before_known=is_before_known, name=target.path)


def left_to_do(machine: Machine, scope: str) -> Sequence[str]:
    return ("Crush: it runs no hooks for sub-agents; what they change belongs to the step that started them",)
