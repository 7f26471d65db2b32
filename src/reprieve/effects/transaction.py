"""A step inside a database transaction: kept if the step is, gone if it fails. For DB-API and SQLAlchemy connections.

    no transaction open    BEGIN      … COMMIT  or ROLLBACK
    one is open            SAVEPOINT  … RELEASE or ROLLBACK TO: who opened the outer one decides about all of it

A block whose transaction was ended inside of it can't keep that promise any more, and says so.
"""

from __future__ import annotations

from contextlib import contextmanager
from inspect import isawaitable, iscoroutinefunction

from reprieve.errors import Refused, Usage
from reprieve.store.chain import new_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    Databases = list[tuple[Any, Any]]  # that took part: (connection as it was given or made, the driver's own)
    Committing = Callable[[bool, Databases], Callable[[bool], None] | None]

_MARK = "_reprieve_depth"


class Ended(Refused):
    """The block could not keep its promise: leave commit and rollback to it.

    That is written down; the blocks around it on the same connection need not say it again.
    """

    connection: Any = None


@contextmanager
def transaction(
    connection: Any,
    *,
    begun: Callable[[Any], None] | None = None,
    committing: Committing | None = None,
    ended: Callable[[str, Databases], None] | None = None,
) -> Iterator[Any]:
    """Everything that goes over the connection inside the block is kept together with it, or not at all.

    `begun` is given the driver's own connection, in the transaction. `committing` is called just before COMMIT or
    RELEASE, with whether that is the end of the transaction; what it returns is told afterwards whether it went well.
    `ended` is told why, where a part of the block may have been kept without the rest.
    """
    _must_not_wait(connection)
    steps = _Sqlalchemy(connection) if hasattr(connection, "begin_nested") else _Dbapi(connection)
    steps.begin()
    try:
        yield from _inside(connection, steps, begun, committing, ended)
    finally:
        steps.end()


def _must_not_wait(connection: Any) -> None:
    """Raises Usage for a connection for asyncio: what nobody awaits is not done, and would look as if it were."""
    if hasattr(connection, "sync_connection") or hasattr(connection, "sync_session"):
        raise _for_asyncio("use it inside `run_sync`")
    if any(iscoroutinefunction(getattr(connection, name, None)) for name in ("execute", "commit", "rollback", "close")):
        raise _for_asyncio()


def _for_asyncio(hint: str = "") -> Usage:
    hint = hint or "give one whose calls are not awaited: sqlite3, psycopg.Connection, …"
    return Usage("this is a connection for asyncio; nothing was begun", hints=[hint])


def _inside(
    connection: Any,
    steps: _Sqlalchemy | _Dbapi,
    begun: Callable[[Any], None] | None,
    committing: Committing | None,
    ended: Callable[[str, Databases], None] | None,
) -> Iterator[Any]:
    try:
        if begun is not None:
            begun(steps.raw)
        yield connection
    except BaseException as e:
        why = _take_back(steps)
        if not why or (isinstance(e, Ended) and e.connection is connection):
            raise
        if ended is not None:
            ended(why, steps.databases)
        if not isinstance(e, Exception):
            e.add_note(_failed(why))  # an interrupt stays one
            raise
        raise _ended(connection, _failed(why)) from e
    if not steps.is_whole():
        why = _take_back(steps)
        if not why:
            raise Refused("a statement of the step failed, and its transaction with it; nothing of it stays")
        if ended is not None:
            ended(why, steps.databases)
        raise _ended(connection, f"{why}; it is not known what of it stays")
    tell = None
    try:
        steps.flush()
        tell = committing(steps.is_last, steps.databases) if committing is not None else None
        steps.commit()
    except BaseException:
        _take_back(steps)  # or the next COMMIT would keep it
        if tell is not None:
            tell(False)
        raise
    if tell is not None:
        tell(True)


def _take_back(steps: _Sqlalchemy | _Dbapi) -> str:
    """Roll back what is open; why that is perhaps not all of the block, "" if it is."""
    try:
        return "" if steps.abort() else "the transaction of the step was ended inside of it"
    except Exception as error:  # noqa: BLE001 - each driver has errors of its own for a connection that is gone
        return f"the transaction of the step could not be rolled back ({error})"


def _ended(connection: Any, message: str) -> Ended:
    error = Ended(message, hints=["leave commit and rollback to the block around the step"])
    error.connection = connection
    return error


def _failed(why: str) -> str:
    return f"the step failed, and {why}: what it wrote to the database before may stay"


class _Sqlalchemy:
    """An SQLAlchemy Connection or Session."""

    def __init__(self, connection: Any) -> None:
        if callable(getattr(connection, "registry", None)):
            connection = connection.registry()  # what a scoped_session stands for
        self._connection, self._own = connection, None
        self.databases: Databases = []
        self._session = None if hasattr(connection, "exec_driver_sql") else connection
        self.raw = connection

    _own: Any
    raw: Any

    def begin(self) -> None:
        self.is_outermost = not self._connection.in_transaction()
        # a session over a connection in a transaction joins that one: its commit leaves it open
        bound: Any = getattr(self._connection, "bind", None)
        self.is_last = self.is_outermost and not (hasattr(bound, "in_transaction") and bound.in_transaction())
        self._listen(is_on=True)
        try:
            if self.is_outermost:
                self._own = self._connection.begin()
            self._take_first()
            if not self.is_outermost:
                self._own = self._connection.begin_nested()
        except BaseException:
            self._listen(is_on=False)
            if self.is_outermost and self._own is not None:
                self._own.rollback()
            raise

    def _take_first(self) -> None:
        if self._session is None:
            self._take(self._connection)
        else:
            from sqlalchemy.exc import UnboundExecutionError

            try:
                self._take(self._session.connection())
            except UnboundExecutionError:
                return  # it has a database for each table, and none besides
        self.raw = self.databases[0][1]

    def _listen(self, *, is_on: bool) -> None:
        """A session may go to several databases, and takes a connection when it needs it first."""
        if self._session is not None:
            from sqlalchemy import event

            (event.listen if is_on else event.remove)(self._session, "after_begin", self._begun)

    def _begun(self, session: Any, transaction: Any, connection: Any) -> None:
        self._take(connection)

    def _take(self, plain: Any) -> None:
        raw = plain.connection.dbapi_connection
        if is_autocommit(raw):
            raise Usage(
                "this connection commits each statement by itself; nothing was begun",
                hints=["give one that has transactions: engine.execution_options(isolation_level='READ COMMITTED')"],
            )
        if plain.dialect.name == "sqlite" and not raw.in_transaction:
            # sqlite3 puts off BEGIN to the first change, and a savepoint without one commits when it is released
            plain.exec_driver_sql("BEGIN")
        if all(raw is not known for _, known in self.databases):
            self.databases.append((plain, raw))

    def flush(self) -> None:
        """Have what a session puts off done now: it may go to another database."""
        if self._session is not None:
            self._session.flush()

    def is_whole(self) -> bool:
        return bool(self._own.is_active)

    def abort(self) -> bool:
        """Roll back what is open; False if that is another transaction than the one that was begun."""
        connection = self._connection
        current = connection.get_transaction() if self.is_outermost else connection.get_nested_transaction()
        is_ours = self.is_whole() or current is self._own  # a failed one is not active, and still the same
        if is_ours:
            self._own.rollback()
        elif connection.in_transaction():
            connection.rollback()
        return is_ours

    def commit(self) -> None:
        self._own.commit()

    def end(self) -> None:
        self._listen(is_on=False)
        self._own = None


class _Dbapi:
    """A connection after PEP 249: sqlite3, psycopg, psycopg2, PyMySQL, …"""

    def __init__(self, connection: Any) -> None:
        self._connection = self.raw = connection
        self.databases: Databases = [(connection, connection)]
        self._name = self._probe = f"reprieve_{new_id()}"

    def begin(self) -> None:
        self.is_outermost = self.is_last = not self._is_open(otherwise=False)
        if self.is_outermost and self._needs_begin():
            if self._status() is None and not self._count(0):
                raise Usage(
                    "this connection commits each statement by itself, and its driver does not tell; nothing was begun",
                    hints=["turn its autocommit off before the block"],
                )
            self._run("BEGIN")
        # also in a transaction of our own: only a savepoint can tell later whether it is still the same one
        self._run(f"SAVEPOINT {self._name}")
        if not self.is_outermost:
            self._probe = f"{self._name}_in"  # to ask without letting go of what can be taken back
            self._run(f"SAVEPOINT {self._probe}")
        self._count(1)

    def end(self) -> None:
        self._count(-1)

    def flush(self) -> None:
        """Nothing is put off."""

    def is_whole(self) -> bool:
        if not self._is_open(otherwise=True):
            return False
        try:
            self._run(f"RELEASE SAVEPOINT {self._probe}")
        except Exception:  # noqa: BLE001 - each driver has an error of its own for "no such savepoint"
            return False
        return True

    def abort(self) -> bool:
        """Roll back what is open; False if that is another transaction than the one that was begun."""
        if not self._is_open(otherwise=True):
            return False
        try:
            self._run(f"ROLLBACK TO SAVEPOINT {self._name}")
            self._run(f"RELEASE SAVEPOINT {self._name}")
            is_ours = True
        except Exception:  # noqa: BLE001 - as above: it was ended and another one begun, which the step wrote into
            is_ours = False
        if self.is_outermost or not is_ours:
            self._connection.rollback()
            if self._is_open(otherwise=False):
                self._run("ROLLBACK")  # a driver in autocommit mode does nothing in rollback()
        return is_ours

    def commit(self) -> None:
        if self.is_outermost:
            self._connection.commit()
            if self._is_open(otherwise=False):
                self._run("COMMIT")  # a driver in autocommit mode does nothing in commit()
        else:
            self._run(f"RELEASE SAVEPOINT {self._name}")

    def _run(self, sql: str) -> None:
        cursor = self._connection.cursor()
        try:
            answer = cursor.execute(sql)
        finally:
            cursor.close()
        if isawaitable(answer):  # a compiled driver does not show it before
            if hasattr(answer, "close"):
                answer.close()  # or it is warned that nobody awaits it
            raise _for_asyncio()

    def _is_open(self, *, otherwise: bool) -> bool:
        """Whether a transaction is open; `otherwise` where the driver does not say."""
        status = self._status()
        if status is None:
            return otherwise or getattr(self._connection, _MARK, 0) > 0
        return status != 0

    def _status(self) -> int | None:
        """What the driver says about its transaction, 0 if there is none."""
        connection = self._connection
        if hasattr(connection, "in_transaction") and not callable(connection.in_transaction):  # sqlite3
            return int(connection.in_transaction)
        info = getattr(connection, "info", None)
        status = getattr(info, "transaction_status", None)  # psycopg
        if status is None and isinstance(getattr(connection, "server_status", None), int):  # PyMySQL
            status = connection.server_status & 1
        if status is None and hasattr(connection, "get_transaction_status"):  # psycopg2
            status = connection.get_transaction_status()
        return None if status is None else int(status)

    def _needs_begin(self) -> bool:
        """Whether a transaction begins only when it is asked for."""
        return hasattr(self._connection, "in_transaction") or is_autocommit(self._connection)

    def _count(self, by: int) -> bool:
        """Note on the connection how deep we are: some drivers do not say whether a transaction is open."""
        try:
            setattr(self._connection, _MARK, getattr(self._connection, _MARK, 0) + by)
        except AttributeError:
            return False  # sqlite3's and others that can't be marked say it themselves
        return True


def is_autocommit(connection: Any) -> bool:
    """Whether a driver's connection commits each statement by itself, and does nothing in commit() and rollback()."""
    mode = getattr(connection, "autocommit", False)
    if callable(mode):
        mode = connection.get_autocommit() if hasattr(connection, "get_autocommit") else False
    return bool(mode == 1)  # sqlite3 has -1 for its old way, in which it does not
