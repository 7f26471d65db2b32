"""Decide about a database as one thing: the file, its logs, and the index of its log. Pure.

Why, and what belongs to it, is told in `files.databases`. Here its parts are taken out of the story together
(`take_out_whole`), and what a plan does to one of them it does to all (`join`).
"""

from __future__ import annotations

import os

from reprieve.files.databases import index_of, is_other_file, parts_of
from reprieve.files.live_sqlite import SUFFIXES, owner_of, sidecars
from reprieve.model.entry import FILE, Entry
from reprieve.rollback.chains import Chain, Link, is_same
from reprieve.rollback.takeout import Outcome

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    Difference = tuple[bytes, Entry | None, Entry | None]  # path, wanted, current
    There = Callable[[bytes], Entry | None]  # what is at a path now
    IsDatabase = Callable[[bytes, tuple[Entry | None, ...]], bool]  # whether one of these, at that path, is one


def join(
    differences: Iterable[Difference], *, there: There, is_database: IsDatabase
) -> tuple[list[Difference], dict[bytes, bytes]]:
    """Have the parts of a database move together, and its index go: never come back, never change by itself.

    Also answers which paths move so: each → its database.
    """
    at = {path: (wanted, current) for path, wanted, current in differences}
    parts: dict[bytes, bytes] = {}
    for database in sorted({owner_of(path) or path for path in at}):
        sides = {}
        for path in (database, *sidecars(database)):
            now = there(path) if path not in at else None
            sides[path] = at.get(path, (now, now))
        is_alone = not any(side for path in sides if path != database for side in sides[path])
        if is_alone or not is_database(database, sides[database]):
            continue
        index = index_of(database)
        at.pop(index, None)
        if not any(is_other_file(*sides[path]) for path in parts_of(database)):
            continue
        gap = next((path for path in parts_of(database) if any(side and side.gap for side in sides[path])), b"")
        for path in parts_of(database):
            wanted, current = sides[path]
            if gap and path in at and not any(side and side.gap for side in (wanted, current)):
                reason = f"one database with {os.fsdecode(gap)}, which is not"
                at[path] = (wanted and wanted.replace(gap=reason), current and current.replace(gap=reason))
            elif not gap and (wanted or current):
                at[path], parts[path] = (wanted, current), database
        now = sides[index][1]
        if not gap and now is not None and now.kind == FILE:
            at[index], parts[index] = (None, now.replace(gap="")), database
    return [(path, *pair) for path, pair in at.items()], parts


def find_parts(chains: Mapping[bytes, Chain], *, there: There, is_database: IsDatabase) -> dict[bytes, bytes]:
    """Each path that changed and is a part of a database whose logs or index changed → the database."""
    found: dict[bytes, bytes] = {}
    for database in {owner_of(path) for path in chains if path.endswith(SUFFIXES)} - {b""}:
        chain = chains.get(database)
        states = (there(database), *((chain.then, *(link.after for link in chain.links)) if chain else ()))
        if is_database(database, states):
            found.update((path, database) for path in (database, *sidecars(database)) if path in chains)
    return found


def take_out_whole(
    parts: list[Chain],
    is_taken: Callable[[Link], bool],
    *,
    is_doubtful: Callable[[Link], bool],
    whose: Callable[[Link], str],
    is_renamed: Callable[[Link], bool],
) -> tuple[list[Outcome], tuple[Link, ...]]:
    """What each part becomes, the first being the database itself; with a conflict also the changes in the way.

    Their bytes only: a database is not merged. `is_renamed`: the file that this link took away has another name now.
    """
    steps = _steps(parts)
    if all(not is_other_file(chain.then, chain.now) for chain in parts):
        return [Outcome(chain.now) for chain in parts], ()
    count = len(steps)
    while count and is_taken(steps[count - 1][0]):
        count -= 1
    left, gone = steps[:count], steps[count:]
    doubt = next((link for step in steps for link in step if is_doubtful(link)), None)
    if doubt is not None:
        return _conflict(parts, gone, f"changed while several were at work: {whose(doubt)}"), ()
    first = next((n for n, step in enumerate(left) if is_taken(step[0])), -1)
    if first < 0:
        return [Outcome(entry) for entry in _before(parts, gone)], ()
    if not gone and all(chain.now is None for chain in parts) and not any(map(is_renamed, left[-1])):
        return [Outcome(None) for _ in parts], ()  # deleted by who stays: it stays deleted
    others = tuple(step[0] for step in left[first:] if not is_taken(step[0]))
    reason = f"changed by {whose(left[first][0])} and by {whose(others[-1])}, and a database is not merged"
    return _conflict(parts, gone, reason), others


def _steps(parts: list[Chain]) -> list[list[Link]]:
    """The changes of any part, those of one moment together, oldest first."""
    found: dict[int, list[Link]] = {}
    for chain in parts:
        for link in chain.links:
            if is_other_file(link.before, link.after):
                found.setdefault(id(link.span), []).append(link)
    return sorted(found.values(), key=_when)


def _when(step: list[Link]) -> tuple[bool, int]:
    entry = step[0].span.entry
    return (True, 0) if entry is None else (False, entry.seq)


def _before(parts: list[Chain], steps: list[list[Link]]) -> list[Entry | None]:
    """Each part as it was before the first of these steps, which are the last ones."""
    going = {id(link) for step in steps for link in step}
    return [next((link.before for link in chain.links if id(link) in going), chain.now) for chain in parts]


def _conflict(parts: list[Chain], gone: list[list[Link]], reason: str) -> list[Outcome]:
    """Undecided, as a whole; where it is gone, what the others had left is what there is to keep."""
    left = _before(parts, gone) if parts[0].now is None else [chain.now for chain in parts]
    return [
        Outcome(entry, reason if chain.then is not None or chain.now is not None else "")
        for chain, entry in zip(parts, left, strict=True)
    ]


def with_rights(whole: Outcome, alone: Outcome) -> Outcome:
    """The part as decided with the others, with the owner, mode and times that were decided for it alone."""
    is_plain = not whole.conflict and not alone.conflict and not is_other_file(whole.entry, alone.entry)
    return alone if is_plain and not is_same(whole.entry, alone.entry) else whole
