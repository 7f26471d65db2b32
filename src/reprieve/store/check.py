"""Look at every byte: which objects are no longer what their names say."""

from __future__ import annotations

from reprieve.store.faults import failed
from reprieve.store.places import Damaged, Place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from reprieve.store.db import Database, Row
    from reprieve.store.places import Places

    Remember = Callable[[Sequence[tuple[bytes, str]]], None]

_AT_A_TIME = 50_000  # objects in memory; each round scans the object table once


def check_some(places: Places, db: Database, remember: Remember, ids: list[bytes]) -> Iterator[tuple[bytes, str]]:
    """Problems (id, reason) among ids; an id without a row is one."""
    rows = list(places.rows(ids))
    yield from _settle(places, db, remember, rows)
    missing = set(ids).difference(row[0] for row in rows)
    if missing:
        problems = [(id, "it is not in the store") for id in sorted(missing)]
        remember(problems)
        yield from problems


def check_all(places: Places, db: Database, remember: Remember) -> Iterator[tuple[bytes, str]]:
    """Problems (id, reason) among all objects, in the order of the disk."""
    first = 0
    while True:
        frames = db.query("SELECT number, count FROM frames WHERE number > ? ORDER BY number LIMIT 5000", (first,))
        if not frames:
            break
        objects, last = 0, first
        for number, count in frames:
            last = number
            objects += count if isinstance(count, int) else 0
            if objects >= _AT_A_TIME:
                break
        yield from _settle(places, db, remember, places.rows_of_frames(first + 1, last))
        first = last
    lost = db.query("SELECT id FROM objects WHERE frame NOT IN (SELECT number FROM frames)")
    known = db.query("SELECT id, reason FROM damaged WHERE id NOT IN (SELECT id FROM objects)")
    problems = [(id, "its row in the database is damaged") for (id,) in lost]
    remember(problems)
    yield from problems
    yield from known


def _settle(places: Places, db: Database, remember: Remember, rows: list[Row]) -> list[tuple[bytes, str]]:
    problems = list(_problems(places, rows))
    bad = {id for id, _ in problems}
    remember(problems)
    marked = {id for (id,) in db.query("SELECT id FROM damaged")}
    healed = [(row[0],) for row in rows if row[0] in marked and row[0] not in bad]
    if healed:  # a disk that was away and is back
        with db.transaction():
            db.execute_many("DELETE FROM damaged WHERE id = ?", healed)
    return problems


def _problems(places: Places, rows: list[Row]) -> Iterator[tuple[bytes, str]]:
    found: list[Place] = []
    for row in rows:
        try:
            found.append(Place(row))
        except Damaged as exc:
            yield row[0], str(exc)
    found.sort(key=lambda place: place.order)
    frame: tuple[int, int] | None = None
    state: dict[bytes, str] | str = {}
    for place in found:
        try:
            if place.frame != frame:
                state, frame = places.unsound_in_frame(place), place.frame
            reason = state if isinstance(state, str) else state.get(place.id, "")
            if not reason:
                places.read(place)  # the row's own idea of where the object lies in the frame
                continue
            # Once more with everything opened anew: a collection may just have moved it.
            places.forget()
            again = places.find(place.id)
            if again.order != place.order:
                places.read(again)
                continue
        except Damaged as exc:
            reason = str(exc)
        except OSError as exc:
            reason = failed(exc, "/", f"read pack {place.pack}").message
        yield place.id, reason
