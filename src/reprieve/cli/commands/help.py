"""`reprieve help`: the list of commands, or one of them."""

from __future__ import annotations

from reprieve.cli import catalog, manual
from reprieve.cli.spec import Argument, Command, Parsed, suggest
from reprieve.cli.terminal import Terminal
from reprieve.errors import Usage

SPEC = Command(
    "help",
    "Show what there is, or all about one command",
    (
        ("reprieve help", "list the commands"),
        ("reprieve help rollback", "the same as reprieve rollback --help"),
    ),
    arguments=(Argument("COMMAND", "What to explain; default: everything", complete="command"),),
)


def run(args: Parsed, out: Terminal) -> int:
    name = args.text("COMMAND")
    if name:
        command = catalog.find(name)
        if command is None:
            raise Usage(f"'{name}' is not a command", hints=suggest(name, catalog.NAMES, "see: reprieve help"))
        text = manual.about(command)
    else:
        groups = [(title, [c for c in map(catalog.find, names) if c]) for title, names in catalog.GROUPS]
        text = manual.overview(groups)
    out.answer(text=text)
    out.line(text)
    return 0
