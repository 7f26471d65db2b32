"""Content on the local disk: objects in append-only packs, found through the database.

    put    groups objects into frames of about 64 KB, compressed by threads while the caller reads on
    flush  packs durable, then the rows that name their objects, in one transaction with whatever else is in it
    get    reads, decompresses, verifies; what does not match its hash is never returned

Giving space back is `collect`'s, the bytes of a frame are `frames`'s.
"""

from __future__ import annotations

import errno
import os
import stat

from reprieve.errors import StoreCorrupted, StoreFailed, StoreLocked
from reprieve.store.codec import Compressors, compress
from reprieve.store.faults import failed
from reprieve.store.forks import tell_on_fork
from reprieve.store.frames import RAW, frame_head
from reprieve.store.packfile import ROLL_AT, PackWriter, pack_path
from reprieve.store.places import BATCH, Damaged, Place, Places

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from reprieve.store.db import Database
    from reprieve.store.home import Home
    from reprieve.store.locks import Lock, Locks
    from reprieve.store.protocols import Buffer
    from reprieve.store.unpack import Ahead

GROUP = 64 << 10  # raw bytes in a frame; 12 % smaller than files one by one, and little to read for one of them
_RAW_BELOW = 16 << 10  # so little is not worth importing zstd for (8 ms)
_NOWHERE = object()
_AHEAD = 64  # frames that the disk is told of before they are read, and as many more
_AT_ONCE = 240  # rows; SQLite may be made to take no more than 999 values
_FEW = 256  # objects that are read without threads: they would not pay
_WORTH_THREADS = 4  # frames
_AHEAD_SIZE = 16 << 20  # raw bytes that are unpacked before they are asked for
_TAKE_COUNT, _TAKE_SIZE = BATCH, 4 << 20  # objects looked up at a time


class LocalPacks:
    """BlobStore on pack files. For one thread; `LocalBlobs` gives each its own."""

    def __init__(self, home: Home, db: Database, locks: Locks, *, roll_at: int = ROLL_AT) -> None:
        self._home = home
        self._db = db
        self._locks = locks
        self._places = Places(home, db)
        self._writer = PackWriter(home, db, roll_at=roll_at)
        self._gc_lock: Lock | None = None  # held from the first put to the commit
        self._looked_at_packs = False
        self._is_empty = False  # when the lock was taken
        self._frames: dict[tuple[int, int], dict[bytes, str] | str] = {}  # verified once in this process
        self._compressors: Compressors | None = None
        self._ahead: tuple[set[bytes], Ahead] | None = None  # what is being unpacked for the next `get_many`
        self._broken_in: object = _NOWHERE  # the lock under which content was lost, while it is held
        self._clear()
        tell_on_fork(self)

    def put(self, items: Iterable[tuple[bytes, Buffer]]) -> int:
        """Take objects; see BlobStore. After an error of the store nothing put since the last flush is kept."""
        self._begin()
        new = size = 0
        batch: dict[bytes, Buffer] = {}
        for id, data in items:
            if id in self._pending or id in batch:
                continue
            batch[id] = data
            size += len(data)
            if len(batch) >= _TAKE_COUNT or size >= _TAKE_SIZE:
                new += self._take(batch)
                batch, size = {}, 0
        return new + self._take(batch)

    def start_flush(self) -> None:
        """Have what was put so far on its way to the disk while the caller goes on."""
        self._refuse_if_broken()
        try:
            self._write_rest()
            self._writer.start_sync()
        except BaseException:
            self._give_up()
            raise

    def flush(self) -> None:
        """Make everything put so far durable and findable."""
        self._refuse_if_broken()
        if not self._pending:
            if self._db.is_in_transaction:
                self._db.when_done(committed=self._finish, undone=self._undone)
            else:
                self._finish()
            return
        try:
            self._write_rest()
            self._writer.start_sync()
            with self._db.transaction():
                self._insert_rows()
                self._writer.sync()  # before what names it is committed
                self._clear()
                self._db.when_done(committed=self._finish, undone=self._undone)
        except BaseException:
            self._give_up()
            raise

    def leave(self) -> None:
        """Hold gc off no longer, if no workspace and no transaction is being worked on. Raises StoreFailed.

        What was put and not flushed is kept: whoever put it may flush it later, and the next try will find it.
        """
        if self._gc_lock is not None and self._locks.is_gc_held_off_once and not self._db.is_in_transaction:
            self.flush()

    def has(self, ids: Sequence[bytes]) -> set[bytes]:
        """Those of ids that are stored and not known to be damaged."""
        found: set[bytes] = set()
        for start in range(0, len(ids), BATCH):
            some = ids[start : start + BATCH]
            marks = ",".join("?" * len(some))
            sql = f"SELECT id FROM objects WHERE id IN ({marks}) AND id NOT IN (SELECT id FROM damaged)"
            found.update(row[0] for row in self._db.query(sql, some))
        return found

    def get(self, id: bytes) -> bytes:
        """The bytes, verified."""
        try:
            return self._places.read(self._places.find(id))
        except (Damaged, OSError):
            return self._get_again(id)

    def prefetch(self, ids: Iterable[bytes]) -> None:
        """Begin to unpack what `get_many` will be asked for. Whatever is wrong is found there."""
        from reprieve.store.unpack import Ahead

        wanted = list(dict.fromkeys(ids))
        self._ahead = None
        if len(wanted) > _FEW:
            return  # then `get_many` has threads of its own, and bounds what is in memory
        places = []
        for row in self._places.rows(wanted):
            try:
                places.append(Place(row))
            except Damaged:
                continue
        places.sort(key=lambda place: place.order)
        groups = _by_frame(places)
        if len(groups) >= _WORTH_THREADS and sum(group[0].raw_size for group in groups) <= _AHEAD_SIZE:
            reads = [(group, self._places.later(group[0])) for group in groups]
            self._ahead = {place.id for place in places}, Ahead(reads)

    def get_many(self, ids: Iterable[bytes]) -> Iterator[tuple[bytes, bytes]]:
        """Verified objects, nearly in the order in which they lie on disk."""
        wanted = list(dict.fromkeys(ids))
        places: list[Place] = []
        from reprieve.store.unpack import unpack_all

        begun, self._ahead = self._ahead, None
        if begun is not None and begun[0] <= set(wanted):
            for group, found in begun[1].results():
                for place, maybe in zip(group, found, strict=True):
                    yield place.id, maybe if maybe is not None else self._get_again(place.id)
            wanted = [id for id in wanted if id not in begun[0]]
        for row in self._places.rows(wanted):
            try:
                places.append(Place(row))
            except Damaged:
                self._get_again(row[0])
        if len(places) < len(wanted):
            for id in set(wanted).difference(place.id for place in places):
                self._get_again(id)
        places.sort(key=lambda place: place.order)
        for group, found in unpack_all(self._frames_of(places), in_threads=len(places) > _FEW):
            for place, maybe in zip(group, found, strict=True):
                yield place.id, maybe if maybe is not None else self._get_again(place.id)

    def _frames_of(self, places: list[Place]) -> Iterator[tuple[list[Place], bytes]]:
        """(objects, payload as stored) of each frame that these objects are in."""
        groups = _by_frame(places)
        for at, group in enumerate(groups):
            if at % _AHEAD == 0:
                for later in groups[at + _AHEAD if at else 0 : at + 2 * _AHEAD]:
                    self._places.announce(later[0])
            try:
                payload = self._places.stored_payload(group[0])
            except (Damaged, OSError):
                payload = b""  # matches no id, so each of them gets its second try
            yield group, payload

    def check(self, ids: Iterable[bytes] | None = None) -> Iterator[tuple[bytes, str]]:
        """Problems (id, reason); damaged objects are remembered, sound ones forgotten as damaged."""
        from reprieve.store.check import check_all, check_some

        if ids is None:
            return check_all(self._places, self._db, self.remember_damage)
        return check_some(self._places, self._db, self.remember_damage, list(ids))

    def damaged(self) -> set[bytes]:
        """Objects known to be damaged or missing; packs that lost bytes are noticed here at the latest."""
        if not self._looked_at_packs:
            self._looked_at_packs = True
            self._look_at_packs()
        return {row[0] for row in self._db.query("SELECT id FROM damaged")}

    def drop(self, live: set[bytes]) -> int:
        """Take every object not in live out of the tables, with the caller's transaction; see BlobStore."""
        from reprieve.store.collect import drop

        assert self._locks.is_gc_held, "drop without the gc lock"
        assert not self._pending, "drop with content that no row knows yet"
        self._db.check_soundness()
        with self._db.transaction():
            return drop(live, home=self._home, db=self._db)

    def collect(self, live: set[bytes]) -> tuple[int, int]:
        """Drop every object not in live and give the bytes back to the disk; return (objects, bytes) freed."""
        from reprieve.store.collect import collect

        assert self._locks.is_gc_held, "collect without the gc lock"
        assert not self._db.is_in_transaction, "collect removes files, which no rollback brings back"
        self._db.check_soundness()  # a damaged table may not know what it refers to; then nothing is deleted
        self._begin()
        self._frames.clear()
        try:
            return collect(live, home=self._home, db=self._db, places=self._places, blobs=self)
        finally:
            self._give_up()

    def remember_damage(self, problems: Sequence[tuple[bytes, str]]) -> None:
        """Write down damaged objects, so that a later put stores them anew. Best effort: reading must go on."""
        known = self.damaged()
        problems = [problem for problem in problems if problem[0] not in known]
        if not problems:
            return
        try:
            with self._db.transaction():
                self._db.execute_many("INSERT OR REPLACE INTO damaged VALUES (?, ?)", problems)
        except (StoreFailed, StoreLocked):
            return  # a read-only or full disk; the damage itself is reported by whoever found it

    def close(self) -> None:
        """Let go of files and locks; what was not flushed is not kept."""
        self._give_up()
        self._places.forget()

    # for collect

    def put_anew(self, id: bytes, data: bytes) -> None:
        """Store an object although it is stored already."""
        self._pending.add(id)
        self._add(id, data)

    def move_frame(self, objects: list[tuple[bytes, int]], codec: int, payload: Buffer) -> None:
        """Store a frame anew as it is."""
        self._pending.update(id for id, _ in objects)
        self._write_frame(objects, codec, payload)

    def start_again(self) -> None:
        """After a step that failed: it has lost nothing, since what it was to copy is still where it was."""
        self._give_up()
        self._broken_in = _NOWHERE
        self._begin()

    def avoid(self, packs: Sequence[int]) -> None:
        """Append nothing to these packs."""
        self._writer.avoid(packs)

    # putting

    def _begin(self) -> None:
        self._refuse_if_broken()
        if self._gc_lock is not None and self._looked_at_packs:
            return
        if self._gc_lock is None:
            lock = self._locks.shared_gc()
            lock.__enter__()
            self._gc_lock = lock
        try:
            # then nothing need be looked for, which is a tenth of a first checkpoint
            self._is_empty = not self._db.query("SELECT 1 FROM objects LIMIT 1")
            if not self._looked_at_packs:
                self._look_at_packs()
        except BaseException:
            self._give_up()
            raise
        self._looked_at_packs = True

    def _refuse_if_broken(self) -> None:
        """An operation that lost a part of its content must not go on as if it were whole."""
        if self._broken_in is _NOWHERE:
            return
        if self._broken_in is not None and self._broken_in is self._locks.gc_scope:
            raise StoreFailed("an earlier part of the content could not be stored, so nothing of it was kept")
        self._broken_in = _NOWHERE

    def _clear(self) -> None:
        self._pending: set[bytes] = set()
        self._group: list[tuple[bytes, int]] = []
        self._group_data = bytearray()
        self._taken = 0  # bytes since the last flush
        # (pack, offset, size, codec, raw size, objects) of the frames since the last flush
        self._written: list[tuple[int, int, int, int, int, list[tuple[bytes, int]]]] = []

    def _take(self, batch: dict[bytes, Buffer]) -> int:
        try:
            return self._take_new(batch)
        except BaseException:
            # Also an interrupt: between two lines it could leave bytes in the group that no table names.
            self._give_up()
            raise

    def _take_new(self, batch: dict[bytes, Buffer]) -> int:
        known = self._trusted(list(batch))
        new = 0
        for id, data in batch.items():
            if id in known:
                continue
            new += 1
            self._pending.add(id)
            self._add(id, data)
        return new

    def _add(self, id: bytes, data: Buffer) -> None:
        self._taken += len(data)
        if len(data) > GROUP:
            self._hand_over([(id, len(data))], bytes(data))
            return
        self._group.append((id, len(data)))
        self._group_data += data
        if len(self._group_data) >= GROUP:
            self._hand_over_group()

    def _trusted(self, ids: list[bytes]) -> set[bytes]:
        """Those of ids that are stored and sound, each frame verified once per process."""
        trusted: set[bytes] = set()
        if self._is_empty:
            return trusted
        known_bad = self.damaged()
        for row in self._places.rows(ids):
            if row[0] in known_bad:
                continue
            try:
                place = Place(row)
                state = self._frames.get(place.frame)
                if state is None:
                    state = self._frames[place.frame] = self._places.unsound_in_frame(place)
            except Damaged:
                continue
            except OSError as exc:
                if exc.errno != errno.EIO:
                    raise failed(exc, self._home.file("packs"), "read a pack") from exc
                continue  # unreadable sectors: store it anew
            if not state or (isinstance(state, dict) and place.id not in state):
                trusted.add(place.id)
        return trusted

    def _hand_over_group(self) -> None:
        group, data = self._group, self._group_data
        self._group, self._group_data = [], bytearray()
        self._hand_over(group, data)

    def _hand_over(self, objects: list[tuple[bytes, int]], data: bytes | bytearray) -> None:
        if self._compressors is None:
            self._compressors = Compressors()
        self._compressors.submit(objects, data)
        self._compressors.results(self._write_frame)

    def _write_frame(self, objects: list[tuple[bytes, int]], codec: int, payload: Buffer) -> None:
        """Append a frame; its objects are found from the next flush on."""
        head = frame_head(objects, codec=codec, stored_size=len(payload))
        pack, offset = self._writer.append(head, payload)
        raw_size = sum(length for _, length in objects)
        self._written.append((pack, offset, len(head) + len(payload), codec, raw_size, objects))

    def _write_rest(self) -> None:
        if self._group and self._compressors is None:
            little = self._taken < _RAW_BELOW
            codec, payload = (RAW, self._group_data) if little else compress(self._group_data)
            self._write_frame(self._group, codec, payload)
            self._group, self._group_data = [], bytearray()
        elif self._group:
            self._hand_over_group()
        if self._compressors is not None:
            self._compressors.results(self._write_frame, all_of_them=True)
            self._stop_compressors()

    def _insert_rows(self) -> None:
        self._db.execute_many(
            "INSERT INTO packs (number, end) VALUES (?, ?) ON CONFLICT (number) DO UPDATE SET end = excluded.end",
            self._writer.ends(),
        )
        rows: list[tuple[bytes, int, int, int]] = []
        frames: list[tuple[int, ...]] = []
        (last,) = self._db.query("SELECT coalesce(max(number), 0) FROM frames")[0]  # nobody else writes now
        for frame, (pack, offset, size, codec, raw_size, objects) in enumerate(self._written, last + 1):
            frames.append((frame, pack, offset, size, codec, raw_size, len(objects)))
            start = 0
            for id, length in objects:
                rows.append((id, frame, start, length))
                start += length
        self._db.execute_many(
            "INSERT INTO frames (number, pack, offset, size, codec, raw_size, count) VALUES (?, ?, ?, ?, ?, ?, ?)",
            frames,
        )
        self._is_empty = False
        rows.sort(key=lambda row: row[0])  # neighbours in the tree one after the other: half the time of random order
        if 0 < len(rows) <= _AT_ONCE:
            # as one statement: between two of them every other thread may take the interpreter, and keep it for a while
            marks = ", ".join(["(?, ?, ?, ?)"] * len(rows))
            self._db.execute(f"INSERT OR REPLACE INTO objects VALUES {marks}", [value for row in rows for value in row])
        else:
            self._db.execute_many("INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?)", rows)
        healed = self.damaged().intersection(self._pending)
        if healed:
            self._db.execute_many("DELETE FROM damaged WHERE id = ?", [(id,) for id in healed])

    def _look_at_packs(self) -> None:
        """Packs shorter than their committed end have lost objects: mark those, so that put stores them anew."""
        for number, end in self._db.query("SELECT number, end FROM packs"):
            if type(number) is not int or type(end) is not int:
                raise StoreCorrupted("the store's table of packs is damaged", hints=["look closer: reprieve verify"])
            try:
                info = os.lstat(pack_path(self._home, number))
                size = info.st_size if stat.S_ISREG(info.st_mode) else 0
            except FileNotFoundError:
                size = 0
            except OSError as exc:
                raise failed(exc, self._home.file("packs"), f"look at pack {number}") from exc
            if size >= end:
                continue
            with self._db.transaction():
                self._db.execute("UPDATE packs SET is_sealed = 1 WHERE number = ?", (number,))
                self._db.execute(
                    "INSERT OR IGNORE INTO damaged SELECT o.id, ? FROM objects o JOIN frames f ON f.number = o.frame"
                    " WHERE f.pack = ? AND f.offset + f.size > ?",
                    (f"pack {number} is {'cut off' if size else 'missing'}", number, size),
                )

    # ending

    def _finish(self) -> None:
        """Committed. Keep packs and lock only for what was put since the flush."""
        if self._pending:
            return
        try:
            self._writer.release()
        finally:
            if self._gc_lock is not None:
                lock, self._gc_lock = self._gc_lock, None
                lock.__exit__(None, None, None)

    def _undone(self) -> None:
        self._frames.clear()
        self._places.forget()
        self._give_up()

    def _give_up(self) -> None:
        """Keep nothing since the last commit. What this thread's transaction holds of it must not be committed."""
        if self._pending:
            self._broken_in = self._locks.gc_scope
        self._stop_compressors()
        self._clear()
        self._db.doom()
        self._finish()

    def _stop_compressors(self) -> None:
        if self._compressors is not None:
            self._compressors.stop()
            self._compressors = None

    def _forked(self) -> None:
        # The parent's descriptors: a child that keeps them would keep the locks on the packs after the parent's end.
        self._writer.forked()
        self._places.forget()

    # getting

    def _get_again(self, id: bytes) -> bytes:
        """Second and last try with everything opened anew: a collection may just have moved the object."""
        self._places.forget()
        pack: int | None = None
        try:
            place = self._places.find(id)
            pack = place.pack
            return self._places.read(place)
        except Damaged as exc:
            self.remember_damage([(id, str(exc))])
            raise StoreCorrupted(
                f"object {id.hex()[:16]} is damaged: {exc}",
                hints=[
                    "see what it belongs to: reprieve verify",
                    "a checkpoint that finds the same content again heals it",
                ],
                data={"object": id.hex(), "pack": pack},
            ) from exc
        except OSError as exc:
            raise failed(exc, self._home.file("packs"), f"read object {id.hex()[:16]} in pack {pack}") from exc


def _by_frame(places: list[Place]) -> list[list[Place]]:
    """Sorted places, those of one frame together."""
    groups: list[list[Place]] = []
    pack = offset = -1
    for place in places:
        if place.offset != offset or place.pack != pack:
            pack, offset = place.pack, place.offset
            groups.append([])
        groups[-1].append(place)
    return groups
