"""Find the entry that a REF means.

id or unique prefix · label · `latest` · `~N` · a time (`2026-11-15T10:00`, to the end of that minute; `10m ago`): the
newest point up to then · `call:ID` · `step:NAME` · `turn:N` (of the newest session that has one) · `session:ID`: each
means the point just before it
"""

from __future__ import annotations

from reprieve.app import times
from reprieve.errors import BadRef, Usage
from reprieve.model.talk import END, talk_of
from reprieve.model.timeline import CHECKPOINT, TimelineEntry
from reprieve.model.window import SAFETY, SEAL, closes, field, opens, standing
from reprieve.store.chain import as_stored, is_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from reprieve.store.protocols import Timeline


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
    ref = as_stored(ref)
    if ref == "latest":
        return latest(timeline)
    if ref.startswith("~") and (back := times.number(ref[1:])) is not None:
        return latest(timeline, back)
    for prefix in ("step:", "call:"):
        if ref.startswith(prefix) and len(ref) > len(prefix):
            return _before_step(timeline, ref)
    if ref.startswith("turn:") and (turn := times.number(ref[5:])) is not None:
        return _before_turn(timeline, turn)
    if ref.startswith("session:") and len(ref) > 8:
        return _before_session(timeline, ref[8:])
    found = timeline.matching(ref) if ref else []
    exact = [e for e in found if e.id == ref] or [e for e in found if e.title == ref] or found
    if len(exact) == 1:
        return _usable(exact[0])
    if exact:
        raise BadRef(
            f"'{ref}' means {len(exact)} entries",
            details=[f"{e.id}  {e.kind}  {e.title}" for e in exact[:20]],
            hints=["name one of them by its id"],
            data={"candidates": [e.id for e in exact]},
        )
    at = times.last_of(ref, now_ns)
    if at is not None:
        entry = timeline.before_time(at)
        if entry is None:
            raise BadRef(f"there is no checkpoint from before '{ref}'", hints=["reprieve log"])
        return _usable(entry)
    raise BadRef(f"nothing on the timeline is called '{ref}'", hints=["see what there is: reprieve log"])


def label(timeline: Timeline, text: str, *, now_ns: int) -> str:
    """A label or name that somebody gives. Raises Usage for one that a REF could never mean."""
    if not text or not isinstance(text, str):
        return text  # what is no text is refused where it is written
    text = as_stored(text)
    meant = _reserved(text, now_ns)
    if not meant and is_id(text) and timeline.get(text) is not None:
        meant = "the entry of that id"
    if meant:
        raise Usage(
            f"'{text}' can't be a label: wherever a checkpoint is named, it means {meant}",
            hints=[f"put a word before it, such as: 'at {text}'"],
        )
    return text


def _reserved(text: str, now_ns: int) -> str:
    """What `resolve` takes a text for, whatever is called so; "" if it looks for a label."""
    if text == "latest":
        return "the latest checkpoint"
    if text.startswith("~") and times.number(text[1:]) is not None:
        return "the one that many before the latest"
    before, _, name = text.partition(":")
    if (name and before in ("step", "call", "session")) or (before == "turn" and times.number(name) is not None):
        return f"the point just before a {before}"
    return "a time" if times.last_of(text, now_ns) is not None else ""


def _usable(entry: TimelineEntry) -> TimelineEntry:
    if entry.is_pruned:
        raise BadRef(f"'{entry.id}' was pruned; its files are no longer kept", hints=["reprieve log"])
    return entry


def is_alone(entry: TimelineEntry) -> bool:
    """Whether a checkpoint ends a step that had no window, as those of `watch` do: what changed up to it."""
    is_step = entry.kind == CHECKPOINT and bool(entry.step)
    return is_step and not entry.data.startswith(SEAL) and not closes(entry.data)


def _before_step(timeline: Timeline, ref: str) -> TimelineEntry:
    """The checkpoint just before the newest step of that name."""
    name = ref if ref.startswith("call:") else ref[5:]
    for entry in timeline.backwards():
        if entry.kind != CHECKPOINT:
            continue
        if entry.step and entry.step == name:
            if is_alone(entry):
                before = timeline.at(entry.seq - 1)
            else:
                before = timeline.get(field(entry.data, "before"))
            if before is not None:
                return _usable(before)
        # it may still be going on
        id = opens(entry.data)
        if id and (id == ref[5:] or any(w.id == id and as_stored(w.step) == name for w in standing(entry.data).open)):
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
