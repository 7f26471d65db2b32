"""Windsurf (Devin Desktop): flat entries in hooks.json, one event per kind of tool, exit 2 as the only way to refuse.

No call ids (an execution id per turn), no asking, no notes to the model, no time limit of its own.
"""

from __future__ import annotations

from reprieve.agents.reading import Tools, call, event_name, inner, refuse_by_exit, text
from reprieve.model.hookevent import AFTER, ALLOW, BEFORE, OTHER, PROMPT, SILENT, TURN_END, Answer, HookEvent, Reply

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from reprieve.agents.machine import Machine, Target

NAME = "windsurf"
TITLE = "Windsurf"
SCOPES = ("user", "project")

KINDS = {
    "pre_user_prompt": PROMPT,
    "pre_read_code": BEFORE,
    "pre_write_code": BEFORE,
    "pre_run_command": BEFORE,
    "pre_mcp_tool_use": BEFORE,
    "post_read_code": AFTER,
    "post_write_code": AFTER,
    "post_run_command": AFTER,
    "post_mcp_tool_use": AFTER,
    "post_cascade_response": TURN_END,
    "post_cascade_response_with_transcript": TURN_END,
}
TOOLS = Tools(read_only=frozenset(("read_code",)), shells=frozenset(("run_command",)))

# Reads are left out: they would cost a process each and change nothing.
_EVENTS = (
    "pre_user_prompt", "pre_write_code", "post_write_code", "pre_run_command", "post_run_command", "pre_mcp_tool_use",
    "post_mcp_tool_use", "post_cascade_response",
)  # fmt: skip


def read(payload: Mapping[str, object], event: str | None = None) -> HookEvent:
    raw_event = event_name(text(payload, "agent_action_name"), event, KINDS)
    info = inner(payload, "tool_info")
    tool = raw_event.partition("_")[2] or None
    arguments: Mapping[str, object] = info
    if tool == "mcp_tool_use":
        name, server = text(info, "mcp_tool_name"), text(info, "mcp_server_name")
        tool = f"mcp__{server or ''}__{name or ''}"
        arguments = inner(info, "mcp_tool_arguments")
    # A result must not be part of what pairs "after" with "before".
    arguments = {k: v for k, v in arguments.items() if k not in ("mcp_result", "output", "exit_code", "result")}
    kind = KINDS.get(raw_event, OTHER)
    found = call(
        NAME,
        kind,
        payload,
        tools=TOOLS,
        tool=tool,
        arguments=arguments,
        session=text(payload, "trajectory_id"),
        cwd=text(info, "cwd"),
        raw_event=raw_event,
        turn=text(payload, "execution_id"),
    )
    if kind == PROMPT:
        found = found.replace(prompt=text(info, "user_prompt"))
    transcript = text(info, "transcript_path")
    return found.replace(transcript_path=transcript) if transcript else found


def answer(event: HookEvent, answer: Answer) -> Reply:
    if event.kind in (BEFORE, PROMPT) and answer.decision != ALLOW:
        return refuse_by_exit(event, answer)
    return SILENT


def carries_note(event: HookEvent) -> bool:
    return False


def detect(machine: Machine) -> bool:
    return machine.has_program("windsurf", "devin-desktop") or machine.has_folder(
        machine.in_home(".codeium", "windsurf"), machine.app_data("Windsurf")
    )


def targets(machine: Machine, scope: str) -> Sequence[Target]:
    from reprieve.agents.machine import Target

    if scope == "user":
        return (Target(path=machine.in_home(".codeium", "windsurf", "hooks.json"), scope=scope),)
    return (Target(path=machine.in_project(".windsurf", "hooks.json"), scope=scope),)


def wanted(machine: Machine, file: str) -> dict[str, dict[str, object]]:
    return {
        event: {"command": machine.hook_command(NAME, event, kind=KINDS[event], file=file), "show_output": False}
        for event in _EVENTS
    }


def plan_install(text: str | None, *, target: Target, machine: Machine) -> str:
    from reprieve.agents.hookfile import merge

    return merge(text, wanted(machine, target.path), agent=NAME, name=target.path)


def plan_remove(text: str, *, target: Target, before: str | None, is_before_known: bool) -> str | None:
    from reprieve.agents.hookfile import unmerge

    return unmerge(text, agent=NAME, before=before, is_before_known=is_before_known, name=target.path)


def left_to_do(machine: Machine, scope: str) -> Sequence[str]:
    return ("Windsurf: restart it, and check with `reprieve log` after the first edit that a step appears",)
