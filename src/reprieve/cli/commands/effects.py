"""`reprieve effects`: what was done outside of the folder."""

from __future__ import annotations

from reprieve.app.effects import effects_since, json_of
from reprieve.cli import opening
from reprieve.cli.refs import REF_HELP
from reprieve.cli.show_effects import one_line
from reprieve.cli.spec import Command, Option, Parsed
from reprieve.cli.terminal import Terminal

SPEC = Command(
    "effects",
    "Show what was done outside of the folder, newest first",
    (
        ("reprieve effects", "all effects with their class and state"),
        ("reprieve effects --pending", "only those that a rollback would still undo, cancel or name"),
    ),
    details="`reprieve show ID` shows one of them whole, with its inverse.",
    options=(
        Option("--since", "Only those since REF: " + REF_HELP, metavar="REF", complete="ref"),
        Option("--pending", "Only those that are neither undone nor kept"),
    ),
)


def run(args: Parsed, out: Terminal) -> int:
    found = []
    with opening.workspace(args, out) as ws, out.paged():
        count = 0
        for effect in effects_since(ws, args.maybe("since"), is_open=args.flag("pending")):
            count += 1
            if out.json:
                found.append(json_of(effect))
            else:
                out.line(one_line(json_of(effect)))
            if out.is_closed:
                break
        if not count:
            out.line("No effects")
    out.answer(effects=found)
    return 0
