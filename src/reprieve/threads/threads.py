"""Append states to threads and read them again. Rolling back, forking, pruning and proving are modules of their own.

    thread "t"      namespace ""                        namespace "child"
    seq 1  state A  ◀── head was here
    seq 2  writes on A
    seq 3  state B (parent A)                           …
    seq 4  state C (parent B)
    seq 5  move: head of "" is A again                  (a rollback)
    seq 6  state D (parent A)   ◀── head

Everything is one chain per thread, in the order in which it was stored. Heads are set, never guessed from ids: a clock
that is behind cannot make an abandoned state the present one.

Writes belong to a state and are what its next state will be made of. After a rollback to a state its later writes are
*void*: seen by the states that were made of them, and by nobody else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from reprieve.errors import Refused
from reprieve.model.thread import ITEMS, MOVE, PRUNE, STATE, WRITES, ThreadEntry, ThreadRecord
from reprieve.store.thread_chain import FIRST_PREV, next_entry
from reprieve.store.thread_protocol import ThreadStore
from reprieve.store.thread_sealed import sealing
from reprieve.threads.ids import moment_of
from reprieve.threads.parts import Parts, Reference
from reprieve.threads.values import Plain, Types, dumps, loads


class Write(NamedTuple):
    """One value that a task wrote on top of a state."""

    path: str  # of the task: writes are applied in the order of (path, task, index)
    task: str
    slot: int  # negative: replaces what the task wrote there before
    channel: str
    value: Reference
    seq: int
    files: str = ""  # the file checkpoint of that moment, if one is known


class State(NamedTuple):
    """A stored state: its entry, what its body says, and the writes on it."""

    entry: ThreadEntry
    body: Mapping[str, Any]
    writes: tuple[Write, ...]

    @property
    def id(self) -> str:
        return self.entry.id

    @property
    def values(self) -> Mapping[str, Reference]:
        found: Mapping[str, Reference] = self.body["values"]
        return found

    @property
    def meta(self) -> Mapping[str, Plain]:
        found: Mapping[str, Plain] = self.body["meta"]
        return found


class Void(NamedTuple):
    """Writes on a state, with seq from `start` up to a move's, that no longer count."""

    ns: str
    id: str
    start: int
    end: int


class Story(NamedTuple):
    """What moves and prunes say about a thread, up to an entry."""

    seq: int
    voids: tuple[Void, ...]
    grafts: Mapping[str, Mapping[str, Any]]  # "ns\0id": histories of states whose ancestors were pruned


class Threads:
    """The threads of one store."""

    def __init__(self, store: ThreadStore, types: Types, *, clock: Callable[[], int] = time.time_ns) -> None:
        self.store = store
        self.parts = Parts(store, types)
        self.clock = clock
        self._seal = sealing(store)
        self._known: dict[str, tuple[int, set[bytes]]] = {}  # by thread: as of which sweep, parts that it has
        self._stories: dict[str, Story] = {}

    def with_types(self, types: Types) -> Threads:
        """The same threads, read and written with other types."""
        return Threads(self.store, types, clock=self.clock)

    # -- writing

    def put(
        self,
        thread: str,
        id: str,
        values: Mapping[str, Any],
        *,
        ns: str = "",
        parent: str = "",
        meta: Plain = None,
        extra: Plain = None,
        unchanged: Mapping[str, Reference] | None = None,
        sweeps: int = -1,
        files: str = "",
    ) -> tuple[Mapping[str, Reference], int]:
        """Append a state; it is the head of its namespace when this returns. Durable.

        `unchanged`: references from an earlier call that returned them with `sweeps`; used if they still hold.
        Returns the references of all values, and as of which sweep they hold. Raises Refused if the thread was deleted
        and this belongs to what was deleted.
        """
        sweep, known = self._known_parts(thread)
        while True:
            out: dict[bytes, bytes] = {}
            kept = (unchanged or {}) if sweeps == sweep else {}
            references = {
                name: kept[name] if name in kept else self.parts.encode(value, out, known)
                for name, value in values.items()
            }
            body: dict[str, Any] = {"values": references, "meta": meta or {}, "extra": extra or {}}
            if files:
                body["files"] = files
            with self.store.transaction():
                now = self.store.sweeps
                if now == sweep:
                    record = self._record(thread)
                    self._refuse_late(record, ns, id, parent)
                    if out:
                        self.store.put_parts(thread, out)
                    is_again = bool(self.store.seq_of(thread, ns, id)) if record.seq else False
                    self.append(record, kind=STATE, ns=ns, id=id, parent=parent, body=body)
                    if not is_again:
                        self.store.set_heads(thread, {ns: id})
                    break
            # a prune or delete in another process may have removed parts that we believed stored
            sweep, known = self._known_parts(thread, now)
        known.update(out)
        return references, sweep

    def put_writes(
        self,
        thread: str,
        id: str,
        task: str,
        writes: Sequence[tuple[int, str, Any]],
        *,
        ns: str = "",
        path: str = "",
        files: str = "",
    ) -> None:
        """Append what a task wrote on a state (index, channel, value). Durable; repeating it changes nothing.

        A negative index replaces what the task wrote there before. The state itself may come later. `files`: the
        checkpoint of the files behind it.
        """
        sweep, known = self._known_parts(thread)
        while True:
            out: dict[bytes, bytes] = {}
            refs = [[index, channel, self.parts.encode(value, out, known)] for index, channel, value in writes]
            with self.store.transaction():
                now = self.store.sweeps
                if now == sweep:
                    record = self._record(thread)
                    there = self.store.about(thread, ns, [id]) if record.seq else []
                    if not any(entry.kind == STATE for entry in there):
                        self._refuse_late(record, ns, id, id)
                    visible = self._writes(thread, ns, id, there, self.story(thread, record))
                    old = {(w.task, w.slot): w for w in visible}
                    new = [w for w in refs if _is_news(old.get((task, w[0])), w)]
                    if new:
                        if out:
                            self.store.put_parts(thread, out)
                        body = {"task": task, "path": path, "w": new, **({"files": files} if files else {})}
                        self.append(record, kind=WRITES, ns=ns, id=id, parent="", body=body)
                    break
            sweep, known = self._known_parts(thread, now)
        if new:
            known.update(out)

    def put_items(self, thread: str, of: str, items: Sequence[Sequence[Any]]) -> None:
        """Append what the step on a state changes in a store: namespace, key, value before and after. Durable."""
        sweep, known = self._known_parts(thread)
        while True:
            out: dict[bytes, bytes] = {}
            refs = [
                [space, key, *(None if value is None else self.parts.encode(value, out, known) for value in values)]
                for space, key, *values in items
            ]
            with self.store.transaction():
                now = self.store.sweeps
                if now == sweep:
                    record = self._record(thread)
                    if of:
                        self._refuse_late(record, "", of, of)
                    if out:
                        self.store.put_parts(thread, out)
                    self.append(record, kind=ITEMS, ns="", id=of, parent="", body={"items": refs})
                    break
            sweep, known = self._known_parts(thread, now)
        known.update(out)

    def append(
        self, record: ThreadRecord, *, kind: str, ns: str, id: str, parent: str, body: Mapping[str, Any]
    ) -> ThreadEntry:
        """Put an entry at the end of a thread, inside a transaction in which `record` was read."""
        entry = next_entry(
            record.id, record.seq, record.hash, kind=kind, ns=ns, id=id, parent=parent,
            created_at=self.clock(), body=dumps(body), seal=self._seal,
        )  # fmt: skip
        self.store.append(record.id, entry)
        return entry

    # -- reading

    def get(self, thread: str, id: str = "", *, ns: str = "") -> State | None:
        """A state with its writes; without an id the head of the namespace."""
        wanted = id or self.store.heads(thread).get(ns, "")
        if not wanted:
            return None
        return next(iter(self._with_writes(thread, ns, [wanted])), None)

    def history(
        self,
        thread: str,
        *,
        ns: str | None = None,
        before: str = "",
        limit: int = 0,
        where: Callable[[Mapping[str, Plain]], bool] | None = None,
    ) -> Iterable[State]:
        """States, newest first, abandoned ones included. `where` is asked about their metadata."""
        before_seq, before_id = 0, ""
        if before:
            before_seq = self.store.seq_of(thread, ns, before) if ns is not None else 0
            # an id of another namespace says when, not where: ids sort by time
            before_id = "" if before_seq else before
        left = limit or -1
        page = min(limit, 64) if limit and where is None else 64
        while True:
            entries = self.store.states(thread, ns, limit=page, before_seq=before_seq, before_id=before_id)
            if not entries:
                return
            before_seq = entries[-1].seq
            bodies = {entry.seq: loads(entry.body) for entry in entries}
            chosen = [e for e in entries if where is None or where(bodies[e.seq]["meta"])]
            if left > 0:
                chosen = chosen[:left]
            by_ns: dict[str, list[str]] = {}
            for entry in chosen:
                by_ns.setdefault(entry.ns, []).append(entry.id)
            found = {(s.entry.ns, s.id): s for name, ids in by_ns.items() for s in self._with_writes(thread, name, ids)}
            for entry in chosen:
                state = found.get((entry.ns, entry.id))
                if state is not None:
                    yield state
                    left -= 1
            if left == 0 or len(entries) < page:
                return

    def value(
        self, thread: str, reference: Reference, *, remember: bool = False, shared: dict[bytes, Any] | None = None
    ) -> Any:
        """What a reference of one of the thread's states leads to; the caller's own.

        `remember`: the next state will probably hold it too, so storing it again is to be quick. `shared`: messages
        that several states of one owner have in common.
        """
        known = self._known.get(thread) if remember else None
        return self.parts.decode(reference, known[1] if known else None, shared)

    def look(self, thread: str) -> int:
        """As of which sweep what is read next is remembered as stored; call it before reading."""
        return self._known_parts(thread)[0]

    def record(self, thread: str) -> ThreadRecord | None:
        """The thread, None if there is none or it was deleted."""
        found = self.store.thread(thread)
        return None if found is None or found.is_deleted else found

    def story(self, thread: str, record: ThreadRecord | None = None) -> Story:
        """What moves and prunes say, up to now."""
        record = record or self.store.thread(thread)
        if record is None:
            return Story(0, (), {})
        known = self._stories.get(thread)
        if known is not None and known.seq == record.seq:
            return known
        if known is None or known.seq > record.seq:
            known = Story(0, (), {})
        voids, grafts = list(known.voids), dict(known.grafts)
        for entry in self.store.entries(thread, kinds=(MOVE, PRUNE), after=known.seq):
            body = loads(entry.body)
            if entry.kind == PRUNE:
                voids = [Void(*void) for void in body["voids"]]
                grafts = dict(body["grafts"])
            else:
                voids += [Void(ns, id, start, entry.seq) for ns, id, start in body["void"]]
        story = self._stories[thread] = Story(record.seq, tuple(voids), grafts)
        if len(self._stories) > 64:
            self._stories.pop(next(iter(self._stories)), None)
        return story

    def visible(self, writes: Iterable[Write], ns: str, id: str, story: Story, at: int = 1 << 62) -> list[Write]:
        """The writes on a state that count for somebody whose place on the chain is `at`, in the order of applying."""
        voids = [void for void in story.voids if void.id == id and void.ns == ns]
        latest: dict[tuple[str, int], Write] = {}
        for write in writes:
            if not voids or counts(write.seq, voids, at):
                latest[write.task, write.slot] = write
        return sorted(latest.values())

    def _with_writes(self, thread: str, ns: str, ids: Sequence[str]) -> list[State]:
        entries = self.store.about(thread, ns, ids)
        story = self.story(thread)
        by_id: dict[str, list[ThreadEntry]] = {}
        states: dict[str, ThreadEntry] = {}
        for entry in entries:
            if entry.kind == STATE:
                states[entry.id] = entry
            else:
                by_id.setdefault(entry.id, []).append(entry)
        return [
            State(
                states[id],
                loads(states[id].body),
                tuple(self._writes(thread, ns, id, by_id.get(id, ()), story)),
            )
            for id in ids
            if id in states
        ]

    def _writes(self, thread: str, ns: str, id: str, entries: Iterable[ThreadEntry], story: Story) -> list[Write]:
        return self.visible(writes_of(entries), ns, id, story)

    # -- inside

    def _record(self, thread: str) -> ThreadRecord:
        record = self.store.thread(thread)
        if record is None:
            record = ThreadRecord(thread, 0, FIRST_PREV, self.clock())
            self.store.save_thread(record)
        return record

    def _refuse_late(self, record: ThreadRecord, ns: str, id: str, parent: str) -> None:
        """A run that was under way when its thread was deleted must not bring it back."""
        if not record.deleted_at:
            return
        is_late = 0 < moment_of(id) <= record.deleted_at
        if parent and not self.store.seq_of(record.id, ns, parent):
            is_late = is_late or moment_of(parent) <= record.deleted_at  # an id that does not say when counts as late
        if is_late:
            raise Refused(
                f"the thread '{record.id}' was deleted; what belongs to it from before is not stored",
                hints=["start the thread anew, or use another id"],
                data={"thread": record.id},
            )
        if record.is_deleted:
            self.store.save_thread(record._replace(is_deleted=False))

    def _known_parts(self, thread: str, sweeps: int = -1) -> tuple[int, set[bytes]]:
        if sweeps < 0:
            sweeps = self.store.sweeps
        found = self._known.get(thread)
        if found is None or found[0] != sweeps:
            found = self._known[thread] = (sweeps, set())
            if len(self._known) > 64:
                self._known.pop(next(iter(self._known)), None)
        return found


def counts(seq: int, voids: Iterable[Void], at: int) -> bool:
    """Whether what was said about a state at `seq` counts for somebody whose place on the chain is `at`."""
    return all(seq <= void.end if void.end > at else not void.start <= seq < void.end for void in voids)


def writes_of(entries: Iterable[ThreadEntry]) -> list[Write]:
    """What entries of kind `writes` say, in the order of the chain."""
    found = []
    for entry in entries:
        if entry.kind == WRITES:
            body = loads(entry.body)
            task, path, files = body["task"], body["path"], body.get("files", "")
            found += [Write(path, task, slot, channel, value, entry.seq, files) for slot, channel, value in body["w"]]
    return found


def _is_news(old: Write | None, new: Sequence[Any]) -> bool:
    """Ordinary writes are kept as they came first, special ones (negative index) as they came last."""
    slot, channel, value = new
    return old is None or (slot < 0 and (old.channel, old.value) != (channel, value))
