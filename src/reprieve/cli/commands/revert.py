"""`reprieve revert`: bring back single files and folders."""

from __future__ import annotations

from reprieve.app.paths import beneath_root
from reprieve.cli import opening
from reprieve.cli.pick import pick
from reprieve.cli.refs import REF_HELP
from reprieve.cli.spec import Argument, Command, Option, Parsed
from reprieve.cli.take_back import Words, carry_out
from reprieve.cli.terminal import Terminal
from reprieve.errors import Usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from reprieve.model.plan import Plan, Report

SPEC = Command(
    "revert",
    "Bring back single files, folders or globs",
    (
        ("reprieve revert src/main.py", "as it was at the latest checkpoint"),
        ("reprieve revert 'docs/*.md' --to ~2", "all that match, from two checkpoints before the latest"),
    ),
    details=(
        "Paths are relative to where you stand. The name of a file is no glob; a database comes with its side files. "
        "Everything else stays as it is. What is there now is kept first, so `redo` takes it back."
    ),
    arguments=(Argument("PATH", "A file, folder or glob", is_required=True, is_many=True, complete="path"),),
    options=(
        Option("--to", REF_HELP, metavar="REF", default="latest", complete="ref"),
        Option("--hunk", "Only this place of one file, counted as in `reprieve diff`", metavar="N", is_many=True),
        Option("--pick", "Choose the places one by one, on a terminal"),
        Option("--dry-run", "Show the plan and stop"),
    ),
    exit_codes=((4, "conflict: nothing was touched"), (6, "partly done")),
)
WORDS = Words("Revert {count}?", "Reverted to {target}", "Nothing to revert: it is as it was at {target}")


def _number(word: str) -> int:
    if not word.isdecimal():
        raise Usage(f"--hunk needs a number, not '{word}'")
    return int(word)


def run(args: Parsed, out: Terminal) -> int:
    with opening.workspace(args, out) as ws:
        paths = tuple(beneath_root(ws.root, args.start, path) for path in args.many("PATH"))

        hunks = tuple(_number(word) for word in args.many("hunk"))
        if args.flag("pick"):
            hunks = pick(ws, paths, args.maybe("to"), out)

        def move(*, dry_run: bool, expect: str) -> tuple[Plan, Report | None]:
            return ws.revert(paths, args.maybe("to"), hunks=hunks, dry_run=dry_run, expect=expect)

        return carry_out(move, ws, out, WORDS, dry_run=args.flag("dry-run"), ask=False)
