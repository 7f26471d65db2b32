"""Give space back: drop dead objects, copy what lives out of packs with dead bytes, remove those packs.

    rows of dead objects deleted                         one transaction
    for each pack with dead bytes:
        live content appended to other packs, durable    killed here: the copies are a tail, cut by the next writer
        rows switched, the old pack's row deleted        one transaction
        old file removed                                 killed before: no row knows it, the next collection removes it

A pack's dead bytes are read off the tables (frames whose objects lie elsewhere or nowhere), so a collection that was
cut short, and objects that were healed into another pack, need no note of their own.
"""

from __future__ import annotations

import os
import stat

from reprieve.store.faults import failed
from reprieve.store.frames import PACK_HEADER_SIZE, head_size
from reprieve.store.home import sync_directory
from reprieve.store.places import Damaged, Place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from reprieve.store.db import Database
    from reprieve.store.home import Home
    from reprieve.store.packs import LocalPacks
    from reprieve.store.places import Places

_PAGE = 10_000
_REPLACED = ".reprieve-"  # how the names of directories begin that a restore has moved to tmp/ (files.tree.STAGES)
_VACUUM_FROM = 1000  # free pages (4 MB), and a quarter of the file


def collect(live: set[bytes], *, home: Home, db: Database, places: Places, blobs: LocalPacks) -> tuple[int, int]:
    """Drop what is not live; return (objects, bytes) freed. The caller is alone in the store."""
    try:
        before = _disk_use(home)
        with db.transaction():
            dropped = _drop_rows(live, db)
        _remove_strays(home, db)
        wasteful = _wasteful(db)
        blobs.avoid(wasteful)
        for number in wasteful:
            _rewrite(number, db=db, places=places, blobs=blobs)
            _remove_strays(home, db)
        _shrink(db)
        return dropped, max(0, before - _disk_use(home))
    except OSError as exc:
        raise failed(exc, home.file("packs"), "collect garbage") from exc


def _drop_rows(live: set[bytes], db: Database) -> int:
    dropped = 0
    for table in ("objects", "damaged"):
        last = b""
        while True:
            page = db.query(f"SELECT id FROM {table} WHERE id > ? ORDER BY id LIMIT {_PAGE}", (last,))
            if not page:
                break
            last = page[-1][0]
            dead = [row for row in page if row[0] not in live]
            db.execute_many(f"DELETE FROM {table} WHERE id = ?", dead)
            if table == "objects":
                dropped += len(dead)
    return dropped


def _wasteful(db: Database) -> list[int]:
    """Packs that hold bytes of no object."""
    living: dict[int, int] = dict(db.query("SELECT frame, count(*) FROM objects GROUP BY frame"))
    used: dict[int, int] = {}
    for number, pack, size, count in db.query("SELECT number, pack, size, count FROM frames"):
        if living.get(number) == count:
            used[pack] = used.get(pack, 0) + size
    packs = db.query("SELECT number, end FROM packs ORDER BY number")
    return [number for number, end in packs if end > PACK_HEADER_SIZE + used.get(number, 0) or number not in used]


def _rewrite(number: int, *, db: Database, places: Places, blobs: LocalPacks) -> None:
    """Move a pack's live content elsewhere and forget the pack. Its file is `_remove_strays`'s."""
    by_frame: dict[tuple[int, int], list[Place]] = {}
    lost: list[tuple[bytes, str]] = []
    for row in places.rows_of_pack(number):
        try:
            place = Place(row)
        except Damaged as exc:
            lost.append((row[0], str(exc)))
            continue
        by_frame.setdefault(place.frame, []).append(place)
    damaged: list[tuple[bytes, str]] = []
    for _, objects in sorted(by_frame.items()):
        objects.sort(key=lambda place: place.order)
        if len(objects) == objects[0].count:
            damaged += _move(objects, places=places, blobs=blobs)
        else:
            lost += _copy(objects, places=places, blobs=blobs)
    with db.transaction():
        blobs.flush()
        db.execute_many("INSERT OR REPLACE INTO damaged VALUES (?, ?)", damaged + lost)
        db.execute_many("DELETE FROM objects WHERE id = ?", [(id,) for id, _ in lost])
        db.execute("DELETE FROM frames WHERE pack = ?", (number,))
        db.execute("DELETE FROM packs WHERE number = ?", (number,))


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
    """What no row knows: packs that were moved or never committed, and what killed processes did not finish."""
    known = {f"{number}.pack" for (number,) in db.query("SELECT number FROM packs")}
    indexes = {name for name in os.listdir(home.file("index")) if "." not in name}  # the others wait for their name
    for folder, keep in (("packs", known), ("index", indexes), ("tmp", set[str]())):
        path = home.file(folder)
        strays = [name for name in os.listdir(path) if name not in keep]
        for name in strays:
            try:
                if not stat.S_ISDIR(os.lstat(f"{path}/{name}").st_mode):
                    os.unlink(f"{path}/{name}")
                elif folder == "tmp" and name.startswith(_REPLACED):
                    _remove_replaced(os.fsencode(f"{path}/{name}"))
            except FileNotFoundError:
                continue  # its own process has removed it
        if strays:
            sync_directory(path)


def _remove_replaced(path: bytes) -> None:
    """What a restore left: files, and the rooms where it made them."""
    with os.scandir(path) as found:
        for entry in list(found):
            if entry.is_dir(follow_symlinks=False):
                os.rmdir(entry.path)
            else:
                os.unlink(entry.path)
    os.rmdir(path)


def _shrink(db: Database) -> None:
    free: int = db.query("PRAGMA freelist_count")[0][0]
    if free >= _VACUUM_FROM and free * 4 >= db.query("PRAGMA page_count")[0][0]:
        db.vacuum()


def _disk_use(home: Home) -> int:
    with os.scandir(home.file("packs")) as names:
        return sum(name.stat(follow_symlinks=False).st_size for name in names)
