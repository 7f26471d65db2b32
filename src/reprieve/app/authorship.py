"""Who changed what since some point: read the spans off the timeline, with the present as the last one."""

from __future__ import annotations

import os

from reprieve.files import tree
from reprieve.model.actor import PERSON, REPRIEVE, UNKNOWN, parts, said, shared
from reprieve.model.change import BY_SETTINGS, UNREADABLE, WORKSPACE_FILE, Change, classify
from reprieve.model.talk import has_talk
from reprieve.model.timeline import CHECKPOINT, MOVES
from reprieve.model.value import Value
from reprieve.model.window import Standing, Window, closes, field, opens, standing
from reprieve.rollback.chains import Chain, Link, Span, chains, is_same, judged

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from reprieve.files.capture import Capture
    from reprieve.files.snapshot import Snapshot
    from reprieve.model.effect import Effect
    from reprieve.model.entry import Entry
    from reprieve.model.timeline import TimelineEntry
    from reprieve.store.protocols import Buffer, Timeline


class Story(Value):
    """What happened since some point."""

    spans: tuple[Span, ...]
    has_windows: bool  # whoever is at work here does so in windows: then what is outside of them is a person's
    has_work: bool  # and did so since: a rollback in between decided about that work, and stays

    def chains(self) -> dict[bytes, Chain]:
        """The same by path."""
        return chains(self.spans)

    def differences(self) -> tree.Delta:
        """(path, entry then, entry in the end) of every path that differs."""
        if len(self.spans) == 1:
            return [change for change in self.spans[0].delta if change[1] != change[2]]
        found: dict[bytes, tuple[Entry | None, Entry | None]] = {}
        for span in self.spans:
            for path, before, after in span.delta:
                found[path] = (found[path][0] if path in found else before, after)
        return [(path, before, after) for path, (before, after) in found.items() if before != after]


def is_told(timeline: Timeline, since: int) -> bool:
    """Whether an agent tells us of its turns, at that entry or since: what it does then, it does in windows."""
    first = timeline.at(since)
    return any(entry is not None and has_talk(entry.data) for entry in (first, *timeline.after(since)))


def was_outside(timeline: Timeline, effect: Effect) -> bool:
    """Whether it was done outside of every window; that it was a person is known only where there are windows."""
    at = _standing_at(timeline, effect.at)
    # before the first window nobody could tell yet
    is_somebodys = effect.window or at.open or at.left or (effect.actor == UNKNOWN and at.is_used)
    return effect.actor in (PERSON, UNKNOWN) and not is_somebodys


def story(
    capture: Capture, since: int, seen: Snapshot | None, until: int = 1 << 62, *, has_windows: bool = False
) -> Story:
    """Everything from entry `since` on, to now if `seen` is given. `has_windows`: known from elsewhere."""
    timeline = capture.timeline
    entries = [entry for entry in timeline.after(since) if entry.seq <= until]
    at = _standing_at(timeline, since)
    raw: list[tuple[Span, bool]] = []  # with whether it was outside every window
    has_work = bool(at.open)
    entries, at, lost = _without_pruned(capture, since, entries, at)
    if lost:
        raw.append((Span(UNKNOWN, lost), False))
    for entry in entries:
        ids = at.lineages()
        if (late := closes(entry.data)) and not any(late in line for line in ids):
            ids = (*ids, (late,))  # its end was reported after it had been taken for over
        delta = tree.decode_delta(capture.object(entry.delta)) if entry.delta else []
        if entry.kind in MOVES:
            # what an agent moved is its work like any other: a person's rollback takes that back, too
            is_agents = entry.actor not in (PERSON, UNKNOWN)
            span = Span(entry.actor, delta, entry, ids) if is_agents else Span(REPRIEVE, delta, entry, (), True)
            raw.append((span, False))
            continue
        is_outside = not at.open and not at.left and entry.actor in (PERSON, UNKNOWN)
        raw += [(span, is_outside) for span in _told_apart(Span(entry.actor, delta, entry, ids), at)]
        if entry.kind == CHECKPOINT:
            at = standing(entry.data)
            has_work |= bool(at.open or opens(entry.data) or closes(entry.data))
    if seen is not None:
        actor, last, _ = capture.author()
        is_outside = not last.open and not last.left
        now = Span(actor, seen.changes or [], None, last.lineages())
        raw += [(span, is_outside) for span in _told_apart(now, last)]
        has_work |= bool(last.open)
    has_windows |= has_work or is_told(timeline, since)
    spans = tuple(
        span if span.is_move else span.replace(actor=judged(span.actor, is_outside=outside, has_windows=has_windows))
        for span, outside in raw
    )
    return Story(_unseen_apart(spans) if has_windows else spans, has_windows, has_work)


def _unseen_apart(spans: tuple[Span, ...]) -> tuple[Span, ...]:
    """What an agent's settings or modes hid, or let be seen again, is not a person's doing, whenever it was noticed.

    Who changed it while nobody looked is unknown, and counts as the agent's.
    """
    is_by_settings = any(span.actor != PERSON and path == WORKSPACE_FILE for span in spans for path, _, _ in span.delta)
    closed: set[bytes] = set()  # by an agent: what nobody had the right to look at
    apart: list[Span] = []
    for span in spans:
        gaps = [change for change in span.delta if any(entry and entry.gap for entry in change[1:])]
        tops = {path for path, before, after in gaps if path in closed and _is_open_again(before, after)}
        if is_by_settings:
            tops |= {path for path, *states in gaps if any(e and e.gap.startswith(BY_SETTINGS) for e in states)}
        is_persons = span.actor == PERSON and not span.is_move
        hidden = [change for change in span.delta if _is_in(change[0], tops)] if tops and is_persons else []
        for path, _, after in gaps:
            closed.discard(path)
            is_agents = not (span.is_move or is_persons) or _is_in(path, tops)
            if after is not None and after.gap == UNREADABLE and is_agents:
                closed.add(path)
        if not hidden:
            apart.append(span)
            continue
        rest = [change for change in span.delta if not _is_in(change[0], tops)]
        apart += [span.replace(delta=rest), span.replace(delta=hidden, actor=UNKNOWN)]
    return tuple(apart)


def _is_open_again(before: Entry | None, after: Entry | None) -> bool:
    return before is not None and after is not None and before.kind == after.kind and not after.gap


def _is_in(path: bytes, tops: set[bytes]) -> bool:
    return not tops.isdisjoint((path, *tree.ancestors(path)))


def _told_apart(span: Span, at: Standing) -> list[Span]:
    """The same change by change, where several windows were open and said which paths are theirs alone."""
    if len(span.windows) < 2 or not span.delta or not any(window.writes for window in at.open):
        return [span]
    from reprieve.app.paths import selector

    by_id = {window.id: window for window in at.open}
    claims = [
        next((selector([os.fsencode(p) for p in by_id[id].writes]) for id in ids if by_id[id].writes), None)
        for ids in span.windows
    ]
    apart: dict[tuple[tuple[str, ...], ...], list[tuple[bytes, Entry | None, Entry | None]]] = {}
    for change in span.delta:
        whose = tuple(ids for ids, claim in zip(span.windows, claims, strict=True) if claim is None or claim(change[0]))
        apart.setdefault(whose or span.windows, []).append(change)
    return [
        span.replace(
            delta=delta,
            windows=whose,
            actor=span.actor if whose == span.windows else shared({by_id[ids[0]].actor for ids in whose}),
        )
        for whose, delta in apart.items()
    ]


def without_superseded(capture: Capture, found: dict[bytes, Chain], since: int) -> dict[bytes, Chain]:
    """The same chains, each from the last move on that brought a state back from before `since`.

    Nothing that happened since is in such a state. A chain knows only the states since its own beginning, and would go
    on with what the move had taken back.
    """
    trees: dict[str, Buffer | None] = {}

    def is_from_before(path: bytes, link: Link) -> bool:
        if not link.span.is_move or link.span.entry is None:
            return False
        id = field(link.span.entry.data, "target")
        if id not in trees:
            target = capture.timeline.get(id)
            is_older = target is not None and target.seq < since and not target.is_pruned
            trees[id] = capture.tree_at(target.seq) if target is not None and is_older else None
        then = trees[id]
        return then is not None and is_same(tree.lookup(then, path), link.after)

    for path, chain in found.items():
        for at in range(len(chain.links) - 1, -1, -1):
            if is_from_before(path, chain.links[at]):
                chain.links = chain.links[at:]
                break
    return found


def window_of(entry: TimelineEntry) -> Window | None:
    """The window that a checkpoint opened."""
    id = opens(entry.data)
    return next((window for window in standing(entry.data).open if window.id == id), None) if id else None


def windows(timeline: Timeline) -> Iterator[tuple[TimelineEntry, Window]]:
    """(opening checkpoint, window) of every window, newest first."""
    for entry in timeline.backwards():
        window = window_of(entry) if entry.kind == CHECKPOINT else None
        if window is not None:
            yield entry, window


def by_path(found: Story, differences: Iterable[tuple[bytes, object, object]]) -> dict[bytes, str]:
    """Who changed each path that differs, for showing: one actor, or several with commas."""
    names: dict[bytes, str] = {}
    wanted = {path for path, _, _ in differences}  # of a long story little may be left to tell
    again: set[bytes] = set()  # changed more than once; a chain for each path would cost a kilobyte
    for span in found.spans:
        name = ",".join(dict.fromkeys(parts(span.actor))) or UNKNOWN
        for path, before, after in span.delta:
            if path not in wanted:
                continue
            if path in names:
                again.add(path)
            else:
                names[path] = UNKNOWN if is_same(before, after) else name
    some = (span.replace(delta=[c for c in span.delta if c[0] in again]) for span in found.spans) if again else ()
    for path, chain in chains(some).items():
        actors = dict.fromkeys(actor for link in chain.links for actor in parts(link.actor))
        names[path] = ",".join(actors) or UNKNOWN
    return names


def changes_of(found: Story, differences: tree.Delta) -> tuple[Change, ...]:
    """What a person would call changed of these differences, in the order of the tree, each with who did it."""
    actors = by_path(found, differences)
    return tuple(
        Change(path, word, before, after, actors.get(path, UNKNOWN))
        for path, before, after in sorted(differences, key=lambda change: tree.sort_key(change[0]))
        if (word := classify(before, after))
    )


def called(link: Link) -> str:
    """An actor as a person would say it."""
    if link.span.is_move:
        return "an earlier rollback"
    return said(link.actor)


def _standing_at(timeline: Timeline, seq: int) -> Standing:
    while seq > 0:
        entry = timeline.at(seq)
        if entry is not None and entry.kind == CHECKPOINT:
            return standing(entry.data)
        seq -= 1  # moves and housekeeping open and close nothing; each has a checkpoint near before it
    return Standing()


def _without_pruned(
    capture: Capture, since: int, entries: list[TimelineEntry], at: Standing
) -> tuple[list[TimelineEntry], Standing, tree.Delta]:
    """Entries after the last pruned one; what happened up to there is known only as a whole."""
    last = max((number for number, entry in enumerate(entries) if entry.is_pruned), default=-1)
    if last < 0:
        return entries, at, []
    rest = entries[last + 1 :]
    whole = rest[0] if rest else entries[last]
    lost = tree.compare(capture.tree_at(since), capture.tree_at(whole.seq))
    return rest[1:], standing(whole.data) if whole.kind == CHECKPOINT else at, lost
