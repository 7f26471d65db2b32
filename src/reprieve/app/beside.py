"""Effects in the places where the timeline is shown. Costs nothing where there are none."""

from __future__ import annotations

import os

from reprieve.store.chain import is_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from reprieve.app.workspace import Workspace
    from reprieve.model.effect import Effect
    from reprieve.model.timeline import TimelineEntry

    Json = dict[str, object]

_MOST = 10_000  # effects beside a diff or a status; `effects` streams them all


def since(ws: Workspace, base: TimelineEntry | None, *, until: int = 0) -> list[Json]:
    """Effects begun after an entry, newest first."""
    return between(ws, base.seq, until) if base is not None else []


def between(ws: Workspace, first: int, last: int) -> list[Json]:
    """Effects begun after the first entry and before the last (0: now), newest first."""
    found = []
    for effect in _all(ws, first):
        if not last or _at(effect) < last:
            found.append(effect)
        if len(found) == _MOST:
            break
    return found


def is_lost(entry: TimelineEntry, before: TimelineEntry | None) -> bool:
    """Whether nobody can tell any more what an entry changed: the one before it was pruned."""
    return before is not None and before.is_pruned and entry.changed > 0


def find_effect(ws: Workspace, text: str) -> Effect | None:
    """The effect with this id (or beginning of one), None if it names no effect. A label that is the same wins.

    Raises BadRef for a beginning that an entry of the timeline has as well.
    """
    if not is_id(text, is_whole=False) or not _has(ws):
        return None
    from reprieve.app.effects import journal_of
    from reprieve.errors import BadRef

    with journal_of(ws) as journal:
        try:
            effect = journal.find(text)
        except BadRef:
            return None
    others = ws.timeline.matching(text) if effect.id != text else []
    if any(entry.title == text for entry in others):
        return None
    if others:
        raise BadRef(
            f"'{text}' means {len(others) + 1} entries",
            details=[
                f"{effect.id}  effect  {effect.description}",
                *(f"{e.id}  {e.kind}  {e.title}" for e in others[:20]),
            ],
            hints=["name one of them by its id"],
            data={"candidates": [effect.id, *(entry.id for entry in others)]},
        )
    return effect


def untried_effects(ws: Workspace) -> Callable[[frozenset[str]], bool]:
    """Whether windows of these ids have an effect that nobody undid, kept or tried to undo; looks once, when asked."""
    known: list[set[str]] = []

    def has_effects(windows: frozenset[str]) -> bool:
        if not known:
            known.append(_untried(ws) if _has(ws) else set())
        return not known[0].isdisjoint(windows)

    return has_effects


def _untried(ws: Workspace) -> set[str]:
    from reprieve.app.effects import journal_of

    with journal_of(ws) as journal:
        return {effect.window for effect in journal.effects(is_open=True) if effect.window and not effect.undo_state}


class NewestFirst:
    """Effects to be put between the entries of a log."""

    def __init__(self, ws: Workspace) -> None:
        self._left = _all(ws, 0)
        self._next = next(self._left, None)

    def down_to(self, seq: int) -> Iterator[Json]:
        """Those that were begun at or after the entry of that number."""
        while self._next is not None and _at(self._next) >= seq:
            yield self._next
            self._next = next(self._left, None)


def merged(entries: Iterable[TimelineEntry], effects: NewestFirst) -> Iterator[TimelineEntry | Json]:
    """Entries and effects in one order, newest first."""
    for entry in entries:
        yield from effects.down_to(entry.seq)
        yield entry
    yield from effects.down_to(0)


def found_in(effect: Json, needle: str) -> bool:
    """Whether what people read of an effect has the (casefolded) needle in it."""
    return not needle or any(
        needle in str(effect[name]).casefold() for name in ("id", "description", "resource", "step")
    )


def _all(ws: Workspace, seq: int) -> Iterator[Json]:
    if not _has(ws):
        return
    from reprieve.app.effects import journal_of, json_of

    with journal_of(ws) as journal:
        for effect in journal.effects(since=seq):
            yield {**json_of(effect), "at": effect.at}


def _has(ws: Workspace) -> bool:
    return os.path.exists(os.path.join(ws.home, "effects.db"))


def _at(effect: Json) -> int:
    at = effect["at"]
    assert isinstance(at, int)
    return at
