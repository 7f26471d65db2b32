"""Guard any callable or block: checkpoint before, seal after, and nothing runs that could not be protected.

    before    checkpoint "before shell: make"  opens  ┐  what changes in here is the session's
    body      …                                       │  calls inside of it are inside of its window
    after     checkpoint "shell: make"         closes ┘  also when the body raised or was cancelled

The same windows, actors and turns as an agent's hook makes (`hooks`); here one process sees both ends, so no end has to
be concluded. It protects and asks nobody: what may run is policy's.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import inspect
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from contextvars import copy_context
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from reprieve.app import inside
from reprieve.app.hook_words import describe, note_for, title
from reprieve.app.recent import look_back
from reprieve.app.run import outer_window
from reprieve.app.workspace import Made, Workspace
from reprieve.errors import ReprieveError, Usage
from reprieve.files.processes import orphans
from reprieve.model import talk as moments
from reprieve.model.actor import of_session, plain
from reprieve.model.hookevent import BEFORE, HookEvent
from reprieve.model.talk import Talk, talk_json
from reprieve.model.window import Window
from reprieve.policy.redact import for_people

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_PLAIN = (str, int, float, bool, list, tuple, dict, type(None))


class Step:
    """What happens in one guarded call. `before` and `after` are its checkpoints; `id` names it: `undo ID`."""

    def __init__(self, before: Made, window: Window) -> None:
        self.before, self.window = before, window
        self.after: Made | None = None  # there once it is sealed

    @property
    def id(self) -> str:
        """A name that `reprieve undo` and `rollback` (to just before it) know, and that no other call has."""
        return f"call:{self.window.id}"

    @property
    def name(self) -> str:
        """As the timeline calls it: call:ID."""
        return self.window.step


class Block:
    """A block with a window of its own, for `with` and `async with`; one at a time. Subclasses say how it begins.

    Blocking work of an `async with` is done in a thread, and is never left half done by a cancellation.
    """

    def __init__(self, ws: Workspace) -> None:
        self._ws = ws
        self._step: Step | None = None
        self._around: inside.Before = {}

    def _open(self) -> Step:
        raise NotImplementedError

    def _seal(self, step: Step, *, is_failed: bool) -> None:
        seal(self._ws, step, more=" (failed)" if is_failed else "")

    def _after(self, step: Step, error: BaseException | None) -> None:
        """What is to be done once the step is sealed."""

    def __enter__(self) -> Any:
        self._must_be_idle()
        return self._entered(self._open())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(self._left(), error)

    async def __aenter__(self) -> Any:
        self._must_be_idle()
        step, canceled = await _in_thread(self._open)
        if canceled is not None:
            # nobody will be told that it began, so nobody would end it
            await _in_thread(lambda: self._end(step, canceled))
            raise canceled
        return self._entered(step)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        step = self._left()
        _, canceled = await _in_thread(lambda: self._end(step, error))
        if canceled is not None and error is None:
            raise canceled

    def _must_be_idle(self) -> None:
        if self._step is not None:
            raise Usage("this block is in use; make one for each `with`", hints=["with ws.guard(...) as step:"])

    def _entered(self, step: Step) -> Step:
        self._step = step
        self._around = inside.enter(self._ws.id, step.window.id)
        return step

    def _left(self) -> Step:
        step, self._step = self._step, None
        if step is None:
            raise Usage("this block is not in use")
        inside.leave(self._around)
        return step

    def _end(self, step: Step, error: BaseException | None) -> None:
        """The body's own exception wins; a failure to record the end is raised only without one."""
        try:
            try:
                self._seal(step, is_failed=error is not None)
            except KeyboardInterrupt:
                # once more: what the person who pressed it does next would count as the work of this step
                if is_open(self._ws, step):
                    self._seal(step, is_failed=error is not None)
                raise
        except BaseException as failure:
            if step.after is None:
                self._ws.unsealed.append(step)
                failure.add_note(f"the work of '{step.name}' was done; its end is not recorded yet")
            if error is None or not isinstance(failure, ReprieveError):
                raise
            error.add_note(f"Reprieve could not record the end of '{step.name}': {in_words(failure)}")
        else:
            self._after(step, error)


class Guard(Block):
    """A context manager, also for `async with`, and a decorator; made by `Workspace.guard`.

    As a decorator it makes a window for each call. As a block it is for one at a time.
    """

    def __init__(
        self,
        ws: Workspace,
        *,
        kind: str = "tool",
        name: str = "",
        arguments: Mapping[str, object] | None = None,
        call: str = "",
        session: str = "",
        agent: str = "python",
        parent: str = "",
    ) -> None:
        """`parent`: the window that it is inside of, where a thread or task of its own can't tell."""
        super().__init__(ws)
        self._kind, self._name, self._call, self._parent = kind, name, call, parent
        self._arguments = dict(arguments) if arguments is not None else None
        self._session, self._agent = session, agent

    if TYPE_CHECKING:

        def __enter__(self) -> Step: ...
        async def __aenter__(self) -> Step: ...

    # -- a decorator

    def __call__(self, callable: Callable[P, R]) -> Callable[P, R]:
        """The same callable, guarded."""
        called = callable if inspect.isroutine(callable) else getattr(callable, "__call__", callable)  # noqa: B004
        if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
            raise Usage(
                f"'{_name_of(callable)}' is a generator: its work happens while somebody else reads from it",
                hints=["guard what it calls, or the loop that reads from it"],
            )

        if inspect.iscoroutinefunction(called) or inspect.iscoroutinefunction(callable):
            awaited = cast("Callable[P, Awaitable[Any]]", callable)

            @functools.wraps(callable)
            async def guarded_async(*args: P.args, **kwargs: P.kwargs) -> Any:
                async with self._for(callable, args, kwargs):
                    return _finished(callable, await awaited(*args, **kwargs))

            return cast("Callable[P, R]", guarded_async)

        @functools.wraps(callable)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
            with self._for(callable, args, kwargs):
                return _finished(callable, callable(*args, **kwargs))

        return guarded

    def _for(self, callable: Callable[..., object], args: tuple[object, ...], kwargs: Mapping[str, object]) -> Guard:
        """A guard for one call."""
        arguments = self._arguments if self._arguments is not None else _bound(callable, args, kwargs)
        return Guard(
            self._ws,
            kind=self._kind,
            name=self._name or _name_of(callable),
            arguments=arguments,
            call=self._call,
            session=self._session,
            agent=self._agent,
            parent=self._parent,
        )

    # -- what both do

    def _open(self) -> Step:
        event = self._event()
        label = describe(event) if self._kind == "tool" else f"{self._kind} {describe(event)}"
        return open_step(
            self._ws,
            of_session(plain(self._agent), self._session),
            f"call:{plain(self._call)}" if self._call else "",
            label=title(label),
            note=note_for(describe(event, is_whole=True), event=event),
            call=self._call,
            parent=self._parent,
        )

    def _seal(self, step: Step, *, is_failed: bool) -> None:
        seal(self._ws, step, more=" (failed)" if is_failed else "", call=self._call)

    def _event(self) -> HookEvent:
        shown = for_people({key: _plainly(value) for key, value in (self._arguments or {}).items()})
        assert isinstance(shown, dict)
        return HookEvent(
            self._agent, BEFORE, self._session, call_id=self._call or None, tool=self._name or None, arguments=shown
        )


def open_step(
    ws: Workspace,
    who: str,
    name: str,
    *,
    label: str,
    note: str = "",
    call: str = "",
    parent: str = "",
    more: Callable[[], str] | None = None,
    at: str = moments.CALL,
    writes: tuple[str, ...] = (),
) -> Step:
    """Take the checkpoint before a step and open its window, in the turn that the session is in.

    `more` gives fields for the checkpoint's data, asked for under the workspace's lock. `at`: PROMPT begins a turn.
    """
    with ws.store.lock(ws.id):
        # until the end of a window is recorded, all that changes would count as its work
        for step in tuple(ws.unsealed):
            if is_open(ws, step):
                seal(ws, step, more=" (its end was recorded late)")
            ws.unsealed.remove(step)
        fields = more() if more is not None else ""
        last = look_back(ws.timeline, who)
        turn = last.talk.turn + (at == moments.PROMPT) if last.talk is not None else 1
        talk = talk_json(Talk(who, at, turn=turn, told=last.told(is_telling=False), call=call))
        made, window = ws.open_window(
            who,
            name,
            label=f"before {label}",
            note=note,
            turn=turn,
            pid=os.getpid(),
            parent=parent or inside.current(ws.id) or outer_window(ws),
            data=f"{{{talk}{',' + fields if fields else ''}}}",
            writes=writes,
        )
    return Step(made, window)


def seal(ws: Workspace, step: Step, *, more: str = "", call: str = "", fields: str = "") -> None:
    """Take the checkpoint that ends a step; `more` is added to its label, `fields` to its data."""
    window, opened = step.window, step.before.entry
    with ws.store.lock(ws.id):
        last = look_back(ws.timeline, window.actor)
        turn = last.turn_at_end(window)
        talk = Talk(window.actor, moments.END, turn=turn, told=last.told(is_telling=False), call=call)
        step.after = ws.close_window(
            window,
            label=opened.label.removeprefix("before ") + more,
            more=talk_json(talk) + ("," + fields if fields else ""),
            left=orphans(ws.root, (ws.clock() - opened.created_at) / 1_000_000_000, now_s=_now_s()),
        )


def is_open(ws: Workspace, step: Step) -> bool:
    """Whether the timeline still waits for the end of this step."""
    return any(window.id == step.window.id for window in ws.capture.author()[2].open)


def in_words(failure: ReprieveError) -> str:
    """An error with its details and hints, for a note on another one."""
    lines = [failure.message, *(f"  {line}" for line in failure.details), *(f"Hint: {hint}" for hint in failure.hints)]
    return "\n".join(lines)


def _now_s() -> float:
    """Seconds since the machine started, in which /proc counts; 0 where there is no such clock, and no /proc."""
    clock: int | None = getattr(time, "CLOCK_BOOTTIME", None)
    return time.clock_gettime(clock) if clock is not None else 0.0


async def _in_thread(work: Callable[[], T]) -> tuple[T, BaseException | None]:
    """Its result, once it is there; and the cancellation that came meanwhile, for the caller to raise.

    What writes to the store is not left half done because nobody waits for it any more.
    """
    context = copy_context()
    future = asyncio.get_running_loop().run_in_executor(None, context.run, work)
    canceled: asyncio.CancelledError | None = None
    while True:
        try:
            return await asyncio.shield(future), canceled
        except asyncio.CancelledError as e:
            if future.cancelled():
                raise
            canceled = e


def _finished(callable: object, result: T) -> T:
    """The result, if the work was done to have it. Raises Usage, and stops the work that would come after the step."""
    name = _name_of(callable)
    if isinstance(result, (asyncio.Future, concurrent.futures.Future)):
        if result.done():
            return result
        left = "its work was cancelled" if result.cancel() else "its work is under way, outside of this step"
        raise Usage(
            f"'{name}' gave back a future: {left}",
            hints=["await it, or take its result(), inside of the function: what is done later is not in this step"],
        )
    if inspect.isgenerator(result) or inspect.isasyncgen(result):
        if inspect.isgenerator(result):
            result.close()
        raise Usage(
            f"'{name}' gave back a generator: its work was not done",
            hints=["give back a list, or guard the loop that reads from it"],
        )
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()  # without a warning that nobody awaited it
        raise Usage(
            f"'{name}' gave back something to await: its work was not done",
            hints=["make it an async function that awaits it: what is awaited later is not in this step"],
        )
    return result


def _plainly(value: object) -> object:
    """For people to read; what an object says of itself may be long, slow or secret."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    return f"<{type(value).__name__}>"


def _name_of(callable: object) -> str:
    while isinstance(callable, functools.partial):
        callable = callable.func
    return str(getattr(callable, "__name__", type(callable).__name__))


def _bound(
    callable: Callable[..., object], args: tuple[object, ...], kwargs: Mapping[str, object]
) -> dict[str, object]:
    """The arguments by name. A call that does not fit fails by itself."""
    try:
        return dict(inspect.signature(callable).bind(*args, **kwargs).arguments)
    except (TypeError, ValueError):
        return {**{str(number): value for number, value in enumerate(args)}, **kwargs}
