"""What the timeline says about an agent's plans: their steps, what became of each, and what was broken off.

    {"plan":{"name":"migrate","run":"k7m2…","since":12,"step":"schema","after":["prepare"],"at":"open"}, …}

Every entry about a plan carries this in its data; nothing about a plan is kept anywhere else. A run of a plan begins
with its first step and ends when its block ends well; one that did not is gone on with under the same name.
"""

from __future__ import annotations

from reprieve.errors import StoreCorrupted
from reprieve.files.processes import is_alive
from reprieve.model.quickjson import dumps, loads
from reprieve.model.timeline import CHECKPOINT, MOVES, PART, REDO, ROLLBACK, UNDO, TimelineEntry
from reprieve.model.value import Value
from reprieve.model.window import Standing, Window, closes, field, opens, standing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from reprieve.store.protocols import Timeline

_PLAN = '"plan":{'
_FAR = 5000  # entries to look back for a plan that is named
_RECENT = 200  # and for any

# what an entry says of a plan
OPEN, END, UNDONE, KEPT, FINISHED = "open", "end", "undone", "kept", "finished"

# what became of a step
RUNNING = "running"
BROKEN = "broken off"  # its process is gone and nobody recorded its end
DONE, FAILED, TAKEN_BACK = "done", "failed", "taken back"
ACCEPTED = "kept"


class PlanStep(Value):
    """One attempt at a step of a plan."""

    plan: str
    name: str
    window: Window
    opened: TimelineEntry
    after: tuple[str, ...] = ()
    state: str = RUNNING
    sealed: TimelineEntry | None = None


class Run(Value):
    """One run of a plan, as far as it is on the timeline."""

    name: str
    id: str = ""  # "": it has not begun, or is over
    since: int = 0  # number of the entry before its first
    steps: tuple[PlanStep, ...] = ()  # the newest attempt at each, oldest first

    def step(self, name: str) -> PlanStep | None:
        """The newest attempt at a step."""
        return next((step for step in self.steps if step.name == name), None)

    def dependants(self, name: str) -> tuple[PlanStep, ...]:
        """Steps that stand on this one, however far, oldest first."""
        found = {name}
        for step in self.steps:  # a step begins after those that it stands on
            if not found.isdisjoint(step.after):
                found.add(step.name)
        return tuple(step for step in self.steps if step.name in found and step.name != name)


def plan_json(fields: Mapping[str, object]) -> str:
    """The field for a checkpoint's data, without braces around it."""
    return f'"plan":{dumps(fields, is_compact=True)}'


def plan_of(data: str) -> dict[str, object] | None:
    """What the data of a checkpoint says of a plan, None if nothing."""
    if _PLAN not in data:
        return None
    try:
        fields = loads(data)
        found = fields.get("plan") if isinstance(fields, dict) else None
    except (ValueError, RecursionError):
        return None  # a row that cannot be read says nothing about a plan
    return found if isinstance(found, dict) else None


def find_run(timeline: Timeline, name: str) -> Story | None:
    """The run of that plan that is not finished, None if there is none."""
    mark = f'"name":{dumps(name, is_compact=True)}'
    for count, entry in enumerate(timeline.backwards()):
        told = plan_of(entry.data) if mark in entry.data else None
        if told is not None and told.get("name") == name:
            if told.get("at") == FINISHED:
                return None
            return Story(name, str(told["run"]), int(str(told["since"])))
        if count == _FAR:
            break
    return None


def unfinished(timeline: Timeline) -> list[PlanStep]:
    """Steps of recent plans that were broken off and not dealt with since, oldest first."""
    try:
        told = [plan_of(entry.data) for entry in timeline.newest_first(limit=_RECENT)]
        names = dict.fromkeys(str(fields.get("name")) for fields in told if fields is not None)
        runs = [story.read(timeline) for name in names if (story := find_run(timeline, name)) is not None]
    except StoreCorrupted:
        return []  # a look at what changed must still be possible; `verify` names the damage
    found = [step for run in runs for step in run.steps if step.state == BROKEN]
    return sorted(found, key=lambda step: step.opened.seq)


class _Move(Value):
    """Something that moved the files: where it went back to, and the entry that ended what it took back."""

    entry: TimelineEntry
    target: TimelineEntry | None
    of: TimelineEntry | None


class Story:
    """Reads one run of a plan off the timeline; each time only what is new."""

    def __init__(self, name: str, run: str, since: int) -> None:
        self.name, self.run, self.since = name, run, since
        self._at = since  # number of the newest entry that was read
        self._steps: dict[str, PlanStep] = {}  # by window
        self._undone: dict[str, str] = {}  # window → operation that took it back ("": there was nothing to move)
        self._kept: set[str] = set()
        self._redone: set[str] = set()
        self._moves: list[_Move] = []
        self._now = Standing()
        self._is_finished = False

    def read(self, timeline: Timeline) -> Run:
        """The run as it is now."""
        for entry in timeline.after(self._at):
            self._at = entry.seq
            if entry.kind == REDO:
                self._redone.add(field(entry.data, "of"))
            elif entry.kind in MOVES:
                target, of = timeline.get(field(entry.data, "target")), timeline.get(field(entry.data, "of"))
                self._moves.append(_Move(entry, target, of))
            elif entry.kind == CHECKPOINT:
                self._take(entry)
        if self._is_finished:
            return Run(self.name)
        going_on = {w.id for w in self._now.open if not w.pid or is_alive(w.pid, w.born)}
        newest = {step.name: self._judged(step, going_on) for step in self._steps.values()}
        steps = tuple(sorted(newest.values(), key=lambda step: step.opened.seq))
        return Run(self.name, self.run, self.since, steps)

    def _take(self, entry: TimelineEntry) -> None:
        self._now = standing(entry.data)
        told = plan_of(entry.data) or {}
        if told.get("name") != self.name or told.get("run") != self.run:
            told = {}
        at = told.get("at")
        ended = self._steps.get(closes(entry.data))
        if ended is not None:
            is_well = at == END and not told.get("failed")
            self._steps[ended.window.id] = ended.replace(state=DONE if is_well else FAILED, sealed=entry)
        if at == OPEN:
            self._is_finished = False  # somebody goes on with it
            window = next((w for w in self._now.open if w.id == opens(entry.data)), None)
            if window is not None:
                after = tuple(map(str, _list(told.get("after"))))
                self._steps[window.id] = PlanStep(self.name, str(told.get("step")), window, entry, after)
        elif at == UNDONE:
            self._undone.update({str(id): str(told.get("operation", "")) for id in _list(told.get("windows"))})
        elif at == KEPT:
            self._kept.update(map(str, _list(told.get("windows"))))
        elif at == FINISHED:
            self._is_finished = True

    def _judged(self, step: PlanStep, going_on: set[str]) -> PlanStep:
        id = step.window.id
        if id in self._kept:
            return step.replace(state=ACCEPTED)
        if (id in self._undone and self._undone[id] not in self._redone) or any(
            move.entry.id not in self._redone and _takes_back(move, step, is_over=id not in going_on)
            for move in self._moves
        ):
            return step.replace(state=TAKEN_BACK)
        if step.state == RUNNING and id not in going_on:
            return step.replace(state=BROKEN)
        return step


def _takes_back(move: _Move, step: PlanStep, *, is_over: bool) -> bool:
    """Whether somebody took the whole step back by hand: `undo` of it or of what it was in, a rollback to before it.

    What it did after that, because it was still at work, is there.
    """
    entry, target = move.entry, move.target
    if not is_over or entry.seq < (step.sealed or step.opened).seq or target is None:
        return False
    if entry.kind != UNDO:
        return is_rollback_beyond(entry, target, step.opened)
    first, last = opens(target.data), closes(move.of.data) if move.of is not None else ""
    if move.of is not None and not last:
        return False  # only what changed up to some checkpoint
    if any(first in ids for ids in standing(step.opened.data).lineages() if ids[0] == step.window.id):
        return True
    # from the first window of a turn to its last: all that the session did in it
    window = next((w for w in standing(target.data).open if w.id == first), None)
    if window is None or last in ("", first) or target.seq > step.opened.seq:
        return False
    return window.turn == step.window.turn and _session(window) == _session(step.window)


def _session(window: Window) -> str:
    return window.actor.partition("/")[0]


def is_rollback_beyond(move: TimelineEntry, target: TimelineEntry | None, opened: TimelineEntry) -> bool:
    """Whether a move took everything back to that entry or further; not single paths, nor the work of one actor."""
    if move.kind != ROLLBACK or field(move.data, "of") == PART:
        return False
    return target is not None and target.seq <= opened.seq


def _list(value: object) -> Iterator[object]:
    return iter(value) if isinstance(value, list) else iter(())
