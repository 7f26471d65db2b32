"""`reprieve checkpoint`: remember the tree as it is now."""

from __future__ import annotations

from reprieve.cli import humane, opening
from reprieve.cli.gaps import show_gaps
from reprieve.cli.spec import Argument, Command, Option, Parsed
from reprieve.cli.terminal import Terminal

SPEC = Command(
    "checkpoint",
    "Take a checkpoint of the whole tree",
    (
        ("reprieve checkpoint", "remember everything as it is now"),
        ('reprieve checkpoint "before the refactoring" --pin', "with a name, and never pruned"),
    ),
    details=(
        "Everything in the tree is captured: untracked and ignored files, dotfiles, empty directories, links, modes "
        "and times. What could not be captured is named as a gap. The id is the last word of the last line."
    ),
    arguments=(
        Argument("LABEL", "A label for it; REF takes it wherever it takes an id, so it can't be `latest` or a time"),
    ),
    options=(
        Option("--pin", "Keep it whatever `prune` is told"),
        Option("--note", "A longer text, shown by `show`", metavar="TEXT"),
        opening.ANYWHERE,
    ),
)


def run(args: Parsed, out: Terminal) -> int:
    with opening.workspace(args, out, create=True) as ws:
        made = ws.checkpoint(ws.label(args.text("LABEL")), pin=args.flag("pin"), note=args.text("note"))
    entry = made.entry
    if out.json:
        from reprieve.app.render import checkpoint_json

        out.answer(checkpoint=checkpoint_json(entry, made.gaps))
        return 0
    show_gaps(out, made.gaps)
    if out.quiet:
        out.line(entry.id)
        return 0
    changed = f", {humane.count(entry.changed, 'path')} changed" if entry.changed else ", nothing changed"
    label = f' "{humane.safe(entry.label)}"' if entry.label else ""
    out.line(
        f"Checkpoint{label} of {humane.count(entry.files, 'file')}, {humane.size(entry.size)}{changed}: {entry.id}"
    )
    return 0
