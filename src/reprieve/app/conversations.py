"""Where each agent's conversation has to be cut to agree with a point of the timeline."""

from __future__ import annotations

from reprieve.model.talk import END, PROMPT, Talk, talk_of
from reprieve.model.value import Value

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
    prompt_label: str = ""
    transcript: str = ""

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
    prompts: dict[tuple[str, int], tuple[Talk, TimelineEntry]] = {}
    for entry in timeline.backwards():
        talk = talk_of(entry.data)
        if talk is None:
            if entry.seq <= target.seq and all((who, t.turn) in prompts for who, (t, _) in first.items()):
                break
            continue
        if talk.transcript:
            transcripts.setdefault(talk.who, talk.transcript)
        if talk.at == PROMPT:
            prompts[talk.who, talk.turn] = (talk, entry)
        if entry.seq >= target.seq and talk.at != END:
            first[talk.who] = (talk, entry)
    found = []
    for who, (talk, entry) in first.items():
        prompt = prompts.get((who, talk.turn))
        found.append(
            Cut(
                who,
                talk,
                entry.label,
                prompt=prompt[0] if prompt else None,
                prompt_label=prompt[1].label if prompt else "",
                transcript=transcripts.get(who, ""),
            )
        )
    return found
