"""A LangGraph long-term store that goes back together with a thread.

    store = ReprieveStore(InMemoryStore(), saver)            # around any BaseStore
    graph = builder.compile(checkpointer=saver, store=store)
    saver.rollback_to("t", checkpoint_id, store=store)

The items stay in the store that is wrapped: it searches, indexes and expires them as it does. What a graph's steps put
and delete is noted on their thread's chain first, with the value before. What is put outside of a graph's step, or by
other threads, is theirs: going back leaves it, and says so where it is in the way.

An item that is put back has new times (`created_at`, `updated_at`), the store's default time to live, if it has one,
and the store's default index: a BaseStore tells nobody the old ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from langchain_core.runnables.config import var_child_runnable_config
from langgraph.store.base import BaseStore, GetOp, Item, Op, PutOp, Result

from reprieve.errors import Conflict, Usage
from reprieve.frameworks.langgraph import ReprieveSaver
from reprieve.threads.items import Change, Place, Return, done, note, returns


class _Step(NamedTuple):
    thread: str
    state: str  # on which it runs


class ReprieveStore(BaseStore):
    """Wraps a store, sync and async. The saver is the one that keeps the graph's threads."""

    def __init__(self, inner: BaseStore, saver: ReprieveSaver) -> None:
        self._inner = inner
        self._saver = saver
        self.supports_ttl = inner.supports_ttl
        self.ttl_config = inner.ttl_config

    # -- the contract of BaseStore; all its other methods end here

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Carry out operations. Raises, with nothing changed, if what they change cannot be noted."""
        ops = list(ops)
        step, puts = _step(), _puts(ops)
        if step and puts:
            self._note(step, puts, self._inner.batch(_gets(puts)))
        return self._inner.batch(ops)

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """The same, asynchronous."""
        ops = list(ops)
        step, puts = _step(), _puts(ops)
        if step and puts:
            before = await self._inner.abatch(_gets(puts))
            await asyncio.to_thread(self._note, step, puts, before)
        return await self._inner.abatch(ops)

    # -- going back

    def plan(self, thread_id: str, checkpoint_id: str) -> dict[str, Any]:
        """What going back to a state would do here: `restored`, `deleted`, `conflicts`, each a list of items.

        A conflict is an item that was changed since by something else than the thread.
        """
        return _told(*self._sorted(thread_id, checkpoint_id)[:2])

    def check(self, thread_id: str, checkpoint_id: str, *, on_conflict: str = "abort") -> None:
        """Raises what `rollback` would raise: BadRef, Usage, Conflict."""
        if on_conflict not in ("abort", "keep"):
            raise Usage(f"on_conflict is '{on_conflict}'; it can be abort or keep")
        conflicts = self._sorted(thread_id, checkpoint_id)[1]
        if conflicts and on_conflict == "abort":
            raise Conflict(
                f"{len(conflicts)} of the store's items were changed by others since; nothing was rolled back",
                details=["/".join((*one.place[0], one.place[1])) for one in conflicts[:20]],
                hints=["leave those as they are and take back the rest: on_conflict='keep'"],
                data={"conflicts": _told((), conflicts)["conflicts"]},
            )

    def rollback(self, thread_id: str, checkpoint_id: str, *, on_conflict: str = "abort") -> dict[str, Any]:
        """Take back what the thread's steps did here behind a state; the saver's `rollback_to` calls it.

        `on_conflict`: abort (raises Conflict, nothing changed) or keep (what others changed stays). Can itself be taken
        back: by going to a state from before. If the store fails, what it did not change is changed by the same call
        again. Raises BadRef, and what the store raises.
        """
        self.check(thread_id, checkpoint_id, on_conflict=on_conflict)
        todo, conflicts, now = self._sorted(thread_id, checkpoint_id)
        threads = self._saver._threads
        values: dict[Place, Any] = {
            one.place: None if one.value is None else threads.value(thread_id, one.value) for one in todo
        }
        if todo:
            changes = [Change(place, now[place], value) for place, value in values.items()]
            note(threads, thread_id, "", changes)
            self._inner.batch([PutOp(place[0], place[1], value) for place, value in values.items()])
            done(threads, thread_id, changes)
        return _told(todo, conflicts)

    def _note(self, step: _Step, puts: Mapping[Place, PutOp], before: Sequence[Result]) -> None:
        changes = [Change(place, _value(was), op.value) for (place, op), was in zip(puts.items(), before, strict=True)]
        note(self._saver._threads, step.thread, step.state, changes)

    def _sorted(
        self, thread: str, id: str
    ) -> tuple[list[Return], list[Return], Mapping[Place, Mapping[str, Any] | None]]:
        """What can be returned and is not there yet, what is in conflict, and the present values."""
        found = returns(self._saver._threads, thread, id)
        present = self._inner.batch([GetOp(*one.place, refresh_ttl=False) for one in found]) if found else []
        now = {one.place: _value(item) for one, item in zip(found, present, strict=True)}
        plain = {place: self._saver._types.plain(value) for place, value in now.items()}
        todo = [one for one in found if one.is_to_do(plain[one.place])]
        return todo, [one for one in found if one.is_conflict(plain[one.place])], now


def _step() -> _Step | None:
    """The step of a graph that this runs in, if it does."""
    config = var_child_runnable_config.get()
    given = (config or {}).get("configurable") or {}
    state = (given.get("checkpoint_map") or {}).get("", "")
    return _Step(str(given["thread_id"]), state) if state and "thread_id" in given else None


def _puts(ops: Sequence[Op]) -> dict[Place, PutOp]:
    """The changes among operations; of several to one item the last one counts."""
    return {(op.namespace, op.key): op for op in ops if isinstance(op, PutOp)}


def _gets(puts: Iterable[Place]) -> list[GetOp]:
    return [GetOp(namespace, key, refresh_ttl=False) for namespace, key in puts]


def _value(found: Result) -> Mapping[str, Any] | None:
    return found.value if isinstance(found, Item) else None


def _told(todo: Sequence[Return], conflicts: Sequence[Return]) -> dict[str, Any]:
    def items(chosen: Iterable[Return]) -> list[dict[str, Any]]:
        return [{"namespace": list(one.place[0]), "key": one.place[1]} for one in chosen]

    return {
        "restored": items(one for one in todo if one.target is not None),
        "deleted": items(one for one in todo if one.target is None),
        "conflicts": items(conflicts),
    }
