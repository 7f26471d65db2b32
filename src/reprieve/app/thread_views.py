"""Threads as people and programs see them: found by name, told as JSON."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from reprieve.app.words import count
from reprieve.errors import BadRef, StoreCorrupted
from reprieve.model.thread import STATE, ThreadRecord
from reprieve.store.thread_sealed import raw_of
from reprieve.threads.diff import diff
from reprieve.threads.handoff import summary
from reprieve.threads.search import Hit
from reprieve.threads.threads import State, Threads
from reprieve.threads.verify import verify

# what a state's metadata says about how it came about
ORIGINS = ("rolled_back_from", "restored_from", "forked_from", "adopted_from", "adopted_sha256")


def rollback_command(thread: str, state: str, *options: str) -> str:
    """What a person types to take a thread to a state."""
    end = ("--",) if thread.startswith("-") else ()
    return shlex.join(("reprieve", "thread", "rollback", *options, *end, thread, state))


def find_thread(threads: Threads, id: str) -> ThreadRecord:
    """The thread of that id. Raises BadRef."""
    found = threads.record(id)
    if found is None:
        names = [record.id for record in threads.store.threads() if not record.is_deleted]
        raise BadRef(
            f"there is no thread '{id}'", details=names[:10], hints=["see which there are: reprieve thread list"]
        )
    return found


def find_state(threads: Threads, thread: str, ref: str = "") -> str:
    """The id of a state: by itself or a unique part of it, `head` (or nothing), `~N` for N states before the newest."""
    find_thread(threads, thread)
    head = threads.store.heads(thread).get("", "")
    if ref in ("", "head"):
        if not head:
            raise BadRef(f"the thread '{thread}' has no state")
        return head
    ids = [entry.id for entry in threads.store.states(thread, "")]
    if ref.startswith("~") and ref[1:].isdigit() and int(ref[1:]) < len(ids):
        return ids[int(ref[1:])]
    # ids begin with the time, so that those of one minute begin alike; their ends are what tells them apart
    matching = [id for id in ids if id == ref] or [id for id in ids if id.startswith(ref) or id.endswith(ref)]
    if len(matching) != 1:
        fact = "is ambiguous" if matching else "names no state"
        raise BadRef(
            f"'{ref}' {fact} of the thread '{thread}'",
            details=matching[:10],
            hints=["see its states: reprieve thread show " + thread],
        )
    return matching[0]


def thread_json(threads: Threads, record: ThreadRecord) -> dict[str, Any]:
    """A thread as a whole."""
    entries = raw_of(threads.store).entries(record.id, old=False)  # their bodies may be encrypted
    states = [entry for entry in entries if entry.kind == STATE]
    heads = threads.store.heads(record.id)
    return {
        "id": record.id,
        "head": heads.get("") or None,
        "states": len(states),
        "namespaces": sorted({entry.ns for entry in states}),
        "created_at": moment(record.created_at),
        "updated_at": moment(entries[-1].created_at if entries else record.created_at),
        "hash": record.hash.hex(),
    }


def states_json(threads: Threads, thread: str, *, limit: int = 0) -> Iterator[dict[str, Any]]:
    """The states of a thread, newest first, abandoned ones included."""
    heads = threads.store.heads(thread)
    for state in threads.history(thread, limit=limit):
        yield {**state_json(state), "is_head": heads.get(state.entry.ns) == state.id}


def state_json(state: State) -> dict[str, Any]:
    """A state without its values."""
    meta = state.meta
    return {
        "id": state.id,
        "namespace": state.entry.ns,
        "parent": state.entry.parent or None,
        "created_at": moment(state.entry.created_at),
        "source": meta.get("source"),
        "step": meta.get("step"),
        "pending_writes": len(state.writes),
        "files": state.body.get("files"),
        "summary": summary(state.values),
        **{name: meta[name] for name in ORIGINS if name in meta},
    }


def values_json(threads: Threads, thread: str, id: str) -> dict[str, Any]:
    """What a state holds."""
    state = threads.get(thread, id)
    if state is None:
        raise BadRef(f"the thread '{thread}' has no state '{id}'")
    return {name: _as_given(threads.parts.plain(reference)) for name, reference in state.values.items()}


def _as_given(plain: Any) -> Any:
    """An object with a key "$" is stored as pairs, since "$" marks types there; it is told as it was given."""
    if type(plain) is list:
        return [_as_given(item) for item in plain]
    if type(plain) is dict:
        pairs = plain.get("v")
        if plain.get("$") == "dict" and type(pairs) is list and all(type(key) is str for key, _ in pairs):
            return {key: _as_given(item) for key, item in pairs}
        return {key: _as_given(item) for key, item in plain.items()}
    return plain


def diff_json(threads: Threads, thread: str, before: str, after: str = "") -> dict[str, Any]:
    """What differs between two states, at every depth."""
    first, second = find_state(threads, thread, before), find_state(threads, thread, after)
    found = diff(values_json(threads, thread, first), values_json(threads, thread, second))
    differences = [{**one._asdict(), "path": list(one.path)} for one in found]
    return {"before": first, "after": second, "differences": differences}


def proof_json(threads: Threads, names: Sequence[str] = (), *, expect: str = "") -> dict[str, Any]:
    """What checking threads (default: all) found. Raises StoreCorrupted if anything is not as it was written."""
    names = names or [record.id for record in threads.store.threads() if not record.is_deleted]
    found = [verify(threads, name, expect=expect) for name in names]
    problems = [{"thread": one.thread, **problem._asdict()} for one in found for problem in one.problems] + [
        {"thread": None, "status": "tampered", "reason": line} for line in threads.store.problems()
    ]
    told = [
        {"id": v.thread, "ok": not v.problems, "states": v.states, "entries": v.entries, "hash": v.head,
         "content_checked": v.parts >= 0}
        for v in found
    ]  # fmt: skip
    if problems:
        raise StoreCorrupted(
            f"{count(len(problems), 'problem')} in {count(len(found), 'thread')}",
            details=[f"{p['thread'] or 'the database'}: {p['status']}: {p['reason']}" for p in problems[:20]],
            hints=["restore threads.db from a backup; what is not named here can be relied on"],
            data={"threads": told, "problems": problems},
        )
    return {"threads": told, "problems": []}


def hit_json(hit: Hit) -> dict[str, Any]:
    """A place where a text was found."""
    return {**hit._asdict(), "created_at": moment(hit.created_at)}


def moment(ns: int) -> str:
    """A time as JSON has it."""
    return datetime.fromtimestamp(ns // 1_000_000_000, UTC).isoformat().replace("+00:00", "Z")
