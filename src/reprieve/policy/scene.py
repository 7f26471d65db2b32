"""What a program is judged by: its words, where it runs, what it reads; and the judgement that comes out."""

from __future__ import annotations

from reprieve.model.value import Value
from reprieve.policy.classes import IRREVERSIBLE, OPAQUE, READ, RESTORABLE, REVERSIBLE, rank, worst
from reprieve.policy.places import META, REMOVE, WRITE, Places, touch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from reprieve.policy.catalog import Catalog, CommandMatch
    from reprieve.policy.words import Word


class Stdin(Value):
    """What a program's input holds: nothing of the script's, a text that is known, or something nobody knows.

    `names_in`: the input is a list of paths below these, ended by NUL.
    """

    is_given: bool = False
    text: str | None = None
    names_in: tuple[Word, ...] = ()


NO_INPUT = Stdin()
UNKNOWN_INPUT = Stdin(True)


class Scene(Value):
    """Where a program runs and what it gets."""

    places: Places
    catalog: Catalog
    stdin: Stdin = NO_INPUT
    launcher: tuple[str, ...] = ()  # what the program is started through: sudo and its options
    is_runnable: bool = True  # False: started in a way that an inverse could not repeat


class Judgement(Value):
    """The class of one program's run, why, and the catalog's rule if one was found."""

    cls: str
    reason: str = ""
    rule: str = ""
    match: CommandMatch | None = None


class SimpleCommand(Value):
    """One program that would run: its arguments (None where dynamic), its class, why, and the catalog's rule.

    `match` is there where the rule has an inverse that can be run from here; `cwd` is then where the program runs.
    """

    argv: tuple[str | None, ...]
    cls: str
    reason: str = ""
    rule: str = ""
    match: CommandMatch | None = None
    cwd: str = ""
    variables: tuple[tuple[str, str], ...] = ()  # what the text sets in its environment


class ShellReading(Value):
    """What a command line would do."""

    cls: str
    reasons: tuple[str, ...]
    commands: tuple[SimpleCommand, ...]


def reading_of(commands: Sequence[SimpleCommand]) -> ShellReading:
    """The worst of the commands, and the reasons, the worst first."""
    ordered = sorted((one for one in commands if one.reason and one.cls != READ), key=lambda one: -rank(one.cls))
    reasons = tuple(dict.fromkeys(one.reason for one in ordered))
    return ShellReading(worst(*(one.cls for one in commands)), reasons, tuple(commands))


HARMLESS = Judgement(READ)


def opaque(reason: str) -> Judgement:
    return Judgement(OPAQUE, reason)


def gone(reason: str) -> Judgement:
    return Judgement(IRREVERSIBLE, reason)


def reversible(reason: str = "") -> Judgement:
    return Judgement(REVERSIBLE, reason)


def restorable(reason: str = "") -> Judgement:
    return Judgement(RESTORABLE, reason)


def heaviest(found: Iterable[Judgement]) -> Judgement:
    """The most dangerous one; harmless if there is none."""
    heavy = HARMLESS
    for one in found:
        if rank(one.cls) > rank(heavy.cls):
            heavy = one
    return heavy


def writes(words: Sequence[Word], scene: Scene) -> Judgement:
    """Bytes at these paths are replaced."""
    return heaviest(Judgement(*touch(word, scene.places, verb=WRITE)) for word in words)


def removes(words: Sequence[Word], scene: Scene, *, is_content: bool = False) -> Judgement:
    """What is at these paths goes away."""
    return heaviest(Judgement(*touch(word, scene.places, verb=REMOVE, is_content=is_content)) for word in words)


def changes(words: Sequence[Word], scene: Scene) -> Judgement:
    """Modes, owners or times at these paths change."""
    return heaviest(Judgement(*touch(word, scene.places, verb=META)) for word in words)
