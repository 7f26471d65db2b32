"""What `import reprieve` offers: a workspace for Python programs, on the same use cases as the command line."""

from __future__ import annotations

import os
from typing import overload

from reprieve.app.finding import open_workspace
from reprieve.app.workspace import Made, Status
from reprieve.errors import Usage
from reprieve.model.reporter import Reporter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from types import TracebackType
    from typing import Any, ParamSpec, Self, TypeVar

    from reprieve.app.guard import Guard
    from reprieve.app.objects import ObjectCalls
    from reprieve.app.plans import AgentPlan
    from reprieve.model.effect import Effect
    from reprieve.model.plan import Plan, Report
    from reprieve.model.timeline import TimelineEntry

    Ref = Made | TimelineEntry | str
    P = ParamSpec("P")
    R = TypeVar("R")


class Workspace:
    """A protected directory tree; a context manager. Made by `reprieve.open`."""

    def __init__(self, path: str | os.PathLike[str] = ".", *, reporter: Reporter | None = None) -> None:
        self._inner = open_workspace(os.fspath(path), create=True, reporter=reporter)
        self.id, self.root = self._inner.id, os.fsdecode(self._inner.root)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the store and the tree."""
        self._inner.close()

    def checkpoint(self, label: str = "", *, pin: bool = False, note: str = "") -> Made:
        """Take a checkpoint; durable when this returns. It names its gaps. Raises Usage for a label that is no REF."""
        return self._inner.checkpoint(self._inner.label(_text(label, "label")), pin=pin, note=_text(note, "note"))

    def status(self, since: Ref | None = None) -> Status:
        """What changed since a checkpoint (default: the latest)."""
        return self._inner.status(_ref(since))

    def log(self, limit: int = 0) -> Iterator[TimelineEntry]:
        """The timeline, newest first."""
        return self._inner.log(limit)

    def plan_rollback(self, to: Ref | None = None, *, only: Sequence[str] = ()) -> Plan:
        """What `rollback` would do."""
        return self._inner.rollback(_ref(to), only=_paths(only), effects="list", dry_run=True)[0]

    def rollback(
        self, to: Ref | None = None, *, only: Sequence[str] = (), effects: bool = False, on_conflict: str = "abort"
    ) -> Report:
        """Move the tree back to a checkpoint (default: the latest). Raises Conflict or Refused untouched.

        `only`: paths relative to `root`, which is above the folder that was opened if that is part of a workspace.
        `effects`: also undo what was done to the world outside of the tree; without it the report names those.
        """
        report = self._inner.rollback(
            _ref(to), only=_paths(only), on_conflict=on_conflict, effects="undo" if effects else "list"
        )[1]
        assert report is not None
        return report

    def undo(
        self, step: Ref | None = None, *, tail: bool = False, effects: bool = False, on_conflict: str = "abort"
    ) -> Report:
        """Take one step back (default: the last one) and keep what came after it; `tail`: take along what needs it.

        `step`: the id of a guarded call, call:ID, step:NAME, turn:N, or an entry: the step that ends there; or the
        id of an effect, which is undone alone. `effects` as for `rollback`.
        """
        report = self._inner.undo(
            _ref(step), tail=tail, on_conflict=on_conflict, effects="undo" if effects else "list"
        )[1]
        assert report is not None
        return report

    def revert(self, *paths: str, to: Ref | None = None) -> Report:
        """Bring back single files, folders or globs, named relative to the root."""
        if not paths:
            raise Usage("revert needs at least one path")
        report = self._inner.revert(_paths(paths), _ref(to))[1]
        assert report is not None
        return report

    def redo(self) -> Report:
        """Undo the last rollback or revert."""
        report = self._inner.redo()[1]
        assert report is not None
        return report

    # -- work that is protected as it happens

    @overload
    def guard(self, callable: Callable[P, R], /) -> Callable[P, R]: ...

    @overload
    def guard(
        self,
        *,
        kind: str = "tool",
        name: str = "",
        arguments: Mapping[str, object] | None = None,
        call: str = "",
        session: str = "",
        agent: str = "python",
    ) -> Guard: ...

    def guard(
        self,
        callable: Callable[..., Any] | None = None,
        *,
        kind: str = "tool",
        name: str = "",
        arguments: Mapping[str, object] | None = None,
        call: str = "",
        session: str = "",
        agent: str = "python",
    ) -> Any:
        """A decorator and a context manager, sync and async: checkpoint before, seal after, fail closed.

        What changes in the block or call is the session's step, which can be undone by itself. If there is no
        checkpoint it raises, and the block or callable does not run. `arguments` are kept without secrets.
        """
        from reprieve.app.guard import Guard

        made = Guard(self._inner, kind=kind, name=name, arguments=arguments, call=call, session=session, agent=agent)
        return made if callable is None else made(callable)

    def plan(self, name: str, *, on_failure: str = "", session: str = "", agent: str = "python") -> AgentPlan:
        """A plan of an agent, with steps that are kept or taken back whole; a context manager.

        `on_failure` of a step: rollback, keep or ask (default: the setting plan.on_failure). A plan of that name that
        did not end well is gone on with.
        """
        from reprieve.app.plans import AgentPlan

        return AgentPlan(self._inner, name, on_failure=on_failure, session=session, agent=agent)

    # -- the world outside of the tree

    def effects(self, since: Ref | None = None, *, pending: bool = False) -> list[Effect]:
        """Effects since a checkpoint (default: all), newest first; `pending`: those that a rollback would deal with."""
        from reprieve.app.effects import effects_since

        return list(effects_since(self._inner, _ref(since), is_open=pending))

    def record_objects(self, client: Any) -> ObjectCalls:
        """Record what this boto3 client does to S3 from now on; `end()` of the answer stops that.

        A URL or form that it signs for others to write by is an effect that can't be taken back: its use is not seen.
        """
        from reprieve.app import objects

        return objects.ObjectCalls(self._inner, client)

    def record(
        self,
        kind: str,
        inverse: Mapping[str, object],
        *,
        description: str,
        resource: str = "",
        cls: str = "compensable",
        depends: Sequence[str] = (),
    ) -> Effect:
        """Note an effect of a kind that an installed package can undo (`reprieve.adapters`).

        `inverse`: what its driver has to know, as JSON.
        """
        from reprieve.app import adapters

        return adapters.record(
            self._inner, kind, inverse, description=description, resource=resource, cls=cls, depends=depends
        )

    def record_sql(
        self,
        database: str,
        undo: Sequence[tuple[str, Sequence[object], int]],
        *,
        description: str,
        module: str = "sqlite3",
        resource: str = "",
        is_idempotent: bool = False,
    ) -> Effect:
        """Note a change of a database, with guarded statements (SQL, values, rows) that reverse it.

        `rows`: how many it must change, or that DROP TABLE and TRUNCATE must find; -1: any, but for those none.
        A secret among the values is refused; {"credential": "env:VARIABLE"} in its place is read when it is undone.
        `is_idempotent`: they may be run again when nobody knows whether they were, as after a crash: once they are
        done, their guards no longer fit.
        """
        from reprieve.app.effects import record_sql

        return record_sql(
            self._inner,
            database,
            undo,
            description=description,
            module=module,
            resource=resource,
            is_idempotent=is_idempotent,
        )

    def record_http(
        self,
        method: str,
        url: str,
        *,
        undo: Mapping[str, object] | None = None,
        response: object = None,
        description: str = "",
        depends: Sequence[str] = (),
    ) -> Effect:
        """Note an HTTP call that was made, with the request that reverses it.

        `undo`: method, url, headers (credentials as env:VARIABLE), json, form or text; {response.NAME} is filled in.
        `is_gone_done` in it: the thing was seen at that very URL, so 404 to a DELETE means that it is gone; without it
        that is left to a person.
        """
        from reprieve.app.effects import record_http

        return record_http(
            self._inner,
            method=method,
            url=url,
            undo=undo,
            response=response,
            description=description,
            depends=depends,
        )

    def record_command(
        self,
        argv: Sequence[str],
        *,
        description: str,
        cwd: str = "",
        env: Sequence[str] = (),
        is_idempotent: bool = False,
    ) -> Effect:
        """Note something that was done, with the command (an argument list) that reverses it."""
        from reprieve.app.effects import record_command

        return record_command(
            self._inner,
            argv,
            description=description,
            cwd=cwd or self.root,
            env=env,
            is_idempotent=is_idempotent,
        )

    def remember(
        self,
        target: str,
        before: object,
        after: object,
        *,
        set: Callable[[object], None],
        get: Callable[[], object] | None = None,
    ) -> Effect:
        """Note a change of an object in this process: `set(before)` takes it back, as long as this object lives.

        With `get` a rollback sees whether somebody changed it since, and then leaves it alone.
        """
        from reprieve.app.inner_effects import remember

        return remember(self._inner, target, before, after, set=set, get=get)

    def transaction(self, connection: Any) -> AbstractContextManager[Any]:
        """A block whose database changes are kept with it, or gone with it if it raises; blocks nest by savepoints.

        For DB-API and SQLAlchemy connections. A commit is an effect: after it a rollback can only name it.
        """
        from reprieve.app.inner_effects import transaction

        return transaction(self._inner, connection)


def _ref(ref: Ref | None) -> str | None:
    if ref == "":
        raise Usage("the reference is empty", hints=["None means the latest checkpoint"])
    if ref is None or isinstance(ref, str):
        return ref
    return ref.entry.id if isinstance(ref, Made) else ref.id


def _text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise Usage(f"the {what} {value!r} is no text; no checkpoint was taken", hints=[f"{what}=str(...)"])
    return value


def _paths(paths: Sequence[str]) -> tuple[bytes, ...]:
    if not all(paths):
        raise Usage("a path is empty", hints=["the whole folder is '.'"])
    return tuple(os.fsencode(path) for path in paths)
