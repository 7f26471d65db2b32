"""OpenAI Agents SDK: hooks that make every tool call a step that can be undone, and a session that goes back.

    session = ReprieveSession("chat-7", ws)
    with ReprieveHooks(ws, session="chat-7") as hooks:
        before = await session.mark()
        await Runner.run(agent, "Tidy up", hooks=hooks, session=session)
        await session.rollback(before)          # conversation and files

A checkpoint that cannot be taken ends the run, and the tool is not called.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from agents import RunHooks
from reprieve.errors import Usage
from reprieve.frameworks.openai_session import ReprieveSession

if TYPE_CHECKING:
    from reprieve.app.guard import Guard
    from reprieve.app.public import Workspace


__all__ = ["ReprieveHooks", "ReprieveSession"]


class ReprieveHooks(RunHooks[Any]):
    """Guards the tools that run here: functions, MCP, shell, patches. A block: the SDK does not tell every end."""

    def __init__(self, ws: Workspace, *, session: str = "") -> None:
        self._ws, self._session = ws, session
        self._is_open = False
        self._calls: dict[tuple[int, str], tuple[Any, Guard]] = {}  # with the context, so that its id stays its own

    def __enter__(self) -> Self:
        self._is_open = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Seal the calls that raised or were cancelled."""
        self._is_open = False
        ends = ExitStack()
        while self._calls:
            ends.push(self._calls.popitem()[1][1])
        ends.__exit__(kind, error, trace)

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        """Checkpoint. What this raises ends the run."""
        if not self._is_open:
            raise Usage("the hooks are not in use", hints=["with ReprieveHooks(ws) as hooks: …"])
        call, said = getattr(context, "tool_call_id", ""), getattr(context, "tool_arguments", "")
        guard = self._ws.guard(
            name=tool.name, arguments=_arguments(said), call=call, session=self._session, agent="openai-agents"
        )
        await guard.__aenter__()
        self._calls[id(context), call or tool.name] = (context, guard)

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: object) -> None:
        """Seal."""
        _, guard = self._calls.pop((id(context), getattr(context, "tool_call_id", "") or tool.name), (None, None))
        if guard is not None:
            await guard.__aexit__(None, None, None)


def _arguments(said: str) -> dict[str, Any]:
    try:
        arguments = json.loads(said or "{}")
    except ValueError:
        return {"arguments": said}
    return arguments if isinstance(arguments, dict) else {"arguments": arguments}
