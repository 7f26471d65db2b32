"""Where each agent's conversation has to be cut to agree with a point of the timeline."""

from __future__ import annotations

from reprieve.model.talk import END, PROMPT, Talk, talk_of
from reprieve.model.value import Value
from reprieve.model.window import opens, standing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from reprieve.model.timeline import TimelineEntry
    from reprieve.store.protocols import Timeline


class Cut(Value):
    """One session: everything from `talk` on is to go. `prompt` is the prompt's own moment, if it was seen."""

    who: str
    talk: Talk
    label: str  # the prompt's title, or the call's
    prompt: Talk | None = None
    said: tuple[str, ...] = ()  # the titles of all prompts of the session that were seen, in order
    nth: int = -1  # which of these began the turn, -1: it was not seen
    transcript: str = ""
    is_inside: bool = False  # the moment is a sub-agent's call
    outer: str = ""  # and this the step that had the sub-agent work, if that is known
    ended: frozenset[str] = frozenset()  # names of calls that were over before the point: what they did stays

    @property
    def agent(self) -> str:
        return self.who.partition(":")[0]

    @property
    def session(self) -> str:
        return self.who.partition(":")[2]


def cuts_since(timeline: Timeline, target: TimelineEntry) -> list[Cut]:
    """For each session that did something at or after `target`, its first moment since, in the order of the newest."""
    first: dict[str, tuple[Talk, TimelineEntry]] = {}
    transcripts: dict[str, str] = {}
    prompts: dict[str, dict[int, tuple[Talk, TimelineEntry]]] = {}
    ended: dict[str, set[str]] = {}
    for entry in timeline.backwards():
        talk = talk_of(entry.data)
        if talk is not None:
            if talk.transcript:
                transcripts.setdefault(talk.who, talk.transcript)
            if talk.at == PROMPT:
                prompts.setdefault(talk.who, {})[talk.turn] = (talk, entry)
            if entry.seq >= target.seq and talk.at != END:
                first[talk.who] = (talk, entry)
            if entry.seq < target.seq and talk.at == END and talk.call:
                ended.setdefault(talk.who, set()).add(talk.call)
        if entry.seq <= target.seq and all(1 in prompts.get(who, ()) for who in first):
            break
    found = []
    for who, (talk, entry) in first.items():
        seen = prompts.get(who, {})
        turns = sorted(seen)
        cut = Cut(
            who,
            talk,
            entry.label,
            prompt=seen[talk.turn][0] if talk.turn in seen else None,
            said=tuple(seen[turn][1].label for turn in turns),
            nth=turns.index(talk.turn) if talk.turn in seen else -1,
            transcript=transcripts.get(who, ""),
            ended=frozenset(ended.get(who, ())),
        )
        windows = {window.id: window for window in standing(entry.data).open}
        window = windows.get(opens(entry.data))
        if window is not None and window.actor != who:
            outer = windows.get(window.parent)
            cut = cut.replace(is_inside=True, outer=outer.step if outer is not None else "")
        found.append(cut)
    return found
