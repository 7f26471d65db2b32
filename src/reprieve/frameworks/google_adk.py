"""A plugin for Google's Agent Development Kit: every tool call is a step that can be undone, every run can be rewound.

    plugin = ReprievePlugin(ws)
    runner = Runner(app=App(name="app", root_agent=agent, plugins=[plugin]), session_service=sessions)
    await plugin.rewind(runner, user_id=user, session_id=session, before=invocation_id)

A checkpoint that cannot be taken stops the run, and the tool is not called.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from google.adk.events import Event, EventActions
from google.adk.plugins.base_plugin import BasePlugin

from reprieve.app.threads import open_threads
from reprieve.errors import Usage
from reprieve.threads.values import Types

if TYPE_CHECKING:
    from reprieve.app.guard import Guard
    from reprieve.app.public import Workspace
    from reprieve.model.plan import Report

_SHARED = ("user:", "app:")  # state that other sessions see, too


class Rewound(NamedTuple):
    """What a rewind did to the files, and which shared keys it left alone because somebody else changed them since."""

    files: Report
    kept: tuple[str, ...]


class ReprievePlugin(BasePlugin):
    """Guards tools and keeps the state before each run. `allow`: classes of your own that session states hold."""

    def __init__(self, ws: Workspace, *, allow: Iterable[type] = (), name: str = "reprieve") -> None:
        super().__init__(name=name)
        self._ws = ws
        self._threads, self._files = open_threads(ws, Types(allow=allow))
        self._open: dict[int, tuple[Any, Guard]] = {}  # by the id of the tool's context, which is kept alive with it

    async def on_user_message_callback(self, *, invocation_context: Any, user_message: Any) -> None:
        """Keep the session's state from before the run, linked with the files' checkpoint of that moment."""
        await asyncio.to_thread(self._keep, invocation_context.session, invocation_context.invocation_id)

    async def before_tool_callback(self, *, tool: Any, tool_args: dict[str, Any], tool_context: Any) -> None:
        """Checkpoint. What this raises ends the run."""
        call, session = tool_context.function_call_id or "", tool_context.session.id
        guard = self._ws.guard(name=tool.name, arguments=tool_args, call=call, session=session, agent="google-adk")
        await guard.__aenter__()
        self._open[id(tool_context)] = (tool_context, guard)

    async def after_tool_callback(self, *, tool_context: Any, **_: Any) -> None:
        """Seal."""
        await self._seal(tool_context, None)

    async def on_tool_error_callback(self, *, tool_context: Any, error: BaseException, **_: Any) -> None:
        """Seal; ADK calls this when a call is cancelled, too."""
        await self._seal(tool_context, error)

    async def after_run_callback(self, *, invocation_context: Any) -> None:
        """Seal what was left open because another plugin failed between our checkpoint and the tool."""
        for context, _ in list(self._open.values()):
            if context.invocation_id == invocation_context.invocation_id:
                await self._seal(context, None)

    async def on_run_error_callback(self, *, invocation_context: Any, error: Exception) -> None:
        """The same after a run that failed."""
        await self.after_run_callback(invocation_context=invocation_context)

    async def close(self) -> None:
        """Seal what a cancelled run left open, and let go of the store of states. The workspace stays open."""
        for context, _ in list(self._open.values()):
            await self._seal(context, None)
        self._threads.store.close()

    async def rewind(self, runner: Any, *, user_id: str, session_id: str, before: str) -> Rewound:
        """Files, state and conversation as they were before a run, named by its invocation id.

        Files go first. Raises Usage, Conflict or Refused with nothing moved.
        """
        whose = {"app_name": runner.app_name, "user_id": user_id, "session_id": session_id}
        session = await runner.session_service.get_session(**whose)
        undone = [event.invocation_id for event in session.events] if session else []
        kept = await asyncio.to_thread(self._threads.get, session_id, before)
        if kept is None or before not in undone:
            raise Usage(f"no run '{before}' of the session '{session_id}' is known here")
        report = await asyncio.to_thread(self._ws.rollback, str(kept.body["files"]))
        await runner.rewind_async(user_id=user_id, session_id=session_id, rewind_before_invocation_id=before)
        # ADK empties what a session was created with, and leaves what other sessions see, too
        was = {name: self._threads.value(session_id, reference) for name, reference in kept.values.items()}
        said: dict[str, Any] = {}
        for event in session.events[undone.index(before) :]:
            said.update(event.actions.state_delta)
        session = await runner.session_service.get_session(**whose)
        wrong = [key for key in {**was, **session.state} if session.state.get(key) != was.get(key)]
        theirs = [key for key in wrong if key.startswith(_SHARED) and session.state.get(key) != said.get(key)]
        delta = {key: was.get(key) for key in wrong if key not in theirs}
        if delta:
            event = Event(author=self.name, invocation_id=Event.new_id(), actions=EventActions(state_delta=delta))
            await runner.session_service.append_event(session, event)
        return Rewound(report, tuple(key for key in theirs if key in said))

    def _keep(self, session: Any, run: str) -> None:
        store = self._threads.store
        if self._files is None or store.seq_of(session.id, "", run):
            return  # an answer to a run that waited
        state = {key: value for key, value in session.state.items() if not key.startswith("temp:")}
        parent = store.heads(session.id).get("", "")
        self._threads.put(session.id, run, state, parent=parent, files=self._files.position(f"before run {run}"))

    async def _seal(self, context: Any, error: BaseException | None) -> None:
        _, guard = self._open.pop(id(context), (None, None))
        if guard is not None:
            await guard.__aexit__(type(error) if error else None, error, None)
