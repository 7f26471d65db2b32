"""Which value of an SQL statement is a secret, by the column that it is for. Pure.

Reads only as much as that takes: `column = value` with whatever is around the value, and the columns of an INSERT.
"""

from __future__ import annotations

import re

from reprieve.policy.redact import is_sensitive, redact

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# strings, names in quotes, placeholders of sqlite3 and psycopg, words, and single signs
_TOKEN = re.compile(
    r"""(?s)'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`|\[[^\]\n]*\]|--[^\n]*|/\*.*?\*/|::\w+|%s|%\(\w+\)s|\?\d*|[:@$]\w+|\w+|\S"""
)
_ENDS = frozenset(("and", "or", "where", "from", "returning", "set", "values", ",", ";"))
_TIME = re.compile(r"\d{4}-\d\d-\d\d")  # when a password was changed is none


def secret_column(sql: str, values: Sequence[object]) -> str:
    """The name of a column whose value seems to be a secret, "" if there is none."""
    given = iter(values)
    for column, token in _pairs(sql):
        value = token[1:-1] if token[0] == "'" else next(given, None)
        if not isinstance(value, (str, bytes)) or not value:
            continue  # a dict names a credential
        text = value if isinstance(value, str) else value.decode("latin-1")
        if (is_sensitive(column) and not _TIME.match(text)) or redact(text) != text:
            return column or "?"
    return ""


def _pairs(sql: str) -> Iterator[tuple[str, str]]:
    """(column, string or placeholder) as they stand; PASSWORD in PASSWORD 'x' counts as one; "" if none is told."""
    tokens = [token for token in _TOKEN.findall(sql) if not token.startswith(("--", "/*"))]
    columns, column, last, depth, at = _inserted(tokens), "", "", 0, 0
    is_values = is_named = False
    for token in tokens:
        word = token.lower()
        depth += (token == "(") - (token == ")")
        if word == "values":
            is_values = True
        elif is_values and depth == 0 and word not in (",", "values", ")"):
            is_values = False
        if is_values and depth == 1 and token in "(,":
            at = 0 if token == "(" else at + 1
        if token[0] == "'" or token.startswith(("?", "%s", "%(")) or re.match(r"[:@$]\w", token):
            yield (columns[at] if is_values and at < len(columns) else column or (last if is_named else "")), token
        elif word in _ENDS and not (token == "," and depth):
            column = ""
        elif token in ("=", "<", ">", "!") or word in ("is", "like", "in"):
            column = column or last
        elif re.match(r'[\w"`\[]', token):
            last = token.strip('"`[]')
        is_named = re.match(r"\w", token) is not None


def _inserted(tokens: Sequence[str]) -> list[str]:
    """The columns that an INSERT or REPLACE names."""
    if not tokens or tokens[0].lower() not in ("insert", "replace") or "(" not in tokens:
        return []
    first = tokens.index("(")
    if "values" in (token.lower() for token in tokens[:first]) or ")" not in tokens:
        return []
    return [token.strip('"`[]') for token in tokens[first + 1 : tokens.index(")")] if token != ","]
