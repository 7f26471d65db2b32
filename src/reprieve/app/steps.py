"""Find the step that a name means, and the last one: a window's, or what lies between two checkpoints."""

from __future__ import annotations

from reprieve.app import refs
from reprieve.app.authorship import window_of, windows
from reprieve.app.times import number
from reprieve.errors import BadRef
from reprieve.files.processes import is_alive
from reprieve.model.talk import END, talk_of
from reprieve.model.timeline import CHECKPOINT, MOVES, PART, REDO, ROLLBACK, UNDO, TimelineEntry
from reprieve.model.value import Value
from reprieve.model.window import SEAL, closes, field
from reprieve.store.chain import as_stored

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from reprieve.files.snapshot import Snapshot
    from reprieve.store.protocols import Timeline


class Step(Value):
    """What can be undone by itself."""

    key: str  # the window's id; without one, that of the entry that the step ends with ("now": not recorded yet)
    name: str
    since: int  # number of the entry before it
    before: TimelineEntry | None = None
    entry: TimelineEntry | None = None  # the one that it ends with
    keys: frozenset[str] = frozenset()  # of all parts of a turn


def find_step(timeline: Timeline, name: str, *, now_ns: int) -> Step:
    """The newest step of that name: call:ID, step:NAME, turn:N, or an id from the log: the step that ends there."""
    name = as_stored(name)
    if name.startswith("turn:") and (turn := number(name[5:])) is not None:
        return _turn(timeline, turn)
    if name.startswith(("call:", "step:")):
        wanted = name if name.startswith("call:") else name[5:]
        for entry in timeline.backwards():
            if refs.is_alone(entry) and entry.step == wanted:
                return _of_entry(timeline, entry)
            window = window_of(entry) if entry.kind == CHECKPOINT else None
            if window is not None and (as_stored(window.step) == wanted or window.id == name[5:]):
                return _of_window(timeline, entry, window.id, window.step)
        raise BadRef(f"no step is called '{name}'", hints=["see the steps: reprieve log"])
    return _of_entry(timeline, refs.resolve(timeline, name, now_ns=now_ns))


def last_steps(timeline: Timeline, seen: Snapshot, *, has_more: bool = False) -> Iterator[Step]:
    """Steps that may be meant by "the last one", newest first. What a person did between windows is none.

    One that was cut off has no end of its own: its process died.
    `has_more`: one that changed nothing in this tree may have changed a tracked path.
    """
    has_windows = any(True for _ in windows(timeline))
    head = timeline.head()
    if not has_windows and head is not None and (seen.changed or has_more):
        yield Step("now", "what changed since the last checkpoint", head.seq, head)
    ended = set()
    for entry in timeline.backwards():
        if entry.is_pruned:
            return
        if entry.kind != CHECKPOINT:
            continue
        ended.add(closes(entry.data))
        window = window_of(entry) if has_windows else None
        if window is not None and window.id not in ended and window.pid and not is_alive(window.pid, window.born):
            yield _of_window(timeline, entry, window.id, window.step)
        if has_windows and not closes(entry.data):
            continue
        if entry.seq > 1 and (entry.delta or closes(entry.data) or has_more):
            yield _of_entry(timeline, entry)


def last_turns(timeline: Timeline) -> Iterator[Step]:
    """Turns of all sessions, the one that was at work last first."""
    seen: set[tuple[str, int]] = set()
    for _, window in list(windows(timeline)):
        turn = (window.actor.partition("/")[0], window.turn)
        if window.turn and turn not in seen:
            seen.add(turn)
            yield _turn(timeline, window.turn, turn[0])


def is_taken_back(timeline: Timeline, step: Step) -> bool:
    """Whether a rollback or undo took it back, and nothing brought it back since."""
    end = step.entry.seq if step.entry is not None else 1 << 62
    until = 1 << 62  # what the newest moves brought back is how it was after this entry
    for move in reversed([entry for entry in timeline.after(step.since) if entry.kind in MOVES]):
        if move.seq > until:
            continue
        target = timeline.get(field(move.data, "target"))
        of = timeline.get(field(move.data, "of"))
        if move.kind == REDO and of is not None:
            until = of.seq - 1
        elif move.kind == UNDO and target is not None and of is not None and _holds(target, of, step):
            return True
        elif move.kind == ROLLBACK and target is not None and field(move.data, "of") != PART:
            if target.seq <= step.since:
                return True
            if target.seq >= end:
                until = target.seq
    return False


def _holds(first: TimelineEntry, last: TimelineEntry, step: Step) -> bool:
    """Whether it is what an undo from one entry to the other took back, or one of the calls of that turn."""
    if step.entry is None or last.id == step.entry.id:
        return step.entry is not None and first.seq <= step.since
    outer, inner = window_of(first), window_of(step.before) if step.before is not None else None
    if outer is None or inner is None or not outer.turn or step.since < first.seq or step.entry.seq > last.seq:
        return False
    return (outer.turn, outer.actor.partition("/")[0]) == (inner.turn, inner.actor.partition("/")[0])


def must_be_kept(timeline: Timeline, step: Step) -> None:
    """Raises BadRef if a step can't be undone: part of it, or what was there before it, was pruned; or it is none."""
    _must_be_a_step(timeline, step)
    before = timeline.at(step.since)
    if before is not None and before.is_pruned:
        raise BadRef(f"what was there before '{step.name}' was pruned, so it can't be undone", hints=["reprieve log"])
    until = step.entry.seq if step.entry is not None else 1 << 62
    for entry in timeline.after(step.since):
        if entry.seq > until:
            return
        if entry.is_pruned:
            raise BadRef(f"'{step.name}' was pruned; what it changed is no longer kept", hints=["reprieve log"])


def with_inner(timeline: Timeline, keys: frozenset[str], since: int) -> frozenset[str]:
    """The same windows and all that were opened inside of them; `since`: the entry before the first."""
    found = set(keys)
    for entry in timeline.after(max(0, since - 1)):
        window = window_of(entry) if entry.kind == CHECKPOINT else None
        if window is not None and window.parent in found:
            found.add(window.id)  # a window is opened after the one that it is in
    return frozenset(found)


def _of_entry(timeline: Timeline, entry: TimelineEntry) -> Step:
    if entry.data.startswith(SEAL) and closes(entry.data):
        opened = timeline.get(field(entry.data, "before"))
        if opened is not None:
            return Step(closes(entry.data), entry.step or entry.label, opened.seq, opened, entry)
    if entry.seq == 1:
        raise BadRef(
            f"'{entry.id}' is the beginning: nothing came before it",
            hints=_begins_there(timeline, entry) or ["reprieve log"],
        )
    window = window_of(entry)
    name = f"what changed before '{window.step}'" if window is not None else entry.title or entry.id
    return Step(entry.id, name, entry.seq - 1, timeline.at(entry.seq - 1), entry)


def _must_be_a_step(timeline: Timeline, step: Step) -> None:
    """Nothing ends where a step begins and nothing changed before it: to undo that one instead would be a guess."""
    entry = step.entry
    if entry is None or step.key != entry.id or entry.delta or entry.changed:
        return
    hints = _begins_there(timeline, entry)
    if hints:
        raise BadRef(f"nothing changed up to '{entry.id}': a step begins there, and none ends", hints=hints)


def _begins_there(timeline: Timeline, entry: TimelineEntry) -> list[str]:
    """How to undo the step that begins at an entry, as a hint; none if none does."""
    window = window_of(entry)
    if window is None:
        return []
    ends = _of_window(timeline, entry, window.id, window.step).entry
    return [f"take back '{window.step}', which begins there: reprieve undo {ends.id if ends else f'call:{window.id}'}"]


def _of_window(timeline: Timeline, opened: TimelineEntry, id: str, name: str) -> Step:
    ends = [entry for entry in timeline.after(opened.seq) if closes(entry.data) == id]  # the last one may come late
    return Step(id, as_stored(name), opened.seq, opened, ends[-1] if ends else None)


def _turn(timeline: Timeline, number: int, session: str = "") -> Step:
    """All windows of a turn of that session, or of the newest one that has a turn of that number."""
    session = session or _session_of(timeline, number)
    found = []
    for opened, window in windows(timeline):
        who = window.actor.partition("/")[0]
        if window.turn == number and who == session:
            found.append((opened, window))
        elif found and who == session and window.turn and window.turn < number:
            break
    if not found:  # a turn of mere words: a step in which nothing was done
        began = refs.resolve(timeline, f"turn:{number}", now_ns=0)
        return Step(f"turn:{number}", f"turn {number}", began.seq, began, began)
    first, newest = found[-1][0], found[0]
    last = _of_window(timeline, newest[0], newest[1].id, newest[1].step)
    keys = frozenset(window.id for _, window in found)
    return Step(newest[1].id, f"turn {number}", first.seq, first, last.entry, keys)


def _session_of(timeline: Timeline, turn: int) -> str:
    """The newest session that has a turn of that number, if only of words."""
    for entry in timeline.backwards():
        window = window_of(entry) if entry.kind == CHECKPOINT else None
        if window is not None and window.turn == turn:
            return window.actor.partition("/")[0]
        talk = talk_of(entry.data)
        if talk is not None and talk.turn == turn and talk.at != END:
            return talk.who
    raise BadRef(f"there is no turn {turn}", hints=["see the turns: reprieve log"])
