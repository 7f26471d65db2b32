"""`reprieve forget`: remove a path's content from history, really."""

from __future__ import annotations

from reprieve.app.annexes import holder
from reprieve.app.care import forget
from reprieve.cli import humane, opening
from reprieve.cli.spec import Argument, Command, Option, Parsed
from reprieve.cli.terminal import Terminal
from reprieve.errors import Refused

SPEC = Command(
    "forget",
    "Remove a path's content from every checkpoint, for good",
    (
        ("reprieve forget secrets.env --dry-run", "see what would be removed"),
        ("reprieve forget secrets.env --yes", "remove it without asking"),
    ),
    details=(
        "The file in the tree stays as it is. Content that other paths share stays too, and is named. This is the "
        "one command that cannot be taken back. Of a tracked path the history goes too; it stays tracked."
    ),
    arguments=(Argument("PATH", "A file or folder", is_required=True, complete="path"),),
    options=(Option("--dry-run", "Show what would be removed and stop"), Option("--yes", "Do not ask", short="-y")),
    exit_codes=((1, "some of the content stays, because other paths have the same"), (5, "not confirmed")),
)


def run(args: Parsed, out: Terminal) -> int:
    with opening.workspace(args, out) as ws:
        owner, path = holder(ws, args.start, args.text("PATH"))
        is_dry = args.flag("dry-run")
        if not is_dry and not args.flag("yes"):
            question = f"Remove the history of '{humane.path(path)}' for good?"
            if not out.is_interactive:
                raise Refused(
                    f"forgetting '{args.text('PATH')}' cannot be taken back",
                    hints=["see what would go: --dry-run", "if that is what you want: --yes"],
                )
            if not out.confirm(question):
                raise Refused("not confirmed; nothing was removed")
        gone = forget(owner, path, dry_run=is_dry)
    out.answer(
        dry_run=is_dry,
        objects=gone.objects,
        bytes=gone.bytes,
        checkpoints=gone.checkpoints,
        remaining=list(gone.remaining),
    )
    verb = "Would remove" if is_dry else "Removed"
    out.line(
        f"{verb} {humane.count(gone.objects, 'object')}, {humane.size(gone.bytes)}, "
        f"from {humane.count(gone.checkpoints, 'checkpoint')}"
    )
    for text in gone.remaining:
        out.line(f"  stays: {humane.safe(text)}")
    return 1 if gone.remaining else 0
