"""Transcripts of the Claude Agent SDK on threads; offered by `reprieve.frameworks.claude_sdk`."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

from reprieve.errors import BadRef
from reprieve.frameworks.items import Items, Rolled
from reprieve.threads.retention import delete

if TYPE_CHECKING:
    from reprieve.app.public import Workspace


class ReprieveSessionStore:
    """The SDK's `SessionStore`, in a workspace's store, a folder of its own, or (None) in memory.

    Sub-agents' transcripts are namespaces of their session's thread.
    """

    def __init__(self, where: str | os.PathLike[str] | Workspace | None = None) -> None:
        self._items = Items(where)

    async def append(self, key: Any, entries: list[Any]) -> None:
        """Add lines of a transcript; one that is there already is not added again."""

        def add(old: list[Any]) -> list[Any]:
            known = {line["uuid"] for line in old if "uuid" in line}
            return old + [line for line in entries if line.get("uuid") not in known]

        if entries:
            await asyncio.to_thread(self._items.write, _thread(key), add, key.get("subpath", ""))

    async def load(self, key: Any) -> list[Any] | None:
        """The lines, None if there are none."""
        return await asyncio.to_thread(self._items.read, _thread(key), key.get("subpath", "")) or None

    async def list_sessions(self, project_key: str) -> list[dict[str, Any]]:
        """Sessions of a project, and when each changed last."""
        found = await asyncio.to_thread(self._sessions, "")
        return [{"session_id": id, "mtime": ms} for project, id, ms in found if project == project_key]

    async def list_subkeys(self, key: Any) -> list[str]:
        """Sub-agents of a session."""
        return await asyncio.to_thread(self._items.names, _thread(key))

    async def delete(self, key: Any) -> None:
        """Remove a session from the store. A sub-agent alone is emptied; its lines go with the session."""
        thread, subpath = _thread(key), key.get("subpath")
        if subpath:
            await asyncio.to_thread(self._items.write, thread, lambda _: [], subpath)
        else:
            await asyncio.to_thread(delete, self._items.threads, thread)

    async def mark(self, session_id: str) -> str:
        """A point to roll back to: the transcript and the files as they are now."""
        return await asyncio.to_thread(lambda: self._items.write(self._find(session_id), lambda old: old))

    async def rollback(self, session_id: str, to: str, *, files: bool | None = None) -> Rolled:
        """Make a point the present, by default with the files where there are any.

        Go on with `ClaudeAgentOptions(resume=session_id, session_store=...)`; what is given up stays in the store.
        """
        with_files = self._items.has_files if files is None else files
        return await asyncio.to_thread(lambda: self._items.rollback(self._find(session_id), to, files=with_files))

    def close(self) -> None:
        """Let go of the store. A workspace stays open."""
        self._items.close()

    def _sessions(self, id: str) -> list[tuple[str, str, int]]:
        """Project, session, time of the last change in ms."""
        store, found = self._items.threads.store, []
        for record in store.threads():
            project, slash, session = record.id.rpartition("/")
            if slash and id in ("", session):
                newest = store.states(record.id, "", limit=1)
                found += [(project, session, state.created_at // 1_000_000) for state in newest]
        return found

    def _find(self, session_id: str) -> str:
        for project, session, _ in self._sessions(session_id):
            return f"{project}/{session}"
        raise BadRef(f"the store has no session '{session_id}'")


def _thread(key: Any) -> str:
    return f"{key['project_key']}/{key['session_id']}"
