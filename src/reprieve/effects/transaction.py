"""A step inside a database transaction: kept if the step is, gone if it fails. For DB-API and SQLAlchemy connections.

    no transaction open    BEGIN      … COMMIT  or ROLLBACK
    one is open            SAVEPOINT  … RELEASE or ROLLBACK TO: who opened the outer one decides about all of it

A block whose transaction was ended inside of it can't keep that promise any more, and says so.
"""

from __future__ import annotations

from contextlib import contextmanager

from reprieve.errors import Refused, Usage
from reprieve.store.chain import new_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

_MARK = "_reprieve_depth"


@contextmanager
def transaction(connection: Any, *, committing: Callable[[], Callable[[bool], None]] | None = None) -> Iterator[Any]:
    """Everything that goes over the connection inside the block is kept together with it, or not at all.

    `committing` is called just before the outermost COMMIT; what it returns is told afterwards whether it went well.
    """
    if hasattr(connection, "sync_connection") or hasattr(connection, "sync_session"):
        raise Usage("this is a connection for asyncio", hints=["use it inside `run_sync`"])
    steps = _Sqlalchemy(connection) if hasattr(connection, "begin_nested") else _Dbapi(connection)
    steps.begin()
    try:
        yield from _inside(connection, steps, committing)
    finally:
        steps.end()


def _inside(
    connection: Any, steps: _Sqlalchemy | _Dbapi, committing: Callable[[], Callable[[bool], None]] | None
) -> Iterator[Any]:
    try:
        yield connection
    except BaseException as e:
        if not steps.abort():
            raise Refused(
                "the step failed, and its transaction had been ended inside of it: what it wrote to the database stays",
                hints=["leave commit and rollback to the block around the step"],
            ) from e
        raise
    if not steps.is_whole():
        raise Refused(
            "the transaction of the step was ended inside of it; it is not known what of it stays",
            hints=["leave commit and rollback to the block around the step"],
        )
    tell = committing() if committing is not None and steps.is_outermost else None
    try:
        steps.commit()
    except BaseException:
        if tell is not None:
            tell(False)
        raise
    if tell is not None:
        tell(True)


class _Sqlalchemy:
    """An SQLAlchemy Connection or Session."""

    def __init__(self, connection: Any) -> None:
        self._connection, self._own = connection, None

    _own: Any

    def begin(self) -> None:
        self.is_outermost = not self._connection.in_transaction()
        if self.is_outermost:
            self._own = self._connection.begin()
        plain = self._connection if hasattr(self._connection, "exec_driver_sql") else self._connection.connection()
        if plain.dialect.name == "sqlite" and not plain.connection.dbapi_connection.in_transaction:
            # sqlite3 puts off BEGIN to the first change, and a savepoint without one commits when it is released
            plain.exec_driver_sql("BEGIN")
        if not self.is_outermost:
            self._own = self._connection.begin_nested()

    def is_whole(self) -> bool:
        return bool(self._own.is_active)

    def abort(self) -> bool:
        was_whole = self.is_whole() or self._connection.in_transaction()
        if was_whole:
            self._own.rollback()
        return was_whole

    def commit(self) -> None:
        self._own.commit()

    def end(self) -> None:
        self._own = None


class _Dbapi:
    """A connection after PEP 249: sqlite3, psycopg, psycopg2, PyMySQL, …"""

    def __init__(self, connection: Any) -> None:
        self._connection, self._name = connection, f"reprieve_{new_id()}"

    def begin(self) -> None:
        self.is_outermost = not self._is_open(otherwise=False)
        if self.is_outermost and self._needs_begin():
            self._run("BEGIN")
        # also in a transaction of our own: only a savepoint can tell later whether it is still the same one
        self._run(f"SAVEPOINT {self._name}")
        self._count(1)

    def end(self) -> None:
        self._count(-1)

    def is_whole(self) -> bool:
        if not self._is_open(otherwise=True):
            return False
        try:
            self._run(f"RELEASE SAVEPOINT {self._name}")
        except Exception:  # noqa: BLE001 - each driver has an error of its own for "no such savepoint"
            return False
        return True

    def abort(self) -> bool:
        if not self._is_open(otherwise=True):
            return False
        try:
            self._run(f"ROLLBACK TO SAVEPOINT {self._name}")
            self._run(f"RELEASE SAVEPOINT {self._name}")
        except Exception:  # noqa: BLE001 - as above: it was ended and another one begun, which is not ours to end
            return False
        if self.is_outermost:
            self._connection.rollback()
        return True

    def commit(self) -> None:
        if self.is_outermost:
            self._connection.commit()
            if self._is_open(otherwise=False):
                self._run("COMMIT")  # a driver in autocommit mode does nothing in commit()

    def _run(self, sql: str) -> None:
        cursor = self._connection.cursor()
        try:
            cursor.execute(sql)
        finally:
            cursor.close()

    def _is_open(self, *, otherwise: bool) -> bool:
        """Whether a transaction is open; `otherwise` where the driver does not say."""
        connection = self._connection
        if hasattr(connection, "in_transaction") and not callable(connection.in_transaction):  # sqlite3
            return bool(connection.in_transaction)
        info = getattr(connection, "info", None)
        status = getattr(info, "transaction_status", None)  # psycopg
        if status is None and isinstance(getattr(connection, "server_status", None), int):  # PyMySQL
            status = connection.server_status & 1
        if status is None and hasattr(connection, "get_transaction_status"):  # psycopg2
            status = connection.get_transaction_status()
        if status is None:
            return otherwise or getattr(connection, _MARK, 0) > 0
        return int(status) != 0

    def _needs_begin(self) -> bool:
        """Whether a transaction begins only when it is asked for."""
        connection = self._connection
        if hasattr(connection, "in_transaction"):
            return True
        mode = getattr(connection, "autocommit", False)
        if callable(mode):
            mode = connection.get_autocommit() if hasattr(connection, "get_autocommit") else False
        return bool(mode)

    def _count(self, by: int) -> None:
        """Note on the connection how deep we are: some drivers do not say whether a transaction is open."""
        try:
            setattr(self._connection, _MARK, getattr(self._connection, _MARK, 0) + by)
        except AttributeError:
            return  # sqlite3's and others that can't be marked say it themselves
