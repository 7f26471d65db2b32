"""Microsoft Agent Framework: middleware that guards every tool call, and checkpoints of workflows with their files.

    agent = Agent(client=client, tools=[...], middleware=[ReprieveMiddleware(ws)])
    workflow = WorkflowBuilder(start_executor=first, checkpoint_storage=ReprieveCheckpoints(ws)).build()

Both stop the run if what they protect cannot be kept. Of an ordinary exception the framework would tell the model, or
the log, and go on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from agent_framework import FunctionMiddleware, MiddlewareFailure

from reprieve.errors import ReprieveError
from reprieve.frameworks.agent_framework_checkpoints import NotKept, ReprieveCheckpoints

if TYPE_CHECKING:
    from reprieve.app.public import Workspace

__all__ = ["NotKept", "ReprieveCheckpoints", "ReprieveMiddleware"]


class ReprieveMiddleware(FunctionMiddleware):
    """Guards tool calls. Without a checkpoint the run ends with MiddlewareFailure, and the tool is not called."""

    def __init__(self, ws: Workspace) -> None:
        self._ws = ws

    async def process(self, context: Any, call_next: Callable[[], Awaitable[None]]) -> None:
        """One call."""
        given = context.arguments
        guard = self._ws.guard(
            name=context.function.name,
            arguments=given.model_dump() if hasattr(given, "model_dump") else given,
            call=context.metadata.get("call_id") or "",
            session=context.session.session_id if context.session else "",
            agent="agent-framework",
        )
        tools_own: ReprieveError | None = None
        try:
            async with guard:
                try:
                    await call_next()
                except ReprieveError as error:
                    tools_own = error
                    raise
        except ReprieveError as error:
            if error is tools_own:
                raise
            raise MiddlewareFailure(str(error)) from error
