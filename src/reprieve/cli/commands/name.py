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
    details=(
        "A name stands for the label that the checkpoint was made with: it is no longer called so. Without the name it "
        'is; where there is none, "" takes the label away.'
    ),
    arguments=(
        Argument("REF", REF_HELP, is_required=True, complete="ref"),
        Argument("TEXT", "The label", is_required=True),
    ),
)


def run(args: Parsed, out: Terminal) -> int:
    with opening.workspace(args, out) as ws:
        entry = ws.name(args.text("REF"), args.text("TEXT"))
    out.answer(id=entry.id, label=entry.title)
    when = "now" if entry.name else "again"  # the label that it was made with
    out.line(f'{entry.id} is {when} "{humane.safe(entry.title)}"' if entry.title else f"{entry.id} has no name")
    return 0
