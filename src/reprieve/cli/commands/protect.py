"""`reprieve protect`: have coding agents call us before and after each step."""

from __future__ import annotations

from reprieve.agents.protect import protect_plan
from reprieve.app import places
from reprieve.app.finding import open_workspace
from reprieve.app.hook_places import project_of
from reprieve.app.render import checkpoint_json
from reprieve.cli import foreign_files, humane
from reprieve.cli.gaps import show_gaps
from reprieve.cli.spec import Argument, Command, Option, Parsed
from reprieve.cli.terminal import Terminal
from reprieve.cli.this_machine import this_machine
from reprieve.errors import Misconfigured, Refused
from reprieve.store.local import LocalStore

TYPE_CHECKING = False
if TYPE_CHECKING:
    from reprieve.app.workspace import Made

SPEC = Command(
    "protect",
    "Protect every step of the coding agents on this machine",
    (
        ("reprieve protect", "all agents that are found here, in every folder"),
        (
            "reprieve protect claude-code codex --scope project --dry-run",
            "see what it would write for two, in this folder",
        ),
    ),
    details=(
        "Adds our hook to the agent's own configuration, leaves everything else in it as it is, and shows the change "
        "first. Takes a checkpoint of this folder right away. Doing it twice changes nothing; `unprotect` takes it out."
    ),
    arguments=(
        Argument("AGENT", "Which agents; default: those found on this machine", is_many=True, complete="agent"),
    ),
    options=(
        Option(
            "--scope",
            "Every folder of yours, or this project alone",
            metavar="SCOPE",
            choices=("user", "project"),
            default="user",
        ),
        Option("--dry-run", "Show the changes and stop"),
        Option("--yes", "Do not ask", short="-y"),
    ),
    exit_codes=((3, "a configuration file can't be changed"), (5, "not confirmed"), (6, "not all could be done")),
)


def run(args: Parsed, out: Terminal) -> int:
    machine = this_machine(args.start)
    names = foreign_files.names_of(args.many("AGENT"))
    changes = protect_plan(names, args.text("scope", "user"), machine)
    if not changes:
        raise Misconfigured(
            "no coding agent was found on this machine",
            hints=["name one: reprieve protect claude-code", "for any other program: reprieve run -- COMMAND"],
        )
    foreign_files.show(changes, out, nothing="already protected")
    todo = list(dict.fromkeys(note for change in changes for note in change.notes))
    out.answer(changes=foreign_files.changes_json(changes), left_to_do=todo)
    if args.flag("dry-run"):
        out.say("Nothing was written: this was a dry run")
        return 0
    problems = foreign_files.carry_out(
        changes,
        out,
        ask=not args.flag("yes"),
        question="Write to {}?",
        first=lambda: _first_checkpoint(args.start, out),
    )
    for note in todo:
        out.line(f"Left to you: {humane.safe(note)}")
    out.say("See that it works: reprieve doctor. Take it out again: reprieve unprotect")
    return foreign_files.PARTLY if problems else 0


def _first_checkpoint(start: str, out: Terminal) -> None:
    """Before any hook needs it: the first one reads everything, and a person can watch it."""
    LocalStore.open(places.home(), reporter=out.reporter).close()  # our records go there
    folder = project_of(start)
    try:
        made = _checkpoint(folder, out)
    except Refused as refused:
        out.answer(checkpoint=None)
        out.line(f"No checkpoint yet: {humane.safe(refused.message)}. The first step in a project takes one")
        return
    out.answer(checkpoint=checkpoint_json(made.entry, made.gaps))
    show_gaps(out, made.gaps)
    out.line(f"{humane.path(folder.encode())} is protected from now on: checkpoint {made.entry.id}")


def _checkpoint(folder: str, out: Terminal) -> Made:
    with open_workspace(folder, create=True, reporter=out.reporter) as ws:
        return ws.checkpoint("protected", only_changes=True)
