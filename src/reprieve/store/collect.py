"""Give space back: drop dead objects, copy what lives out of packs with dead bytes, remove those packs.

    what no row knows removed: files, tails of packs     needs no room
    rows of dead objects deleted; packs without any      in `drop`: the caller's transaction, or small ones of its own
      other lose their row, those with a dead end their end
    files and tails removed once more                    killed before: no row knows them, the next collection does it
    for each pack with dead bytes, from its end on:
        live content appended to other packs, durable    killed here: the copies are a tail, cut by the next writer
        rows switched, the old pack's end moved down     one transaction
        its tail cut off; its file removed with the last one

With room for all that lives in a pack this is one step. Without, a step takes what there is room for; before that the
dead bytes in the middle are made a hole, which needs no room, where the file system can do that.

A pack's dead bytes are read off the tables (frames whose objects lie elsewhere or nowhere), so a collection that was
cut short, and objects that were healed into another pack, need no note of their own.
"""

from __future__ import annotations

import errno
import os
import stat

from reprieve.errors import StoreFailed
from reprieve.store.ballast import give_way, release_ballast, room
from reprieve.store.faults import failed, is_full
from reprieve.store.frames import PACK_HEADER_SIZE, head_size
from reprieve.store.home import sync_directory
from reprieve.store.packfile import can_make_hole, cut_pack, make_holes, pack_path
from reprieve.store.places import Damaged, Place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from reprieve.store.db import Database
    from reprieve.store.home import Home
    from reprieve.store.packs import LocalPacks
    from reprieve.store.places import Places

_PAGE = 10_000
_REPLACED = ".reprieve-"  # how the names of directories begin that a restore has moved to tmp/ (files.tree.STAGES)
_VACUUM_FROM = 1000  # free pages (4 MB), and a quarter of the file
_AMPLE = 16 << 20  # with so much room left a step need not be small
_STEP_ROOM = 256 << 10  # what moving a frame needs beside it, for the journal


def collect(live: set[bytes], *, home: Home, db: Database, places: Places, blobs: LocalPacks) -> tuple[int, int]:
    """Drop what is not live; return (objects, bytes) freed. The caller is alone in the store.

    Where it fails, the error says in `data` what was freed until then.
    """
    before, dropped = _disk_use(home), 0
    try:
        _remove_strays(home, db)
        _cut_tails(home, db)
        if room(home.path) < _AMPLE:
            release_ballast(home.path, wholly=True)
        dropped = drop(live, home=home, db=db)
        _remove_strays(home, db)
        _cut_tails(home, db)
        wasteful = _wasteful(db)
        blobs.avoid(wasteful)
        for number in wasteful:
            _rewrite(number, home=home, db=db, places=places, blobs=blobs)
        _shrink(home, db)
    except (OSError, StoreFailed) as exc:
        error = exc if isinstance(exc, StoreFailed) else failed(exc, home.file("packs"), "collect garbage")
        error.data |= {"objects": dropped, "bytes": max(0, before - _disk_use(home))}
        raise error from (None if error is exc else exc)
    return dropped, max(0, before - _disk_use(home))


def drop(live: set[bytes], *, home: Home, db: Database) -> int:
    """Delete the rows of all that is not live; return how many objects that were. Packs are not touched.

    In the caller's transaction, if there is one. Else in small ones of its own, which need little room for the journal.
    """
    dropped = 0
    for table in ("objects", "damaged"):
        last = b""
        while page := db.query(f"SELECT id FROM {table} WHERE id > ? ORDER BY id LIMIT {_PAGE}", (last,)):
            last = page[-1][0]
            dead = [row for row in page if row[0] not in live]
            _delete(f"DELETE FROM {table} WHERE id = ?", dead, home=home, db=db)
            if table == "objects":
                dropped += len(dead)
    ends: dict[int, int] = {}
    for pack, end in db.query(
        "SELECT pack, max(offset + size) FROM frames WHERE number IN (SELECT frame FROM objects) GROUP BY pack"
    ):
        ends[pack] = end
    freed = False
    for pack, end in db.query("SELECT number, end FROM packs"):
        if ends.get(pack, 0) < end:
            _shorten(pack, ends.get(pack, 0), home=home, db=db)
            freed = True
    if dropped and not freed and db.is_in_transaction:
        _refuse_if_stuck(home, db)
    return dropped


def _refuse_if_stuck(home: Home, db: Database) -> None:
    """Raise if nothing could be freed: no room to move a frame, and no way to free a part of a file in its middle."""
    wasteful = _wasteful(db)
    if not wasteful or any(can_make_hole(pack_path(home, number)) for number in wasteful):
        return
    needed = min(_largest_behind_dead(number, db) for number in wasteful)
    if room(home.path) < needed + _STEP_ROOM:
        full = OSError(errno.ENOSPC, "no room to move what is kept")
        error = failed(full, home.file("packs"), f"free anything without {(needed + _STEP_ROOM) / 1e6:.1f} MB of room")
        error.data["is_stuck"] = True
        raise error


def _largest_behind_dead(number: int, db: Database) -> int:
    """The size of the largest frame that has to be moved before a pack can be cut off at dead bytes."""
    largest = 0
    for size, living in db.query(
        "SELECT size, number IN (SELECT frame FROM objects) FROM frames WHERE pack = ? ORDER BY offset DESC", (number,)
    ):
        if not living:
            break
        largest = max(largest, size)
    return largest


def _shorten(pack: int, end: int, *, home: Home, db: Database) -> None:
    """Take the frames behind that end out of the tables; with 0 the pack itself.

    It is sealed, so that no later frame lies where another one lay: a process may remember that one.
    """
    frames = db.query("SELECT number FROM frames WHERE pack = ? AND offset >= ? ORDER BY number", (pack, end))
    _delete("DELETE FROM frames WHERE number = ?", frames, home=home, db=db)
    last = "UPDATE packs SET end = ?2, is_sealed = 1 WHERE number = ?1" if end else "DELETE FROM packs WHERE number = ?"
    _delete(last, [(pack, end) if end else (pack,)], home=home, db=db)


def _delete(sql: str, rows: Sequence[tuple[object, ...]], *, home: Home, db: Database) -> None:
    """Run it for all rows, in as many transactions as the room for their journals asks for."""
    at, size = 0, max(len(rows), 1)
    while at < len(rows):
        try:
            with db.transaction():
                db.execute_many(sql, rows[at : at + size])
            at, size = at + size, size * 2
        except StoreFailed as exc:
            if not is_full(exc) or db.is_in_transaction:
                raise
            if size == 1 and not give_way(home.path):
                raise
            size = max(size // 8, 1)


def _wasteful(db: Database) -> list[int]:
    """Packs that hold bytes of no object."""
    living: dict[int, int] = dict(db.query("SELECT frame, count(*) FROM objects GROUP BY frame"))
    used: dict[int, int] = {}
    for number, pack, size, count in db.query("SELECT number, pack, size, count FROM frames"):
        if living.get(number) == count:
            used[pack] = used.get(pack, 0) + size
    packs = db.query("SELECT number, end FROM packs ORDER BY number")
    return [number for number, end in packs if end > PACK_HEADER_SIZE + used.get(number, 0) or number not in used]


def _rewrite(number: int, *, home: Home, db: Database, places: Places, blobs: LocalPacks) -> None:
    """Move a pack's live content elsewhere and remove the pack: in one step or, without room for that, from its end."""
    by_frame: dict[tuple[int, int], list[Place]] = {}
    lost: list[tuple[bytes, str]] = []
    for row in places.rows_of_pack(number):
        try:
            place = Place(row)
        except Damaged as exc:
            lost.append((row[0], str(exc)))
            continue
        by_frame.setdefault(place.frame, []).append(place)
    frames = [sorted(objects, key=lambda place: place.order) for _, objects in sorted(by_frame.items())]
    budget = sum(objects[0].size for objects in frames)
    if room(home.path) < budget + _AMPLE:
        _make_holes(number, home=home, db=db)
        budget = min(budget, max(room(home.path) - _AMPLE, 1 << 20))
    while True:
        step = _last_ones(frames, budget)
        before = frames[-len(step) - 1][0] if len(step) < len(frames) else None
        end = before.offset + before.size if before else 0
        try:
            _move_step(number, step, lost, end, db=db, places=places, blobs=blobs)
        except StoreFailed as exc:
            blobs.start_again()
            _remove_strays(home, db)
            _cut_tails(home, db)  # the bytes that did fit
            if not is_full(exc) or (len(step) <= 1 and not give_way(home.path)):
                raise
            budget //= 4
            continue
        if not end:
            _remove_strays(home, db)
            return
        cut_pack(pack_path(home, number), end)
        del frames[len(frames) - len(step) :]
        lost = []


def _last_ones(frames: list[list[Place]], budget: int) -> list[list[Place]]:
    """So many of the last frames as fit into the budget, one at least."""
    start = len(frames)
    while start and (start == len(frames) or frames[start - 1][0].size <= budget):
        start -= 1
        budget -= frames[start][0].size
    return frames[start:]


def _move_step(
    number: int,
    frames: list[list[Place]],
    lost: list[tuple[bytes, str]],
    end: int,
    *,
    db: Database,
    places: Places,
    blobs: LocalPacks,
) -> None:
    """Store these frames of a pack elsewhere and let the pack end before them; 0: the pack is no more."""
    damaged: list[tuple[bytes, str]] = []
    lost = list(lost)
    for objects in frames:
        if len(objects) == objects[0].count:
            damaged += _move(objects, places=places, blobs=blobs)
        else:
            lost += _copy(objects, places=places, blobs=blobs)
    with db.transaction():
        blobs.flush()
        db.execute_many("INSERT OR REPLACE INTO damaged VALUES (?, ?)", damaged + lost)
        db.execute_many("DELETE FROM objects WHERE id = ?", [(id,) for id, _ in lost])
        db.execute("DELETE FROM frames WHERE pack = ? AND offset >= ?", (number, end))
        if end:
            db.execute("UPDATE packs SET end = ?, is_sealed = 1 WHERE number = ?", (end, number))
        else:
            db.execute("DELETE FROM packs WHERE number = ?", (number,))


def _make_holes(number: int, *, home: Home, db: Database) -> None:
    """Free the payloads of a pack's dead frames where they lie. Their heads stay, so that the pack can be walked."""
    dead = db.query(
        "SELECT offset, size, count FROM frames WHERE pack = ? AND number NOT IN (SELECT frame FROM objects)", (number,)
    )
    holes = [(offset + head_size(count), size - head_size(count)) for offset, size, count in dead]
    make_holes(pack_path(home, number), holes)


def _move(objects: list[Place], *, places: Places, blobs: LocalPacks) -> list[tuple[bytes, str]]:
    """Append a frame that lives as a whole, as it is; return which of its objects are damaged.

    Damaged ones move too: their bytes are nobody else's, and someone may still make something of them.
    """
    first = objects[0]
    state = places.unsound_in_frame(first)
    try:
        frame = places.read_frame(first)
    except Damaged as exc:
        frame, state = bytes(first.size), str(exc)
    blobs.move_frame([(p.id, p.length) for p in objects], first.codec, memoryview(frame)[head_size(first.count) :])
    if isinstance(state, str):
        return [(place.id, state) for place in objects]
    return list(state.items())


def _copy(objects: list[Place], *, places: Places, blobs: LocalPacks) -> list[tuple[bytes, str]]:
    """Append the live ones of a frame's objects; return those that could not be read and are thereby gone."""
    lost = []
    for place in objects:
        try:
            blobs.put_anew(place.id, places.read(place))
        except Damaged as exc:
            lost.append((place.id, str(exc)))
    return lost


def _remove_strays(home: Home, db: Database) -> None:
    """Remove what no row knows: packs that were moved or never committed, and what killed processes did not finish."""
    known = {f"{number}.pack" for (number,) in db.query("SELECT number FROM packs")}
    indexes = {name for name in os.listdir(home.file("index")) if "." not in name}  # the others wait for their name
    for folder, keep in (("packs", known), ("index", indexes), ("tmp", set[str]())):
        path = home.file(folder)
        strays = [name for name in os.listdir(path) if name not in keep]
        for name in strays:
            try:
                if not stat.S_ISDIR(os.lstat(f"{path}/{name}").st_mode):
                    if folder == "packs":
                        cut_pack(f"{path}/{name}", 0)  # a process that still has it open would keep its bytes
                    os.unlink(f"{path}/{name}")
                elif folder == "tmp" and name.startswith(_REPLACED):
                    _remove_replaced(os.fsencode(f"{path}/{name}"))
            except FileNotFoundError:
                continue  # its own process has removed it
        if strays:
            sync_directory(path)


def _cut_tails(home: Home, db: Database) -> None:
    """Cut packs off at their committed end: behind it lies what failed writers wrote, and what `drop` has dropped."""
    for number, end in db.query("SELECT number, end FROM packs"):
        # a frame behind the end: then the row of the pack is not what was written
        if not db.query("SELECT 1 FROM frames WHERE pack = ? AND offset + size > ? LIMIT 1", (number, end)):
            cut_pack(pack_path(home, number), end)


def _remove_replaced(path: bytes) -> None:
    """What a restore left: files, and the rooms where it made them."""
    with os.scandir(path) as found:
        for entry in list(found):
            if entry.is_dir(follow_symlinks=False):
                os.rmdir(entry.path)
            else:
                os.unlink(entry.path)
    os.rmdir(path)


def _shrink(home: Home, db: Database) -> None:
    free: int = db.query("PRAGMA freelist_count")[0][0]
    size: int = db.query("PRAGMA page_count")[0][0]
    if free >= _VACUUM_FROM and free * 4 >= size and room(home.path) > size * 4096 * 2:
        db.vacuum()


def _disk_use(home: Home) -> int:
    with os.scandir(home.file("packs")) as names:
        return sum(occupied(name.stat(follow_symlinks=False)) for name in names)


def occupied(info: os.stat_result) -> int:
    """Bytes of the disk that a file takes: with holes fewer than its length."""
    return min(info.st_size, info.st_blocks * 512) or info.st_size  # 0 blocks: the file system does not tell
