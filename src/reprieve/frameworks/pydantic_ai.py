"""Pydantic AI: a capability that makes every tool call a step that can be undone.

    agent = Agent(model, tools=[...], capabilities=[ReprieveCapability(ws)])

A checkpoint that cannot be taken ends the run, and the tool is not called. Output functions are no tool calls: decorate
one that changes things with `ws.guard`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering

if TYPE_CHECKING:
    from reprieve.app.public import Workspace


class ReprieveCapability(AbstractCapability[Any]):
    """Guards every tool call; steps belong to the conversation of the run."""

    def __init__(self, ws: Workspace) -> None:
        self._ws = ws

    def get_ordering(self) -> CapabilityOrdering:
        """What other capabilities do around a call is part of its step."""
        return CapabilityOrdering(position="outermost")

    async def wrap_tool_execute(
        self, ctx: Any, *, call: Any, tool_def: Any, args: dict[str, Any], handler: Callable[[Any], Awaitable[Any]]
    ) -> Any:
        """Checkpoint, call, seal."""
        async with self._ws.guard(
            name=call.tool_name,
            arguments=args,
            call=call.tool_call_id,
            session=ctx.conversation_id or ctx.run_id or "",
            agent="pydantic-ai",
        ):
            return await handler(args)
