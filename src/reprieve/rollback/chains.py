"""What happened to each path, link by link, and who did it. Pure.

    chain of auth.py     then ──agent──▶ e1 ──person──▶ e2 ──agent──▶ now

A rollback or redo in between brings a state back that was there before, and with it the links that led to it: a change
that was taken back is no longer part of the story.
"""

from __future__ import annotations

from reprieve.model.actor import PERSON, UNKNOWN
from reprieve.model.change import classify
from reprieve.model.entry import DIR, Entry
from reprieve.model.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from reprieve.model.timeline import TimelineEntry

    Delta = Sequence[tuple[bytes, Entry | None, Entry | None]]


class Span(Value):
    """What changed between two neighbouring entries, or between the newest one and now."""

    actor: str
    delta: Delta
    entry: TimelineEntry | None = None  # the one that it ends with; None: now
    windows: tuple[tuple[str, ...], ...] = ()  # ids of each innermost one that was open, with those around it
    is_move: bool = False  # made by a rollback, undo, revert or redo


class Link(Value):
    """One change of one path."""

    actor: str
    before: Entry | None
    after: Entry | None
    span: Span


class Chain:
    """All changes of one path since some point."""

    __slots__ = ("_known", "links", "now", "path", "then")

    def __init__(self, path: bytes, then: Entry | None) -> None:
        self.path, self.then, self.now = path, then, then
        self.links: tuple[Link, ...] = ()
        self._known: list[tuple[Entry | None, tuple[Link, ...]]] = [(then, ())]  # states, with the links to them

    def add(self, link: Link) -> None:
        """What happened next."""
        self.now = link.after
        if is_same(link.before, link.after):
            return
        if link.span.is_move:
            for state, links in reversed(self._known):
                if is_same(state, link.after):
                    self.links = links
                    return
        self.links = (*self.links, link)
        self._known.append((link.after, self.links))


def chains(spans: Iterable[Span]) -> dict[bytes, Chain]:
    """The chain of every path that any span changed."""
    found: dict[bytes, Chain] = {}
    for span in spans:
        for path, before, after in span.delta:
            chain = found.get(path)
            if chain is None:
                chain = found[path] = Chain(path, before)
            chain.add(Link(span.actor, before, after, span))
    return found


def is_same(a: Entry | None, b: Entry | None) -> bool:
    """Whether nothing happened from one to the other; a directory's times follow from what is in it."""
    if a is None or b is None:
        return a is b
    if a == b:
        return True
    return a.kind == b.kind == DIR and not classify(a, b)


def changes(span: Span) -> bool:
    """Whether anything happened in it."""
    return any(not is_same(before, after) for _, before, after in span.delta)


def is_persons(link: Link) -> bool:
    """Known to be a person's, or brought about by a command that a person gave: it stays."""
    return link.actor == PERSON or link.span.is_move


def judged(actor: str, *, is_outside: bool, has_windows: bool) -> str:
    """The actor of a span, seen together with its neighbours.

    Outside every window means a person only where windows are in use: without them nothing is known.
    """
    if has_windows:
        return PERSON if is_outside else actor
    return UNKNOWN if actor == PERSON else actor
