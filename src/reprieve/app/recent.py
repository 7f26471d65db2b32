"""What an agent's session did last, and which rollbacks it has not been told of yet."""

from __future__ import annotations

from reprieve.errors import StoreCorrupted
from reprieve.files import tree
from reprieve.model.actor import PERSON
from reprieve.model.change import classify
from reprieve.model.talk import Talk, talk_of
from reprieve.model.timeline import MOVES, TimelineEntry
from reprieve.model.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from reprieve.files.capture import Capture
    from reprieve.model.entry import Entry
    from reprieve.model.window import Window
    from reprieve.store.protocols import Timeline

_FAR = 5000  # entries to look back for a session; one that was silent for longer counts its turns anew
_PATHS = 20


class Recent(Value):
    """The newest moments of a session on a timeline, newest first, and what the one that acts must be told."""

    talks: tuple[tuple[TimelineEntry, Talk], ...] = ()
    moves: tuple[TimelineEntry, ...] = ()
    head: int = 0
    known: int = 0  # up to where the main agent knows of moves

    @property
    def talk(self) -> Talk | None:
        return self.talks[0][1] if self.talks else None

    def turn_at_end(self, window: Window) -> int:
        """The turn that the session is in when a window closes: it may be over while a call of it still goes on.

        Whose turn the call was the window says; the next turn is counted from here.
        """
        return max(window.turn, self.talk.turn) if self.talk is not None else window.turn

    def told(self, *, is_telling: bool) -> int:
        """Up to where the main agent knows, after an entry that tells it, or does not."""
        return self.head if is_telling else self.known


def look_back(timeline: Timeline, who: str, *, inner: str = "", least: int = 0) -> Recent:
    """What is known about a session, from at least so many entries (if there are); `inner` is the sub-agent that acts.

    What the main agent knows its sub-agents know, but not the other way round. A damaged timeline knows nothing: a
    checkpoint must still be possible.
    """
    talks: list[tuple[TimelineEntry, Talk]] = []
    moves: list[TimelineEntry] = []
    head = 0
    try:
        for count, entry in enumerate(timeline.backwards()):
            head = head or entry.seq
            if entry.kind in MOVES:
                moves.append(entry)
            elif (talk := talk_of(entry.data, who)) is not None:
                talks.append((entry, talk))
            if (talks and entry.seq <= talks[0][1].told + 1 and count >= least) or count == _FAR:
                break
    except StoreCorrupted:
        return Recent(head=head, known=head)
    known = talks[0][1].told if talks else head  # who begins now has nothing to unlearn
    heard = max((talk.heard for _, talk in talks if inner and talk.inner == inner), default=0)
    new = [move for move in moves if move.seq > known]
    return Recent(tuple(talks), tuple(move for move in new if move.seq > heard), head, known if new else head)


def last_seen(timeline: Timeline) -> dict[str, int]:
    """Agent → when (ns) its newest step was recorded."""
    seen: dict[str, int] = {}
    for entry in timeline.newest_first(limit=_FAR):
        talk = talk_of(entry.data)
        if talk is not None:
            seen.setdefault(talk.who.partition(":")[0], entry.created_at)
    return seen


def note_of(capture: Capture, moves: tuple[TimelineEntry, ...], root: bytes) -> str:
    """What to tell an agent whose picture of the files under `root` is no longer right."""
    began: dict[bytes, Entry | None] = {}
    ended: dict[bytes, tuple[Entry | None, TimelineEntry]] = {}
    for move in reversed(moves):
        for path, before, after in tree.decode_delta(capture.object(move.delta)) if move.delta else ():
            began.setdefault(path, before)
            ended[path] = (after, move)
    paths: dict[bytes, str] = {}
    movers: set[str] = set()
    for path, (after, move) in ended.items():
        before = began[path]
        if classify(before, after):  # not of what a redo brought back
            paths[path] = "deleted" if after is None else "restored" if before is None else "changed back"
            movers.add(move.id)
    if not paths:
        return ""
    kinds = " and ".join(dict.fromkeys(move.kind for move in reversed(moves) if move.id in movers))
    lines = [f"- {word}: {path.decode('utf-8', 'replace')}" for path, word in list(paths.items())[:_PATHS]]
    if len(paths) > _PATHS:
        lines.append(f"- and {len(paths) - _PATHS:,} more: reprieve show {moves[0].id}")
    where = root.decode("utf-8", "replace")
    persons = [move.actor == PERSON for move in moves if move.id in movers]
    by = "the user" if all(persons) else "the user or an agent" if any(persons) else "an agent"
    wish = "Do not bring the changes back unless the user asks for it, and read" if any(persons) else "Read"
    return (
        f"Reprieve: {by} moved files in {where} with `reprieve` ({kinds}) since your last step; they are no longer "
        f"as you left them. {wish} these files again before you rely on them:\n" + "\n".join(lines)
    )
