"""`reprieve undo`: take one step back and keep what came after it."""

from __future__ import annotations

from reprieve.cli import opening
from reprieve.cli.choices import ON_CONFLICT
from reprieve.cli.spec import Argument, Command, Option, Parsed
from reprieve.cli.take_back import Words, carry_out
from reprieve.cli.terminal import Terminal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from reprieve.model.plan import Plan, Report

SPEC = Command(
    "undo",
    "Take one step back and keep what came later",
    (
        ("reprieve undo", "take back the last step; again: the one before it"),
        ("reprieve undo step:deps --tail", "take back that run, and the later steps that build on it"),
    ),
    details=(
        "A step is a run, a tool call, a turn, or what lies between two checkpoints; an id means the one that ends "
        "there. Later changes stay. If a later step needs what this one made (the same lines, a file in a directory "
        "that it created), nothing is touched and the later steps are named. Effects of the step outside of the "
        "folder are undone too, after --yes or the confirmation; by its id, an effect is undone alone. `redo` takes an "
        "undo of files back."
    ),
    arguments=(
        Argument(
            "STEP",
            "call:ID, step:NAME, turn:N, `turn` (the last one), or an id from `log`, an effect's too; default: the "
            "last step",
            complete="ref",
        ),
    ),
    options=(
        Option("--dry-run", "Show the plan and stop"),
        Option("--yes", "Do not ask", short="-y"),
        Option("--tail", "Take the later steps that depend on it along"),
        ON_CONFLICT,
    ),
    exit_codes=(
        (4, "conflict, or later steps depend on it: nothing was touched"),
        (5, "not confirmed: nothing was touched"),
        (6, "partly done, or a file has conflict markers now (--on-conflict merge)"),
    ),
)
WORDS = Words("Undo {count}?", "Undid {label}", "Nothing to undo: {label} is already taken back")


def run(args: Parsed, out: Terminal) -> int:
    with opening.workspace(args, out) as ws:

        def move(*, dry_run: bool, expect: str) -> tuple[Plan, Report | None]:
            return ws.undo(
                args.maybe("STEP"),
                tail=args.flag("tail"),
                on_conflict=args.text("on-conflict", "abort"),
                effects="undo" if dry_run or expect or args.flag("yes") else "list",
                dry_run=dry_run,
                expect=expect,
            )

        return carry_out(move, ws, out, WORDS, dry_run=args.flag("dry-run"), ask=not args.flag("yes"))
