"""Describe commands, and read a command line by the description.

One description gives parsing, help, completion and the reference page. Not argparse: importing it costs a quarter
of what a whole `reprieve checkpoint` may take (docs/design/0001-file-engine.md, "The hot path").
"""

from __future__ import annotations

from reprieve.errors import Usage
from reprieve.model.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Argument(Value):
    """A positional argument. `complete` says what a shell offers for it: ref, path, command, shell, or nothing."""

    name: str  # as shown: REF, PATH
    summary: str
    is_required: bool = False
    is_many: bool = False
    complete: str = ""
    choices: tuple[str, ...] = ()


class Option(Value):
    """An option. Without a metavar it is a flag."""

    name: str  # with its dashes: --label
    summary: str
    metavar: str = ""
    short: str = ""  # -n
    is_many: bool = False
    choices: tuple[str, ...] = ()
    default: str = ""
    complete: str = ""


class Command(Value):
    """A command. `trailing` takes what follows `--` (or, without other arguments, the first word that is no option)."""

    name: str
    summary: str  # imperative, no full stop
    examples: tuple[tuple[str, str], ...]  # command line, what it does
    details: str = ""
    arguments: tuple[Argument, ...] = ()
    trailing: Argument | None = None
    options: tuple[Option, ...] = ()
    exit_codes: tuple[tuple[int, str], ...] = ()  # those that mean something special here


EVERYWHERE = (
    Option("--json", "Answer with one JSON object on standard output"),
    Option("--quiet", "Say nothing but the answer, warnings and errors", short="-q"),
    Option("--directory", "Work as if started in DIR", metavar="DIR", short="-C", complete="path"),
    Option("--help", "Show help and stop", short="-h"),
    Option("--version", "Show the version and stop", short="-V"),
)


class Parsed:
    """What a command line said. Options are asked for by their name without dashes, arguments by their own."""

    def __init__(self) -> None:
        self.command: Command | None = None
        self.word = ""  # the command as typed
        self.start = ""  # the directory to work in, absolute
        self.flags: set[str] = set()
        self.values: dict[str, list[str]] = {}

    def flag(self, name: str) -> bool:
        return name in self.flags

    def many(self, name: str) -> tuple[str, ...]:
        return tuple(self.values.get(name, ()))

    def text(self, name: str, default: str = "") -> str:
        given = self.values.get(name)
        return given[-1] if given else default

    def maybe(self, name: str) -> str | None:
        given = self.values.get(name)
        return given[-1] if given else None

    def number(self, name: str) -> int | None:
        """A whole number, None if the option was not given. Raises Usage."""
        given = self.maybe(name)
        if given is None:
            return None
        if not (given.isascii() and given.isdigit()):
            raise Usage(f"--{name} needs a whole number, not '{given}'")
        return int(given)


def parse(argv: Sequence[str], parsed: Parsed, *, find: Callable[[str], Command | None], names: Sequence[str]) -> None:
    """Read a command line into `parsed`, which holds what was understood also when this raises Usage.

    `find` gives the command of a word; `names` are all there are, for suggestions.
    """
    words = list(argv)
    positional: list[str] = []
    trailing: list[str] = []
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        if word == "--":
            rest = words[position:]
            if parsed.command is not None and parsed.command.trailing is not None:
                trailing = rest
            else:
                positional += rest
            break
        if word.startswith("-") and word != "-":
            position = _option(words, position - 1, parsed)
        elif parsed.command is None:
            parsed.word = word
            parsed.command = find(word)
            if parsed.command is None:
                raise Usage(f"'{word}' is not a command", hints=suggest(word, names, "reprieve --help lists them all"))
        elif parsed.command.trailing is not None and not parsed.command.arguments:
            trailing = words[position - 1 :]
            break
        else:
            positional.append(word)
    if parsed.command is not None and not parsed.flag("help"):
        _arguments(parsed.command, parsed, positional, trailing)
    elif positional and not parsed.flag("help"):
        raise Usage(f"a command must come before '--', not '{positional[0]}' after it")


def _option(words: list[str], position: int, parsed: Parsed) -> int:
    """Take the option at position; return the position after it and its value."""
    word = words[position]
    known = (*(parsed.command.options if parsed.command else ()), *EVERYWHERE)
    if word.startswith("--"):
        name, equals, value = word.partition("=")
        found = next((option for option in known if option.name == name), None)
        attached = value if equals else None
    else:
        name = word[:2]
        found = next((option for option in known if option.short == name), None)
        attached = word[2:] or None
    if found is None:
        names = [option.name for option in known]
        where = f"reprieve {parsed.word} --help" if parsed.word else "reprieve --help"
        message = f"there is no option '{name}'" + (f" for '{parsed.word}'" if parsed.word else "")
        raise Usage(message, hints=suggest(name, names, f"see: {where}"))
    key = found.name[2:]
    if not found.metavar:
        if attached is not None and not word.startswith("--"):
            # -qC DIR: flags may share a dash with what follows them
            words[position] = "-" + attached
            parsed.flags.add(key)
            return position
        if attached is not None:
            raise Usage(f"'{name}' takes no value")
        parsed.flags.add(key)
        return position + 1
    if attached is None:
        position += 1
        if position >= len(words) or words[position] == "--":
            raise Usage(f"'{name}' needs a value: {name} {found.metavar}")
        attached = words[position]
    if found.choices and attached not in found.choices:
        raise Usage(
            f"'{attached}' is not a choice for '{name}'",
            hints=suggest(attached, found.choices, f"choose one of: {', '.join(found.choices)}"),
        )
    _refuse_empty(attached, found.complete, name)
    before = parsed.values.setdefault(key, [])
    if before and not found.is_many:
        raise Usage(f"'{name}' is given twice")
    before.append(attached)
    return position + 1


def _arguments(command: Command, parsed: Parsed, positional: list[str], trailing: list[str]) -> None:
    left = list(positional)
    for argument in command.arguments:
        taken = left if argument.is_many else left[:1]
        left = [] if argument.is_many else left[1:]
        _take(command, argument, taken, parsed)
    if left:
        hints = [f"see: reprieve {command.name} --help"]
        if command.trailing is not None:
            hints.insert(0, f"{command.trailing.name} goes after '--'")
        raise Usage(f"'{command.name}' does not take '{left[0]}'", hints=hints)
    if command.trailing is not None:
        _take(command, command.trailing, trailing, parsed)


def _take(command: Command, argument: Argument, taken: list[str], parsed: Parsed) -> None:
    if not taken:
        if argument.is_required:
            raise Usage(
                f"'{command.name}' needs {argument.name}",
                hints=[f"for example: {command.examples[0][0]}", f"see: reprieve {command.name} --help"],
            )
        return
    for word in taken:
        _refuse_empty(word, argument.complete, argument.name)
        if argument.choices and word not in argument.choices:
            raise Usage(
                f"'{word}' is not a choice for {argument.name}",
                hints=suggest(word, argument.choices, f"choose one of: {', '.join(argument.choices)}"),
            )
    parsed.values[argument.name] = taken


def _refuse_empty(word: str, kind: str, name: str) -> None:
    # `rollback "$ID"` with an unset variable must not mean the latest, nor `revert "$FILE"` the whole folder
    if not word and kind in ("ref", "path"):
        raise Usage(f"{name} is empty")


def suggest(word: str, names: Sequence[str], otherwise: str) -> list[str]:
    """Hints for a word that is none of names."""
    import difflib

    near = [name for name in names if len(word.strip("-")) > 1 and name.startswith(word)]
    near = near or difflib.get_close_matches(word, names, n=1, cutoff=0.55)
    return [f"did you mean '{near[0]}'?", otherwise] if near else [otherwise]
