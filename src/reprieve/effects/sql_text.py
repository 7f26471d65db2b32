"""Read a statement as far as it takes to run it with care. Pure; what can't be read is refused, never guessed."""

from __future__ import annotations

import re

from reprieve.errors import Usage

# What a ROLLBACK takes back, by how a statement begins. Not COMMIT, ATTACH or other pragmas; in PostgreSQL not SELECT,
# DO or CALL either: setval() stays. DROP DATABASE and its like PostgreSQL itself refuses inside a transaction.
_BOTH = ("insert ", "update ", "delete ", "create ", "drop ", "alter ")
_TAKEN_BACK = {
    "sqlite3": (*_BOTH, "replace ", "with ", "select ", "reindex", "analyze", "pragma user_version"),
    "psycopg": (*_BOTH, "merge ", "truncate ", "comment ", "grant ", "revoke ", "set "),
}
MODULES = tuple(_TAKEN_BACK)

_PART = r'(?:"(?:[^"]|"")+"|`[^`]+`|\[[^\]]+\]|[\w$]+)'
_QUOTED = r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`|\[[^\]]*\]"""
NAME = rf"{_PART}(?:\s*\.\s*{_PART})*"
_NAMES = rf"(?P<names>{NAME}(?:\s*\*)?(?:\s*,\s*{NAME}(?:\s*\*)?)*)"
_EMPTIES = re.compile(
    rf"(?is)\s*(?:drop\s+table(?:\s+if\s+exists)?|truncate(?:\s+table)?(?:\s+only)?)\s+{_NAMES}"
    r"(?:\s+(?:restart|continue)\s+identity)?(?:\s+restrict)?\s*;?\s*"
)
_ALTER = re.compile(
    rf"(?is)\s*alter\s+table\s+(?:if\s+exists\s+)?(?:only\s+)?(?P<table>{NAME})(?:\s*\*)?\s+(?P<actions>.+?)\s*;?\s*"
)
_DROPS = re.compile(rf"(?is)drop\s+(?:column\s+)?(?:if\s+exists\s+)?(?P<column>{_PART})(?:\s+restrict)?")
_RETYPES = re.compile(
    rf"(?is)alter\s+(?:column\s+)?(?P<column>{_PART})\s+(?:set\s+data\s+)?type\s+"
    rf"(?P<type>{NAME}[\w\s(),\[\]-]*?)(?:\s+collate\s+{NAME})?(?:\s+using\s+(?P<using>.+))?"
)
_ACTION = re.compile(rf"(?s)({_QUOTED}|[(),]|[^'\"`\[(),]+|.)")
_TARGET = re.compile(rf"(?is)\s*(?:delete\s+from|update|insert\s+into|merge\s+into)\s+(?:only\s+)?({NAME})")
# What a function does that no ROLLBACK takes back: sequences, locks of a session, other connections, files, messages
_STAYS = re.compile(
    r"""(?is)\b(setval|nextval|pg_(?:try_)?advisory_lock\w*|pg_advisory_unlock\w*|dblink\w*|lo_(?:im|ex)port"""
    r"""|pg_(?:terminate|cancel)_backend|pg_file_\w+|pg_logical_emit_message|pg_reload_conf|pg_switch_wal)"?"""
    r"""(?:\s|\*/|/\*.*\*/|--[^\n]*\n)*\("""
)


# what is no statement: a comment, a string; a name in quotes is one, whatever is in it
_ASIDE = re.compile(r"""(?is)(/\*.*?\*/|--[^\n]*)|(\be'(?:\\.|''|[^'\\])*'|'(?:[^']|'')*')|"(?:[^"]|"")*\"""")


def must_be_taken_back(sql: str, module: str) -> None:
    """Raises Usage for what may stay when its transaction is rolled back, or takes along what nobody can list."""
    plain = " ".join(sql.lower().split())
    if not plain.startswith(_TAKEN_BACK[module]):
        raise Usage(f"{sql}: it is not known that a ROLLBACK takes this back, so it can't be tried first")
    # psycopg runs several at once, and a COMMIT may be among them; sqlite3 refuses that itself
    if module != "sqlite3" and ";" in sql.rstrip().removesuffix(";"):
        raise Usage(f"{sql}: a ';' may begin another statement", hints=["give statements one by one, and values apart"])
    if module != "sqlite3" and (stays := what_stays(sql)):
        raise Usage(
            f"{sql}: what {stays}() does stays when it is rolled back, so it can't be tried first",
            hints=["a sequence is set by ALTER SEQUENCE name RESTART WITH n"] if stays == "setval" else [],
        )
    if plain.startswith(("alter --", "alter /*")):
        raise Usage(f"{sql}: what this alters can't be read", hints=["leave the comment out"])
    if plain.startswith(("drop ", "truncate ")):
        if "--" in plain or "/*" in plain:
            raise Usage(f"{sql}: what this drops can't be read", hints=["leave the comment out"])
        if plain.startswith("drop owned") or re.search(r"\bcascade\s*;?$", plain):
            raise _takes_along(sql)
    emptied(sql)
    dropped(sql)
    retyped(sql)


def what_stays(sql: str) -> str:
    """The function whose work stays, "" if none is called. As a DEFAULT of a column nextval() is only written down."""
    alone = _ASIDE.sub(lambda found: " " if found[1] else "''" if found[2] else found[0], sql)
    # comments within comments and quotes by $ are not read as PostgreSQL does: then strings count as well
    texts = (alone, sql) if re.search(r"\*/|\$\w*\$", alone) else (alone,)
    found = [match[1].lower() for text in texts for match in _STAYS.finditer(text)]
    is_schema = sql.lower().split()[:1] in (["create"], ["alter"])
    return next((name for name in found if name != "nextval" or not is_schema), "")


def must_fit(sql: str, count: int, module: str) -> None:
    """Raises Usage for a statement that has not as many places as values, which the driver would only say at undo."""
    hints = []
    if module == "sqlite3":
        plain = re.sub(_QUOTED, "''", sql)
        if re.search(r"\?\d|[:@$]\w|--|/\*", plain):
            return  # by number or name, or perhaps in a comment
        places = plain.count("?")
    elif count:
        found = re.findall(r"%(.?)", sql.replace("%%", ""), re.DOTALL)
        hints = ["a % that is none of them is written %% where there are values"]
        places = len(found) if set(found) <= {"s", "b", "t"} else -1
    else:
        places = re.sub(_QUOTED, "''", sql).count("%s")
    if places != count:
        raise Usage(f"{sql}: it does not have a place for each of {count} values", hints=hints)


def emptied(sql: str) -> list[str]:
    """The tables whose rows go with the statement, as they are written in it: DROP TABLE, TRUNCATE."""
    plain = " ".join(sql.lower().split())
    if not plain.startswith(("drop table", "truncate ")):
        return []
    found = _EMPTIES.fullmatch(sql)
    if found is None:
        raise Usage(f"{sql}: which tables this takes can't be read", hints=["DROP TABLE name, or TRUNCATE name"])
    return re.findall(NAME, found["names"])


def dropped(sql: str) -> list[tuple[str, str]]:
    """(table, column) of what ALTER TABLE drops, as they are written in it: its values go with it."""
    plain = " ".join(sql.lower().split())
    if not plain.startswith("alter table") or "drop" not in plain:
        return []
    found = _ALTER.fullmatch(sql)
    if found is None or "--" in plain or "/*" in plain:
        raise Usage(f"{sql}: what this drops can't be read", hints=["ALTER TABLE name DROP COLUMN name"])
    columns = []
    for action in map(str.strip, found["actions"].split(",")):
        first, second, *_ = [*action.lower().split(), "", ""]
        if first != "drop":
            continue
        if action.lower().endswith("cascade"):
            raise _takes_along(sql)
        if second != "constraint":
            column = _DROPS.fullmatch(action)
            if column is None:
                raise Usage(f"{sql}: what this drops can't be read", hints=["ALTER TABLE name DROP COLUMN name"])
            columns.append((found["table"], column["column"]))
    return columns


def retyped(sql: str) -> list[tuple[str, str, str]]:
    """(table, column, type) of what ALTER TABLE gives another type, as they are written in it: values may be cut."""
    plain = " ".join(sql.lower().split())
    if not plain.startswith("alter table") or not re.search(r"\btype\b", plain):
        return []
    unread = Usage(f"{sql}: what this changes can't be read", hints=["ALTER TABLE name ALTER COLUMN name TYPE type"])
    found = _ALTER.fullmatch(sql)
    if found is None or any(sign in plain for sign in ("--", "/*", "\\", "$")):  # quotes of other kinds
        raise unread
    columns = []
    for action in _actions(found["actions"]):
        if not re.match(r"(?is)alter\b.*\btype\b", action):
            continue
        if re.match(rf"(?is)alter\s+(?:column\s+)?{_PART}\s+(?:set\s+default|drop|add|reset)\b", action):
            continue
        change = _RETYPES.fullmatch(action)
        if change is None:
            raise unread
        column, type, using = change["column"], change["type"].strip(), change["using"]
        if using is not None and "".join(using.lower().split()) != "".join(f"{column}::{type}".lower().split()):
            raise Usage(
                f"{sql}: what USING makes of a value that somebody wrote since can't be told",
                hints=[f"USING {column}::{type}, or none"],
            )
        columns.append((found["table"], column, type))
    return columns


def _actions(text: str) -> list[str]:
    """What is between the commas, but those in parentheses and quotes."""
    parts, depth = [""], 0
    for piece in _ACTION.findall(text):
        depth += (piece == "(") - (piece == ")")
        if piece == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += piece
    return [part.strip() for part in parts]


def _takes_along(sql: str) -> Usage:
    return Usage(
        f"{sql}: this takes along what others build on it",
        hints=["name each thing that the change made in a statement of its own, without CASCADE"],
    )


def bare(name: str) -> str:
    """The last part of a name, without quotes and in lower case."""
    return str(re.findall(_PART, name)[-1]).strip('"`[]').lower()


def target(sql: str) -> str:
    """The table that a statement changes rows of, as it is written, "" if that can't be read."""
    found = _TARGET.match(sql)
    return found[1] if found else ""
