"""Put values into a rule's templates: the captures to run, and the inverse as argument lists or one request. Pure.

A template is a list of words with `{name}` in them. There is no language: a value is put in as it is,
one word stays one word, and a
value from outside that would be taken for an option is refused.

    {name}      the value            {name*}     one word for each of the values
    {new-old*}  the lines that are in `new` and not in `old`
"""

from __future__ import annotations

import re
from urllib.parse import quote, urlencode

from reprieve.errors import Refused
from reprieve.policy.catalog.model import (
    AFTER,
    BEFORE,
    Capture,
    CommandMatch,
    HttpMatch,
    Inverse,
    InverseRequest,
    Step,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Values = Mapping[str, str | tuple[str, ...]]

_HOLE = re.compile(r"\{([a-z_][\w.-]*)\}")
_SPLICE = re.compile(r"\{([a-z_][\w.-]*)\*\}")


def captures(match: CommandMatch, *, when: str = BEFORE) -> tuple[Capture, ...]:
    """The commands to run before (or after) the forward one, ready to run; each name begins with the item's number."""
    found = []
    for number, item in enumerate(match.items):
        values = dict(item)
        for capture in match.rule.capture:
            if capture.when == when:
                argv = _launched(match, _argv(capture.run, values, rule=match.rule.id))
                if argv is not None:
                    found.append(capture.replace(name=f"{number}.{capture.name}", run=argv))
    return tuple(found)


def read_capture(capture: Capture, output: bytes, code: int) -> str | tuple[str, ...]:
    """The value in what a capture printed; "" means that there is none. Raises `Refused` where it has to be there."""
    if code != 0:
        if capture.is_optional:
            return () if capture.take == "lines" else ""
        raise Refused(
            f"{capture.run[0]} failed, so what it takes to undo is not known", details=[" ".join(capture.run)]
        )
    text = output.decode("utf-8", "surrogateescape")
    if capture.drop:
        text = "".join(line for line in text.splitlines(keepends=True) if not re.search(capture.drop, line))
    if capture.json:
        return _from_json(text, capture.json)
    if capture.take == "lines":
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        if capture.find:
            found = (re.search(capture.find, line) for line in lines)
            lines = [match[1] for match in found if match]
        return tuple(lines)
    if capture.find:
        found_one = re.search(capture.find, text, re.MULTILINE)
        return found_one[1] if found_one else ""
    if capture.take == "raw":
        return text
    if capture.take == "word":
        return (text.split() or [""])[0]
    return text.removesuffix("\n")


def instantiate(match: CommandMatch, captured: Mapping[str, str | tuple[str, ...]]) -> Inverse:
    """The commands that take it back, last item first. Raises `Refused` if the rule has none or a value is unfit."""
    if not match.rule.inverse:
        raise Refused(f"no command takes back {match.rule.id}", hints=[match.rule.note] if match.rule.note else [])
    steps: list[Step] = []
    for number, item in reversed(list(enumerate(match.items))):
        values: dict[str, str | tuple[str, ...]] = dict(item)
        for name, value in captured.items():
            index, _, rest = name.partition(".")
            if index == str(number):
                values[rest] = value
        fit = [step for step in match.rule.inverse if all(_holds(values, name, claim) for name, claim in step.when)]
        if not fit:
            raise Refused(f"{match.rule.id}: nothing in the rule fits what was found before")
        for step in fit:
            argv = _argv(step.argv, values, rule=match.rule.id)
            launched = _launched(match, argv)
            if launched is not None:
                steps.append(Step(launched, _filled(step.stdin, values, match.rule.id) if step.stdin else ""))
    return Inverse(match.rule.id, tuple(steps))


def _holds(values: Values, name: str, claim: str) -> bool:
    value = values.get(name, "")
    if claim == "present":
        return bool(value)
    if claim == "absent":
        return not value
    return value == claim[1:] if claim.startswith("=") else value != claim[1:]


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


def _from_json(text: str, path: str) -> str:
    import json

    try:
        return _text_of(walk(json.loads(text), path))
    except ValueError as wrong:
        raise Refused("what was captured is not JSON", details=[str(wrong)]) from wrong


def walk(value: object, path: str) -> object:
    """`$.a.b[0]` in a JSON value; None where there is nothing."""
    for key, index in re.findall(r"\.([\w-]+)|\[(\d+)\]", path):
        if key:
            value = value.get(key) if isinstance(value, dict) else None
        else:
            value = value[int(index)] if isinstance(value, list) and int(index) < len(value) else None
    return value


def _text_of(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else str(value) if isinstance(value, int | float) else ""


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
        text = _text_of(values.get(hole[1]))
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
        url += "?" + urlencode([(key, _text_of(value_of(value))) for key, value in inverse.query])
    form = tuple((key, _text_of(value_of(value))) for key, value in inverse.form)
    body: object = None
    if inverse.json is not None:
        filled = {key: value_of(value) for key, value in inverse.json}
        body = filled.get("") if set(filled) == {""} else filled
    return InverseRequest(rule.id, inverse.method, url, form, body, rule.idempotency)


__all__ = ["AFTER", "BEFORE", "captures", "instantiate", "instantiate_request", "read_capture", "walk"]
