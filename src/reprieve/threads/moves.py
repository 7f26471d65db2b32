"""Make an earlier state the present one, or the beginning of another thread. Nothing is erased by any of it.

A state whose step was done is brought back as a *sibling*: a new state with the same parent. Not as its child, nor as a
child of the head: values that are rebuilt from the writes of ancestors would then contain the writes that are to be
undone. A state that waits (for an answer, or for the rest of its parallel tasks) becomes the head itself, because its
tasks are named after its id: under another one, what is finished would run again and the question would be lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from reprieve.errors import BadRef, Conflict, Refused, Usage
from reprieve.model.thread import ITEMS, MOVE, PRUNE, STATE, WRITES, ThreadEntry, ThreadRecord
from reprieve.store.thread_chain import FIRST_PREV
from reprieve.store.thread_sealed import raw_of
from reprieve.threads.ids import new_id
from reprieve.threads.threads import Story, Threads, Write, counts, writes_of
from reprieve.threads.values import loads

# channels with which a task asks, is answered, and says that it failed
INTERRUPT, RESUME, ERROR = "__interrupt__", "__resume__", "__error__"


class Moved(NamedTuple):
    """What a rollback or fork did."""

    thread: str
    id: str  # the head now
    target: str  # the state that it is
    before: str  # the head before, "" for a new thread
    writes: int  # kept with it: questions that wait, finished parallel work
    files: str  # the file checkpoint of that moment, "" if none is known

    @property
    def back(self) -> str:
        """The state that takes this back; "" if the thread was there before, and only lost what was answered since."""
        return self.before if self.before != self.target else ""


class _Point(NamedTuple):
    """A state, seen as something to go back to."""

    entry: ThreadEntry
    body: Mapping[str, Any]
    kept: tuple[Write, ...]
    cut: int  # writes on it from this seq on do not count, 0: none
    heads: Mapping[str, ThreadEntry | None]  # of the other namespaces at that moment
    waits: bool
    # States whose steps are done there (its ancestors, and itself if it waits), with the place on the chain of the one
    # that came of it: what was void by then does not count.
    before: Mapping[str, int]

    @property
    def files(self) -> str:
        """The file checkpoint that goes with it: of work that is kept, and so not done again, the one behind it."""
        linked = [write for write in self.kept if write.files]
        return max(linked, key=lambda write: write.seq).files if linked else str(self.body.get("files", ""))


def rollback(
    threads: Threads, thread: str, id: str, *, expect: str = "", keep_writes: bool | None = None, dry_run: bool = False
) -> Moved:
    """Make a state the head of its thread again. `expect`: only if that is the head now (else Conflict).

    `keep_writes`: whether what its tasks wrote stays with it; None: if it waits. `dry_run`: only see whether it can be
    done. Raises BadRef, Usage.
    """
    with threads.store.transaction():
        record, entries = _open(threads, thread)
        heads = threads.store.heads(thread)
        before = heads.get("", "")
        if expect and before != expect:
            raise Conflict(
                f"the thread '{thread}' moved on to {before} meanwhile; nothing was rolled back",
                hints=["look at it again: reprieve thread show " + thread],
                data={"head": before},
            )
        point = _point(threads, thread, threads.story(thread), entries, id, keep_writes)
        if id == before and not point.cut:
            raise Usage(f"{id} is the present state of the thread '{thread}'; there is nothing to take back")
        if dry_run:
            return Moved(thread, "", id, before, len(point.kept), point.files)
        head = id
        if not point.waits:
            head = new_id(max(e.id for e in entries if e.kind == STATE and e.ns == ""), clock=threads.clock)
            body = _sibling(point, threads, {"rolled_back_from": before, "restored_from": id})
            entry = threads.append(record, kind=STATE, ns="", id=head, parent=point.entry.parent, body=body)
            record = record._replace(seq=entry.seq, hash=entry.hash)
        moved = {"": head, **{ns: e.id if e else "" for ns, e in point.heads.items()}}
        void = [["", id, point.cut]] if point.waits and point.cut else []
        void += [[ns, e.id, _void_from(point, e)] for ns, e in point.heads.items() if e and heads.get(ns) != e.id]
        body = {"heads": moved, "void": void, "target": id, "before": before}
        threads.append(record, kind=MOVE, ns="", id=head, parent=before, body=body)
        threads.store.set_heads(thread, moved)
    return Moved(thread, head, id, before, len(point.kept), point.files)


def fork(
    threads: Threads,
    thread: str,
    id: str,
    new: str,
    *,
    into: Threads | None = None,
    up_to: int = 1 << 62,
    note: Mapping[str, str] | None = None,
    dry_run: bool = False,
) -> Moved:
    """Begin a new thread with a state, its ancestors and what belongs to them. `into`: in another store.

    `up_to`: as the source was at that entry. `dry_run`: only see whether it can be done. Raises BadRef, and Conflict
    if the new thread is not empty.
    """
    target = into or threads
    if naming_of(target) != naming_of(threads):
        raise Refused(
            "the two stores are not encrypted with one key, so a thread of one cannot continue in the other",
            hints=["open both with the same key"],
        )
    with threads.store.transaction():
        _, entries = _open(threads, thread)
        entries = [entry for entry in entries if entry.seq <= up_to]
        story = threads.story(thread)
        story = story._replace(voids=tuple(void for void in story.voids if void.end <= up_to))
        point = _point(threads, thread, story, entries, id, None)
        if dry_run:
            _must_be_free(target, new)
            return Moved(new, "", id, "", len(point.kept), point.files)
        rows = list(_lineage(threads, story, entries, point))
        note = note or {"forked_from": f"{thread}:{id}"}
        if point.waits:
            files = {"files": point.files} if point.files else {}
            rows.append((point.entry, {**point.body, **files, "meta": {**point.body["meta"], **note}}, point.kept))
            head = id
        else:
            head = new_id(max(e.id for e in entries if e.kind == STATE and e.ns == ""), clock=threads.clock)
            rows.append((point.entry._replace(id=head), _sibling(point, threads, note), ()))
        grafts = story.grafts
        with target.store.transaction():
            record = _empty(target, new)
            bodies: list[Mapping[str, Any]] = []
            for entry, body, writes in rows:
                body = {key: value for key, value in body.items() if key != "as_of"}
                bodies.append(body)
                record = _add(target, record, STATE, entry.ns, entry.id, entry.parent, body)
                for said in _grouped(writes):
                    bodies.append(said)
                    record = _add(target, record, WRITES, entry.ns, entry.id, "", said)
            heads = {"": head, **{ns: e.id for ns, e in point.heads.items() if e}}
            kept = {f"{e.ns}\0{e.id}" for e, _, _ in rows}
            mine = {key: value for key, value in grafts.items() if key in kept}
            if f"\0{id}" in grafts:
                mine[f"\0{head}"] = grafts[f"\0{id}"]
            if mine:
                body = {"heads": heads, "voids": [], "grafts": mine, "removed": []}
                bodies.append(body)
                record = _add(target, record, PRUNE, "", "", "", body)
            target.store.set_heads(new, heads)
            needed = list(threads.parts.reach(references(bodies)))
            target.store.put_parts(new, threads.parts.bodies(needed))
    return Moved(new, head, id, "", len(point.kept), point.files)


def copy(threads: Threads, source: str, target: str) -> None:
    """All of a thread as another one, abandoned states included. One that is not there has nothing to copy."""
    with threads.store.transaction():
        if threads.record(source) is None:
            return
        # what the source's steps did to a store stays theirs to take back
        entries = [entry for entry in threads.store.entries(source, old=False) if entry.kind != ITEMS]
        record = _empty(threads, target)
        places: list[tuple[int, int]] = []  # where an entry was, and is

        def place(seq: int) -> int:
            """The new place of what was at, or first behind, an old one."""
            return next((new for old, new in places if old >= seq), record.seq + 1)

        for entry in entries:
            body = loads(entry.body)
            if entry.kind == STATE and "as_of" in body:
                body["as_of"] = place(body["as_of"])
            elif entry.kind == MOVE:
                body["void"] = [[ns, id, place(start)] for ns, id, start in body["void"]]
            elif entry.kind == PRUNE:
                body["voids"] = [[ns, id, place(start), place(end)] for ns, id, start, end in body["voids"]]
                body["removed"] = []
            record = _add(threads, record, entry.kind, entry.ns, entry.id, entry.parent, body)
            places.append((entry.seq, record.seq))
        threads.store.set_heads(target, threads.store.heads(source))
        threads.store.share_parts(source, target)


def references(bodies: Sequence[Mapping[str, Any]]) -> list[Any]:
    """All references in bodies of entries, of any kind."""
    found: list[Any] = []
    for body in bodies:
        found += body.get("values", {}).values()
        found += [value for _, _, value in body.get("w", ())]
        found += [value for item in body.get("items", ()) for value in item[2:] if value is not None]
        for graft in body.get("grafts", {}).values():
            for channel in graft.values():
                found += [value for _, value in channel["writes"]]
                if "seed" in channel:
                    found.append(channel["seed"])
    return found


def point_of(threads: Threads, thread: str, id: str) -> tuple[_Point, list[ThreadEntry]]:
    """A state as a point to go back to, and the thread's entries. Raises BadRef."""
    _, entries = _open(threads, thread)
    return _point(threads, thread, threads.story(thread), entries, id, None), entries


def naming_of(threads: Threads) -> str:
    """What tells how the parts of a store are named."""
    return raw_of(threads.store).mark()


def _open(threads: Threads, thread: str) -> tuple[ThreadRecord, list[ThreadEntry]]:
    record = threads.record(thread)
    if record is None:
        raise BadRef(f"there is no thread '{thread}'", hints=["see which there are: reprieve thread list"])
    return record, threads.store.entries(thread, old=False)


def _must_be_free(threads: Threads, thread: str) -> ThreadRecord | None:
    record = threads.store.thread(thread)
    if record is not None and not record.is_deleted and record.seq:
        raise Conflict(f"there is a thread '{thread}' already; nothing was changed", hints=["choose another name"])
    return record


def _empty(threads: Threads, thread: str) -> ThreadRecord:
    record = _must_be_free(threads, thread)
    if record is None:
        record = ThreadRecord(thread, 0, FIRST_PREV, threads.clock())
        threads.store.save_thread(record)
    elif record.is_deleted:
        record = record._replace(is_deleted=False)
        threads.store.save_thread(record)
    return record


def _add(
    threads: Threads, record: ThreadRecord, kind: str, ns: str, id: str, parent: str, body: Mapping[str, Any]
) -> ThreadRecord:
    entry = threads.append(record, kind=kind, ns=ns, id=id, parent=parent, body=body)
    return record._replace(seq=entry.seq, hash=entry.hash)


def _point(
    threads: Threads, thread: str, story: Story, entries: Sequence[ThreadEntry], id: str, keep_writes: bool | None
) -> _Point:
    states = [e for e in entries if e.kind == STATE]
    target = next((e for e in states if e.ns == "" and e.id == id), None)
    if target is None:
        raise BadRef(
            f"the thread '{thread}' has no state '{id}'", hints=["see its states: reprieve thread show " + thread]
        )
    raw = writes_of(e for e in entries if e.ns == "" and e.id == id)
    writes = threads.visible(raw, "", id, story)
    cut = 0
    if keep_writes is None and any(e.parent == id for e in states if e.ns == ""):
        # its step was done, and the writes are what it did; before the answer to a question they are what waited
        cut = min(_answers(threads, story, entries, id), default=0)
        # not answered, or not any more: it still waits
        early = threads.visible([w for w in raw if w.seq < cut], "", id, story) if cut else writes
        writes = early if any(w.channel == INTERRUPT for w in early) else []
    elif keep_writes is False:
        writes = []
    waits = bool(writes)
    by_id = {e.id: e for e in states if e.ns == ""}
    before: dict[str, int] = {id: cut or 1 << 62} if waits else {}
    child, at = target, by_id.get(target.parent)
    while at is not None and at.id not in before:
        before[at.id] = loads(child.body).get("as_of", child.seq)
        child, at = at, by_id.get(at.parent)
    heads: dict[str, ThreadEntry | None] = {e.ns: None for e in states if e.ns != ""}
    for entry in states:
        if entry.ns == "" or (waits and cut and entry.seq > cut):
            continue
        of = _parent_step(entry)
        if of is None:
            is_part = entry.seq <= target.seq
        else:
            # not those that came of an answer which was taken back
            voids = [void for void in story.voids if void.id == of and void.ns == ""]
            is_part = of in before and counts(entry.seq, voids, before[of])
        if is_part:
            heads[entry.ns] = entry
    return _Point(target, loads(target.body), tuple(writes), cut if waits else 0, heads, waits, before)


def _answers(threads: Threads, story: Story, entries: Sequence[ThreadEntry], id: str) -> list[int]:
    """Where the questions of a state were answered: on itself, or on states that its step made in other namespaces.

    One that asks from a subgraph may be answered there alone; and what a run stores beside its next step is stored in
    any order.
    """
    raw: dict[tuple[str, str], list[ThreadEntry]] = {("", id): []}
    for entry in entries:
        if entry.kind == STATE and entry.ns and _parent_step(entry) == id:
            raw.setdefault((entry.ns, entry.id), [])
    for entry in entries:
        if entry.kind == WRITES and (entry.ns, entry.id) in raw:
            raw[entry.ns, entry.id].append(entry)
    found = []
    for key, said in raw.items():
        found += [w.seq for w in threads.visible(writes_of(said), *key, story) if w.channel == RESUME]
    return found


def _parent_step(entry: ThreadEntry) -> str | None:
    """The state whose step made this one in another namespace, if it says so."""
    found: str | None = loads(entry.body)["meta"].get("parents", {}).get("")
    return found


def _void_from(point: _Point, entry: ThreadEntry) -> int:
    """From where on the writes on another namespace's new head do not count."""
    return point.cut if point.waits and point.cut else entry.seq


def _sibling(point: _Point, threads: Threads, note: Mapping[str, str]) -> dict[str, Any]:
    body = dict(point.body)
    # what its parent's tasks had written counts as it did for the original
    body["as_of"] = body.get("as_of", point.entry.seq)
    body["meta"] = {**body["meta"], "source": "fork", **note}
    if "ts" in body["extra"]:
        now = datetime.fromtimestamp(threads.clock() / 1e9, UTC)
        body["extra"] = {**body["extra"], "ts": now.isoformat()}
    return body


def _lineage(
    threads: Threads, story: Story, entries: Sequence[ThreadEntry], point: _Point
) -> list[tuple[ThreadEntry, Mapping[str, Any], Sequence[Write]]]:
    """The ancestors of a point, and those of the other namespaces' heads with them, in the order of the chain."""
    states = {(e.ns, e.id): e for e in entries if e.kind == STATE}
    raw: dict[tuple[str, str], list[ThreadEntry]] = {}
    for said in entries:
        if said.kind == WRITES:
            raw.setdefault((said.ns, said.id), []).append(said)
    found: dict[tuple[str, str], tuple[ThreadEntry, Mapping[str, Any], Sequence[Write]]] = {}
    for tip in (point.entry, *(head for head in point.heads.values() if head)):
        entry: ThreadEntry | None = tip
        child_at = 0
        while entry is not None and (entry.ns, entry.id) not in found:
            key = (entry.ns, entry.id)
            body = loads(entry.body)
            writes: Sequence[Write] = ()
            if child_at:
                writes = threads.visible(writes_of(raw.get(key, ())), *key, story, child_at)
            elif entry is not point.entry and point.waits:
                kept = [w for w in writes_of(raw.get(key, ())) if not point.cut or w.seq < point.cut]
                writes = threads.visible(kept, *key, story)
            found[key] = (entry, body, writes)
            child_at = body.get("as_of", entry.seq)
            entry = states.get((entry.ns, entry.parent)) if entry.parent else None
    found.pop((point.entry.ns, point.entry.id))  # the caller's to add
    return sorted(found.values(), key=lambda row: row[0].seq)


def _grouped(writes: Sequence[Write]) -> list[Mapping[str, Any]]:
    """Bodies of entries that say these writes, one for each task."""
    by_task: dict[tuple[str, str], list[list[Any]]] = {}
    for write in writes:
        by_task.setdefault((write.task, write.path), []).append([write.slot, write.channel, write.value])
    return [{"task": task, "path": path, "w": said} for (task, path), said in by_task.items()]
