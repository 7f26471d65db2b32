"""`reprieve unprotect`: take our hooks out of the configuration of coding agents."""

from __future__ import annotations

from reprieve.agents.protect import left_behind, unprotect_plan
from reprieve.cli import foreign_files, humane
from reprieve.cli.spec import Argument, Command, Option, Parsed
from reprieve.cli.terminal import Terminal
from reprieve.cli.this_machine import records, this_machine

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from reprieve.agents.foreign import Change

SPEC = Command(
    "unprotect",
    "Take our hooks out of coding agents again",
    (
        ("reprieve unprotect", "all agents, everywhere and in this project"),
        ("reprieve unprotect cursor --scope project --dry-run", "see what it would remove for one, in this folder"),
    ),
    details=(
        "A file that nobody changed since gets back exactly what it held before; from any other only our entries go. "
        "The history stays; other projects that were protected with --scope project keep their hooks and are "
        "named, and so is a line of yours that calls us."
    ),
    arguments=(Argument("AGENT", "Which agents; default: all", is_many=True, complete="agent"),),
    options=(
        Option(
            "--scope",
            "Only those of all folders, or of this project",
            metavar="SCOPE",
            choices=("user", "project"),
            default="both",
        ),
        Option("--dry-run", "Show the changes and stop"),
        Option("--yes", "Do not ask", short="-y"),
    ),
    exit_codes=((3, "a configuration file can't be changed"), (5, "not confirmed"), (6, "not all could be done")),
)


def run(args: Parsed, out: Terminal) -> int:
    names = foreign_files.names_of(args.many("AGENT"))
    machine, scope = this_machine(args.start), args.maybe("scope")
    changes = unprotect_plan(names, machine, records=records(), scope=scope)
    left = left_behind(names, machine, records=records(), scope=scope)
    out.answer(changes=foreign_files.changes_json(changes), left_to_do=left)
    code = _carry_out(changes, args, out)
    for note in left:
        out.line(f"Left to you: {humane.safe(note)}")
    return code


def _carry_out(changes: Sequence[Change], args: Parsed, out: Terminal) -> int:
    if not changes:
        out.line("There is no hook of ours in this project or in your own configuration of agents")
        return 0
    foreign_files.show(changes, out, nothing="no hook of ours")
    if args.flag("dry-run"):
        out.say("Nothing was written: this was a dry run")
        return 0
    problems = foreign_files.carry_out(changes, out, ask=not args.flag("yes"), question="Write to {}?")
    out.say("Agents that are running may have to be restarted")
    return foreign_files.PARTLY if problems else 0
