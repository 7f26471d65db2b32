"""An SQLite database in which statements undo an effect: opened in a transaction of ours, with its foreign keys on.

A foreign key with an action (ON DELETE CASCADE, SET NULL, …) takes rows along that no statement names. How many rows
statements change by themselves and by triggers is seen where foreign keys are off; more than that is the keys' work.
"""

from __future__ import annotations

import os
import sqlite3

from reprieve.effects.sql_text import bare, emptied
from reprieve.errors import Usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    Bound = tuple[str, tuple[object, ...]]

WAIT_S = 5  # for another connection's lock
_WITH_ACTIONS = """
    SELECT DISTINCT child.name FROM sqlite_master child, pragma_foreign_key_list(child.name) key
    WHERE child.type = 'table' AND NOT (key.on_delete IN ('NO ACTION', 'RESTRICT')
                                        AND key.on_update IN ('NO ACTION', 'RESTRICT'))
    ORDER BY 1"""

_COLUMN = "SELECT dflt_value, hidden FROM pragma_table_xinfo(?) WHERE lower(name) = ?"  # table_info leaves computed out
_COMPUTED = (2, 3)  # each time it is read, or stored


def words(error: Exception) -> str:
    """What went wrong; SQLite names tables and columns, and no values."""
    return str(error) if isinstance(error, sqlite3.Error) else type(error).__name__


class Sqlite:
    """The database, in a transaction; `close` rolls back what was not committed."""

    errors = sqlite3.Error
    conflicts = sqlite3.IntegrityError

    def __init__(self, where: str, statements: Sequence[Bound]) -> None:
        if not os.path.exists(where):
            raise Usage(f"the database {where} is not there")
        # our own BEGIN: the module's comes before INSERT, UPDATE, DELETE and REPLACE alone; a DROP would be kept
        self._db = sqlite3.connect(where, timeout=WAIT_S, isolation_level=None)
        try:
            self._children = [str(name) for (name,) in self._db.execute(_WITH_ACTIONS)]
            self._alone = self._tried_alone(statements) if self._children else None
            self._db.execute("PRAGMA foreign_keys = ON")  # inside a transaction it does nothing
            self._db.execute("BEGIN IMMEDIATE")
        except BaseException:
            self._db.close()
            raise
        self._at = self._more = 0

    def execute(self, sql: str, values: tuple[object, ...]) -> int:
        """How many rows it changed, -1 if that can't be told."""
        before = self._db.total_changes
        rows = self._db.execute(sql, values).rowcount
        if rows < 0 and sql.lstrip().lower().startswith("with"):  # the module counts what begins with DELETE and so on
            is_changed = self._db.total_changes > before
            rows = self.count("SELECT changes()", ()) if is_changed else 0  # without what triggers and keys did
        alone = self._alone[self._at] if self._alone is not None and self._at < len(self._alone) else None
        self._more = 0 if alone is None else self._db.total_changes - before - alone
        self._at += 1
        return rows

    def taken_along(self) -> str:
        """Where rows may be that foreign keys let the last statement take along, "" if there are none."""
        return ", ".join(self._children) if self._more > 0 else ""

    def rows_in(self, tables: Sequence[str]) -> int:
        """How many rows these tables hold, none if they are not there."""
        rows = 0
        for name in tables:
            try:
                rows += self.count(f"SELECT count(*) FROM {name}", ())
            except sqlite3.OperationalError as e:
                if "no such table" not in str(e):
                    raise
        return rows

    def values_in(self, columns: Sequence[tuple[str, str]]) -> int:
        """How many rows have something else than the default in these columns."""
        rows = 0
        for table, column in columns:
            found = self._db.execute(_COLUMN, (bare(table), bare(column))).fetchone()
            default, hidden = found or (None, 0)
            if hidden in _COMPUTED:
                continue  # from others: nothing is lost
            rows += self.count(f"SELECT count(*) FROM {table} WHERE {column} IS NOT ({default or 'NULL'})", ())
        return rows

    def values_cut(self, columns: Sequence[tuple[str, str, str]]) -> int:
        """None: SQLite changes no column's type."""
        return 0

    def count(self, query: str, values: tuple[object, ...]) -> int:
        return int(self._db.execute(query, values).fetchone()[0])

    def commit(self) -> None:
        self._db.commit()

    def is_open(self) -> bool:
        """Whether what was done is still to be rolled back, after a COMMIT that failed: a reader kept it out."""
        return self._db.in_transaction

    def close(self) -> None:
        try:
            self._db.rollback()
        finally:
            self._db.close()

    def _tried_alone(self, statements: Sequence[Bound]) -> list[int]:
        """Rows that each statement changes where no foreign key acts; those after one that fails are left out."""
        self._db.execute("PRAGMA foreign_keys = OFF")
        self._db.execute("BEGIN IMMEDIATE")
        counts: list[int] = []
        try:
            for sql, values in statements:
                own = self.rows_in(emptied(sql))  # of a parent they count as deleted, but only where keys are on
                before = self._db.total_changes
                self._db.execute(sql, values)
                counts.append(own + self._db.total_changes - before)
        except sqlite3.IntegrityError:
            return counts  # it fails again where it counts, and is told there
        finally:
            self._db.rollback()
        return counts
