"""`reprieve pin`: keep a checkpoint whatever retention says."""

from __future__ import annotations

from reprieve.cli import opening
from reprieve.cli.refs import REF_HELP
from reprieve.cli.spec import Argument, Command, Option, Parsed
from reprieve.cli.terminal import Terminal

SPEC = Command(
    "pin",
    "Keep a checkpoint whatever `prune` is told",
    (
        ("reprieve pin latest", "keep the newest checkpoint"),
        ("reprieve pin k7m2 --remove", "let `prune` have it again"),
    ),
    arguments=(Argument("REF", REF_HELP, is_required=True, complete="ref"),),
    options=(Option("--remove", "Take the pin away"),),
)


def run(args: Parsed, out: Terminal) -> int:
    is_pinned = not args.flag("remove")
    with opening.workspace(args, out) as ws:
        entry = ws.resolve(args.text("REF"))
        ws.pin(entry.id, pinned=is_pinned)
    out.answer(id=entry.id, pinned=is_pinned)
    out.line(f"{entry.id} is pinned: `prune` keeps it" if is_pinned else f"{entry.id} is no longer pinned")
    return 0
