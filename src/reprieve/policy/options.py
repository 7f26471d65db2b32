"""Tell options from operands in an argument list, given which options exist and which of them take a value. Pure.

An option that is not listed makes the whole list unreadable: guessing whether it takes a value would decide whether the
next word is harmless or a program.
"""

from __future__ import annotations

from reprieve.model.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from reprieve.policy.words import Word


class Spec(Value):
    """The options of a program, with their dashes."""

    flags: tuple[str, ...] = ()
    values: tuple[str, ...] = ()


def spec(flags: str = "", values: str = "") -> Spec:
    """A spec from two lists of names separated by blanks."""
    return Spec(tuple(_dashed(flags.split())), tuple(_dashed(values.split())))


def _dashed(names: Iterable[str]) -> Iterable[str]:
    for name in names:
        yield name if name.startswith("-") else f"-{name}" if len(name) == 1 else f"--{name}"


class Parsed(Value):
    """Options with their values (None for flags) in order, and where the operands begin."""

    options: tuple[tuple[str, Word | str | None], ...]
    rest: int

    def has(self, *names: str) -> bool:
        """True if one of these was given."""
        return any(name in names for name, _ in self.options)

    def value(self, *names: str) -> Word | str | None:
        """The last value given to one of these."""
        return next((value for name, value in reversed(self.options) if name in names), None)


def parse(words: Sequence[Word], known: Spec, *, start: int = 1) -> Parsed | None:
    """Read options up to the first operand or `--`. None: there is one that is not known, or not readable."""
    options: list[tuple[str, Word | str | None]] = []
    at = start
    while at < len(words):
        text = words[at].text
        if text is None:
            # with a certain beginning that is no dash it is an operand, whatever else it turns out to be
            return Parsed(tuple(options), at) if words[at].prefix[:1] not in ("", "-") else None
        if text == "--":
            return Parsed(tuple(options), at + 1)
        if not text.startswith("-") or text == "-":
            break
        used = _one(words, at, text, known, options)
        if used is None:
            return None
        at += used
    return Parsed(tuple(options), at)


def _one(
    words: Sequence[Word], at: int, text: str, known: Spec, options: list[tuple[str, Word | str | None]]
) -> int | None:
    """How many words an option takes, or None if it is not known."""
    name, equals, attached = text.partition("=")
    if equals and name in known.values and name.startswith("-"):
        options.append((name, attached))
        return 1
    if text in known.flags or (equals and name in known.flags and name.startswith("--")):
        options.append((name if equals else text, attached if equals else None))
        return 1
    if text in known.values:
        if at + 1 >= len(words):
            return None
        options.append((text, words[at + 1]))
        return 2
    if text.startswith("--"):
        return None
    # a cluster of single letters, the last of which may take a value
    for number, letter in enumerate(text[1:], start=1):
        one = f"-{letter}"
        if one in known.flags:
            options.append((one, None))
        elif one in known.values:
            if text[number + 1 :]:
                options.append((one, text[number + 1 :]))
                return 1
            if at + 1 >= len(words):
                return None
            options.append((one, words[at + 1]))
            return 2
        else:
            return None
    return 1
