"""A PostgreSQL database in which statements undo an effect: opened with psycopg, in a transaction.

A foreign key with an action (ON DELETE CASCADE, SET NULL, …) takes rows along that no statement names. PostgreSQL
counts the rows that a transaction changes, table by table: a child with more of them than the statement's own shows it.
"""

from __future__ import annotations

import os
import re

from reprieve.effects.sql_text import target
from reprieve.errors import Misconfigured, Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    Bound = tuple[str, tuple[object, ...]]

_WAIT_S = 5  # for another session's lock
_LONGEST_S = 120  # for one statement
# A rollback that nobody can end is none: a server that is gone is noticed, too.
_PATIENCE: dict[str, object] = {
    "connect_timeout": 10, "keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3,
}  # fmt: skip
_COUNTS = "SELECT relid, n_tup_upd, n_tup_del FROM pg_catalog.pg_stat_xact_user_tables WHERE n_tup_upd + n_tup_del > 0"
_ACTIONS = """
    SELECT conrelid, confrelid, confupdtype::text, confdeltype::text, conrelid::regclass::text
    FROM pg_catalog.pg_constraint WHERE contype = 'f' AND conrelid = ANY(%s) AND confrelid = ANY(%s) ORDER BY 5"""
_OWN = """
    WITH RECURSIVE own (id) AS (SELECT pg_catalog.to_regclass(%s)::oid
        UNION SELECT inhrelid FROM pg_catalog.pg_inherits JOIN own ON inhparent = id) SELECT id FROM own"""
# of a column that is computed from others nothing is lost
_DEFAULT = """
    SELECT pg_catalog.pg_get_expr(adbin, adrelid), pg_catalog.format_type(atttypid, atttypmod), adbin::text,
        atthasmissing, (attmissingval::text::text[])[1]
    FROM pg_catalog.pg_attribute LEFT JOIN pg_catalog.pg_attrdef ON adrelid = attrelid AND adnum = attnum
    WHERE attrelid = pg_catalog.to_regclass(%s) AND attname = (pg_catalog.parse_ident(%s))[1] AND attgenerated = ''"""
# CURRENT_DATE and the like are no functions there
_VARIES = re.compile(r"\{(?:SQLVALUEFUNCTION|NEXTVALUEEXPR)\b")
_CALLED = re.compile(r":(?:op)?funcid (\d+)")
_TYPE = """
    SELECT pg_catalog.format_type(atttypid, atttypmod) FROM pg_catalog.pg_attribute
    WHERE attrelid = pg_catalog.to_regclass(%s) AND attname = (pg_catalog.parse_ident(%s))[1]"""
_FIXED = "SELECT pg_catalog.bool_and(provolatile = 'i') FROM pg_catalog.pg_proc WHERE oid = ANY(%s::oid[])"
_ACTS = ("c", "n", "d")  # cascade, set null, set default


def _driver() -> Any:
    try:
        return __import__("psycopg")
    except ImportError:  # also where there is no libpq for it
        way = "pip install 'reprieve[postgres]'"
        raise Misconfigured(f"PostgreSQL needs the package psycopg: {way}", hints=[way]) from None


def address(where: str) -> str:
    """What the driver takes for an address: without the name of a driver that SQLAlchemy has in it."""
    return re.sub(r"^postgres(?:ql)?\+\w+://", "postgresql://", where)


def place(where: str) -> str:
    """Which database that leads to, for people: its name, host and port, and never the password."""
    psycopg = _driver()
    try:
        given = {option.keyword: option.val for option in psycopg.pq.Conninfo.parse(os.fsencode(address(where)))}
    except psycopg.Error:  # whose text quotes what it could not read, with the password
        raise Misconfigured(
            "what the variable holds is no address of a PostgreSQL database", hints=["postgresql://user@host:port/name"]
        ) from None
    usual = {option.keyword: option.val for option in psycopg.pq.Conninfo.get_defaults()}

    def said(*names: bytes) -> str:
        found = next((each[name] for each in (given, usual) for name in names if each.get(name)), b"")
        return bytes(found or b"").decode("utf-8", "replace")

    service = given.get(b"service")  # a file says where that is
    host = "" if service and not given.get(b"host") else said(b"hostaddr", b"host")
    by = f", by the service {service.decode('utf-8', 'replace')}" if service else ""
    return f"{said(b'dbname') or said(b'user')} on {host.lower() or 'this machine'}:{said(b'port')}{by}"


def words(error: Exception) -> str:
    """What went wrong, in PostgreSQL's first line alone: the others quote rows."""
    first = getattr(getattr(error, "diag", None), "message_primary", None)
    if first:
        return f"{first} ({getattr(error, 'sqlstate', None)})"
    name = type(error).__name__
    return f"the connection failed ({name})" if name == "OperationalError" else name


def _given(psycopg: Any, where: str) -> dict[str, object]:
    """Those of our settings that the address has itself: they are the person's."""
    options = psycopg.pq.Conninfo.parse(os.fsencode(address(where)))
    given = {option.keyword.decode(): option.val for option in options if option.val}
    return {name: given[name].decode() for name in _PATIENCE if name in given}


class Postgres:
    """The database, in a transaction; `close` rolls back what was not committed."""

    def __init__(self, where: str, statements: Sequence[Bound]) -> None:
        psycopg = _driver()
        self.errors = psycopg.Error
        self.conflicts = (psycopg.IntegrityError, psycopg.errors.DependentObjectsStillExist)
        try:
            self._db = psycopg.connect(address(where), **{**_PATIENCE, **_given(psycopg, where)})
        except psycopg.Error:  # whose text quotes the address
            why = "it does not run, or does not take the user and password"
            raise Refused(f"there is no connection to {place(where)} ({why})") from None
        try:
            # in milliseconds; for this transaction alone, as a pooler may give the session to others
            self._db.execute(f"SET LOCAL lock_timeout = {int(_WAIT_S * 1000)}")
            self._db.execute(f"SET LOCAL statement_timeout = {int(_LONGEST_S * 1000)}")
            if self._ask("SELECT pg_catalog.current_setting('track_counts')") == [("off",)]:
                raise Refused("the database counts no rows (track_counts), so others' rows might go along unseen")
        except BaseException:
            self._db.close()
            raise
        self._counts: dict[int, tuple[int, int]] = {}
        self._along = ""

    def execute(self, sql: str, values: tuple[object, ...]) -> int:
        """How many rows it changed, -1 if that can't be told."""
        cursor = self._db.cursor()
        cursor.execute(sql, values or None)  # without any, a % is just a %
        rows = int(cursor.rowcount)
        before, self._counts = self._counts, {id: (u, d) for id, u, d in self._ask(_COUNTS)}
        changed = {
            id: (u - before.get(id, (0, 0))[0], d - before.get(id, (0, 0))[1]) for id, (u, d) in self._counts.items()
        }
        self._along = self._children({id: both for id, both in changed.items() if both != (0, 0)}, sql, rows)
        return rows

    def taken_along(self) -> str:
        """Where rows are that foreign keys let the last statement take along, "" if there are none."""
        return self._along

    def rows_in(self, tables: Sequence[str]) -> int:
        """How many rows these tables hold, none if they are not there; nobody can add one any more."""
        rows = 0
        for name in tables:
            if self._ask("SELECT pg_catalog.to_regclass(%s)", (name,)) != [(None,)]:
                rows += self._count_all(name, f"SELECT pg_catalog.count(*) FROM {name}")
        return rows

    def values_in(self, columns: Sequence[tuple[str, str]]) -> int:
        """How many rows have something else than the default in these columns; nobody can write there any more."""
        rows = 0
        for table, column in columns:
            for default, type, tree, has_missing, missing in self._ask(_DEFAULT, (table, column)):
                # as text: JSON can't be compared; and of the column's type, as 0 is 0.00 in a numeric(10,2)
                query = f"SELECT pg_catalog.count(*) FROM {table} WHERE {column}::text IS DISTINCT FROM "
                if default and self._is_fixed(tree):
                    rows += self._count_all(table, f"{query}({default})::{type}::text")
                else:
                    # now() gave one value to all rows that were there, which is kept; gen_random_uuid() gave each its
                    # own, so that none of them can be told from a person's
                    known = (missing if has_missing else None,)
                    rows += self._count_all(table, query.replace("%", "%%") + "%s", known)
        return rows

    def values_cut(self, columns: Sequence[tuple[str, str, str]]) -> int:
        """How many rows have a value in these columns that is another in the new type and back; as `values_in`."""
        rows = 0
        for table, column, type in columns:
            for (old,) in self._ask(_TYPE, (table, column)):
                # as text: 'a' and 'a ' are one in a char(2)
                is_cut = f"{column}::{type}::{old}::text IS DISTINCT FROM {column}::text"
                rows += self._count_all(table, f"SELECT pg_catalog.count(*) FROM {table} WHERE {is_cut}")
        return rows

    def count(self, query: str, values: tuple[object, ...]) -> int:
        return int(self._ask(query, values)[0][0])

    def commit(self) -> None:
        self._db.commit()

    def is_open(self) -> bool:
        """Whether what was done is still to be rolled back, after a COMMIT that failed: nobody knows."""
        return False

    def close(self) -> None:
        try:
            self._db.rollback()
        finally:
            self._db.close()

    def _count_all(self, table: str, query: str, values: tuple[object, ...] = ()) -> int:
        """Count rows of a table to which nobody can write any more.

        Rows that a policy hides from the user would go as well: PostgreSQL then refuses to count. For statements the
        policies stay in force: those may be all that the user is let do.
        """
        self._db.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
        ((usual,),) = self._ask("SELECT pg_catalog.current_setting('row_security')")
        self._db.execute("SET LOCAL row_security = off")
        rows = self.count(query, values)
        self._db.execute(f"SET LOCAL row_security = {usual}")
        return rows

    def _is_fixed(self, tree: str) -> bool:
        """Whether an expression has the same value at all times, by the functions that PostgreSQL reads in it."""
        called = _CALLED.findall(tree)
        return not _VARIES.search(tree) and (not called or self._ask(_FIXED, (called,)) == [(True,)])

    def _children(self, changed: dict[int, tuple[int, int]], sql: str, rows: int) -> str:
        """Tables with rows that went along: changed ones whose key acts upon what happened to a changed parent."""
        keys = self._ask(_ACTIONS, (list(changed), list(changed))) if changed else []
        acting = {
            child: name
            for child, parent, on_update, on_delete, name in keys
            if (changed[parent][0] > 0 and on_update in _ACTS) or (changed[parent][1] > 0 and on_delete in _ACTS)
        }
        if not acting:
            return ""
        own = {id for (id,) in self._ask(_OWN, (target(sql),))} if target(sql) else set()
        is_more = sum(sum(changed[id]) for id in own if id in changed) > max(rows, 0)
        return ", ".join(name for child, name in acting.items() if child not in own or is_more)

    def _ask(self, query: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        cursor = self._db.cursor()
        cursor.execute(query, values or None)
        return list(cursor.fetchall())
