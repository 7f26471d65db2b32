"""Threads that live as long as the process: for short sessions and tests, all guarantees but durability."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from threading import RLock

from reprieve.errors import StoreFailed
from reprieve.model.thread import STATE, WRITES, ThreadEntry, ThreadRecord


class _Thread:
    def __init__(self, record: ThreadRecord) -> None:
        self.record = record
        self.entries: dict[int, ThreadEntry] = {}  # by seq, in order
        self.by_id: dict[tuple[str, str], list[int]] = {}  # (ns, id): seqs
        self.heads: dict[str, str] = {}
        self.uses: set[bytes] = set()


class MemoryThreads:
    """A store of threads in memory."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._threads: dict[str, _Thread] = {}
        self._parts: dict[bytes, bytes] = {}
        self._depth = 0
        self._undo: list[Callable[[], object]] = []  # how to take back what a transaction did, oldest first
        self.sweeps = 0
        self._mark = ""

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing; one thread at a time."""
        with self._lock:
            self._depth += 1
            try:
                yield
            except BaseException:
                while self._undo:
                    self._undo.pop()()
                raise
            finally:
                self._depth -= 1
                if not self._depth:
                    self._undo = []

    def mark(self) -> str:
        """What `set_mark` said."""
        return self._mark

    def set_mark(self, text: str) -> None:
        """Keep a word about the whole."""
        self._mark = text

    def thread(self, id: str) -> ThreadRecord | None:
        """The record of a thread, deleted or not."""
        with self._lock:
            found = self._threads.get(id)
            return found.record if found else None

    def threads(self) -> list[ThreadRecord]:
        """All of them, oldest first."""
        with self._lock:
            return sorted((one.record for one in self._threads.values()), key=lambda record: record.created_at)

    def save_thread(self, record: ThreadRecord) -> None:
        """Insert or update by id."""
        with self.transaction():
            one = self._threads.get(record.id)
            if one is None:
                self._threads[record.id] = _Thread(record)
                self._undo.append(lambda: self._threads.pop(record.id))
            else:
                self._undo.append(partial(setattr, one, "record", one.record))
                one.record = record

    def clear_thread(self, id: str) -> None:
        """Remove everything but the record."""
        with self.transaction():
            one = self._one(id)
            for name in ("entries", "by_id", "heads"):
                self._undo.append(partial(setattr, one, name, getattr(one, name)))
                setattr(one, name, {})
            self.keep_parts(id, set())

    def append(self, thread: str, entry: ThreadEntry) -> None:
        """Add an entry at the end of a thread that has a record."""
        with self.transaction():
            one = self._one(thread)
            seqs = one.by_id.setdefault((entry.ns, entry.id), [])
            for seq in seqs:
                before = one.entries[seq]
                if entry.kind == STATE == before.kind and before.is_current:
                    self._undo.append(partial(one.entries.__setitem__, seq, before))
                    one.entries[seq] = before._replace(is_current=False)
            self._undo += [
                partial(setattr, one, "record", one.record),
                partial(one.entries.pop, entry.seq),
                partial(seqs.remove, entry.seq),
            ]
            seqs.append(entry.seq)
            one.entries[entry.seq] = entry
            one.record = one.record._replace(seq=entry.seq, hash=entry.hash)

    def entries(
        self, thread: str, *, kinds: Sequence[str] = (), ns: str | None = None, after: int = 0, old: bool = True
    ) -> list[ThreadEntry]:
        """Oldest first."""
        with self._lock:
            return [
                e
                for e in self._all(thread)
                if e.seq > after
                and (not kinds or e.kind in kinds)
                and (ns is None or e.ns == ns)
                and (old or e.is_current)
            ]

    def about(self, thread: str, ns: str, ids: Sequence[str]) -> list[ThreadEntry]:
        """The current state and the writes of each."""
        with self._lock:
            one = self._threads.get(thread)
            if one is None:
                return []
            found = [one.entries[seq] for id in dict.fromkeys(ids) for seq in one.by_id.get((ns, id), ())]
            return sorted(e for e in found if e.is_current and e.kind in (STATE, WRITES))

    def states(
        self, thread: str, ns: str | None, *, limit: int = 0, before_seq: int = 0, before_id: str = ""
    ) -> list[ThreadEntry]:
        """Current states, newest first."""
        found = [
            e
            for e in reversed(self.entries(thread, kinds=(STATE,), ns=ns, old=False))
            if (not before_seq or e.seq < before_seq) and (not before_id or e.id < before_id)
        ]
        return found[:limit] if limit else found

    def seq_of(self, thread: str, ns: str, id: str) -> int:
        """0 if there is no such state."""
        return next((e.seq for e in self.about(thread, ns, [id]) if e.kind == STATE), 0)

    def drop(self, thread: str, seqs: Iterable[int]) -> None:
        """Remove entries."""
        with self.transaction():
            one = self._one(thread)
            gone = set(seqs)
            self._undo += [partial(setattr, one, name, getattr(one, name)) for name in ("entries", "by_id")]
            one.entries = {seq: entry for seq, entry in one.entries.items() if seq not in gone}
            one.by_id = {}
            for entry in one.entries.values():
                one.by_id.setdefault((entry.ns, entry.id), []).append(entry.seq)

    def heads(self, thread: str) -> dict[str, str]:
        """By namespace."""
        with self._lock:
            one = self._threads.get(thread)
            return dict(one.heads) if one else {}

    def set_heads(self, thread: str, heads: Mapping[str, str]) -> None:
        """Insert or replace; others stay."""
        with self.transaction():
            one = self._one(thread)
            self._undo.append(partial(setattr, one, "heads", one.heads))
            one.heads = {**one.heads, **heads}

    def put_parts(self, thread: str, parts: Mapping[bytes, bytes]) -> None:
        """Keep parts for a thread."""
        with self.transaction():
            one = self._one(thread)
            for hash, body in parts.items():
                if hash not in one.uses:
                    one.uses.add(hash)
                    self._undo.append(partial(one.uses.discard, hash))
                if hash not in self._parts:
                    self._parts[hash] = body
                    self._undo.append(partial(self._parts.pop, hash))

    def share_parts(self, source: str, target: str) -> None:
        """Keep all parts of source for target too."""
        with self.transaction():
            one = self._one(target)
            self._undo.append(partial(setattr, one, "uses", one.uses))
            one.uses = one.uses | self._one(source).uses

    def parts(self, hashes: Sequence[bytes]) -> dict[bytes, bytes]:
        """Those that are there."""
        with self._lock:
            return {hash: self._parts[hash] for hash in hashes if hash in self._parts}

    def part_hashes(self, thread: str) -> list[bytes]:
        """Of all parts kept for a thread."""
        with self._lock:
            one = self._threads.get(thread)
            return sorted(one.uses) if one else []

    def keep_parts(self, thread: str, live: set[bytes]) -> int:
        """Let go of all others."""
        with self.transaction():
            one = self._one(thread)
            gone = one.uses - live
            self._undo.append(partial(setattr, one, "uses", one.uses))
            one.uses = one.uses & live
            for hash in gone:
                if not any(hash in other.uses for other in self._threads.values()):
                    self._undo.append(partial(self._parts.__setitem__, hash, self._parts.pop(hash)))
            self.sweeps += 1
        return len(gone)

    def problems(self) -> list[str]:
        """Nothing can be wrong with tables that are none."""
        return []

    def settle(self) -> None:
        """What was removed from memory is gone."""

    def compact(self) -> None:
        """Memory has nothing to give back to a disk."""

    def close(self) -> None:
        """Forget everything."""
        self._threads, self._parts = {}, {}

    def _all(self, thread: str) -> list[ThreadEntry]:
        one = self._threads.get(thread)
        return list(one.entries.values()) if one else []

    def _one(self, thread: str) -> _Thread:
        one = self._threads.get(thread)
        if one is None:
            raise StoreFailed(f"there is no thread {thread!r}")
        return one
