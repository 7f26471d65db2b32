"""Care for the store: give up old checkpoints, free bytes, forget content, prove that all is whole."""

from __future__ import annotations

import os
from itertools import pairwise

from reprieve.app.persons import caller
from reprieve.app.refs import checkpoints
from reprieve.errors import Refused, StoreCorrupted, Usage
from reprieve.files import tree
from reprieve.files.reachable import contents_of, live_objects, survey
from reprieve.model.chunks import HOLE, decode_chunks
from reprieve.model.timeline import FORGET, MOVES, PRUNE, Draft, TimelineEntry
from reprieve.model.value import Value
from reprieve.rollback.intent import decode_intent
from reprieve.store.ballast import make_ballast

TYPE_CHECKING = False
if TYPE_CHECKING:
    from reprieve.app.workspace import Workspace

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
    """Give up the trees of old entries. Pinned and named ones, and the newest checkpoint, always stay."""
    with ws.store.lock(ws.id):
        ws._recover()
        old = _outdated(ws, keep_last, keep_days)
        if max_bytes:
            old = _until_small(ws, old, max_bytes)
        gone = {e.seq for e in old}
        kept = sum(1 for e in checkpoints(ws.timeline) if e.seq not in gone)
        if dry_run or not old:
            return Pruned(tuple(old), kept)
        _give_up(ws, old)
    objects, freed = gc(ws)
    return Pruned(tuple(old), kept, objects, freed)


def gc(ws: Workspace) -> tuple[int, int]:
    """Drop objects that nothing leads to and give their bytes back; (objects, bytes) freed."""
    with ws.store.gc_lock():
        freed = ws.store.blobs.collect(_live(ws))
    make_ballast(ws.home)
    return freed


def forget(ws: Workspace, path: bytes, *, dry_run: bool = False) -> Forgotten:
    """Remove the content of a path, and of all below it, from every checkpoint of this workspace."""
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

        data = json.dumps({"path": os.fsdecode(path), "objects": sorted(id.hex() for id in doomed)})
        _append(ws, Draft(FORGET, ws.clock(), actor=caller(ws), label=f"forget {os.fsdecode(path)}", data=data))
        freed = ws.store.blobs.collect(live - doomed)[1]
        left = ws.store.blobs.has(sorted(doomed))
        if left:
            raise StoreCorrupted(f"{len(left)} objects of '{os.fsdecode(path)}' are still in the store")
    return Forgotten(len(doomed), freed, count, remaining)


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
    total = sum(e.stat().st_size for e in os.scandir(packs))
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
