"""Decide about a database as one thing: the file, its logs, and the index of its log. Pure.

Why, and what belongs to it, is told in `files.databases`. Here its parts are taken out of the story together
(`take_out_whole`), and what a plan does to one of them it does to all (`join`).
"""

from __future__ import annotations

import os

from reprieve.files.databases import index_of, is_other_file, parts_of
from reprieve.files.live_sqlite import SUFFIXES, owner_of, sidecars
from reprieve.files.wal import applied
from reprieve.model.entry import FILE, Entry
from reprieve.rollback.chains import Chain, Link, is_same
from reprieve.rollback.takeout import Outcome

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from reprieve.rollback.takeout import Read

    Difference = tuple[bytes, Entry | None, Entry | None]  # path, wanted, current
    There = Callable[[bytes], Entry | None]  # what is at a path now
    IsDatabase = Callable[[bytes, tuple[Entry | None, ...]], bool]  # whether one of these, at that path, is one

_LARGEST = 1 << 26  # bytes of a file of a database that is looked into


def join(
    differences: Iterable[Difference], *, there: There, is_database: IsDatabase, is_index: IsDatabase
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
        has_index = is_index(index, sides[index])
        if has_index:
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
        if has_index and not gap and now is not None:
            at[index], parts[index] = (None, now.replace(gap="")), database
    return [(path, *pair) for path, pair in at.items()], parts


def find_parts(
    chains: Mapping[bytes, Chain], *, there: There, is_database: IsDatabase, is_index: IsDatabase
) -> dict[bytes, bytes]:
    """Each path that changed and is a part of a database whose logs or index changed → the database."""
    found: dict[bytes, bytes] = {}
    for database in {owner_of(path) for path in chains if path.endswith(SUFFIXES)} - {b""}:
        chain = chains.get(database)
        states = (there(database), *(_states(chain) if chain else ()))
        if is_database(database, states):
            found.update((path, database) for path in (database, *sidecars(database)) if path in chains)
            index = index_of(database)
            if index in found and not is_index(index, _states(chains[index])):
                del found[index]
    return found


def _states(chain: Chain) -> tuple[Entry | None, ...]:
    return (chain.then, *(link.after for link in chain.links))


def holds_the_same(before: Sequence[Entry | None], after: Sequence[Entry | None], read: Read) -> bool:
    """Whether a database holds the same rows in both states (as `parts_of` orders them), in whichever file they are."""
    (file, log, journal), (new_file, new_log, new_journal) = map(_filled, (before, after))
    if file is None or new_file is None or is_other_file(journal, new_journal):
        return False
    entries = [entry for entry in (file, log, new_file, new_log) if entry is not None]
    if any(entry.kind != FILE or entry.gap for entry in entries):
        return False
    if not is_other_file(file, new_file) and not is_other_file(log, new_log):
        return True
    if any(entry.size > _LARGEST for entry in entries):
        return False
    return applied(read(file), read(log) if log else b"") == applied(read(new_file), read(new_log) if new_log else b"")


def _filled(state: Sequence[Entry | None]) -> list[Entry | None]:
    """Without logs that are empty: a program makes one when it opens the database."""
    return [state[0], *(entry if entry is not None and entry.size else None for entry in state[1:])]


def take_out_whole(
    parts: list[Chain],
    is_taken: Callable[[Link], bool],
    *,
    read: Read,
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
    going = _going(parts, steps, is_taken, read)
    count = len(steps)
    while count and id(steps[count - 1]) in going:
        count -= 1
    left, gone = steps[:count], steps[count:]
    doubt = next((link for step in steps for link in step if is_doubtful(link)), None)
    if doubt is not None:
        return _conflict(parts, gone, f"changed while several were at work: {whose(doubt)}"), ()
    first = next((n for n, step in enumerate(left) if id(step) in going), -1)
    if first < 0:
        return [Outcome(entry) for entry in _before(parts, gone)], ()
    if not gone and all(chain.now is None for chain in parts) and not any(map(is_renamed, left[-1])):
        return [Outcome(None) for _ in parts], ()  # deleted by who stays: it stays deleted
    others = tuple(step[0] for step in left[first:] if id(step) not in going)
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


def _going(parts: list[Chain], steps: list[list[Link]], is_taken: Callable[[Link], bool], read: Read) -> set[int]:
    """The steps that are taken, and those after one that changed no row: somebody's program emptied the log."""
    going: set[int] = set()
    state = {chain.path: chain.then for chain in parts}
    for step in steps:
        links = {id(link) for link in step}
        changed = {chain.path: link.after for chain in parts for link in chain.links if id(link) in links}
        new = {**state, **changed}
        if is_taken(step[0]) or (going and holds_the_same(list(state.values()), list(new.values()), read)):
            going.add(id(step))
        state = new
    return going


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
