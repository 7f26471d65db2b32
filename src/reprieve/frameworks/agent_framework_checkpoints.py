"""Checkpoints of Microsoft Agent Framework's workflows on Reprieve's threads: linked with files, and never pickled."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from agent_framework import (
    AgentExecutorRequest,
    AgentExecutorResponse,
    AgentResponse,
    Content,
    Message,
    WorkflowCheckpoint,
    WorkflowCheckpointException,
    WorkflowEvent,
    WorkflowMessage,
)

from reprieve.app.threads import open_threads, roll_back
from reprieve.threads.retention import delete_runs
from reprieve.threads.threads import State
from reprieve.threads.values import Kind, Types

if TYPE_CHECKING:
    from reprieve.app.public import Workspace

_CHANNELS = ("messages", "state", "pending_request_info_events")  # what is cut into parts; the rest is small


class NotKept(BaseException):
    """A workflow's checkpoint could not be stored; stops the workflow. No Exception: those are logged and forgotten."""


class ReprieveCheckpoints:
    """A CheckpointStorage: a workflow's checkpoints are the states of a thread of its name.

    `where`: a workspace, with whose files each checkpoint is linked, a folder, or None for memory. `allow`: classes of
    your own that messages and states hold (pydantic models, dataclasses, enums, named tuples). Nothing is pickled.
    """

    def __init__(self, where: str | os.PathLike[str] | Workspace | None = None, *, allow: Iterable[type] = ()) -> None:
        self._types = _types(allow)
        self._threads, self._files = open_threads(where, self._types)

    def close(self) -> None:
        """Let go of the store. A workspace stays open."""
        self._threads.store.close()

    async def save(self, checkpoint: WorkflowCheckpoint) -> str:
        """Store a checkpoint; it is the latest one of its workflow when this returns."""
        try:
            await asyncio.to_thread(self._save, checkpoint)
        except Exception as error:
            raise NotKept(str(error)) from error
        return str(checkpoint.checkpoint_id)

    async def load(self, checkpoint_id: str) -> WorkflowCheckpoint:
        """Raises WorkflowCheckpointException if there is none with this id."""
        return await asyncio.to_thread(self._load, checkpoint_id)

    async def list_checkpoints(self, *, workflow_name: str) -> list[WorkflowCheckpoint]:
        """Oldest first, abandoned ones included."""
        return await asyncio.to_thread(
            lambda: [self._made(workflow_name, state) for state in self._threads.history(workflow_name, ns="")][::-1]
        )

    async def list_checkpoint_ids(self, *, workflow_name: str) -> list[str]:
        """Oldest first, abandoned ones included."""
        return [entry.id for entry in await asyncio.to_thread(self._threads.store.states, workflow_name, "")][::-1]

    async def get_latest(self, *, workflow_name: str) -> WorkflowCheckpoint | None:
        """The present one: the newest, or what a rollback made it."""
        state = await asyncio.to_thread(self._threads.get, workflow_name)
        return None if state is None else self._made(workflow_name, state)

    async def delete(self, checkpoint_id: str) -> bool:
        """Remove one; the rest of its workflow's history stays provable."""
        return await asyncio.to_thread(delete_runs, self._threads, {checkpoint_id}) > 0

    def rollback_to(self, checkpoint_id: str, *, files: bool = False) -> str:
        """Make a checkpoint the latest of its workflow, with the `files` of that moment; the id to run from.

        Raises Usage, Conflict or Refused with nothing moved.
        """
        thread = self._thread_of(checkpoint_id)
        return roll_back(self._threads, self._files, thread, checkpoint_id, with_files=files).moved.id

    def _save(self, checkpoint: WorkflowCheckpoint) -> None:
        fields, name = checkpoint.to_dict(), checkpoint.workflow_name
        channels = {channel: fields.pop(channel) for channel in _CHANNELS}
        id, parent = fields.pop("checkpoint_id"), fields.pop("previous_checkpoint_id") or ""
        files = self._files.position(f"{name} step {checkpoint.iteration_count}") if self._files else ""
        meta = {"run_id": id}  # each is a run of its own to `delete_runs`
        self._threads.put(name, id, channels, parent=parent, meta=meta, extra=self._types.plain(fields), files=files)

    def _load(self, id: str) -> WorkflowCheckpoint:
        thread = self._thread_of(id)
        state = self._threads.get(thread, id)
        assert state is not None
        return self._made(thread, state)

    def _thread_of(self, id: str) -> str:
        for record in self._threads.store.threads():
            if self._threads.store.seq_of(record.id, "", id):
                return record.id
        raise WorkflowCheckpointException(f"No checkpoint found with ID {id}")

    def _made(self, thread: str, state: State) -> WorkflowCheckpoint:
        values = {name: self._threads.value(thread, reference) for name, reference in state.values.items()}
        fields = self._types.revive(state.body["extra"])
        parent = state.entry.parent or None
        return WorkflowCheckpoint(**fields, **values, checkpoint_id=state.id, previous_checkpoint_id=parent)


def _types(allow: Iterable[type]) -> Types:
    def by_dict(cls: Any) -> Kind:
        return Kind(
            f"agent-framework.{cls.__name__}",
            cls,
            lambda value, plain: plain(value.to_dict()),
            lambda value, revive: cls.from_dict(revive(value)),
        )

    kind_of_message = type(WorkflowMessage(data=None, source_id="").type)
    known = (WorkflowMessage, kind_of_message, AgentExecutorRequest, AgentExecutorResponse)
    return Types(map(by_dict, (Message, Content, AgentResponse, WorkflowEvent)), allow=[*known, *allow])
