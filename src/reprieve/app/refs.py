"""Find the entry that a REF means.

id or unique prefix · label · `latest` · `~N` · a time (`2026-11-15T10:00`, `10m ago`) · `call:ID` · `step:NAME` ·
`turn:N` (of the newest session that has one) · `session:ID`: each means the point just before it
"""

from __future__ import annotations

from reprieve.errors import BadRef
from reprieve.model.talk import END, talk_of
from reprieve.model.timeline import CHECKPOINT, TimelineEntry
from reprieve.model.window import SAFETY, SEAL, opens, standing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from reprieve.store.protocols import Timeline

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def checkpoints(timeline: Timeline) -> Iterator[TimelineEntry]:
    """Checkpoints that someone asked for, newest first: not those at and before the end of a step, nor of rollbacks."""
    for entry in timeline.backwards():
        if entry.kind == CHECKPOINT and not entry.data.startswith((SAFETY, SEAL)) and not entry.is_pruned:
            yield entry


def latest(timeline: Timeline, back: int = 0) -> TimelineEntry:
    """The latest checkpoint, or the one `back` before it."""
    for number, entry in enumerate(checkpoints(timeline)):
        if number == back:
            return entry
    if back:
        raise BadRef(f"there are fewer than {back + 1} checkpoints", hints=["reprieve log"])
    raise BadRef("there is no checkpoint yet", hints=["reprieve checkpoint"])


def resolve(timeline: Timeline, ref: str, *, now_ns: int) -> TimelineEntry:
    """The entry that ref means. Raises BadRef with the candidates."""
    if ref == "latest":
        return latest(timeline)
    if ref.startswith("~") and ref[1:].isdecimal():
        return latest(timeline, int(ref[1:]))
    for prefix in ("step:", "call:"):
        if ref.startswith(prefix) and len(ref) > len(prefix):
            return _before_step(timeline, ref)
    if ref.startswith("turn:") and ref[5:].isdecimal():
        return _before_turn(timeline, int(ref[5:]))
    if ref.startswith("session:") and len(ref) > 8:
        return _before_session(timeline, ref[8:])
    found = timeline.matching(ref) if ref else []
    exact = [e for e in found if e.id == ref] or [e for e in found if ref in (e.name, e.label)] or found
    if len(exact) == 1:
        return _usable(exact[0])
    if exact:
        raise BadRef(
            f"'{ref}' means {len(exact)} entries",
            details=[f"{e.id}  {e.kind}  {e.name or e.label}" for e in exact[:20]],
            hints=["name one of them by its id"],
            data={"candidates": [e.id for e in exact]},
        )
    at = _time(ref, now_ns)
    if at is not None:
        entry = timeline.before_time(at)
        if entry is None:
            raise BadRef(f"there is no checkpoint from before '{ref}'", hints=["reprieve log"])
        return _usable(entry)
    raise BadRef(f"nothing on the timeline is called '{ref}'", hints=["see what there is: reprieve log"])


def _usable(entry: TimelineEntry) -> TimelineEntry:
    if entry.is_pruned:
        raise BadRef(f"'{entry.id}' was pruned; its files are no longer kept", hints=["reprieve log"])
    return entry


def _before_step(timeline: Timeline, ref: str) -> TimelineEntry:
    """The checkpoint just before the newest step of that name."""
    name = ref if ref.startswith("call:") else ref[5:]
    for entry in timeline.backwards():
        if entry.kind != CHECKPOINT:
            continue
        if entry.step and entry.step == name and entry.data.startswith(SEAL):
            before = timeline.get(entry.data[len(SEAL) :].partition('"')[0])
            if before is not None:
                return _usable(before)
        # it may still be going on
        id = opens(entry.data)
        if id and (id == ref[5:] or any(w.id == id and w.step == name for w in standing(entry.data).open)):
            return _usable(entry)
    raise BadRef(f"no step is called '{ref}'", hints=["see the steps: reprieve log"])


def _before_turn(timeline: Timeline, number: int) -> TimelineEntry:
    """Where the turn of that number began, in the newest session that has one."""
    who, first = "", None
    for entry in timeline.backwards():
        talk = talk_of(entry.data, who)
        if talk is None or talk.turn > number:
            continue
        if talk.turn == number and talk.at != END:
            who, first = talk.who, entry
        elif who and talk.turn < number:
            break
    if first is None:
        raise BadRef(f"there is no turn {number}", hints=["see the turns: reprieve log"])
    return _usable(first)


def _before_session(timeline: Timeline, name: str) -> TimelineEntry:
    """The first that was seen of a session, named with its agent or without."""
    whose: dict[str, TimelineEntry] = {}
    for entry in timeline.backwards():
        talk = talk_of(entry.data)
        if talk is not None and talk.at != END and name in (talk.who, talk.who.partition(":")[2]):
            whose[talk.who] = entry
    if not whose:
        raise BadRef(f"no session is called '{name}'", hints=["see who did what: reprieve log"])
    if len(whose) > 1:
        raise BadRef(f"'{name}' means {len(whose)} sessions", details=sorted(whose), hints=["name the agent, too"])
    return _usable(next(iter(whose.values())))


def _time(text: str, now_ns: int) -> int | None:
    """Nanoseconds for `10m ago` or an ISO time (local if it names no zone); None if it is neither."""
    words = text.split()
    if len(words) == 2 and words[1] == "ago" and words[0][:-1].isdecimal() and words[0][-1] in _UNITS:
        return max(0, now_ns - int(words[0][:-1]) * _UNITS[words[0][-1]] * 1_000_000_000)
    if len(text) < 10 or text[4:5] != "-":
        return None
    from datetime import datetime

    try:
        seconds = datetime.fromisoformat(text).astimezone().timestamp()
    except (ValueError, OverflowError):
        return None
    # a minute or second that was named is meant to its end
    ns = int(seconds * 1_000_000_000) + (999_999_999 if "." not in text else 0)
    return max(0, min(ns, (1 << 63) - 1))  # the year 2999 is more nanoseconds away than SQLite counts
