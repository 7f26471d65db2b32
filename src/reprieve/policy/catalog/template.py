"""Put values into a rule's templates: the captures to run, and the inverse as argument lists or one request. Pure.

A template is a list of words with `{name}` in them. There is no language: a value is put in as it is,
one word stays one word, and a
value from outside that would be taken for an option is refused.

    {name}      the value            {name*}     one word for each of the values
    {new-old*}  the lines that are in `new` and not in `old`
    {name.after} what a look saw after the forward command
"""

from __future__ import annotations

import re
from urllib.parse import quote, urlencode

from reprieve.effects.looks import read_output, text_of, walk
from reprieve.errors import Refused
from reprieve.policy.catalog.model import (
    AFTER,
    BEFORE,
    BOTH,
    Capture,
    CommandMatch,
    CommandRule,
    HttpMatch,
    Inverse,
    InverseRequest,
    Look,
    Step,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence, Set

    Values = Mapping[str, str | tuple[str, ...]]

_HOLE = re.compile(r"\{([a-z_][\w.-]*)\}")
_SPLICE = re.compile(r"\{([a-z_][\w.-]*)\*\}")


def captures(match: CommandMatch, *, when: str = BEFORE, known: Values | None = None) -> Iterator[Capture]:
    """The commands to run before (or after) the forward one, ready to run, one after the other.

    Each name begins with the item's number; what a look sees afterwards is called `NAME.after`. `known`: the values
    by name, to which the caller adds each one as it is seen: a later command may use an earlier one's.
    """
    names = {capture.name for capture in match.rule.capture}
    # those that use another's value come after it
    ordered = sorted(match.rule.capture, key=lambda each: any(not names.isdisjoint(_names(word)) for word in each.run))
    for number, item in enumerate(match.items):
        for capture in ordered:
            if capture.when in (when, BOTH):
                values = {**dict(item), **_of_item(known or {}, number)}
                argv = _launched(match, _argv(capture.run, values, rule=match.rule.id))
                if argv is not None:
                    after = ".after" if when == AFTER and capture.when == BOTH else ""
                    yield capture.replace(name=f"{number}.{capture.name}{after}", run=argv)


def read_capture(capture: Capture, output: bytes, code: int, errors: bytes = b"") -> str | tuple[str, ...]:
    """The value in what a capture printed; "" means that there is none. Raises `Refused` where it can't tell."""
    return read_output(capture.run, reading(capture), output, errors, code)


def reading(capture: Capture) -> dict[str, object]:
    """How its output is read, as a look keeps it."""
    fields = ("take", "find", "json", "drop", "absent", "must")
    return {**{name: getattr(capture, name) for name in fields}, "optional": capture.is_optional}


def compared(rule: CommandRule) -> frozenset[str]:
    """The looks of which only a hash need be kept: no step is made of their value."""
    used = {name for step in rule.inverse for word in (*step.argv, step.stdin) for name in _names(word)}
    used |= {name for capture in rule.capture for word in capture.run for name in _names(word)}
    for step in rule.inverse:
        for name, claim in step.when:
            used |= {name, *_names(claim)} if claim[:1] in ("=", "!") else set()
    return frozenset(capture.name for capture in rule.capture if capture.when == BOTH and capture.name not in used)


def _names(word: str) -> set[str]:
    """The values that a word is filled with: `{new.after-old*}` takes `new` and `old`."""
    holes = _HOLE.findall(word) + _SPLICE.findall(word)
    return {part.removesuffix(".after") for name in holes for part in (name, *name.split("-"))}


def instantiate(match: CommandMatch, captured: Values) -> Inverse:
    """The commands that take it back, last item first, with the looks at what it changed; none if it changed nothing.

    Raises `Refused` if the rule has no inverse, a value is unfit or no step fits what was found.
    """
    rule = match.rule
    if not rule.inverse:
        raise Refused(f"no command takes back {rule.id}", hints=[rule.note] if rule.note else [])
    steps: list[Step] = []
    looks: list[Look] = []
    for number, item in reversed(list(enumerate(match.items))):
        values: dict[str, str | tuple[str, ...]] = {**dict(item), **_of_item(captured, number)}
        seen = _looks(match, values)
        names = {name for look in seen for name in (look.capture.name, f"{look.capture.name}.after")}
        if not any(_fits(step, values, rule.id, but=names) for step in rule.inverse):
            raise Refused(f"{rule.id}: nothing in the rule fits what was found before")
        if not any(_is_changed(values, look.capture.name) for look in seen):
            continue
        fit = [step for step in rule.inverse if _fits(step, values, rule.id)]
        made = [(step, _launched(match, _argv(step.argv, values, rule=rule.id))) for step in fit]
        if not any(argv is not None for _, argv in made):
            raise Refused(f"{rule.id}: nothing in the rule fits what was found afterwards")
        looks += seen
        for step, argv in made:
            if argv is not None:
                steps.append(Step(argv, _filled(step.stdin, values, rule.id) if step.stdin else ""))
    if not steps and rule.is_ambiguous:
        raise Refused(f"{match.prefix[0]} shows no change, but another {rule.program} may have run")
    return Inverse(rule.id, tuple(steps), tuple(looks))


def _looks(match: CommandMatch, values: Values) -> list[Look]:
    found = []
    for capture in match.rule.capture:
        argv = _launched(match, _argv(capture.run, values, rule=match.rule.id)) if capture.when == BOTH else None
        if argv is not None:
            for name in (capture.name, f"{capture.name}.after"):
                if name not in values:
                    raise Refused(f"{match.rule.id}: {name} is not known, so there is no inverse")
            found.append(Look(capture.replace(run=argv), values[capture.name], values[f"{capture.name}.after"]))
    return found


def _of_item(captured: Values, number: int) -> dict[str, str | tuple[str, ...]]:
    start = f"{number}."
    return {name.removeprefix(start): value for name, value in captured.items() if name.startswith(start)}


def _fits(step: Step, values: Values, rule: str, *, but: Set[str] = frozenset()) -> bool:
    """Whether all its claims hold, those about the values in `but` left out."""
    return all(_holds(values, name, claim, rule) for name, claim in step.when if name not in but)


def _is_changed(values: Values, name: str) -> bool:
    before, after = values.get(name, ""), values.get(f"{name}.after", "")
    return set(before) != set(after) if isinstance(before, tuple) else before != after


def _holds(values: Values, name: str, claim: str, rule: str) -> bool:
    value = values.get(name, "")
    if claim == "present":
        return bool(value)
    if claim == "absent":
        return not value
    if claim == "changed":
        return _is_changed(values, name)
    is_same = value == _filled(claim[1:], values, rule)
    return is_same if claim.startswith("=") else not is_same


def _launched(match: CommandMatch, argv: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """The same program is started the way the forward command started it."""
    if argv is None or argv[0] != match.rule.program:
        return argv
    return (*match.prefix, *argv[1:], *match.carried) if "--" not in argv else _before_dashes(match, argv)


def _before_dashes(match: CommandMatch, argv: tuple[str, ...]) -> tuple[str, ...]:
    at = argv.index("--")
    return (*match.prefix, *argv[1:at], *match.carried, *argv[at:])


def _argv(template: Sequence[str], values: Values, *, rule: str) -> tuple[str, ...] | None:
    """The words; None: a list that had to be put in is empty, so there is nothing to run."""
    words: list[str] = []
    for part in template:
        splice = _SPLICE.fullmatch(part)
        if splice is not None:
            several = _several(splice[1], values, rule)
            if not several:
                return None
            for value in several:
                _check(value, words, rule)
            words += several
            continue
        word = _filled(part, values, rule)
        if part.startswith("{"):
            _check(word, words, rule)
        words.append(word)
    return tuple(words)


def _several(name: str, values: Values, rule: str) -> list[str]:
    minuend, minus, subtrahend = name.partition("-")
    if minus and minuend in values and subtrahend in values:
        gone = set(_listed(values[subtrahend]))
        return [value for value in _listed(values[minuend]) if value not in gone]
    if name not in values:
        return []
    return list(_listed(values[name]))


def _listed(value: str | tuple[str, ...]) -> tuple[str, ...]:
    return tuple(value.splitlines()) if isinstance(value, str) else value


def _check(word: str, before: Sequence[str], rule: str) -> None:
    """A value is data: at the start of a word a dash would make it an option."""
    if word.startswith("-") and "--" not in before:
        raise Refused(f"{rule}: {word!r} would be read as an option", hints=["undo this one by hand"])


def _filled(part: str, values: Values, rule: str) -> str:
    def one(match: re.Match[str]) -> str:
        value = values.get(match[1])
        if value is None:
            raise Refused(f"{rule}: {match[1]} is not known, so there is no inverse")
        if not isinstance(value, str):
            return "\n".join(value)
        if "\0" in value:
            raise Refused(f"{rule}: {match[1]} holds a NUL and can't be an argument")
        return value

    if _HOLE.fullmatch(part) and part[1:-1] in values:
        value = values[part[1:-1]]
        return value if isinstance(value, str) else "\n".join(value)
    return _HOLE.sub(one, part)


# -- requests


def instantiate_request(
    match: HttpMatch, *, request: object = None, response: object = None, before: object = None
) -> InverseRequest:
    """The request that takes it back, at the origin of the forward one; the others are JSON bodies."""
    rule = match.rule
    if rule.inverse is None:
        raise Refused(f"no request takes back {rule.id}", hints=[rule.note] if rule.note else [])
    values: dict[str, object] = {f"path.{key}": value for key, value in match.captured}
    values |= {f"req.{key}": walk(request, path) for key, path in rule.request}
    values |= {f"res.{key}": walk(response, path) for key, path in rule.response}
    if isinstance(before, dict):
        values |= {f"before.{key}": value for key, value in before.items()}
    if before is not None:
        values["before"] = before

    def segment(hole: re.Match[str]) -> str:
        text = text_of(values.get(hole[1]))
        if not text or text in (".", ".."):
            raise Refused(f"{rule.id}: {hole[1]} is not known, so there is no inverse")
        return quote(text, safe="")

    def value_of(template: object) -> object:
        if not isinstance(template, str):
            return template
        whole = _HOLE.fullmatch(template)
        if whole is None:
            return template
        found = values.get(whole[1])
        if found is None:
            raise Refused(f"{rule.id}: {whole[1]} is not known, so there is no inverse")
        return found

    inverse = rule.inverse
    url = match.origin + _HOLE.sub(segment, inverse.path)
    if inverse.query:
        url += "?" + urlencode([(key, text_of(value_of(value))) for key, value in inverse.query])
    form = tuple((key, text_of(value_of(value))) for key, value in inverse.form)
    body: object = None
    if inverse.json is not None:
        filled = {key: value_of(value) for key, value in inverse.json}
        body = filled.get("") if set(filled) == {""} else filled
    return InverseRequest(rule.id, inverse.method, url, form, body, rule.idempotency)


__all__ = [
    "AFTER",
    "BEFORE",
    "captures",
    "compared",
    "instantiate",
    "instantiate_request",
    "read_capture",
    "reading",
    "walk",
]
