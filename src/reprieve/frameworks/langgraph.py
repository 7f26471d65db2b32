"""A LangGraph checkpointer on Reprieve's threads: the whole contract, sync and async, and going back.

    saver = ReprieveSaver("state/")                  # a store of its own in that folder
    saver = ReprieveSaver(reprieve.open("."))        # beside the workspace's timeline, linked with its files
    saver = ReprieveSaver()                          # in memory
    graph = builder.compile(checkpointer=saver)

Everything is on disk when a call returns. `durability="sync"` makes LangGraph wait for that before the next step.
"""

from __future__ import annotations

import asyncio
import contextvars
import copy
import os
import random
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from importlib import import_module
from itertools import islice, repeat
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    get_checkpoint_id,
    get_checkpoint_metadata,
)

from reprieve.app.threads import open_threads, roll_back
from reprieve.errors import Partial, Usage
from reprieve.frameworks.langgraph_types import langgraph_types
from reprieve.threads import handoff, moves, retention
from reprieve.threads.delta import Deltas
from reprieve.threads.diff import diff
from reprieve.threads.items import returns
from reprieve.threads.search import search
from reprieve.threads.threads import State
from reprieve.threads.verify import MISSING, TAMPERED, verify

if TYPE_CHECKING:
    from reprieve.app.public import Workspace
    from reprieve.frameworks.langgraph_store import ReprieveStore

T = TypeVar("T")
_BATCH = 32  # states that an asynchronous list reads at a time


class _Listing:
    """States that were listed and whose delta channels may be asked for next, in that order, by whoever listed them."""

    def __init__(self, store: object) -> None:
        self.store = store
        self.states: deque[tuple[str, str, str]] = deque()
        self.shared: dict[bytes, Any] = {}  # messages that their delta channels have in common


# Of this task or thread. LangGraph asks for the channels of each state of a listing in a call of its own; fifty states
# of 800 messages are 40,000 copies, unless it is known that they have one owner.
_listing: ContextVar[_Listing | None] = ContextVar("listing", default=None)


def _of_listing(saver: ReprieveSaver, thread: str, ns: str, id: str) -> dict[bytes, Any] | None:
    """What the listing has in common, if the state was listed here and none behind it was asked for yet."""
    listing = _listing.get()
    if listing is None or listing.store is not saver._threads.store or (thread, ns, id) not in listing.states:
        return None
    while listing.states.popleft() != (thread, ns, id):
        pass  # one without such channels, or of which nobody asked
    shared = listing.shared
    if not listing.states:
        listing.shared = {}  # the last one: they are the caller's alone
    return shared


class ReprieveSaver(BaseCheckpointSaver[str]):
    """Keeps the states of LangGraph threads. May be used by many threads, tasks and processes at once.

    `allow`: classes of your own that the state holds (pydantic models, dataclasses, enums, named tuples).
    `key`: encrypt what is stored. At least 32 bytes, or where they are: `env:VARIABLE`, `file:PATH`,
    `keyring:SERVICE/USER`.
    `checkpoints`: with a workspace, take a checkpoint of the files for every state where they changed. False: link the
    state with the newest one that there is, which costs nothing; for graphs whose tools are guarded anyway.
    """

    def __init__(
        self,
        where: str | os.PathLike[str] | Workspace | None = None,
        *,
        allow: Iterable[type] = (),
        key: str | bytes | None = None,
        checkpoints: bool = True,
    ) -> None:
        super().__init__()
        self._types = langgraph_types(allow)
        self._threads, self._files = open_threads(where, self._types, key=key)
        self._position = None if self._files is None else self._files.position if checkpoints else self._files.newest
        self._deltas = Deltas(self._threads)
        # by thread and namespace: the newest state with the references of its values, which the next one may share
        self._last: dict[tuple[str, str], tuple[str, ChannelVersions, Mapping[str, Any], int]] = {}
        self._waiting: dict[tuple[str, str], None] = {}  # thread, state: one of its tasks asks, or failed

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the store. A workspace stays open."""
        self._threads.store.close()

    # -- the contract of BaseCheckpointSaver

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a state. Raises Refused if its thread was deleted meanwhile."""
        thread, ns, parent = _place(config)
        versions = checkpoint["channel_versions"]
        kept, sweeps = self._shared(thread, ns, parent, versions, new_versions)
        extra = {key: value for key, value in checkpoint.items() if key not in ("id", "channel_values")}
        meta = get_checkpoint_metadata(config, metadata)
        references, sweeps = self._threads.put(
            thread,
            checkpoint["id"],
            checkpoint["channel_values"],
            ns=ns,
            parent=parent,
            meta=self._types.plain(meta),
            extra=self._types.plain(extra),
            unchanged=kept,
            sweeps=sweeps,
            files=self._position(f"{thread} step {meta.get('step')}") if self._position and not ns else "",
        )
        self._last[thread, ns] = (checkpoint["id"], dict(versions), references, sweeps)
        if len(self._last) > 256:
            self._last.pop(next(iter(self._last)), None)
        return _config(thread, ns, checkpoint["id"])

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store what a task wrote; repeating it changes nothing."""
        thread, ns, id = _place(config)
        said = [(WRITES_IDX_MAP.get(channel, at), channel, _kept(value)) for at, (channel, value) in enumerate(writes)]
        files = self._files_of(thread, id, {channel for channel, _ in writes}) if self._position and not ns else ""
        self._threads.put_writes(thread, id, task_id, said, ns=ns, path=task_path, files=files)

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """A state with its pending writes; without a checkpoint_id the head."""
        thread, ns, id = _place(config)
        self._threads.look(thread)
        state = self._threads.get(thread, id, ns=ns)
        return None if state is None else self._tuple(thread, state, remember=True)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """States, newest first. Nothing is locked while the caller takes its time.

        The states of one listing share the messages that they have in common: change copies, not them.
        """
        if limit is not None and limit <= 0:
            return
        left = limit if limit is not None else -1
        listing = _Listing(self._threads.store)
        _listing.set(listing)
        shared: dict[bytes, Any] = {}
        for thread in [_place(config)[0]] if config else self.threads():
            for state in self._matching(thread, config, filter, before, max(left, 0)):
                listing.states.append((thread, state.entry.ns, state.id))
                yield self._tuple(thread, state, shared=shared)
                left -= 1
                if left == 0:
                    return

    def delete_thread(self, thread_id: str) -> None:
        """Remove a thread. A run that is still under way cannot bring it back."""
        retention.delete(self._threads, str(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Remove what runs made, in all threads; what is left of a thread stays whole."""
        if run_ids:
            retention.delete_runs(self._threads, frozenset(map(str, run_ids)))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread with its whole history."""
        moves.copy(self._threads, str(source_thread_id), str(target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Keep the head of each namespace (`keep_latest`), or nothing (`delete`). Safe with delta channels."""
        if isinstance(thread_ids, str):
            raise TypeError("thread_ids must be a list of thread ids, not a string")
        if strategy not in ("keep_latest", "delete"):
            raise ValueError(f"unknown strategy {strategy!r}: keep_latest or delete")
        for thread in map(str, thread_ids):
            if strategy == "delete":
                retention.delete(self._threads, thread)
            else:
                retention.prune(self._threads, thread)

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """What a channel's value is made of that the state itself does not hold."""
        thread, ns, id = _place(config)
        shared = _of_listing(self, thread, ns, id)
        id = id or self._threads.store.heads(thread).get(ns, "")
        found: dict[str, DeltaChannelHistory] = {}
        for channel, history in self._deltas.find(thread, ns, id, channels).items():
            values = self._threads.parts.decode_all((value for _, value in history.writes), shared)
            tasks = [task for task, _ in history.writes]
            found[channel] = {"writes": [*zip(tasks, repeat(channel), values, strict=False)]}
            if history.seed is not None:
                found[channel]["seed"] = self._threads.value(thread, history.seed, shared=shared)
        return found

    def get_next_version(self, current: str | None, channel: None) -> str:
        """A version that sorts behind the current one and is nobody else's, also on another branch."""
        number = 0 if current is None else int(str(current).split(".")[0])  # others' versions may be numbers
        return f"{number + 1:012}.{random.getrandbits(48):012x}"

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> ReprieveSaver:
        """The same saver that also keeps these classes, named by module and name; the graph knows which it has."""
        found = [getattr(import_module(".".join(name[:-1])), name[-1], None) for name in extra_allowlist]
        clone = copy.copy(self)
        clone._types = self._types.allowing(cls for cls in found if isinstance(cls, type))
        clone._threads = self._threads.with_types(clone._types)
        clone._deltas = Deltas(clone._threads)
        return clone

    # -- the same, asynchronous: in threads, so that the event loop goes on

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        # LangGraph hands out the sets and lists that its channels go on to fill (a join of branches does), and with
        # durability="async" the graph does not wait: what a thread comes to see must be what there was now.
        now = {name: _as_it_is(value) for name, value in checkpoint["channel_values"].items()}
        return await asyncio.to_thread(self.put, config, checkpoint | {"channel_values": now}, metadata, new_versions)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        await asyncio.to_thread(self.put_writes, config, writes, task_id, task_path)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return await asyncio.to_thread(self.get_tuple, config)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        found = self.list(config, filter=filter, before=before, limit=limit)
        here = contextvars.copy_context()  # one for all: what it says of the listing is told to the caller below
        while some := await asyncio.to_thread(here.run, lambda: [*islice(found, _BATCH)]):
            _listing.set(here[_listing])
            for one in some:
                yield one

    async def adelete_thread(self, thread_id: str) -> None:
        await asyncio.to_thread(self.delete_thread, thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        await asyncio.to_thread(self.delete_for_runs, run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        await asyncio.to_thread(self.copy_thread, source_thread_id, target_thread_id)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        await asyncio.to_thread(lambda: self.prune(thread_ids, strategy=strategy))

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        return await asyncio.to_thread(lambda: self.get_delta_channel_history(config=config, channels=channels))

    # -- beyond the contract

    def threads(self) -> Sequence[str]:
        """Ids of all threads, oldest first."""
        return [record.id for record in self._threads.store.threads() if not record.is_deleted]

    def rollback_to(
        self,
        thread_id: str,
        checkpoint_id: str,
        *,
        files: bool = False,
        store: ReprieveStore | None = None,
        on_conflict: str = "abort",
        expect: str = "",
    ) -> dict[str, Any]:
        """Make an earlier state the head of its thread, in all namespaces; nothing is erased.

        `files`: move the workspace's files to the checkpoint of that moment, too; they go first, so that a conflict
        there leaves everything as it was. `store`: take back what the thread's steps did there as well; `on_conflict`
        says what becomes of items that others changed since (abort, or keep them). `expect`: only if that is the head
        now. What was not asked for is offered: `files` and `store_items` in the answer say what is at another point.

        Raises BadRef, Usage, Conflict, Refused, with nothing moved; Partial if the thread has moved and the store
        failed.
        """
        items = returns(self._threads, thread_id, checkpoint_id)
        if store is not None:
            store.check(thread_id, checkpoint_id, on_conflict=on_conflict)
        moved, _, report = roll_back(
            self._threads, self._files, thread_id, checkpoint_id, with_files=files, expect=expect
        )
        stored = None if store is None else _store_back(store, moved, with_files=files)
        return {
            "store_items": [{"namespace": list(one.place[0]), "key": one.place[1]} for one in items if one.is_due],
            "store_report": stored,
            "thread_id": thread_id,
            "checkpoint_id": moved.id,
            "restored_from": moved.target,
            "rolled_back_from": moved.before,
            "pending_writes": moved.writes,
            "files": moved.files or None,
            "files_report": report,
        }

    async def arollback_to(self, thread_id: str, checkpoint_id: str, **how: Any) -> dict[str, Any]:
        """`rollback_to`, asynchronous."""
        return await asyncio.to_thread(lambda: self.rollback_to(thread_id, checkpoint_id, **how))

    def fork(self, source_thread_id: str, source_checkpoint_id: str, new_thread_id: str) -> dict[str, Any]:
        """Begin a new thread with a state and its ancestors. Raises BadRef, Conflict if the thread exists."""
        moved = moves.fork(self._threads, source_thread_id, source_checkpoint_id, new_thread_id)
        return {
            "source": source_thread_id,
            "new_thread_id": new_thread_id,
            "checkpoint_id": moved.id,
            "forked_from": f"{source_thread_id}:{source_checkpoint_id}",
            "pending_writes": moved.writes,
        }

    def handoff_checkpoint(
        self, thread_id: str, checkpoint_id: str = "", *, to_agent: str | None = None
    ) -> dict[str, Any]:
        """A descriptor with which another agent can adopt a state (default: the head)."""
        return handoff.handoff(self._threads, thread_id, checkpoint_id, to_agent=to_agent or "")

    def adopt_checkpoint(
        self, described: Mapping[str, Any], new_thread_id: str, *, source: ReprieveSaver | None = None
    ) -> dict[str, Any]:
        """Begin a new thread with a state that was handed over. Raises Refused if it is not exactly that."""
        moved = handoff.adopt(
            self._threads, described, new_thread_id, source=source._threads if source is not None else None
        )
        return {
            "adopted_from": f"{described['thread_id']}:{described['checkpoint_id']}",
            "new_thread_id": new_thread_id,
            "checkpoint_id": moved.id,
            "verified": True,
        }

    def verify_trail(self, thread_id: str, *, expect: str = "") -> dict[str, Any]:
        """Prove a thread: nothing changed, missing, swapped or reordered. `expect`: `head` of an earlier call."""
        found = verify(self._threads, thread_id, expect=expect)
        bad = {problem.id for problem in found.problems if problem.id}
        return {
            "thread_id": thread_id,
            "ok": not found.problems,
            "checkpoint_count": found.states,
            "verified": max(found.states - len(bad), 0),
            "tampered_count": sum(problem.status == TAMPERED for problem in found.problems),
            "missing_count": sum(problem.status == MISSING for problem in found.problems),
            "problems": [problem._asdict() for problem in found.problems],
            "head": found.head,
            "content_checked": found.parts >= 0,
        }

    def search_history(self, query: str, *, thread_id: str = "", limit: int = 5) -> Sequence[dict[str, Any]]:
        """States that hold a text, in whatever depth of whatever channel."""
        return [
            {"thread_id": hit.thread, "checkpoint_id": hit.id, "channel": hit.channel, "text": hit.text}
            for hit in search(self._threads, query, thread=thread_id, limit=limit)
        ]

    def diff_checkpoints(self, thread_id: str, before: str, after: str) -> Sequence[dict[str, Any]]:
        """What is different between two states of a thread, at every depth."""
        sides: list[dict[str, Any]] = []
        for id in (before, after):
            state = self._threads.get(thread_id, id)
            if state is None:
                raise Usage(f"the thread '{thread_id}' has no state '{id}'")
            sides.append({name: self._threads.parts.plain(value) for name, value in state.values.items()})
        return [found._asdict() for found in diff(sides[0], sides[1])]

    # -- inside

    def _files_of(self, thread: str, id: str, channels: Collection[str]) -> str:
        """The checkpoint behind what is written on a state that waits, "" if it does not.

        What the other tasks of the step have done by then is kept with it and not done again, so its files are, too.
        """
        assert self._position is not None
        if moves.INTERRUPT in channels or moves.ERROR in channels:
            self._waiting[thread, id] = None
            if len(self._waiting) > 256:
                self._waiting.pop(next(iter(self._waiting)), None)
        elif moves.RESUME in channels:
            self._waiting.pop((thread, id), None)
        return self._position(f"{thread} waits") if (thread, id) in self._waiting else ""

    def _tuple(
        self, thread: str, state: State, *, remember: bool = False, shared: dict[bytes, Any] | None = None
    ) -> CheckpointTuple:
        value = partial(self._threads.value, remember=remember, shared=shared)
        ns = state.entry.ns
        checkpoint = {
            **self._types.revive(state.body["extra"]),
            "id": state.id,
            "channel_values": {name: value(thread, reference) for name, reference in state.values.items()},
        }
        is_cut = bool(self._threads.story(thread).grafts.get(f"{ns}\0{state.id}") is not None)
        parent = "" if is_cut else state.entry.parent
        return CheckpointTuple(
            _config(thread, ns, state.id),
            cast(Checkpoint, checkpoint),
            self._types.revive(state.meta),
            _config(thread, ns, parent) if parent else None,
            [(write.task, write.channel, value(thread, write.value)) for write in state.writes],
        )

    def _matching(
        self,
        thread: str,
        config: RunnableConfig | None,
        filter: Mapping[str, Any] | None,
        before: RunnableConfig | None,
        limit: int,
    ) -> Iterable[State]:
        ns = config["configurable"].get("checkpoint_ns") if config else None
        id = get_checkpoint_id(config) if config else None
        before_id = (get_checkpoint_id(before) or "") if before else ""

        def fits(meta: Mapping[str, Any]) -> bool:
            given = self._types.revive(meta)
            return all(given.get(key) == value for key, value in (filter or {}).items())

        if id:
            spaces = [ns] if ns is not None else [*self._threads.store.heads(thread)]
            states = [self._threads.get(thread, id, ns=space) for space in spaces]
            return [s for s in states if s and fits(s.meta) and not (before_id and s.id >= before_id)]
        return self._threads.history(
            thread, ns=ns, before=before_id, limit=limit, where=cast("Callable[..., bool]", fits) if filter else None
        )

    def _shared(
        self, thread: str, ns: str, parent: str, versions: ChannelVersions, new: ChannelVersions
    ) -> tuple[dict[str, Any], int]:
        """References of values that are the parent's own."""
        last = self._last.get((thread, ns))
        if last is None or last[0] != parent or not parent:
            return {}, -1
        _, before, references, sweeps = last
        return {
            name: reference
            for name, reference in references.items()
            if name not in new and name in versions and versions[name] == before.get(name)
        }, sweeps


def _place(config: RunnableConfig) -> tuple[str, str, str]:
    """Thread, namespace and checkpoint of a config, "" where it names none."""
    given = config["configurable"]
    return str(given["thread_id"]), given.get("checkpoint_ns") or "", get_checkpoint_id(config) or ""


def _store_back(store: ReprieveStore, moved: moves.Moved, *, with_files: bool) -> dict[str, Any]:
    """The last of what moves. Raises Partial: what somebody's store raises says nothing of the rest."""
    try:
        return store.rollback(moved.thread, moved.target, on_conflict="keep")
    except Exception as exc:
        went = f"the thread '{moved.thread}' is at {moved.target}"
        went += f" and the files are as at {moved.files}" if with_files else ""
        hints = [f"once the store answers: store.rollback('{moved.thread}', '{moved.target}'), or the same call again"]
        if moved.back:
            more = ", files=True" if with_files else ""
            hints.append(f"or go forward again: rollback_to('{moved.thread}', '{moved.back}'{more})")
        raise Partial(
            f"{went}, but the long-term store failed: {str(exc) or type(exc).__name__}",
            hints=hints,
            data={"checkpoint_id": moved.id, "rolled_back_from": moved.before, "files": moved.files or None},
        ) from exc


def _config(thread: str, ns: str, id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ns, "checkpoint_id": id}}


def _as_it_is(value: Any) -> Any:
    """The same without the containers themselves; what is in them is not LangGraph's to change."""
    if type(value) is tuple:
        return tuple(map(_as_it_is, value))
    return value.copy() if type(value) in (set, list, dict) else value


def _kept(value: Any) -> Any:
    """An error is kept as its text: nobody wants it raised from a store."""
    return repr(value) if isinstance(value, BaseException) else value
