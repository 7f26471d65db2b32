"""`reprieve __complete`: what shells call while a person types. Quick, and silent about everything that fails."""

from __future__ import annotations

from reprieve.cli import catalog, humane
from reprieve.cli.spec import EVERYWHERE, Argument, Command, Option, Parsed
from reprieve.cli.terminal import Terminal
from reprieve.errors import ReprieveError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    Candidate = tuple[str, str]

SPEC = Command(
    "__complete",
    "Answer a shell that completes a command line",
    (
        ("reprieve __complete -- roll", "rollback"),
        ("reprieve __complete -- show ''", "ids with their labels"),
    ),
    trailing=Argument("WORD", "The words typed so far, the last one incomplete", is_many=True),
)
REFS = 50  # ids offered; nobody reads more of them in a menu


def run(args: Parsed, out: Terminal) -> int:
    words = list(args.many("WORD")) or [""]
    last = words[-1]
    if last == '""':
        last = ""  # PowerShell cannot pass an empty word
    found = [item for item in candidates(words[:-1], last, args) if item[0].startswith((last, ":"))]
    out.answer(candidates=[{"text": text, "meaning": meaning} for text, meaning in found])
    for text, meaning in found:
        out.line(f"{text}\t{humane.safe(meaning)}" if meaning else text)
    return 0


def candidates(before: list[str], last: str, args: Parsed) -> Iterator[Candidate]:
    """What may stand in the place of the last word."""
    command: Command | None = None
    pending: Option | None = None  # an option that still needs its value
    position = 0
    for word in before:
        known = (*(command.options if command else ()), *EVERYWHERE)
        if pending is not None:
            if pending.name == "--directory":
                args.start = word
            pending = None
        elif word == "--":
            yield from _for_argument(command.trailing if command else None, args)
            return
        elif word.startswith("-") and word != "-":
            pending = next((o for o in known if o.metavar and word in (o.name, o.short)), None)
        elif command is None:
            command = catalog.find(word)
            if command is None:
                return
        else:
            position += 1
    if pending is not None:
        yield from _values(pending.choices, pending.complete, args)
    elif last.startswith("-"):
        for option in (*(command.options if command else ()), *EVERYWHERE):
            yield option.name, option.summary
    elif command is None:
        yield from ((each.name, each.summary) for each in catalog.every())
    else:
        yield from _for_argument(_argument_at(command, position), args)


def _argument_at(command: Command, position: int) -> Argument | None:
    if position < len(command.arguments):
        return command.arguments[position]
    if command.arguments and command.arguments[-1].is_many:
        return command.arguments[-1]
    return command.trailing if not command.arguments else None


def _for_argument(argument: Argument | None, args: Parsed) -> Iterator[Candidate]:
    if argument is not None:
        yield from _values(argument.choices, argument.complete, args)


def _values(choices: tuple[str, ...], kind: str, args: Parsed) -> Iterator[Candidate]:
    yield from ((choice, "") for choice in choices)
    if kind == "path":
        yield ":files", ""
    elif kind == "command-line":
        yield ":commands", ""
    elif kind == "command":
        yield from ((each.name, each.summary) for each in catalog.every())
    elif kind == "key":
        from reprieve.app.config import KEYS

        yield from ((key.name, key.summary) for key in KEYS)
    elif kind == "ref":
        yield from _refs(args)
    elif kind == "actor":
        yield from _actors(args)
    elif kind == "agent":
        from reprieve.agents.registry import NAMES, load

        yield from ((name, load(name).TITLE) for name in NAMES)


def _actors(args: Parsed) -> Iterator[Candidate]:
    from reprieve.app.finding import open_workspace
    from reprieve.model.actor import parts
    from reprieve.model.reporter import Reporter

    try:
        with open_workspace(args.start, create=False, reporter=Reporter()) as ws:
            names = dict.fromkeys(name for entry in ws.log(limit=REFS) for name in parts(entry.actor))
    except ReprieveError:
        return  # as below
    yield from ((name, "") for name in names)


def _refs(args: Parsed) -> Iterator[Candidate]:
    from reprieve.app.finding import open_workspace
    from reprieve.model.reporter import Reporter

    try:
        with open_workspace(args.start, create=False, reporter=Reporter()) as ws:
            for entry in ws.log(limit=REFS):
                label = entry.title or entry.kind
                yield entry.id, f"{label}, {humane.age(entry.created_at)}"
    except ReprieveError:
        return  # a shell has no place to show it; the command itself will say it
    yield "latest", "the newest checkpoint"
