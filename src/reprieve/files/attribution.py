"""Who made what changed since the last entry: read the newest checkpoint's windows, and see who is still at work."""

from __future__ import annotations

from reprieve.errors import StoreCorrupted
from reprieve.files import processes
from reprieve.model.actor import PERSON, UNKNOWN
from reprieve.model.timeline import CHECKPOINT
from reprieve.model.window import DAMAGED, Standing, Window, standing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from reprieve.model.timeline import TimelineEntry
    from reprieve.store.protocols import Timeline


def last_standing(timeline: Timeline, head: TimelineEntry | None) -> Standing:
    """What was going on after the newest checkpoint. Moves and housekeeping open and close nothing."""
    try:
        while head is not None and head.kind != CHECKPOINT:
            head = timeline.at(head.seq - 1) if head.seq > 1 else None  # every move has a checkpoint right before it
    except StoreCorrupted:
        return DAMAGED  # a checkpoint must still be possible: it is what heals
    return standing(head.data) if head is not None else Standing()


def author_now(last: Standing) -> tuple[str, Standing]:
    """Who made what changed since, and what is going on now.

    A window whose process died closed at some time since: what came after it may be a person's, so nobody can tell.
    """
    open_now = tuple(w for w in last.open if not w.pid or processes.is_alive(w.pid, w.born))
    left_now = tuple((pid, born) for pid, born in last.left if processes.is_alive(pid, born))
    author = last.author() if open_now == last.open else UNKNOWN
    return author, last.replace(open=open_now, left=left_now)


def opened(last: Standing, author: str, window: Window) -> tuple[str, Standing]:
    """The same with one more window. Who has windows works inside of them: before the first one it was a person."""
    if author == UNKNOWN and not last.is_used:
        author = PERSON
    return author, last.replace(open=(*last.open, window), is_used=True)


def altered(last: Standing, window: Window) -> Standing:
    """The same with what is known about a window brought up to date."""
    return last.replace(open=tuple(window if w.id == window.id else w for w in last.open))


def closed(last: Standing, id: str, left: tuple[tuple[int, int], ...]) -> Standing:
    """The same without that window, and with the processes that it left behind."""
    return last.replace(open=tuple(w for w in last.open if w.id != id), left=(*last.left, *left), is_used=True)
