"""LangChain agents and deepagents: a middleware that makes every tool call a step that can be undone.

    agent = create_agent(model, tools, middleware=[ReprieveMiddleware(ws)])
    agent = create_deep_agent(model, tools, middleware=[ReprieveMiddleware(ws)])

A checkpoint that cannot be taken ends the run, and the tool is not called. Put it first in the list: middlewares that
follow work inside of the step. For the agent's state there is `reprieve.frameworks.langgraph`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from langchain.agents.middleware import AgentMiddleware

if TYPE_CHECKING:
    from reprieve.app.guard import Guard
    from reprieve.app.public import Workspace


class ReprieveMiddleware(AgentMiddleware):
    """Guards every tool call. `session` names the conversation where the run has no thread_id."""

    def __init__(self, ws: Workspace, *, session: str = "") -> None:
        super().__init__()
        self._ws, self._session = ws, session

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Checkpoint, call, seal."""
        with self._guard(request):
            return handler(request)

    async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """The same without blocking the loop."""
        async with self._guard(request):
            return await handler(request)

    def _guard(self, request: Any) -> Guard:
        call, config = request.tool_call, getattr(request.runtime, "config", None) or {}
        thread = config.get("configurable", {}).get("thread_id")
        return self._ws.guard(
            name=call["name"],
            arguments=call["args"],
            call=call["id"] or "",
            session=self._session if thread is None else str(thread),
            agent="langchain",
        )
