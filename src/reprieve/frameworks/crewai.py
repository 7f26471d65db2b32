"""CrewAI: hooks that guard every tool call of every crew in this process while they are installed.

    with ReprieveHooks(ws):
        crew.kickoff()

CrewAI swallows what a hook raises and runs the tool all the same, except for HookAborted: that is what a checkpoint
that cannot be taken becomes. The tool is not called, and the run ends with the reason.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from crewai.hooks import HookAborted, InterceptionPoint, register_hook, unregister_hook

if TYPE_CHECKING:
    from reprieve.app.guard import Guard
    from reprieve.app.public import Workspace


class ReprieveHooks:
    """A context manager. CrewAI makes two contexts for a call, before and after; what they share is its input."""

    def __init__(self, ws: Workspace) -> None:
        self._ws = ws
        self._calls: dict[int, tuple[Any, Guard | Exception]] = {}  # by the id of the input, which is kept alive

    def __enter__(self) -> Self:
        register_hook(InterceptionPoint.PRE_TOOL_CALL, self._before)
        register_hook(InterceptionPoint.POST_TOOL_CALL, self._after)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        unregister_hook(InterceptionPoint.PRE_TOOL_CALL, self._before)
        unregister_hook(InterceptionPoint.POST_TOOL_CALL, self._after)
        for given, guard in list(self._calls.values()):  # another hook ended the run before ours was asked
            del self._calls[id(given)]
            if not isinstance(guard, Exception):
                guard.__exit__(kind, error, trace)

    def _before(self, context: Any) -> None:
        session = str(getattr(context.crew or context.agent, "id", ""))
        guard = self._ws.guard(name=context.tool_name, arguments=context.tool_input, session=session, agent="crewai")
        try:
            guard.__enter__()
        except Exception as error:
            self._calls[id(context.tool_input)] = (context.tool_input, error)
            raise HookAborted(str(error), source="reprieve") from error
        self._calls[id(context.tool_input)] = (context.tool_input, guard)

    def _after(self, context: Any) -> None:
        _, guard = self._calls.pop(id(context.tool_input), (None, None))
        if isinstance(guard, Exception):
            raise HookAborted(str(guard), source="reprieve") from guard  # here it ends the run; before, only the call
        if guard is not None:
            try:
                guard.__exit__(None, None, None)
            except Exception as error:
                raise HookAborted(str(error), source="reprieve") from error
