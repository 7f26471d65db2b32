"""Prove a thread: every entry is what was written, where it was written, and none is missing but those given up.

*missing* and *tampered* are told apart: a row or a part that is gone may be a lost page or an old copy; one that does
not fit its hash was changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from reprieve.errors import BadRef, ReprieveError
from reprieve.model.thread import MOVE, PRUNE, STATE, ThreadEntry
from reprieve.store.thread_chain import FIRST_PREV, is_sound
from reprieve.store.thread_protocol import ThreadStore
from reprieve.store.thread_sealed import SealedThreads, raw_of, readable
from reprieve.threads.moves import references
from reprieve.threads.threads import Threads
from reprieve.threads.values import loads

MISSING, TAMPERED = "missing", "tampered"
_PAGE = 400


class Problem(NamedTuple):
    """Something that is not as it was written."""

    status: str
    seq: int
    id: str  # of the state, "" if it is not about one
    reason: str


class Verdict(NamedTuple):
    """What was found in a whole thread."""

    thread: str
    entries: int
    states: int
    parts: int  # -1: they are encrypted, and without the key they cannot be looked at
    head: str  # hash of the newest entry: keep it elsewhere, and a thread cut at its end shows too
    problems: tuple[Problem, ...]


def verify(threads: Threads, thread: str, *, expect: str = "") -> Verdict:
    """Check a thread. `expect`: the hash of an entry, as an earlier call returned it, that must still be there.

    Raises BadRef if there is no such thread.
    """
    record = threads.store.thread(thread)
    if record is None:
        raise BadRef(f"there is no thread '{thread}'", hints=["see which there are: reprieve thread list"])
    entries = raw_of(threads.store).entries(thread)
    problems = list(_chain(thread, entries))
    last = entries[-1] if entries else None
    if record.seq > (last.seq if last else 0):
        problems.append(Problem(MISSING, record.seq, "", "the newest entries are missing"))
    elif last is not None and (record.seq, record.hash) != (last.seq, last.hash):
        problems.append(Problem(TAMPERED, last.seq, last.id, "the thread's record names another newest entry"))
    if not problems:
        problems += _derived(threads, thread, entries)
    parts = -1
    if not isinstance(threads.store, SealedThreads) or threads.store.cipher is not None:
        inspector = _Inspector(threads, thread)
        problems += _parts(inspector, threads.store, thread, entries)
        parts = inspector.parts
    if expect and expect not in {entry.hash.hex() for entry in entries} | set(_removed_hashes(entries)):
        reason = f"no entry has the hash {expect[:16]}…: the thread was cut or replaced"
        problems.append(Problem(MISSING, 0, "", reason))
    states = sum(entry.kind == STATE and entry.is_current for entry in entries)
    return Verdict(thread, len(entries), states, parts, record.hash.hex(), tuple(problems))


def _chain(thread: str, entries: list[ThreadEntry]) -> Iterator[Problem]:
    gaps = {(gap[0], gap[1]): (gap[2], gap[3]) for gap in _gaps(thread, entries)}
    seq, hash = 0, FIRST_PREV
    for entry in entries:
        if entry.seq != seq + 1:
            known = gaps.get((seq + 1, entry.seq - 1))
            if known is None:
                yield Problem(MISSING, seq + 1, "", f"entries {seq + 1} to {entry.seq - 1} are missing")
            elif known != (hash.hex(), entry.prev.hex()):
                yield Problem(TAMPERED, entry.seq, entry.id, "does not follow what was pruned before it")
        elif entry.prev != hash:
            yield Problem(TAMPERED, entry.seq, entry.id, "does not follow the entry before it")
        if not is_sound(thread, entry):
            yield Problem(TAMPERED, entry.seq, entry.id, f"this {entry.kind} is not what was written")
        seq, hash = entry.seq, entry.hash


def _gaps(thread: str, entries: list[ThreadEntry]) -> list[list[Any]]:
    """Of the newest prune that is what was written; it knows all gaps before it."""
    for entry in reversed(entries):
        if entry.kind == PRUNE and is_sound(thread, entry):
            gaps: list[list[Any]] = readable(entry.body)["removed"]
            return gaps
    return []


def _removed_hashes(entries: list[ThreadEntry]) -> Iterator[str]:
    for entry in entries:
        if entry.kind == PRUNE:
            yield from (gap[3] for gap in readable(entry.body)["removed"])


def _derived(threads: Threads, thread: str, entries: list[ThreadEntry]) -> Iterator[Problem]:
    """What the tables say beside the chain must be what the chain says."""
    heads: dict[str, str] = {}
    newest: dict[tuple[str, str], int] = {}
    for entry in entries:
        if entry.kind == STATE:
            if (entry.ns, entry.id) not in newest:
                heads[entry.ns] = entry.id
            newest[entry.ns, entry.id] = entry.seq
        elif entry.kind == MOVE:
            heads.update(readable(entry.body)["heads"])
        elif entry.kind == PRUNE:
            heads = dict(readable(entry.body)["heads"])
    if heads != threads.store.heads(thread):
        yield Problem(TAMPERED, 0, "", "the heads are not those that the entries say")
    for entry in entries:
        if entry.kind == STATE and entry.is_current != (newest[entry.ns, entry.id] == entry.seq):
            yield Problem(TAMPERED, entry.seq, entry.id, "is marked as another state's replacement")


class _Inspector:
    """Looks at every part of a thread once, and knows of every reference whether all that it needs is there."""

    def __init__(self, threads: Threads, thread: str) -> None:
        self._store, self._name = threads.store, threads.parts.name
        self._status: dict[bytes, str] = {}
        self._inner: dict[bytes, bytes] = {}  # bodies of the parts that refer to others
        hashes = self._store.part_hashes(thread)
        for start in range(0, len(hashes), _PAGE):
            self._look(hashes[start : start + _PAGE])

    @property
    def parts(self) -> int:
        return len(self._status)

    def judge(self, reference: Any) -> str:
        """ "" if all is well, else missing or tampered."""
        if type(reference) is list:
            return ""
        if type(reference) is str:
            return self._check(bytes.fromhex(reference))
        if "l" in reference:
            return self._worst(map(self.judge, reference["l"]))
        if "w" in reference:
            return self.judge(reference["r"])
        hash = bytes.fromhex(reference.get("n") or reference["d"])
        found = self._check(hash)
        if found or hash not in self._inner:
            return found
        body = self._inner.pop(hash)  # once: from now on the status says it
        if "d" in reference:
            self._status[hash] = self._worst(map(self.judge, loads(body[1:]).values()))
        else:
            below = [body[at : at + 32] for at in range(2, len(body), 32)]
            deeper = self._check if body[1] == 0 else lambda one: self.judge({"n": one.hex()})
            self._status[hash] = self._worst(map(deeper, below))
        return self._status[hash]

    def _check(self, hash: bytes) -> str:
        if hash not in self._status:
            self._look([hash])
        return self._status[hash]

    def _look(self, hashes: list[bytes]) -> None:
        bodies = self._store.parts(hashes)
        for hash in hashes:
            body = bodies.get(hash)
            self._status[hash] = MISSING if body is None else "" if self._name(body) == hash else TAMPERED
            if body is not None and body[:1] in (b"N", b"D"):
                self._inner[hash] = body

    def _worst(self, found: Iterable[str]) -> str:
        every = set(found)
        return TAMPERED if TAMPERED in every else MISSING if MISSING in every else ""


def _parts(inspector: _Inspector, store: ThreadStore, thread: str, entries: list[ThreadEntry]) -> Iterator[Problem]:
    for entry in entries:
        try:
            body = loads(store.key().open(thread, entry).body if isinstance(store, SealedThreads) else entry.body)
            bad = {inspector.judge(reference) for reference in references([body])} - {""}
        except (ReprieveError, KeyError, TypeError, ValueError, AttributeError) as exc:
            yield Problem(TAMPERED, entry.seq, entry.id, f"cannot be read: {exc}")
            continue
        for status in sorted(bad):
            yield Problem(status, entry.seq, entry.id, f"a part of this {entry.kind} is {status}")
