"""`reprieve rollback`: move the tree back to a checkpoint."""

from __future__ import annotations

import os

from reprieve.app.paths import beneath_root
from reprieve.cli import opening
from reprieve.cli.choices import ON_CONFLICT
from reprieve.cli.refs import REF_HELP
from reprieve.cli.spec import Argument, Command, Option, Parsed
from reprieve.cli.take_back import Words, carry_out
from reprieve.cli.terminal import Terminal
from reprieve.errors import Refused, Usage
from reprieve.model.plan import Report

TYPE_CHECKING = False
if TYPE_CHECKING:
    from reprieve.agents.rewind import Rewind
    from reprieve.model.plan import Plan

SPEC = Command(
    "rollback",
    "Move the tree back to a checkpoint",
    (
        ('reprieve rollback "before the refactoring" --only src --dry-run', "see what it would do to one folder"),
        ("reprieve rollback turn:3 --conversation", "files and chat as they were when that turn of an agent began"),
    ),
    details=(
        "The tree becomes what it was at REF: bytes, modes, times, links, and git's HEAD, branches, index and stash. "
        "What you did yourself since, outside of every run and agent's step, stays; where both changed a file, the "
        "agent's part is taken out of it, and where that is not possible nothing is touched and the conflict is shown. "
        "A branch, HEAD, index or stash that both moved is no conflict, whatever --on-conflict says: it stays and is "
        "named (exit 6), and the files come back. "
        "What is there now is kept first, so `redo` takes the rollback back. Paths that a checkpoint could not protect "
        "are never touched. A program that has a file open for writing which is replaced or removed is named: it "
        "writes on to the old one. "
        "Effects outside of the folder (HTTP calls, commands, held mail) since REF are undone too, "
        "newest first and each once; what can't be undone is named. Mail that you staged yourself, outside of every "
        "run and agent's step, stays held. On a terminal the plan is shown and confirmed; "
        "without one files are moved at once, while effects need --yes, and an approval where policy asks for one. "
        "--conversation makes a new session that ends at that point, where the agent supports that, and prints the "
        "command that goes on from there; the old one stays as it is."
    ),
    arguments=(Argument("REF", REF_HELP + "; default: latest", complete="ref"),),
    options=(
        Option("--dry-run", "Show the plan and stop"),
        Option("--yes", "Do not ask", short="-y"),
        Option("--only", "Only this file or folder", metavar="PATH", is_many=True, complete="path"),
        Option("--everything", "Take back a person's changes as well"),
        Option("--actor", "Take back only what this one did", metavar="ACTOR", complete="actor"),
        Option("--pushed", "Take git's history back even where commits were pushed since"),
        ON_CONFLICT,
        Option("--files", "Move files only, and leave effects and conversations alone"),
        Option("--effects", "Undo effects only, and leave files alone"),
        Option("--conversation", "Take the agents' conversations back together with the files"),
        Option("--conversation-only", "Take the agents' conversations back and leave the files alone"),
    ),
    exit_codes=(
        (4, "conflict: nothing was touched"),
        (5, "not confirmed, or an approval is missing: nothing was touched"),
        (6, "partly done, or a file has conflict markers now (--on-conflict merge)"),
    ),
)
WORDS = Words(
    "Roll back {count}?", "Rolled back to {target}", "Nothing to roll back: {everything} is as it was at {target}"
)
_IN_PART = Words(WORDS.question, WORDS.done, "Nothing to roll back: what was named is as it was at {target}")


def how_effects(args: Parsed, *, dry_run: bool, is_agreed: bool) -> str:
    """Whether a person has said yes to what happens outside of the folder: --yes, or at the terminal."""
    if args.flag("files") and not args.flag("effects"):
        return "no"
    return "undo" if dry_run or is_agreed or args.flag("yes") else "list"


def _effects_alone(args: Parsed, out: Terminal) -> int:
    from reprieve.app.planned import compensate

    asked = {
        "ref": args.maybe("REF"),
        "on_conflict": args.text("on-conflict", "abort"),
        "everything": args.flag("everything"),
    }
    with opening.workspace(args, out) as ws:
        if ref := args.maybe("REF"):
            ws.resolve(ref)  # also where there is no effect to look for

        def move(*, dry_run: bool, expect: str) -> tuple[Plan, Report | None]:
            plan, report = compensate(ws, asked, "")
            if dry_run or not plan.effects:
                return plan, report or Report("")
            if not (expect or args.flag("yes")):
                raise Refused("effects are undone only after a yes", hints=["the same command with --yes"])
            return compensate(ws, asked, expect or plan.id)

        words = Words("Undo {count}?", "", "No effects to undo")
        return carry_out(move, ws, out, words, dry_run=args.flag("dry-run"), ask=not args.flag("yes"))


def run(args: Parsed, out: Terminal) -> int:
    if args.flag("files") and (args.flag("conversation") or args.flag("conversation-only")):
        raise Usage("--files leaves conversations alone; choose one")
    if args.flag("effects") and not args.flag("files"):
        if args.many("only") or args.flag("conversation") or args.flag("conversation-only"):
            raise Usage("--effects undoes effects alone; choose one")
        return _effects_alone(args, out)
    with opening.workspace(args, out) as ws:
        rewinds: list[Rewind] = []
        if args.flag("conversation") or args.flag("conversation-only"):
            from reprieve.cli import rewinding

            # first, so that nothing was touched yet where an agent offers no way
            rewinds = rewinding.plan(ws, args.maybe("REF"))
        only = tuple(beneath_root(ws.root, args.start, path) for path in args.many("only"))

        words = _IN_PART if only else WORDS
        targets: list[str] = []

        def move(*, dry_run: bool, expect: str) -> tuple[Plan, Report | None]:
            plan, report = ws.rollback(
                args.maybe("REF"),
                only=only,
                everything=args.flag("everything"),
                on_conflict=args.text("on-conflict", "abort"),
                actor=args.text("actor"),
                take_pushed=args.flag("pushed"),
                effects=how_effects(args, dry_run=dry_run, is_agreed=bool(expect)),
                dry_run=dry_run,
                expect=expect,
            )
            targets.append(plan.target)
            return plan, report

        code = 0
        if not args.flag("conversation-only"):
            code = carry_out(move, ws, out, words, dry_run=args.flag("dry-run"), ask=not args.flag("yes"))
        if targets and os.path.lexists(os.path.join(ws.home, "threads", f"{ws.id}.db")):
            from reprieve.cli.offering import offer_threads

            offer_threads(ws, targets[-1], out)
        if rewinds:
            rewinding.carry_out(rewinds, out, dry_run=args.flag("dry-run"))
        return code
