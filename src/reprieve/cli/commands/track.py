"""`reprieve track`: protect paths outside the tree as well."""

from __future__ import annotations

import os

from reprieve.app.annexes import track, tracked, untrack
from reprieve.cli import humane, opening
from reprieve.cli.spec import Argument, Command, Option, Parsed
from reprieve.cli.terminal import Terminal

SPEC = Command(
    "track",
    "Protect files and folders outside the tree as well",
    (
        ("reprieve track ~/.zshrc ../shared", "from the next checkpoint on"),
        ("reprieve track", "see what is tracked"),
    ),
    details=(
        "Checkpoints of this workspace hold these paths too, and `rollback`, `undo` and `redo` move them along. Plans "
        "and reports name them by their full path. A link is tracked together with what it leads to, an "
        "SQLite database with its logs. In a folder that is in no workspace it makes one, as `checkpoint` does. "
        "After --remove, a rollback to a checkpoint that holds the path puts it back and tracks it again. If an agent "
        "worked since, the rollback only reports it (exit code 6), unless you add --everything. An agent can't "
        "use --remove."
    ),
    arguments=(Argument("PATH", "A file or folder; none: show what is tracked", is_many=True, complete="path"),),
    options=(Option("--remove", "Stop tracking these; checkpoints that hold them keep them"),),
)


def run(args: Parsed, out: Terminal) -> int:
    given = [os.path.normpath(os.path.join(args.start, os.path.expanduser(path))) for path in args.many("PATH")]
    here = os.path.join(os.path.realpath(args.start), "")
    # what is in this folder needs no workspace that tracks it, but one around it, which 'init' makes
    is_outside = not any(os.path.join(os.path.realpath(path), "").startswith(here) for path in given)
    with opening.workspace(args, out, create=bool(given) and is_outside and not args.flag("remove")) as ws:
        if args.flag("remove"):
            found = untrack(ws, given)
        else:
            found = track(ws, given) if given else tracked(ws)
    out.answer(tracked=found)
    for path in found:
        out.line(humane.safe(path))
    if not found:
        out.line("Nothing outside the tree is tracked")
    elif given and not args.flag("remove"):
        out.say("Protected from the next checkpoint on: reprieve checkpoint")
    return 0
