"""Read SQL well enough to say what it does to data: the class of each statement, and what made it so. Pure.

A tokenizer of its own: quotes, dollar quotes, comments and statements are told apart for PostgreSQL, MySQL and
SQLite alike, and
where dialects disagree (a backslash in a string) both readings are made and the worse one counts. What is not
recognised is opaque. Nobody here knows whether a database is captured; the caller says it with `undo`.
"""

from __future__ import annotations

import re

from reprieve.model.value import Value
from reprieve.policy.classes import IRREVERSIBLE, OPAQUE, READ, RESTORABLE, REVERSIBLE, rank, worst

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

# What a rollback can do for this database: nothing, put rows back, or bring back the whole file.
NONE, ROWS, WHOLE = "none", "rows", "whole"


class Statement(Value):
    """One statement: its verb, its class, why; `is_bounded` is False for an UPDATE or DELETE of every row."""

    verb: str
    cls: str
    reason: str = ""
    is_bounded: bool = True


class SqlReading(Value):
    """All statements of a text and the worst class among them."""

    cls: str
    statements: tuple[Statement, ...]

    @property
    def reason(self) -> str:
        """Why the worst one is what it is."""
        return next((one.reason for one in self.statements if one.cls == self.cls), "")


_TOKEN = re.compile(
    r"""(?xs)
    (?P<space>\s+)
  | (?P<line>--[^\n]*)
  | (?P<dollar>\$(?P<tag>[A-Za-z_\x80-\uffff][\w\x80-\uffff]*)?\$.*?\$(?(tag)(?P=tag)|)\$)
  | (?P<number>\d[\w.]*)
  | (?P<word>[A-Za-z_\x80-\uffff@][\w$\x80-\uffff]*)
  | (?P<other>.)
    """
)

_FUNCTIONS = frozenset([
    "count", "sum", "avg", "min", "max", "total", "lower", "upper", "length", "char_length", "octet_length",
    "coalesce", "nullif", "ifnull", "iif", "now", "date", "time", "datetime", "julianday", "strftime", "unixepoch",
    "extract", "round", "abs", "ceil", "ceiling", "floor", "power", "sqrt", "mod", "sign", "trunc", "cast",
    "try_cast", "concat", "concat_ws", "substr", "substring", "trim", "ltrim", "rtrim", "replace", "left", "right",
    "position", "strpos", "instr", "lpad", "rpad", "repeat", "reverse", "split_part", "regexp_replace",
    "regexp_matches", "regexp_match", "to_char", "to_date", "to_timestamp", "to_number", "date_trunc", "date_part",
    "date_add", "date_sub", "date_format", "datediff", "timestampdiff", "age", "json_agg", "jsonb_agg",
    "json_extract", "json_array_length", "json_each", "json_build_object", "jsonb_build_object",
    "jsonb_array_elements", "json_object", "json_array", "to_json", "to_jsonb", "row_to_json", "array_agg",
    "array_length", "string_agg", "group_concat", "row_number", "rank", "dense_rank", "percent_rank", "lag", "lead",
    "first_value", "last_value", "ntile", "unnest", "generate_series", "version", "current_database", "current_user",
    "current_schema", "pg_size_pretty", "pg_total_relation_size", "pg_relation_size", "pg_database_size",
    "pg_table_size", "pg_get_viewdef", "pg_get_indexdef", "pg_get_constraintdef", "obj_description",
    "col_description", "format_type", "to_regclass", "random", "md5", "greatest", "least", "typeof", "hex", "quote",
    "char", "ascii", "chr", "initcap", "percentile_cont", "percentile_disc", "stddev", "variance", "bool_and",
    "bool_or", "every", "year", "month", "day", "hour", "minute", "second", "current_date", "current_timestamp",
    "localtime", "printf", "format", "year_week", "if", "isnull", "database", "user", "last_insert_rowid", "changes",
    "row_count", "found_rows", "pg_column_size", "pg_is_in_recovery", "width_bucket", "cume_dist", "mode", "grouping",
    "varchar", "char", "character", "decimal", "numeric", "bit", "varbit", "float", "timestamp", "timestamptz",
    "interval", "varying", "precision", "int", "integer", "bigint", "smallint", "text", "bool", "boolean", "glob",
    "like",
])  # fmt: skip
_BEFORE_PAREN = frozenset([
    "in", "values", "exists", "and", "or", "not", "on", "using", "from", "select", "where", "as", "over", "join",
    "limit", "offset", "by", "having", "then", "else", "when", "union", "except", "intersect", "all", "any", "some",
    "distinct", "with", "recursive", "filter", "within", "materialized", "lateral", "only", "case", "between", "is",
    "like", "ilike", "returning", "set", "into", "table", "key", "references", "check", "unique", "primary",
    "foreign", "index", "default", "array", "row", "partition", "interval", "conflict", "update", "insert", "delete",
    "end", "asc", "desc", "rows", "range", "groups", "begin", "view", "constraint",
])  # fmt: skip

_READS = frozenset([
    "select", "table", "values", "show", "describe", "desc", "use", "begin", "start", "commit", "end", "rollback",
    "savepoint", "release", "set", "reset", "discard", "declare", "fetch", "close", "listen", "unlisten", "help",
    "detach", "abort", "checkpoint", "status",
])  # fmt: skip
_CHANGES = {
    "insert": "inserts rows", "update": "changes rows", "delete": "deletes rows", "merge": "merges rows",
    "replace": "replaces rows", "upsert": "changes rows",
}  # fmt: skip
_SCHEMA = {
    "drop": "drops", "truncate": "empties a table", "alter": "changes the schema", "rename": "renames a table",
    "create": "creates", "reindex": "rebuilds an index", "cluster": "rewrites a table", "refresh": "replaces a view",
    "comment": "changes a comment",
}  # fmt: skip
_RIGHTS = {
    "grant": "grants rights", "revoke": "revokes rights", "kill": "ends a session", "shutdown": "stops the server",
    "flush": "flushes the server's state", "purge": "purges logs", "notify": "sends a notification",
    "lock": "locks tables",
    "security": "labels", "reassign": "reassigns owners", "import": "imports", "optimize": "rewrites tables",
    "repair": "rewrites tables", "handler": "reads by hand", "change": "changes replication",
    "stop": "stops replication",
}  # fmt: skip
_PRAGMA_QUERIES = frozenset([
    "table_info", "table_xinfo", "table_list", "index_list", "index_info", "index_xinfo", "foreign_key_list",
    "foreign_key_check", "integrity_check", "quick_check", "database_list", "collation_list", "function_list",
    "pragma_list", "compile_options", "module_list",
])  # fmt: skip


class _Unreadable(Exception):
    """A string or comment that does not end."""


def read_sql(text: str, *, undo: str = NONE) -> SqlReading:
    """The class of the text. `undo`: what a rollback can do for this database (`NONE`, `ROWS`, `WHOLE`)."""
    readings = [_read(text, undo, has_escapes=False)]
    if "\\" in text:
        readings.append(_read(text, undo, has_escapes=True))
    return max(readings, key=lambda one: rank(one.cls))


def _read(text: str, undo: str, *, has_escapes: bool) -> SqlReading:
    try:
        tokens = _tokens(text, has_escapes)
    except _Unreadable as wrong:
        return SqlReading(OPAQUE, (Statement("", OPAQUE, str(wrong)),))
    statements: list[Statement] = []
    current: list[str] = []
    for token in [*tokens, ";"]:
        if token != ";":
            current.append(token)
        elif current:
            statements.append(_statement(current, undo))
            current = []
    return SqlReading(worst(*(one.cls for one in statements)), tuple(statements))


def _tokens(text: str, has_escapes: bool) -> list[str]:
    """Lower-case words and single signs; a literal is one token that begins with a quote."""
    found: list[str] = []
    at = 0
    while at < len(text):
        if text.startswith("/*", at):
            if text.startswith(("/*!", "/*M!"), at):
                raise _Unreadable("a comment that MySQL runs")
            at = _after_comment(text, at)
            continue
        ch = text[at]
        if ch in "'\"`" or (ch == "[" and not (found and (found[-1][:1].isalnum() or found[-1] in '])"'))):
            end = _after_quote(text, at, has_escapes)
            found.append(("'" if ch == "'" else '"') + text[at + 1 : end - 1].lower())
            at = end
            continue
        match = _TOKEN.match(text, at)
        assert match is not None  # the last alternative takes anything
        kind = match.lastgroup
        if ch == "#" and "mysql" not in found and text[at : at + 2] not in ("#>", "#-"):
            raise _Unreadable("'#' begins a comment in one dialect and not in another")
        if kind == "word" or kind == "number":
            found.append(match[0].lower())
        elif match["dollar"]:
            found.append("'" + match[0])
        elif kind == "other":
            found.append(ch)
        at = match.end()
    return found


def _after_comment(text: str, at: int) -> int:
    """Nested, as PostgreSQL has them; where another dialect would end it earlier, what is left is read by nobody."""
    first = text.find("*/", at + 2)
    if first < 0:
        raise _Unreadable("a comment that does not end")
    if "/*" in text[at + 2 : first]:
        raise _Unreadable("a comment inside a comment")
    return first + 2


def _after_quote(text: str, at: int, has_escapes: bool) -> int:
    closer = "]" if text[at] == "[" else text[at]
    n = at + 1
    while n < len(text):
        if text[n] == "\\" and has_escapes and closer != "]":
            n += 2
        elif text[n] == closer:
            if text[n + 1 : n + 2] != closer or closer == "]":
                return n + 1
            n += 2
        else:
            n += 1
    raise _Unreadable("a quote that does not end")


def _statement(tokens: Sequence[str], undo: str) -> Statement:
    while tokens and tokens[0] == "(":
        tokens = tokens[1:]
    verb = tokens[0] if tokens else ""
    if verb == "explain":
        rest = [token for token in tokens[1:] if token not in ("(", ")", ",")]
        if "analyze" not in rest and "analyse" not in rest:
            return Statement(verb, READ)
        start = next((n for n, token in enumerate(tokens) if n and token in (*_READS, *_CHANGES, "with")), None)
        return _statement(tokens[start:], undo) if start else Statement(verb, OPAQUE, "explains what can't be read")
    found = _by_verb(verb, tokens, undo)
    function = _unknown_function(tokens) if verb not in ("create", "grant", "revoke", "drop", "alter", "pragma") else ""
    if function and rank(found.cls) < rank(OPAQUE):
        return Statement(verb, OPAQUE, f"calls {function}(), which may do anything")
    return found


def _by_verb(verb: str, tokens: Sequence[str], undo: str) -> Statement:
    if verb == "with":
        return _with(tokens, undo)
    if verb == "pragma":
        return _pragma(tokens, undo)
    if verb == "copy":
        return _copy(tokens, undo)
    if verb in _CHANGES:
        return _change(verb, tokens, undo)
    if verb in ("vacuum", "analyze", "analyse"):
        if "into" in tokens:
            return Statement(verb, IRREVERSIBLE, "writes a file")
        return Statement(verb, REVERSIBLE)
    if verb in _SCHEMA:
        return _schema(verb, tokens, undo)
    if verb in _RIGHTS:
        return Statement(verb, IRREVERSIBLE, _RIGHTS[verb])
    if verb in _READS:
        return _query(verb, tokens, undo)
    return Statement(verb, OPAQUE, f"{verb.upper()} can't be read" if verb else "nothing can be read")


def _query(verb: str, tokens: Sequence[str], undo: str) -> Statement:
    if verb in ("select", "table", "values"):
        if "into" in tokens:
            return Statement(verb, IRREVERSIBLE, "writes its result into a table or file")
        changing = next((token for token in tokens if token in ("insert", "delete", "merge")), "")
        if changing and f"{changing}" in tokens[1:] and "(" in tokens:
            return _change(changing, tokens, undo)
    if verb in ("commit", "rollback") and "prepared" in tokens:
        return Statement(verb, IRREVERSIBLE, "ends a transaction that another session prepared")
    if verb == "set" and len(tokens) > 1 and tokens[1] in ("global", "persist", "password", "@"):
        return Statement(verb, IRREVERSIBLE, "changes the server's settings")
    if verb == "set" and ("session_replication_role" in tokens or "@@global" in tokens):
        return Statement(verb, IRREVERSIBLE, "turns off what watches the rows")
    if verb == "reset" and len(tokens) > 1 and tokens[1] in ("master", "slave", "replica", "query"):
        return Statement(verb, IRREVERSIBLE, "clears the server's logs")
    return Statement(verb, READ)


def _with(tokens: Sequence[str], undo: str) -> Statement:
    """A common table expression may itself delete and return what it deleted."""
    changing = [token for token in tokens if token in _CHANGES and token != "replace"]
    # `FOR UPDATE` locks and changes nothing
    locks = sum(1 for n, token in enumerate(tokens[1:], 1) if token == "update" and tokens[n - 1] in ("for", "key"))
    if len(changing) > locks:
        verb = next(token for token in changing if token != "update" or locks == 0 or changing.count("update") > locks)
        return _change(verb, tokens, undo)
    return _query("select", tokens, undo)


def _change(verb: str, tokens: Sequence[str], undo: str) -> Statement:
    is_bounded = verb not in ("update", "delete") or "where" in tokens
    reason = _CHANGES[verb] + ("" if is_bounded else ", all of them")
    return Statement(verb, RESTORABLE if undo in (ROWS, WHOLE) else IRREVERSIBLE, reason, is_bounded)


def _schema(verb: str, tokens: Sequence[str], undo: str) -> Statement:
    what = next((token for token in tokens[1:] if token not in ("or", "replace", "if", "not", "exists", "unique")), "")
    reason = f"{_SCHEMA[verb]} {what}".strip() if verb in ("drop", "create") else _SCHEMA[verb]
    runs = (
        "function",
        "procedure",
        "trigger",
        "rule",
        "event",
        "extension",
        "language",
        "aggregate",
        "operator",
        "server",
    )
    if verb == "create" and any(token in runs for token in tokens[:6]):
        return Statement(verb, OPAQUE, f"creates a {what}: code that runs later")
    if verb == "alter" and len(tokens) > 1 and tokens[1] in ("system", "database", "role", "user", "server"):
        return Statement(verb, IRREVERSIBLE, f"changes the {tokens[1]}")
    if verb == "truncate" and undo == ROWS:
        return Statement(verb, RESTORABLE, reason, is_bounded=False)
    return Statement(verb, RESTORABLE if undo == WHOLE else IRREVERSIBLE, reason, verb != "truncate")


def _copy(tokens: Sequence[str], undo: str) -> Statement:
    if "program" in tokens:
        return Statement("copy", OPAQUE, "runs a program on the server")
    if "to" in tokens:
        after = tokens[len(tokens) - 1 - list(reversed(tokens)).index("to") + 1 :][:1]
        return Statement("copy", READ) if after == ["stdout"] else Statement("copy", IRREVERSIBLE, "writes a file")
    return Statement("copy", RESTORABLE if undo in (ROWS, WHOLE) else IRREVERSIBLE, "inserts rows")


def _pragma(tokens: Sequence[str], undo: str) -> Statement:
    if "=" not in tokens and ("(" not in tokens or any(token in _PRAGMA_QUERIES for token in tokens[1:4])):
        return Statement("pragma", READ)
    if any(token in ("writable_schema", "temp_store_directory", "data_store_directory") for token in tokens):
        return Statement("pragma", OPAQUE, "changes how the file is read")
    return Statement("pragma", RESTORABLE if undo == WHOLE else IRREVERSIBLE, "changes a setting of the database")


def _unknown_function(tokens: Sequence[str]) -> str:
    """The first call of a function that is not known to be harmless."""
    for n, token in enumerate(tokens[1:], 1):
        if token != "(":
            continue
        name = tokens[n - 1]
        if name.startswith('"'):
            if n > 1 and tokens[n - 2] in ("into", "table", "as", "references", "on", ",", "with", ".", "view"):
                continue
            return name[1:] or "?"
        if not (name[:1].isalpha() or name[:1] == "_") or name in _FUNCTIONS or name in _BEFORE_PAREN:
            if n > 2 and tokens[n - 2] == "." and name in _FUNCTIONS and tokens[n - 3] not in ("pg_catalog",):
                return f"{tokens[n - 3]}.{name}"
            continue
        # `INSERT INTO t (a, b)`, `WITH t (a) AS`, `ON t (a)`: a name and its columns
        before = tokens[n - 2] if n > 1 else ""
        if before == "." and n > 3:
            before = tokens[n - 4]
        if before in ("into", "table", "with", "references", "recursive", "on", "view", "analyze", "copy", "index") or (
            before == "," and tokens[0] == "with"
        ):
            continue
        return name
    return ""
