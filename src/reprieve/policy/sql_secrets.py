"""Which value of an SQL statement is a secret, by the column that it is for. Pure.

Reads only as much as that takes: expressions with the names in them, and the columns of an INSERT with its rows. A
value whose column can't be told is taken for a secret where the statement names a column that holds one.
"""

from __future__ import annotations

import re
from itertools import islice

from reprieve.policy.redact import is_sensitive, redact

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    Item = tuple[str, object]  # a token, and the value that it stands for; None if it stands for none
    Expression = tuple[str, list[Item]]  # the column that it is for, "" if that can't be told

# strings (also E'…' and $tag$…$tag$), names in quotes, comments, placeholders of sqlite3 and psycopg, words, signs
_TOKEN = re.compile(
    r"""(?sx) [eE]'(?:\\.|''|[^'\\])*(?:'|\Z) | (?:[uU]&|[nNbBxX])?'(?:[^']|'')*(?:'|\Z)
    | \$(?P<tag>(?:[^\W\d]\w*)?)\$.*?(?:\$(?P=tag)\$|\Z) | "(?:[^"]|"")*" | `[^`]*` | \[[^\W\d][\w ]*\]
    | --[^\n]* | /\*.*?\*/ | ::\w+ | %[sbt] | %\(\w+\)[sbt] | %% | \?\d* | [:@$]\w+ | \w+ | \S"""
)
_STRING = re.compile(r"""(?s)(?:[eE]|[uU]&|[nNbBxX])?'(.*?)'?\Z|\$(?P<tag>\w*)\$(.*?)(?:\$(?P=tag)\$)?\Z""")
_ENDS = frozenset(("and", "or", "where", "from", "returning", "set", "values", "then", "when", "else", "having"))
_COMPARED = frozenset(("=", "<", ">", "!", "~", "is", "like", "ilike", "in"))
_NO_LIST = frozenset(("values", "select", "set", "using", "default"))  # an INSERT that names no columns
_TABLES = frozenset(("into", "from", "update", "table", "join", "only", "exists"))
_TIME = re.compile(r"\d{4}-\d\d-\d\d")  # when a password was changed is none
_KEY = re.compile(r"""[\w.{}$\[\]",-]{1,64}\Z""")  # password, {db,password}, $.password
# columns that say what is meant by another one of the row
_NAMING, _MEANT = ("name", "key", "variable", "field", "setting", "option"), ("value", "val", "content", "data", "text")


def secret_column(sql: str, values: Sequence[object]) -> str:
    """The name of a column whose value seems to be a secret, "" if there is none."""
    items = _items(sql, values)
    words = [token.lower() for token, _ in items]
    is_code = bool({"function", "procedure", "do"} & set(words)) and words[0] in ("create", "do")
    named = next((name for name in _names(items) if is_sensitive(name)), "")
    told: list[tuple[str, str]] = []
    for column, part in _expressions(items):
        around = next((name for name in (column, *_names(part)) if is_sensitive(name)), "" if column else named)
        keys = list(islice(_keys(part), 2))  # two, as a string is not the key of itself
        for n, (token, value) in enumerate(part):
            key = next((text for at, text in keys if at != n), "")
            for text in _texts(value):
                if is_code and token.startswith("$"):
                    found = secret_column(text, ())  # the body of a function: statements of its own
                else:
                    found = (column or "?") if redact(text) != text else around or key
                if found and not _TIME.match(text):
                    return found
                told.append((column, text))
    if any(column.lower() in _NAMING and _is_key(text) for column, text in told):
        return next((column for column, text in told if column.lower() in _MEANT), "")
    return ""


def _texts(value: object) -> Iterator[str]:
    """What of a value may be secret. A dict names a credential."""
    if isinstance(value, (str, bytes, bytearray, memoryview)) and value:
        yield value if isinstance(value, str) else bytes(value).decode("latin-1")
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _texts(each)


def _items(sql: str, values: Sequence[object]) -> list[Item]:
    """The tokens, with the values of strings and placeholders."""
    tokens = [found[0] for found in _TOKEN.finditer(sql) if not found[0].startswith(("--", "/*"))]
    # with %s a ? is an operator of PostgreSQL, and : is in a slice
    is_percent = any(re.match(r"%[sbt(]", token) for token in tokens)
    style = re.compile(r"%[sbt]|%\(" if is_percent else r"\?|[:@$]\w+\Z")
    numbers: dict[str, int] = {}
    items: list[Item] = []
    count = 0
    for token in tokens:
        if string := _STRING.match(token):
            items.append((token, string[1] if string[1] is not None else string[3]))
        elif style.match(token):
            at = int(token[1:]) - 1 if token[1:].isdigit() else numbers.get(token, count)
            if token not in ("?", "%s", "%b", "%t"):
                numbers[token] = at
            count = max(count, at + 1)
            items.append((token, values[at] if at < len(values) else None))
        else:
            items.append((token, None))
    if count != len(values):  # a placeholder in a string, or a statement that is wrong: any may be for any
        items = [(token, list(values) if style.match(token) else value) for token, value in items]
        items += [(";", None), ("?", list(values))]
    return items


def _expressions(items: list[Item]) -> Iterator[Expression]:
    """What stands between commas and words that part, with the column that it is for."""
    first = items[0][0].lower() if items else ""
    is_ddl = first in ("create", "alter")
    columns: list[str] = []
    part: list[Item] = []
    depth = cases = at = 0
    is_list = is_naming = is_rows = False
    for token, value in items:
        word = token.lower() if value is None else ""
        if is_naming:  # the columns of an INSERT
            is_naming = token != ")"
            columns += [_plain(token)] if token not in (",", ")") else []
            continue
        if token == "(" and is_list:
            is_naming, is_list, columns = True, False, []
            continue
        is_list = word in ("insert", "into") or (is_list and word not in _NO_LIST)
        if is_rows and depth == 0 and token not in ("(", ","):
            is_rows = False
        cases += (word == "case") - (word == "end" and cases > 0)
        column = (columns[at] if at < len(columns) else "") if is_rows else ""
        depth += (token == "(") - (token == ")")
        is_row_end = is_rows and ((token == "(" and depth == 1) or (token == ")" and depth == 0))
        is_comma = token == "," and depth <= (1 if is_rows or is_ddl else 0)
        if is_row_end or (not cases and (is_comma or word in _ENDS)) or token == ";":
            if part:
                yield column or _told(part, is_ddl=is_ddl) if not is_rows else column, part
            part = []
            if is_rows:
                at = 0 if is_row_end else at + (token == ",")
            is_rows = is_rows or (word == "values" and depth == 0)
            if token == ";":
                depth, columns, is_rows = 0, [], False
            continue
        part.append((token, value))
    if part:
        yield _told(part, is_ddl=is_ddl), part


def _told(part: list[Item], *, is_ddl: bool) -> str:
    """The column of `column = value`; in a definition, of `column … DEFAULT value`."""
    last = ""
    for token, value in part:
        if (token.lower() in _COMPARED and last) or (is_ddl and last):
            return last
        if value is None and re.match(r'[\w"`\[]', token):
            last = _plain(token)
    return ""


def _names(items: list[Item]) -> Iterator[str]:
    """Names of columns, with words that could be some; none of a table."""
    is_table, before, earlier = False, "", ""
    for n, (token, value) in enumerate(items):
        if value is None and re.match(r'[\w"`\[]', token):
            is_table = is_table if before == "." else before in _TABLES and earlier != "distinct"
            is_in_front = n + 1 < len(items) and items[n + 1][0] == "."
            if not is_table and not is_in_front:
                yield _plain(token)
        before, earlier = token.lower(), before


def _keys(part: list[Item]) -> Iterator[tuple[int, str]]:
    """What strings of an expression name, and where: jsonb_set(…, '{password}', …), … ->> 'password' = …"""
    is_json = any(value is None and ("json" in token.lower() or "hstore" in token.lower()) for token, value in part)
    for n, (_, value) in enumerate(part):
        is_after_arrow = n > 0 and part[n - 1][0] == ">"
        for text in _texts(value):
            if _is_key(text) and (is_json or is_after_arrow or text[0] in "{$"):
                yield n, text


def _is_key(text: str) -> bool:
    return _KEY.match(text) is not None and is_sensitive(text.strip('{}$."'))


def _plain(token: str) -> str:
    return token.strip('"`[]')
