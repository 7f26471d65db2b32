"""A store that lives as long as its process: for short sessions that need undo but no history afterwards.

Same promises as the local store except surviving: content is verified when read, transactions are whole, locks keep
threads apart, timelines are chained. Use it from any thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from reprieve.errors import StoreCorrupted, StoreFailed, StoreLocked
from reprieve.model.reporter import Reporter
from reprieve.model.timeline import Draft, TimelineEntry, WorkspaceRecord
from reprieve.store.chain import NOT_POINTS, breaks, contains, new_id, next_entry
from reprieve.store.hashing import sha256

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    from reprieve.store.protocols import Buffer

    K = TypeVar("K")
    V = TypeVar("V")

_SAY_AFTER_S = 1.0


class MemoryStore:
    """Store in this process's memory."""

    def __init__(self, *, reporter: Reporter | None = None) -> None:
        self._journal = _Journal()
        self._locks = _Locks(reporter or Reporter())
        self._records: dict[str, WorkspaceRecord] = {}
        self._timelines: dict[str, MemoryTimeline] = {}
        self._blobs = MemoryBlobs(self._journal)

    @property
    def blobs(self) -> MemoryBlobs:
        """The content."""
        return self._blobs

    def workspaces(self) -> list[WorkspaceRecord]:
        """All of them, oldest first."""
        with self._journal.guard:
            records = sorted(self._records.values(), key=lambda record: (record.created_at, record.id))
            return [record.replace(intent=self.timeline(record.id).intent()) for record in records]

    def save_workspace(self, record: WorkspaceRecord) -> None:
        """Insert or update by id (intent excluded)."""
        with self.transaction():
            self._journal.set(self._records, record.id, record)

    def problems(self) -> list[str]:
        """Nothing: there are no tables that could be damaged."""
        return []

    def timelines(self) -> set[str]:
        """Workspaces that have entries."""
        with self._journal.guard:
            return {id for id, timeline in self._timelines.items() if timeline.head() is not None}

    def timeline(self, workspace_id: str) -> MemoryTimeline:
        """The workspace's timeline; an unknown workspace has an empty one."""
        with self._journal.guard:
            return self._timelines.setdefault(workspace_id, MemoryTimeline(workspace_id, self._journal))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Everything inside is kept at the outermost exit, or nothing of it."""
        with self._journal.transaction():
            yield

    @contextmanager
    def lock(self, workspace_id: str, *, wait_s: float = 60.0) -> Iterator[None]:
        """One thread at a time works on a workspace; no collection meanwhile."""
        with (
            self._locks.hold("gc", exclusive=False, wait_s=wait_s),
            self._locks.hold(f"workspace {workspace_id}", exclusive=True, wait_s=wait_s),
        ):
            yield

    @contextmanager
    def gc_lock(self, *, wait_s: float = 60.0) -> Iterator[None]:
        """Alone in the whole store."""
        with self._locks.hold("gc", exclusive=True, wait_s=wait_s):
            yield

    def close(self) -> None:
        """Nothing to let go of: what is stored stays readable as long as the store is referred to."""


class MemoryBlobs:
    """BlobStore in a dict."""

    def __init__(self, journal: _Journal) -> None:
        self._journal = journal
        self._objects: dict[bytes, bytes] = {}
        self._damaged: dict[bytes, str] = {}
        self._pending: dict[int, dict[bytes, bytes]] = {}  # by thread

    def put(self, items: Iterable[tuple[bytes, Buffer]]) -> int:
        """Take objects; return how many were new."""
        new = 0
        for id, data in items:
            with self._journal.guard:
                pending = self._pending.setdefault(threading.get_ident(), {})
                if id in pending or (id not in self._damaged and self._is_sound(id)):
                    continue
                pending[id] = bytes(data)
                new += 1
        return new

    def flush(self) -> None:
        """Make what this thread has put findable."""
        with self._journal.guard:
            pending = self._pending.pop(threading.get_ident(), {})
        with self._journal.transaction():
            for id, data in pending.items():
                self._journal.set(self._objects, id, data)
                self._journal.remove(self._damaged, id)

    def start_flush(self) -> None:
        """There is nothing to wait for."""

    def has(self, ids: Sequence[bytes]) -> set[bytes]:
        """Those of ids that are stored and not known to be damaged."""
        with self._journal.guard:
            return {id for id in ids if id in self._objects and id not in self._damaged}

    def get(self, id: bytes) -> bytes:
        """The bytes, verified."""
        with self._journal.guard:
            reason = self._problem(id)
            if not reason:
                return self._objects[id]
            self._damaged[id] = reason
        raise StoreCorrupted(f"object {id.hex()[:16]} is damaged: {reason}", data={"object": id.hex()})

    def prefetch(self, ids: Iterable[bytes]) -> None:
        """Everything is at hand."""

    def get_many(self, ids: Iterable[bytes]) -> Iterator[tuple[bytes, bytes]]:
        """Verified objects, each once."""
        for id in dict.fromkeys(ids):
            yield id, self.get(id)

    def check(self, ids: Iterable[bytes] | None = None) -> Iterator[tuple[bytes, str]]:
        """Problems (id, reason) among ids (None: all objects)."""
        with self._journal.guard:
            wanted = list(ids) if ids is not None else [*self._objects, *(self._damaged.keys() - self._objects.keys())]
        for id in wanted:
            with self._journal.guard:
                reason = self._problem(id)
                if reason:
                    self._damaged[id] = reason
                else:
                    self._damaged.pop(id, None)
            if reason:
                yield id, reason

    def damaged(self) -> set[bytes]:
        """Objects known to be damaged or missing."""
        with self._journal.guard:
            return set(self._damaged)

    def drop(self, live: set[bytes]) -> int:
        """Nothing: `collect` needs no room."""
        return 0

    def collect(self, live: set[bytes]) -> tuple[int, int]:
        """Drop every object not in live; return (objects, bytes) freed."""
        with self._journal.guard:
            dead = [id for id in self._objects if id not in live]
            freed = sum(len(self._objects.pop(id)) for id in dead)
            for id in [id for id in self._damaged if id not in live]:
                del self._damaged[id]
            return len(dead), freed

    def _is_sound(self, id: bytes) -> bool:
        return not self._problem(id)

    def _problem(self, id: bytes) -> str:
        data = self._objects.get(id)
        if data is None:
            return "it is not in the store"
        return "" if sha256(data) == id else "its bytes do not match its hash"


class MemoryTimeline:
    """Timeline in a list."""

    def __init__(self, workspace_id: str, journal: _Journal) -> None:
        self._workspace = workspace_id
        self._journal = journal
        self._entries: list[TimelineEntry] = []
        self._ids: dict[str, int] = {}  # places in the list
        self._fulls: dict[int, bytes] = {}
        self._intent: dict[str, bytes] = {}

    def append(self, draft: Draft) -> TimelineEntry:
        """Put the draft at the end; kept with the outermost transaction."""
        with self._journal.transaction():
            if draft.id and draft.id in self._ids:
                raise StoreFailed(f"an entry with the id {draft.id!r} exists already")
            last = (self._entries[-1].seq, self._entries[-1].hash) if self._entries else None
            entry = next_entry(self._workspace, draft, last, id=draft.id or new_id())
            self._journal.set(self._ids, entry.id, len(self._entries))
            self._entries.append(entry)
            self._journal.undo_with(lambda: self._entries.pop())
            return entry

    def head(self) -> TimelineEntry | None:
        """The newest entry."""
        with self._journal.guard:
            return self._entries[-1] if self._entries else None

    tip = head

    def get(self, id: str) -> TimelineEntry | None:
        """The entry with exactly this id."""
        with self._journal.guard:
            return self._entries[self._ids[id]] if id in self._ids else None

    def at(self, seq: int) -> TimelineEntry | None:
        """The entry with this number."""
        with self._journal.guard:
            return self._entries[seq - 1] if 0 < seq <= len(self._entries) else None

    def newest_first(
        self, *, limit: int = 0, before_seq: int = 0, kinds: Sequence[str] = (), search: str = ""
    ) -> Iterator[TimelineEntry]:
        """Entries from the newest on; limit 0: all, before_seq 0: from the head."""
        needle = search.casefold()
        left = limit
        for entry in reversed(self._all()):
            if (before_seq and entry.seq >= before_seq) or (kinds and entry.kind not in kinds):
                continue
            if needle and not contains(entry, needle):
                continue
            yield entry
            left -= 1
            if left == 0:
                return

    def after(self, seq: int) -> Iterator[TimelineEntry]:
        """Entries with a larger seq, oldest first."""
        yield from self._all()[max(seq, 0) :]

    def backwards(self) -> Iterator[TimelineEntry]:
        """Entries from the newest on."""
        yield from reversed(self._all())

    def readable(self) -> Iterator[TimelineEntry]:
        """All entries, oldest first."""
        yield from self._all()

    def matching(self, text: str) -> list[TimelineEntry]:
        """The entry with this id, else those whose id begins so, or that are called so; newest first."""
        if not text or text in self._ids:
            return [self._entries[self._ids[text]]] if text else []
        return [e for e in reversed(self._all()) if e.id.startswith(text) or text == e.title]

    def before_time(self, ns: int) -> TimelineEntry | None:
        """The newest checkpoint, or other entry that one can return to, made at or before that time."""
        points = (e for e in reversed(self._all()) if e.created_at <= ns and e.kind not in NOT_POINTS)
        return next(points, None)

    def set_full(self, seq: int, object_id: bytes) -> None:
        """Keep the whole tree at an entry as an object."""
        with self._journal.transaction():
            self._journal.set(self._fulls, seq, bytes(object_id))

    def fulls(self) -> list[tuple[int, bytes]]:
        """(seq, object id) of all full trees, oldest first."""
        with self._journal.guard:
            return sorted(self._fulls.items())

    def full_at_or_before(self, seq: int) -> tuple[int, bytes] | None:
        """The nearest full tree from which an entry's tree can be reached by deltas."""
        with self._journal.guard:
            return max(((at, id) for at, id in self._fulls.items() if at <= seq), default=None)

    def drop_trees(self, seqs: Sequence[int]) -> None:
        """Mark entries as pruned: their delta and full tree are no longer kept."""
        with self._journal.transaction():
            for seq in seqs:
                self._journal.remove(self._fulls, seq)
                self._change(seq - 1, is_pruned=True)

    def pin(self, id: str, *, pinned: bool = True) -> None:
        """Keep an entry from being pruned, or no longer."""
        with self._journal.transaction():
            self._change(self._place(id), is_pinned=pinned)

    def rename(self, id: str, name: str | None) -> None:
        """Give an entry a name; "": it has its label again, None: nor that."""
        with self._journal.transaction():
            self._change(self._place(id), name=name)

    def verify(self) -> Iterator[tuple[int, str]]:
        """Problems (seq, reason)."""
        return breaks(self._workspace, self._all())

    def intent(self) -> bytes:
        """Of the operation under way, b"" if none."""
        with self._journal.guard:
            return self._intent.get("", b"")

    def set_intent(self, intent: bytes) -> None:
        """Write it down before anything is moved; b"" when all is done."""
        with self._journal.transaction():
            self._journal.set(self._intent, "", bytes(intent))

    def _all(self) -> list[TimelineEntry]:
        with self._journal.guard:
            return self._entries.copy()

    def _place(self, id: str) -> int:
        if id not in self._ids:
            raise StoreFailed(f"no entry {id!r} on this timeline")
        return self._ids[id]

    def _change(self, place: int, **marks: object) -> None:
        before = self._entries[place]
        self._entries[place] = before.replace(**marks)
        self._journal.undo_with(lambda: self._entries.__setitem__(place, before))


class _Journal:
    """Transactions: one thread at a time changes things, with the way back noted for each change."""

    def __init__(self) -> None:
        self.guard = threading.RLock()
        self._depth = 0
        self._is_doomed = False
        self._undo: list[Callable[[], object]] = []

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with self.guard:
            self._depth += 1
            try:
                yield
                if self._depth == 1 and self._is_doomed:
                    raise StoreFailed("a part of the change failed, so nothing of it was stored")
            except BaseException:
                self._is_doomed = True
                raise
            finally:
                self._depth -= 1
                if self._depth == 0:
                    self._end()

    def set(self, where: dict[K, V], key: K, value: V) -> None:
        self._note(where, key)
        where[key] = value

    def remove(self, where: dict[K, V], key: K) -> None:
        if key in where:
            self._note(where, key)
            del where[key]

    def undo_with(self, undo: Callable[[], object]) -> None:
        self._undo.append(undo)

    def _note(self, where: dict[K, V], key: K) -> None:
        if key in where:
            before = where[key]
            self._undo.append(lambda: where.__setitem__(key, before))
        else:
            self._undo.append(lambda: where.pop(key, None))

    def _end(self) -> None:
        undo, self._undo = self._undo, []
        if self._is_doomed:
            for one in reversed(undo):
                one()
        self._is_doomed = False


class _Locks:
    """Shared and exclusive locks by name; re-entrant in a thread."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._changed = threading.Condition()
        self._held: dict[str, dict[int, list[bool]]] = {}  # name -> thread -> is_exclusive, innermost last

    @contextmanager
    def hold(self, name: str, *, exclusive: bool, wait_s: float) -> Iterator[None]:
        me = threading.get_ident()
        with self._changed:
            holders = self._held.setdefault(name, {})
            if not self._changed.wait_for(lambda: self._is_free(name, me, exclusive), min(wait_s, _SAY_AFTER_S)):
                rest_s = max(0.0, wait_s - _SAY_AFTER_S)
                if rest_s:
                    self._reporter.note(f"waiting for another thread to finish with the {name}")
                if not self._changed.wait_for(lambda: self._is_free(name, me, exclusive), rest_s):
                    raise StoreLocked(f"the {name} is in use by another thread; waited {wait_s:g} s")
            holders.setdefault(me, []).append(exclusive)
        try:
            yield
        finally:
            with self._changed:
                holders[me].pop()
                if not holders[me]:
                    del holders[me]
                self._changed.notify_all()

    def _is_free(self, name: str, me: int, exclusive: bool) -> bool:
        others = [kinds for thread, kinds in self._held[name].items() if thread != me]
        return not others if exclusive else not any(any(kinds) for kinds in others)
