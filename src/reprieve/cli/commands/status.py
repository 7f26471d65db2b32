"""`reprieve status`: what changed since a checkpoint. Also what a bare `reprieve` says."""

from __future__ import annotations

from reprieve.app.beside import since
from reprieve.app.plan_story import unfinished
from reprieve.app.render import status_json
from reprieve.cli import humane, opening
from reprieve.cli.gaps import show_gaps, show_unprotected
from reprieve.cli.refs import REF_HELP
from reprieve.cli.show_changes import show_changes
from reprieve.cli.show_effects import one_line
from reprieve.cli.spec import Command, Option, Parsed
from reprieve.cli.terminal import Terminal
from reprieve.errors import Misconfigured

SPEC = Command(
    "status",
    "Show what changed since the last checkpoint, and what is not protected",
    (
        ("reprieve status", "changes since the latest checkpoint"),
        ('reprieve status --since "10m ago"', "changes since the checkpoint before that time"),
    ),
    options=(Option("--since", REF_HELP, metavar="REF", complete="ref"),),
)


def run(args: Parsed, out: Terminal) -> int:
    is_bare = not args.word
    try:
        ws = opening.workspace(args, out)
    except Misconfigured as error:
        if not is_bare or out.json or not any("reprieve init" in hint for hint in error.hints):
            raise
        out.line(f"'{humane.safe(args.start)}' is not protected yet")
        _next(out, _BEGIN)
        return 0
    with ws:
        status = ws.status(args.maybe("since"))
        effects = since(ws, status.base)
        broken = unfinished(ws.timeline)
        if out.json:
            out.answer(**status_json(ws, status, effects, broken))
            return 0
    base = status.base
    if base is None:
        show_unprotected(out)
        return 0
    name = f'{base.id} "{humane.safe(base.title)}"' if base.title else base.id
    out.line(f"Since {name} ({humane.age(base.created_at)}):")
    show_changes(out, status.changes, none="  nothing changed")
    for effect in effects:
        out.line("  " + one_line(effect))
    show_gaps(out, status.gaps)
    for step in broken:
        name = f"{step.plan}/{step.name}"
        out.line(f"  plan step '{name}' was broken off; take it back: reprieve undo step:{name}")
    if is_bare:
        _next(out, _AFTER)
    elif status.changes:
        ref = f" {base.id}" if args.maybe("since") else ""  # without it both mean the latest checkpoint
        out.say(f"See the lines: reprieve diff{ref}. Take it back: reprieve rollback{ref}")
    return 0


_BEGIN = (
    ("reprieve run -- COMMAND", "run an agent, or anything, so that it can be taken back"),
    ("reprieve checkpoint", "remember everything here as it is now"),
    ("reprieve --help", "what else there is"),
)
_AFTER = (
    ("reprieve diff", "see the lines"),
    ("reprieve rollback", "take it all back"),
    ("reprieve log", "see what happened before"),
)


def _next(out: Terminal, commands: tuple[tuple[str, str], ...]) -> None:
    out.say()
    for command, meaning in commands:
        out.say(f"  {command:26} {meaning}")
