"""`reprieve redo`: take back the last taking-back."""

from __future__ import annotations

from reprieve.cli import opening
from reprieve.cli.spec import Command, Option, Parsed
from reprieve.cli.take_back import Words, carry_out
from reprieve.cli.terminal import Terminal

SPEC = Command(
    "redo",
    "Undo the last rollback or revert; repeat to go further",
    (
        ("reprieve redo", "bring back what the last rollback took away"),
        ("reprieve redo --dry-run", "see what that would do"),
    ),
    details="A file that you changed since is a conflict: it is shown, and nothing is touched. So is a folder that "
    "would become a file while something new is in it; one that would only go stays with what is new.",
    options=(Option("--dry-run", "Show the plan and stop"),),
    exit_codes=((4, "conflict: nothing was touched"), (6, "partly done")),
)
WORDS = Words("Redo {count}?", "Back to {target}", "Nothing to redo: {everything} is as it was {target}")


def run(args: Parsed, out: Terminal) -> int:
    with opening.workspace(args, out) as ws:
        return carry_out(ws.redo, ws, out, WORDS, dry_run=args.flag("dry-run"), ask=False)
