"""`reprieve name`: give an entry a label afterwards."""

from __future__ import annotations

from reprieve.cli import humane, opening
from reprieve.cli.refs import REF_HELP
from reprieve.cli.spec import Argument, Command, Parsed
from reprieve.cli.terminal import Terminal

SPEC = Command(
    "name",
    "Give a checkpoint a label",
    (
        ('reprieve name latest "it worked here"', "name the newest checkpoint"),
        ('reprieve name k7m2 ""', "take the name away again"),
    ),
    arguments=(
        Argument("REF", REF_HELP, is_required=True, complete="ref"),
        Argument("TEXT", "The label", is_required=True),
    ),
)


def run(args: Parsed, out: Terminal) -> int:
    with opening.workspace(args, out) as ws:
        entry = ws.resolve(args.text("REF"))
        ws.name(entry.id, args.text("TEXT"))
    out.answer(id=entry.id, label=args.text("TEXT"))
    out.line(
        f'{entry.id} is now "{humane.safe(args.text("TEXT"))}"' if args.text("TEXT") else f"{entry.id} has no name"
    )
    return 0
