"""Undo by SQL that was frozen when the effect was recorded: each statement guarded by what the effect left behind.

    inverse = {"kind": "sql", "module": "sqlite3", "database": path or credential reference,
               "place": keyed fingerprint of where the reference led,
               "statements": [{"sql": ..., "values": [as in sql_values], "rows": 1}],
               "is_exact": true, "is_idempotent": false}

All of them in one transaction, and only statements that a ROLLBACK takes back: a look tries them. A statement that
changes another number of rows than it must (the old values in its WHERE no longer fit, a key was taken, a child hangs
on the row) undoes nothing: somebody changed it since. Neither does one that takes rows along which it does not name,
by a foreign key with an action: who wants those gone, too, deletes them by statements before it. `rows` of DROP TABLE
and TRUNCATE is how many must be in the table (none if it is -1): those that somebody wrote since would go with it. Of
ALTER TABLE … DROP COLUMN it is how many must have a value there, other than the column's default. ALTER COLUMN … TYPE
needs values that are the same in both types.
And rows that an UPDATE or DELETE still finds afterwards were kept by a trigger, whatever the database counts.
Sequences, triggers and what a schema change took along are not brought back by statements: `is_exact: false`.

Whether an interrupted one was committed the database doesn't tell, nor does it that the statements fit: `SET balance =
balance - 10` always does. They are run again only where the recording says that this does no harm.
"""

from __future__ import annotations

import os

from reprieve.effects.credentials import is_reference, resolve
from reprieve.effects.driver import CHANGED, READY, UNCLEAR, Check, Outcome
from reprieve.effects.sql_guard import left_over
from reprieve.effects.sql_text import MODULES, dropped, emptied, must_be_taken_back, must_fit, retyped
from reprieve.effects.sql_values import decoded, encoded, shown
from reprieve.errors import Refused, ReprieveError, Usage
from reprieve.model.effect import CONFLICT, FAILED, MANUAL, UNDONE, UNKNOWN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

    from reprieve.effects.sql_postgres import Postgres
    from reprieve.effects.sql_sqlite import Sqlite
    from reprieve.model.effect import Effect, Json

    Bound = tuple[str, tuple[object, ...]]

_DDL = ("create", "drop", "alter", "truncate", "reindex", "vacuum")


def sql_inverse(
    database: str,
    statements: Sequence[tuple[str, Sequence[object], int]],
    *,
    module: str = "sqlite3",
    is_idempotent: bool = False,
) -> Json:
    """The frozen inverse. Raises Usage for a database that is named with its password, or an unknown module."""
    if module not in MODULES:
        raise Usage(f"'{module}' is not known", hints=[f"one of: {', '.join(MODULES)}"])
    if module != "sqlite3" and not is_reference(database):
        raise Usage("the way to a database holds a password; name a variable: env:DATABASE_URL")
    if not statements:
        raise Usage("an inverse needs at least one statement")
    for sql, values, _ in statements:
        must_be_taken_back(sql, module)
        must_fit(sql, len(values), module)
    kept = [
        {"sql": sql, "values": [encoded(value, module) for value in values], "rows": rows}
        for sql, values, rows in statements
    ]
    is_exact = not any(sql.lstrip().lower().startswith(_DDL) for sql, _, _ in statements)
    where = database if is_reference(database) else os.path.abspath(database)
    return {
        "kind": "sql",
        "module": module,
        "database": where,
        "statements": kept,
        "is_exact": is_exact,
        "is_idempotent": is_idempotent,
    }


def place_of(inverse: Mapping[str, object]) -> str:
    """Where the reference to a database leads now, without its password; "" if it is named by a path.

    Raises Refused if it leads nowhere.
    """
    reference = str(inverse["database"])
    if not is_reference(reference):
        return ""
    where = resolve(reference)
    if inverse["module"] == "sqlite3":
        return os.path.realpath(where)
    from reprieve.effects.sql_postgres import place

    return place(where)


class SqlDriver:
    """Runs the statements."""

    def __init__(self, *, sign: Callable[[bytes], str], clean: Callable[[str], str]) -> None:
        """`clean` takes secrets out of what a database says."""
        self._sign, self._clean = sign, clean

    def says(self, effect: Effect) -> str:
        inverse = effect.inverse or {}
        try:
            place = self._place(inverse)
        except ReprieveError:
            place = ""  # the look tells why
        lines = [f"{s['sql']} {shown(s['values'])!r}" for s in _statements(inverse)]
        loss = "" if inverse.get("is_exact") else "  (not exact: sequences, triggers and grants stay as they are)"
        where = f"{place} ({inverse.get('database')})" if place else inverse.get("database")
        return f"in {where}: " + "; ".join(lines) + loss

    def check(self, effect: Effect, names: Mapping[str, str]) -> Check:
        """Try it, and roll it back: the guards of the statements are the precondition."""
        try:
            wrong = self._run(effect, keep=False)
        except ReprieveError as e:
            return Check(UNCLEAR, e.message)
        except Exception as e:  # noqa: BLE001 - every driver has errors of its own
            return Check(UNCLEAR, f"the database refuses: {self._told(effect, e)}")
        return Check(CHANGED, wrong) if wrong else Check(READY)

    def undo(self, effect: Effect, names: Mapping[str, str]) -> Outcome:
        try:
            wrong = self._run(effect, keep=True)
        except ReprieveError as e:
            return Outcome(FAILED, e.message)
        except _Unsure as e:
            return Outcome(MANUAL, f"the commit failed, whether it was done is not known: {e}")
        except Exception as e:  # noqa: BLE001 - every driver has errors of its own; nothing was committed
            return Outcome(FAILED, f"the database refuses: {self._told(effect, e)}")
        return Outcome(CONFLICT, wrong) if wrong else Outcome(UNDONE, "committed")

    def resolve(self, effect: Effect) -> str:
        return UNKNOWN

    def may_repeat(self, effect: Effect) -> bool:
        return bool((effect.inverse or {}).get("is_idempotent"))

    def _run(self, effect: Effect, *, keep: bool) -> str:
        """What stands in the way, "" if nothing does."""
        inverse = effect.inverse or {}
        for statement in _statements(inverse):
            must_be_taken_back(str(statement["sql"]), str(inverse["module"]))
        self._place(inverse)
        bound = [(str(s["sql"]), tuple(map(decoded, s["values"])), int(s["rows"])) for s in _statements(inverse)]
        database = _open(inverse, [(sql, values) for sql, values, _ in bound])
        try:
            for sql, values, wanted in bound:
                tables, columns = emptied(sql), dropped(sql)
                held = database.rows_in(tables) + database.values_in(columns)
                if (tables or columns) and held != max(wanted, 0):
                    return f"{sql}: there are {held} rows instead of {max(wanted, 0)} in it, written or deleted since"
                if cut := database.values_cut(retyped(sql)):
                    return f"{sql}: {cut} rows have a value that this would round or cut, written since"
                try:
                    rows = database.execute(sql, values)
                except database.conflicts as e:
                    return f"{self._told(effect, e)}: somebody built on it, or took its place, since"
                if wanted >= 0 and rows != wanted and not (tables or columns):
                    return f"{sql}: {max(rows, 0)} rows instead of {wanted}, changed since"
                if along := database.taken_along():
                    return f"{sql}: rows that hang on it ({along}) would be deleted or changed along, built on it since"
                if (query := left_over(sql, values)) is not None and (left := database.count(*query)):
                    return f"{sql}: {left} rows are still as they were; something keeps them so, a trigger perhaps"
            if keep:
                try:
                    database.commit()
                except database.conflicts as e:
                    return f"{self._told(effect, e)}: somebody built on it since"
                except database.errors as e:
                    if database.is_open():
                        raise
                    raise _Unsure(self._told(effect, e)) from e
            return ""
        finally:
            _let_go(database)

    def _place(self, inverse: Json) -> str:
        """Where a reference leads. Raises Refused where that is another database than that of the effect."""
        place, known = place_of(inverse), inverse.get("place")
        if known and self._sign(os.fsencode(place)) != known:
            raise Refused(
                f"{inverse['database']} leads to {place} now, which is not the database that the effect was made in;"
                " nothing was sent"
            )
        return place

    def _told(self, effect: Effect, error: Exception) -> str:
        """What went wrong, without the values and the address that a driver likes to quote."""
        inverse = effect.inverse or {}
        if inverse.get("module") == "sqlite3":
            from reprieve.effects.sql_sqlite import words
        else:
            from reprieve.effects.sql_postgres import words
        said = words(error)
        for secret in _secrets(inverse):
            said = said.replace(secret, "***")
        return self._clean(said)


def _secrets(inverse: Mapping[str, object]) -> Iterator[str]:
    """What the references in it stand for now."""
    values = [value for statement in _statements(inverse) for value in statement["values"]]
    for reference in (
        str(inverse.get("database")),
        *(str(v["credential"]) for v in values if isinstance(v, dict) and "credential" in v),
    ):
        if is_reference(reference):
            try:
                yield resolve(reference)
            except Refused:
                continue  # then nobody could have quoted it


def _let_go(database: Sqlite | Postgres) -> None:
    """Roll back what is open. Raises nothing: how the work ended is what counts, and a lost COMMIT must be told."""
    try:
        database.close()
    except database.errors:
        return  # it is gone, and the database rolls back itself what was not committed


class _Unsure(Exception):
    """A commit whose end nobody knows."""


def _open(inverse: Mapping[str, object], statements: Sequence[Bound]) -> Sqlite | Postgres:
    where = str(inverse["database"])
    where = resolve(where) if is_reference(where) else where
    if inverse["module"] == "sqlite3":
        from reprieve.effects.sql_sqlite import Sqlite

        return Sqlite(where, statements)
    from reprieve.effects.sql_postgres import Postgres

    return Postgres(where, statements)


def _statements(inverse: Mapping[str, object]) -> list[dict[str, Any]]:
    found = inverse.get("statements")
    return [dict(each) for each in found] if isinstance(found, list) else []
