"""What must be gone once a guarded statement has run: rows that its own WHERE still finds. Pure.

    DELETE FROM t WHERE id = ?                    leaves none of them
    UPDATE t SET a = ? WHERE id = ? AND a = ?     neither, if the two values of a differ

A trigger may keep a value or put a row back while the database says "1 row changed". Of statements that don't have
this form nothing can be told: `balance = balance - 10` finds its row before and after.
"""

from __future__ import annotations

import re
from decimal import Decimal

from reprieve.effects.sql_text import NAME

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_TOKEN = re.compile(r"""(?s)'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`|\[[^\]]*\]|%s|\?|[\w$]+|\S""")
_DELETE = re.compile(rf"(?is)\s*delete\s+from\s+(?P<table>(?:only\s+)?{NAME}(?:\s+(?:as\s+)?\w+)?)\s+where\s")
_UPDATE = re.compile(
    rf"(?is)\s*update\s+(?:or\s+\w+\s+)?(?P<table>(?:only\s+)?{NAME}(?:\s+(?:as\s+)?(?!set\b)\w+)?)\s+set\s"
)
_EQUALS = re.compile(rf"(?is)\s*(?P<column>{NAME})\s*==?\s*(?P<value>'(?:[^']|'')*'|%s|\?|null|-?\d+(?:\.\d+)?)\s*")
# after which the rest is no list of settings or conditions; a SELECT may find other rows the second time
_HARD = frozenset(("select", "from", "using", "returning", "order", "limit"))
_LOOSE = frozenset(("or", "case"))  # then a condition may hold though one of its parts does not
_SIGNS = ("--", "/*", "%%", "$$")  # comments and the like, in which nothing is what it seems


def left_over(sql: str, values: Sequence[object]) -> tuple[str, tuple[object, ...]] | None:
    """A query for how many rows the statement should have changed and did not; None if none can tell."""
    sql = sql.rstrip().removesuffix(";")
    if (found := _DELETE.match(sql)) is not None:
        rest, settings = sql[found.end() :], ""
    elif (found := _UPDATE.match(sql)) is not None:
        pieces = list(_pieces(sql[found.end() :], "where"))
        if len(pieces) != 2:
            return None
        settings, rest = pieces
    else:
        return None
    hard = _HARD | _LOOSE if settings else _HARD
    if hard & (_words(settings) | _words(rest)) or any(sign in sql for sign in _SIGNS) or _places(sql) != len(values):
        return None
    new = dict(_equalities(settings, ",", iter(values)))
    bound = tuple(values[_places(sql) - _places(rest) :])
    old = list(_equalities(rest, "and", iter(bound)))
    if settings and not any(column in new and _differ(new[column], value) for column, value in old):
        return None
    return f"SELECT count(*) FROM {found['table']} WHERE {rest}", bound


def _pieces(text: str, word: str) -> Iterator[str]:
    """Split at a word that is in no parentheses and no quotes."""
    start = depth = 0
    for token in _TOKEN.finditer(text):
        depth += (token[0] == "(") - (token[0] == ")")
        if depth == 0 and token[0].lower() == word:
            yield text[start : token.start()]
            start = token.end()
    yield text[start:]


def _equalities(text: str, between: str, given: Iterator[object]) -> Iterator[tuple[str, object]]:
    """(column, value) of each `column = value`; what is not a plain value is left out."""
    for piece in _pieces(text, between):
        places = [next(given, None) for _ in range(_places(piece))]
        found = _EQUALS.fullmatch(piece)
        if found is None:
            continue
        value = found["value"]
        column = re.findall(r'"(?:[^"]|"")+"|`[^`]+`|\[[^\]]+\]|[\w$]+', found["column"])[-1].strip('"`[]').lower()
        if value in ("?", "%s"):
            yield column, places[0]
        elif value.lower() == "null":
            yield column, None
        elif value[0] == "'":
            yield column, value[1:-1].replace("''", "'")
        else:
            yield column, Decimal(value)


def _differ(new: object, old: object) -> bool:
    """Whether no column takes the two for the same: not even one that knows neither case nor blanks at the end."""
    if old is None:
        return False  # `= NULL` finds nothing anyway
    if new is None:
        return True
    if isinstance(new, str) and isinstance(old, str):
        return new.strip().casefold() != old.strip().casefold()
    if type(new) is type(old):
        return bool(new != old)
    numbers = (int, float, Decimal)
    return isinstance(new, numbers) and isinstance(old, numbers) and float(new) != float(old)


def _places(text: str) -> int:
    return sum(token in ("?", "%s") for token in _TOKEN.findall(text))


def _words(text: str) -> set[str]:
    return {token.lower() for token in _TOKEN.findall(text)}
