"""A conversation of the OpenAI Agents SDK on a thread; offered by `reprieve.frameworks.openai_agents`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from reprieve.frameworks.items import Items, Rolled

if TYPE_CHECKING:
    from reprieve.app.public import Workspace


class ReprieveSession:
    """A conversation, kept in a workspace's store, a folder of its own, or (None) in memory; the SDK's `Session`."""

    session_settings: Any = None

    def __init__(self, session_id: str, where: str | os.PathLike[str] | Workspace | None = None) -> None:
        self.session_id = session_id
        self._items = Items(where)

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """The items, or the last so many of them."""
        items = await asyncio.to_thread(self._items.read, self.session_id)
        return items if limit is None else items[max(len(items) - limit, 0) :]

    async def add_items(self, items: list[Any]) -> None:
        """Append; durable when this returns."""
        if items:
            await self._write(lambda old: old + items)

    async def pop_item(self) -> Any:
        """Take the last one off. It stays in the history."""
        popped: list[Any] = []

        def pop(items: list[Any]) -> list[Any]:
            popped.extend(items[-1:])
            return items[:-1]

        await self._write(pop)
        return popped[0] if popped else None

    async def clear_session(self) -> None:
        """Begin anew. What was said stays in the history."""
        await self._write(lambda _: [])

    async def mark(self) -> str:
        """A point to roll back to: the conversation and the files as they are now."""
        return await self._write(lambda old: old)

    async def rollback(self, to: str, *, files: bool | None = None) -> Rolled:
        """Make a point the present, by default with the files where there are any; `rollback(it.before)` undoes it."""
        with_files = self._items.has_files if files is None else files
        return await asyncio.to_thread(self._items.rollback, self.session_id, to, files=with_files)

    async def _write(self, change: Callable[[list[Any]], list[Any]]) -> str:
        return await asyncio.to_thread(self._items.write, self.session_id, change)

    def close(self) -> None:
        """Let go of the store. A workspace stays open."""
        self._items.close()
