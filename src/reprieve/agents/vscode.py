"""VS Code's agent mode: the file that Copilot CLI reads too, Claude's payload shape with tool names of its own."""

from __future__ import annotations

from reprieve.agents import copilot
from reprieve.agents.reading import Tools, claude_answer, claude_shaped
from reprieve.model.hookevent import (
    AFTER,
    BEFORE,
    FAILED,
    PROMPT,
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

NAME = "vscode"
TITLE = "VS Code"
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
    # The names in the shared file; given on the command line, used if the payload has none.
    "sessionStart": SESSION_START, "userPromptSubmitted": PROMPT, "preToolUse": BEFORE, "postToolUse": AFTER,
    "postToolUseFailure": FAILED, "subagentStart": SUBAGENT_START, "subagentStop": SUBAGENT_END, "agentStop": TURN_END,
}  # fmt: skip
TOOLS = Tools(
    read_only=frozenset((
        "read_file", "list_dir", "file_search", "grep_search", "semantic_search", "get_errors", "get_changed_files",
        "list_code_usages", "get_terminal_output", "fetch_webpage", "github_repo", "manage_todo_list", "test_search",
        "get_search_view_results", "terminal_last_command", "terminal_selection", "think", "view_image", "readFile",
        "listDirectory", "codebase", "textSearch", "fileSearch",
    )),
    shells=frozenset(("run_in_terminal", "runTerminalCommand", "runInTerminal")),
)  # fmt: skip
NOTED = frozenset((SESSION_START, BEFORE, AFTER))


def read(payload: Mapping[str, object], event: str | None = None) -> HookEvent:
    found = claude_shaped(NAME, payload, event, kinds=KINDS, tools=TOOLS, can_ask=True)
    is_background = found.is_background
    arguments = payload.get("tool_input")
    if isinstance(arguments, dict) and arguments.get("isBackground") is True:
        is_background = True
    return found.replace(is_background=is_background)


def answer(event: HookEvent, answer: Answer) -> Reply:
    return claude_answer(event, answer, noted=NOTED)


def carries_note(event: HookEvent) -> bool:
    return event.kind in NOTED


def detect(machine: Machine) -> bool:
    return machine.has_program("code", "code-insiders") or machine.has_folder(
        machine.in_home(".vscode"), machine.app_data("Code")
    )


def targets(machine: Machine, scope: str) -> Sequence[Target]:
    return copilot.targets(machine, scope)


def plan_install(text: str | None, *, target: Target, machine: Machine) -> str:
    return copilot.plan_install(text, target=target, machine=machine)


def plan_remove(text: str, *, target: Target, before: str | None, is_before_known: bool) -> str | None:
    return copilot.plan_remove(text, target=target, before=before, is_before_known=is_before_known)


def left_to_do(machine: Machine, scope: str) -> Sequence[str]:
    return (
        "Copilot CLI and VS Code read the same file: protecting or unprotecting one does the same to the other",
        "VS Code: agent hooks are a preview; check that chat.hookFilesLocations does not exclude this file",
    )
