"""`reprieve hook`: what coding agents call before and after each step (cli/hooking.py answers)."""

from __future__ import annotations

from reprieve.cli.hooking import serve
from reprieve.cli.spec import Argument, Command, Parsed
from reprieve.cli.terminal import Terminal

SPEC = Command(
    "hook",
    "Answer a coding agent's hook; `protect` installs it",
    (
        ("reprieve hook claude-code PreToolUse < payload.json", "what Claude Code calls before a tool"),
        ("reprieve hook codex PreToolUse < payload.json", "what Codex calls; REPRIEVE_DISABLED=1 turns hooks off"),
    ),
    details=(
        "Reads the agent's payload from standard input. Before a step that may change something it takes a checkpoint; "
        "if that fails, `hook.on_failure` decides, and the answer says why. Steps that only read cost nothing."
    ),
    arguments=(
        Argument("AGENT", "Whose hook it is", is_required=True, complete="agent"),
        Argument("EVENT", "The event's name, where the payload does not say it"),
    ),
    exit_codes=((2, "the step is refused, for agents that understand only this"),),
)


def run(args: Parsed, out: Terminal) -> int:
    return serve((args.text("AGENT"), *args.many("EVENT")))
