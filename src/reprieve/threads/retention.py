"""Give up what is no longer needed, and prove that nothing else went.

Removed entries leave a gap in the chain. The entry that says so (kind `prune`) records each gap with the hashes on its
two sides, so the chain stays provable; it also carries what the removed entries were needed for: heads, void writes,
and *grafts*, the histories of channels that a kept state had from its removed ancestors.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from reprieve.model.thread import ITEMS, PRUNE, STATE, WRITES, ThreadEntry, ThreadRecord
from reprieve.store.thread_chain import FIRST_PREV
from reprieve.threads.delta import Deltas
from reprieve.threads.moves import references
from reprieve.threads.threads import Threads
from reprieve.threads.values import loads


class Pruned(NamedTuple):
    """What was given up, or would be."""

    states: int
    entries: int
    parts: int


def prune(threads: Threads, thread: str, *, keep: int = 1, dry_run: bool = False) -> Pruned:
    """Keep the head and the newest `keep` states of each namespace. A thread that is not there has nothing to prune."""

    def choose(states: Sequence[ThreadEntry], heads: Collection[str]) -> set[str]:
        by_ns: dict[str, list[str]] = {}
        for entry in states:
            by_ns.setdefault(entry.ns, []).append(f"{entry.ns}\0{entry.id}")
        newest = {key for keys in by_ns.values() for key in (keys[-keep:] if keep > 1 else ())}
        # a namespace that a rollback left empty keeps nothing
        return newest | set(heads)

    found = _keep(threads, thread, choose, dry_run=dry_run)
    if not dry_run:
        threads.store.settle()
    return found


def delete_runs(threads: Threads, runs: Collection[str]) -> int:
    """Remove the states that these runs made, in all threads, with what was written on them; how many."""
    gone = 0
    for record in threads.store.threads():

        def choose(states: Sequence[ThreadEntry], heads: Collection[str]) -> set[str]:
            return {f"{e.ns}\0{e.id}" for e in states if loads(e.body)["meta"].get("run_id") not in runs}

        gone += _keep(threads, record.id, choose, only_if_less=True).states
    threads.store.settle()
    return gone


def delete(threads: Threads, thread: str) -> bool:
    """Remove a thread with all that it holds. What a run under way still writes to it is refused from now on."""
    with threads.store.transaction():
        record = threads.record(thread)
        if record is None:
            return False
        threads.store.clear_thread(thread)
        removed = [[1, record.seq, FIRST_PREV.hex(), record.hash.hex()]] if record.seq else []
        body = {"heads": {}, "voids": [], "grafts": {}, "removed": removed, "deleted": True}
        entry = threads.append(record, kind=PRUNE, ns="", id="", parent="", body=body)
        threads.store.save_thread(
            record._replace(seq=entry.seq, hash=entry.hash, deleted_at=entry.created_at, is_deleted=True)
        )
    threads.store.settle()
    return True


def _keep(
    threads: Threads,
    thread: str,
    choose: Callable[[Sequence[ThreadEntry], Collection[str]], set[str]],
    *,
    dry_run: bool = False,
    only_if_less: bool = False,
) -> Pruned:
    with threads.store.transaction():
        record = threads.record(thread)
        if record is None:
            return Pruned(0, 0, 0)
        entries = threads.store.entries(thread)
        states = [e for e in entries if e.kind == STATE and e.is_current]
        heads = threads.store.heads(thread)
        keys = {f"{e.ns}\0{e.id}" for e in states}
        kept = choose(states, {f"{ns}\0{id}" for ns, id in heads.items() if id}) & keys
        gone = [
            e
            for e in entries
            if (f"{e.ns}\0{e.id}" not in kept or not e.is_current if e.kind == STATE else True)
            # writes may come before their state: those of a state that never was are kept
            and not (e.kind in (WRITES, ITEMS) and (f"{e.ns}\0{e.id}" in kept or f"{e.ns}\0{e.id}" not in keys))
        ]
        lost = len(keys - kept)
        if dry_run or not (lost or (gone and not only_if_less)):
            return Pruned(lost, len(gone), 0)
        heads = {ns: _new_head(ns, id, kept, states) for ns, id in heads.items()}
        body = {
            "heads": heads,
            "voids": [list(void) for void in threads.story(thread).voids if f"{void.ns}\0{void.id}" in kept],
            "grafts": _grafts(threads, thread, states, kept),
        }
        dropped = {e.seq for e in gone}
        left = [e for e in entries if e.seq not in dropped]
        _finish(threads, record, left, dropped, body)
        live = threads.parts.reach(references([body, *(loads(e.body) for e in left)]))
        parts = threads.store.keep_parts(thread, live)
    return Pruned(lost, len(gone), parts)


def _finish(
    threads: Threads, record: ThreadRecord, left: Sequence[ThreadEntry], dropped: set[int], body: dict[str, Any]
) -> None:
    gaps = []
    seq, hash = 0, FIRST_PREV
    for entry in left:
        if entry.seq != seq + 1:
            gaps.append([seq + 1, entry.seq - 1, hash.hex(), entry.prev.hex()])
        seq, hash = entry.seq, entry.hash
    if seq != record.seq:
        gaps.append([seq + 1, record.seq, hash.hex(), record.hash.hex()])
    threads.store.drop(record.id, dropped)
    threads.append(record, kind=PRUNE, ns="", id="", parent="", body={**body, "removed": gaps})
    threads.store.set_heads(record.id, body["heads"])


def _new_head(ns: str, id: str, kept: set[str], states: Sequence[ThreadEntry]) -> str:
    """The head, or its nearest ancestor that is kept, or the newest state that is."""
    mine = {e.id: e for e in states if e.ns == ns}
    at, seen = id, set[str]()
    while at in mine and at not in seen:
        if f"{ns}\0{at}" in kept:
            return at
        seen.add(at)
        at = mine[at].parent
    return next((e.id for e in reversed(states) if e.ns == ns and f"{ns}\0{e.id}" in kept), "") if id else ""


def _grafts(
    threads: Threads, thread: str, states: Sequence[ThreadEntry], kept: set[str]
) -> Mapping[str, Mapping[str, Any]]:
    old = threads.story(thread).grafts
    deltas = Deltas(threads)
    made: dict[str, Mapping[str, Any]] = {}
    for entry in states:
        key = f"{entry.ns}\0{entry.id}"
        if key not in kept:
            continue
        if key in old:
            made[key] = old[key]
        elif entry.parent and f"{entry.ns}\0{entry.parent}" not in kept:
            channels = loads(entry.body)["meta"].get("counters_since_delta_snapshot") or {}
            found = deltas.find(thread, entry.ns, entry.id, list(channels))
            made[key] = {
                channel: {
                    "writes": [list(write) for write in history.writes],
                    **({} if history.seed is None else {"seed": history.seed}),
                }
                for channel, history in found.items()
            }
    return made
