"""Care for the store: give up old checkpoints, free bytes, forget content, prove that all is whole."""

from __future__ import annotations

import os
from itertools import pairwise

from reprieve.app.persons import caller
from reprieve.app.refs import checkpoints
from reprieve.errors import Partial, Refused, StoreCorrupted, StoreFailed, Usage
from reprieve.files import tree
from reprieve.files.reachable import contents_of, live_objects, survey
from reprieve.model.chunks import HOLE, decode_chunks
from reprieve.model.timeline import FORGET, MOVES, PRUNE, Draft, TimelineEntry
from reprieve.model.value import Value
from reprieve.rollback.intent import decode_intent
from reprieve.store.ballast import give_way, make_ballast, room
from reprieve.store.collect import occupied
from reprieve.store.faults import is_full

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from reprieve.app.workspace import Workspace

    T = TypeVar("T")

_AMPLE = 16 << 20  # room with which a change of the timeline does not fail for want of it
_THE_REST = "free the rest: reprieve gc"
_DAY_NS = 86_400_000_000_000
_JUMP_NS = 400 * _DAY_NS  # two entries further apart than this: the clock jumped, ages mean nothing


class Pruned(Value):
    """Entries whose trees were, or would be, given up."""

    entries: tuple[TimelineEntry, ...]
    kept: int
    objects: int = 0
    bytes: int = 0


class Forgotten(Value):
    """Content that is gone from the store, and where else the same content is still kept."""

    objects: int
    bytes: int
    checkpoints: int
    remaining: tuple[str, ...] = ()


class Verified(Value):
    """What was looked at, and what is wrong."""

    objects: int
    entries: int
    problems: tuple[str, ...]


def prune(ws: Workspace, *, keep_last: int, keep_days: int, max_bytes: int = 0, dry_run: bool = False) -> Pruned:
    """Delete the trees of old entries and free their space. Pinned and named ones, and the newest one, always stay.

    If that fails nothing has changed, but for Partial: the trees are gone, and not all of their space is free yet.
    """

    def plan() -> Pruned:
        ws._recover()
        old = _outdated(ws, keep_last, keep_days)
        if max_bytes:
            old = _until_small(ws, old, max_bytes)
        gone = {e.seq for e in old}
        return Pruned(tuple(old), sum(1 for e in checkpoints(ws.timeline) if e.seq not in gone))

    def attempt(*, at_once: bool) -> Pruned:
        with ws.store.gc_lock(), ws.store.lock(ws.id):
            planned = plan()
            if not planned.entries:
                return planned
            with ws.store.transaction():
                _give_up(ws, list(planned.entries))
                live = _live(ws)
                dropped = ws.store.blobs.drop(live) if at_once else 0
            objects, freed = _collect(ws, live, dropped, f"deleted {len(planned.entries)} old entries", _THE_REST)
        make_ballast(ws.home)
        return planned.replace(objects=objects, bytes=freed)

    if dry_run:
        with ws.store.lock(ws.id):
            return plan()
    return _even_on_a_full_disk(ws, attempt)


def count_outdated(ws: Workspace) -> int:
    """Count the entries whose trees `prune` would delete by the settings."""
    config = ws.config
    old = _outdated(ws, config.retention_keep_last, config.retention_keep_days)
    return len(_until_small(ws, old, config.retention_max_bytes) if config.retention_max_bytes else old)


def gc(ws: Workspace) -> tuple[int, int]:
    """Drop objects that nothing leads to and give their bytes back; (objects, bytes) freed."""
    with ws.store.gc_lock():
        try:
            freed = ws.store.blobs.collect(_live(ws))
        except StoreFailed as error:
            if size := _freed(error):
                error.details = (f"freed {size:,} bytes before that", *error.details)
            raise
    make_ballast(ws.home)
    return freed


def forget(ws: Workspace, path: bytes, *, dry_run: bool = False) -> Forgotten:
    """Remove the content of a path, and of all below it, from every checkpoint of this workspace.

    If that fails nothing has changed, but for Partial: no checkpoint leads to the content any more, and a part of its
    bytes is still on the disk.
    """
    return _even_on_a_full_disk(ws, lambda at_once: _forget(ws, path, at_once=at_once, dry_run=dry_run))


def _forget(ws: Workspace, path: bytes, *, at_once: bool, dry_run: bool) -> Forgotten:
    with ws.store.gc_lock():
        doomed, elsewhere, seen = set(), {}, False
        lists: dict[bytes, set[bytes]] = {}  # of large files, each read once though many entries have it
        for at, content, is_chunked in contents_of(ws.store.blobs, ws.timeline):
            if is_chunked and content not in lists:
                lists[content] = _with_pieces(ws, content)
            ids = lists[content] if is_chunked else {content}
            if at == path or at.startswith(path + b"/"):
                seen = True
                doomed |= ids
            else:
                elsewhere.update(dict.fromkeys(ids, at))
        if not seen:
            raise Usage(f"no checkpoint has content of '{os.fsdecode(path)}'", hints=["reprieve log"])
        live = _live(ws)
        others = _live(ws, leave_out=ws.id)
        shared = {id for id in doomed if id in elsewhere or id in others}
        remaining = tuple(sorted({os.fsdecode(elsewhere[id]) for id in shared if id in elsewhere}))
        if any(id in others for id in shared):
            remaining = (*remaining, "another workspace")
        doomed -= shared
        count = sum(1 for entry in ws.timeline.after(0) if entry.delta and not entry.is_pruned)
        if dry_run:
            return Forgotten(len(doomed), 0, count, remaining)
        import json
        import shlex

        data = json.dumps({"path": os.fsdecode(path), "objects": sorted(id.hex() for id in doomed)})
        label = f"forget {os.fsdecode(path)}"
        with ws.store.transaction():
            _append(ws, Draft(FORGET, ws.clock(), actor=caller(ws), label=label, data=data))
            dropped = ws.store.blobs.drop(live - doomed) if at_once else 0
        name = os.fsdecode(path)
        done, rest = f"removed '{name}' from every checkpoint", f"remove the rest: reprieve forget {shlex.quote(name)}"
        freed = _collect(ws, live - doomed, dropped, done, rest)[1]
        left = ws.store.blobs.has(sorted(doomed))
        if left:
            raise StoreCorrupted(f"{len(left)} objects of '{os.fsdecode(path)}' are still in the store")
    return Forgotten(len(doomed), freed, count, remaining)


def _even_on_a_full_disk(ws: Workspace, attempt: Callable[..., T]) -> T:
    """Try it as one change; where the disk is too full for that, with more room, then in small steps.

    Each attempt takes the locks anew: what one of them could not store must not be taken for stored by the next.
    """
    try:
        return attempt(at_once=True)
    except StoreFailed as error:
        if not is_full(error):
            raise
    _make_room(ws)
    try:
        return attempt(at_once=True)
    except StoreFailed as error:
        if not is_full(error) or error.data.get("is_stuck"):
            raise
    return attempt(at_once=False)


def _make_room(ws: Workspace) -> None:
    """Free what costs nobody anything: garbage, the reserve, caches."""
    try:
        gc(ws)
    except StoreFailed as error:
        if not is_full(error):
            raise
    with ws.store.gc_lock():
        while room(ws.home) < _AMPLE and give_way(ws.home):
            pass


def _collect(ws: Workspace, live: set[bytes], dropped: int, done: str, rest: str) -> tuple[int, int]:
    """Give the bytes of all else back, after a change that is durable: `done` says which, `rest` how to go on."""
    try:
        objects, freed = ws.store.blobs.collect(live)
    except StoreFailed as error:
        raise Partial(
            f"{done} and freed {_freed(error):,} bytes, then failed: {error.message}",
            hints=[rest, *error.hints],
            data=error.data,
        ) from error
    return dropped + objects, freed


def _freed(error: StoreFailed) -> int:
    size = error.data.get("bytes")
    return size if isinstance(size, int) else 0


def verify(ws: Workspace, *, sample: float = 1.0) -> Verified:
    """Check the chain, every tree, and (a sample of) all content of this workspace."""
    problems = ws.store.problems()
    problems += [f"entry {seq}: {reason}" for seq, reason in ws.timeline.verify()]
    problems += _journal_problems(ws)
    entries = sum(1 for _ in ws.timeline.readable())
    forgotten = ws.capture.forgotten()
    users, wanted, unread = survey(ws.store.blobs, ws.timeline, forgotten)
    problems += unread
    ids = sorted(wanted)
    if sample < 1.0:
        import random

        ids = random.SystemRandom().sample(ids, min(len(ids), max(1, round(len(ids) * sample))))
    # everything means also what nothing leads to at the moment
    checked = ws.store.blobs.check(None if sample >= 1.0 else ids)
    found = {id: reason for id, reason in checked if id in wanted or id not in forgotten}
    found |= dict.fromkeys(set(ids) - ws.store.blobs.has(ids) - found.keys(), "it is not in the store")
    problems += [f"object {id.hex()[:16]} ({_user(users, id)}): {reason}" for id, reason in sorted(found.items())]
    return Verified(len(ids), entries, tuple(problems))


def _journal_problems(ws: Workspace) -> list[str]:
    if not os.path.exists(os.path.join(ws.home, "effects.db")):
        return []
    from reprieve.app.effects import journal_of

    with journal_of(ws) as journal:
        rows = [f"effects, row {seq}: {reason}" for seq, reason in journal.log.verify(ws.id)]
        if rows:
            return rows
        from reprieve.app.mail import damaged

        return damaged(ws, journal)


def _user(users: dict[bytes, bytes], id: bytes) -> str:
    return os.fsdecode(users[id]) if id in users else "tree data"


def _live(ws: Workspace, leave_out: str = "") -> set[bytes]:
    """Everything that any workspace of the store needs. Raises before anything is dropped."""
    live: set[bytes] = set()
    records = ws.store.workspaces()
    if unknown := ws.store.timelines() - {record.id for record in records}:
        raise Refused(
            f"the store has entries of an unknown workspace ({', '.join(sorted(unknown))}), so nothing is deleted",
            hints=["see what is damaged: reprieve verify"],
        )
    for record in records:
        if record.id == leave_out:
            continue
        timeline = ws.store.timeline(record.id)
        intent = timeline.intent()
        try:
            live |= live_objects(ws.store.blobs, timeline, [decode_intent(intent).moves] if intent else [])
        except (StoreCorrupted, ValueError) as e:
            raise Refused(
                f"a tree of '{os.fsdecode(record.root)}' cannot be read, so nothing is deleted: {e}",
                hints=["see what is damaged: reprieve verify"],
            ) from e
    return live


def _with_pieces(ws: Workspace, content: bytes) -> set[bytes]:
    if not ws.store.blobs.has([content]):
        return {content}
    return {content, *(id for _, id in decode_chunks(ws.store.blobs.get(content)) if id != HOLE)}


def _outdated(ws: Workspace, keep_last: int, keep_days: int) -> list[TimelineEntry]:
    """Entries before the oldest one that is to be kept, without the pinned and named ones."""
    asked = list(checkpoints(ws.timeline))
    if not asked:
        return []
    cutoff = asked[min(max(keep_last, 1), len(asked)) - 1].seq
    if keep_days:
        # by the newest entry, not by the clock of now: a clock that jumped ahead must not age anything
        reference = min(ws.clock(), asked[0].created_at)
        if _clock_jumped(asked):
            ws.reporter.warn("the clock jumped between checkpoints; nothing is given up for its age")
            cutoff = asked[-1].seq
        else:
            young = [e.seq for e in asked if reference - e.created_at <= keep_days * _DAY_NS]
            cutoff = min(cutoff, *young)
    return _expendable(ws, cutoff)


def _expendable(ws: Workspace, before: int) -> list[TimelineEntry]:
    """Entries before that one that may be given up. A move that stays needs the point before it: for `redo`."""
    entries = list(ws.timeline.after(0))
    stay = {e.seq for e in entries if e.is_pinned or e.name}
    stay |= {e.seq - 1 for e in entries if e.seq in stay and e.kind in MOVES}
    return [e for e in entries if e.seq < before and e.seq not in stay and not e.is_pruned]


def _clock_jumped(asked: list[TimelineEntry]) -> bool:
    times = [e.created_at for e in asked]
    return any(newer < older or newer - older > _JUMP_NS for newer, older in pairwise(times))


def _until_small(ws: Workspace, old: list[TimelineEntry], max_bytes: int) -> list[TimelineEntry]:
    """Also give up the oldest others until what is left fits, by the uncompressed size of what only they hold."""
    packs = os.path.join(ws.home, "packs")
    total = sum(occupied(e.stat()) for e in os.scandir(packs))
    if total <= max_bytes:
        return old
    given = {e.seq for e in old}
    newest = next(checkpoints(ws.timeline)).seq
    rest = _expendable(ws, newest)
    excess = total - max_bytes
    for entry in rest:
        is_half = entry.kind in MOVES and entry.seq - 1 in given  # a move without the point before it
        if excess <= 0 and not is_half:
            break
        if entry.seq not in given:
            given.add(entry.seq)
        if entry.delta:
            excess -= sum(b.size for _, b, _ in tree.decode_delta(ws.capture.object(entry.delta)) if b is not None)
    return [e for e in rest if e.seq in given]


def _give_up(ws: Workspace, old: list[TimelineEntry]) -> None:
    """One transaction: full trees for entries that lose their predecessor, then the old trees go."""
    gone = {e.seq for e in old}
    heirs = [e for e in ws.timeline.after(0) if e.seq not in gone and e.seq - 1 in gone and not e.is_pruned]
    with ws.store.transaction():
        for heir in heirs:
            ws.capture.keep_whole(heir, ws.capture.tree_at(heir.seq))
            ws.store.blobs.flush()  # the next one's tree is read from this one on
        ws.timeline.drop_trees(sorted(gone))
        names = ",".join(f'"{e.id}"' for e in old)
        _append(
            ws,
            Draft(
                PRUNE,
                ws.clock(),
                actor=caller(ws),
                label=f"gave up {len(old)} entries",
                data=f'{{"entries":[{names}]}}',
            ),
        )


def _append(ws: Workspace, draft: Draft) -> None:
    """An entry that leaves the tree as it is."""
    head = ws.timeline.head()
    ws.timeline.append(draft.replace(files=head.files, size=head.size) if head else draft)
