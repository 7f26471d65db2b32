"""`reprieve name`: give an entry a label afterwards."""

from __future__ import annotations

from reprieve.app.persons import need_person
from reprieve.cli import humane, opening
from reprieve.cli.refs import REF_HELP
from reprieve.cli.spec import Argument, Command, Parsed
from reprieve.cli.terminal import Terminal
from reprieve.errors import BadRef

TYPE_CHECKING = False
if TYPE_CHECKING:
    from reprieve.app.workspace import Workspace

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


def _keep_others_names(ws: Workspace, ref: str, text: str) -> None:
    """Raises Refused if an agent takes a name or label away: from its entry, or by giving it to another."""
    is_called = bool(ws.resolve(ref).title)
    try:
        is_called |= bool(text) and bool(ws.resolve(text))
    except BadRef:
        pass  # nothing is called so yet
    if is_called:
        need_person(ws, "change the name of a checkpoint")


def run(args: Parsed, out: Terminal) -> int:
    with opening.workspace(args, out) as ws:
        _keep_others_names(ws, args.text("REF"), args.text("TEXT"))
        entry = ws.name(args.text("REF"), args.text("TEXT"))
    out.answer(id=entry.id, label=entry.title)
    when = "now" if entry.name else "again"  # the label that it was made with
    out.line(f'{entry.id} is {when} "{humane.safe(entry.title)}"' if entry.title else f"{entry.id} has no name")
    return 0
