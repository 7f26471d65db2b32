"""Where objects lie: rows of the database as checked values, and the verified way from a place to bytes."""

from __future__ import annotations

from reprieve.store.codec import BadContent, decompress
from reprieve.store.frames import RAW, ZSTD, BadFrame, head_size, parse_head
from reprieve.store.hashing import sha256
from reprieve.store.packfile import LostPack, PackReader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from reprieve.store.db import Database, Row
    from reprieve.store.home import Home

BATCH = 500  # ids per statement
_CACHED_FRAMES = 4
_CACHED_SIZE = 1 << 20
_COLUMNS = (
    "SELECT o.id, f.pack, f.offset, f.size, f.codec, f.raw_size, f.count, o.start, o.length, p.end"
    " FROM objects o LEFT JOIN frames f ON f.number = o.frame LEFT JOIN packs p ON p.number = f.pack"
)


class Damaged(Exception):
    """An object's bytes are not what they must be; the text says how."""


class Place:
    """Where one object lies."""

    __slots__ = ("codec", "count", "id", "length", "offset", "pack", "raw_size", "size", "start")

    def __init__(self, row: Row) -> None:
        """Raises Damaged: SQLite has no checksums, so a row may say anything."""
        self.id: bytes
        end: int
        (
            self.id, self.pack, self.offset, self.size, self.codec, self.raw_size, self.count, self.start, self.length,
            end,
        ) = row  # fmt: skip
        # written out: made for every file of a restore
        if (
            not (int is type(self.pack) is type(self.offset) is type(self.size) is type(self.codec) is type(end))
            or not (int is type(self.raw_size) is type(self.count) is type(self.start) is type(self.length))
            or min(self.pack, self.offset, self.size, self.raw_size, self.count, self.start, self.length) < 0
        ):
            raise Damaged("its row in the database is damaged")
        if (
            self.codec not in (RAW, ZSTD)
            or self.start + self.length > self.raw_size
            or self.offset + self.size > end
            or head_size(self.count) > self.size
            or (self.codec == RAW and self.raw_size + head_size(self.count) != self.size)
        ):
            raise Damaged("its row in the database is damaged")

    @property
    def frame(self) -> tuple[int, int]:
        """The frame's own place, (pack, offset)."""
        return self.pack, self.offset

    @property
    def order(self) -> tuple[int, int, int]:
        """Sorts objects as they lie on disk."""
        return self.pack, self.offset, self.start


class Places:
    """Finds and reads objects. For one thread."""

    def __init__(self, home: Home, db: Database) -> None:
        self._db = db
        self._reader = PackReader(home)
        self._frames: dict[tuple[int, int], bytes] = {}  # payloads read last

    def rows(self, ids: Sequence[bytes]) -> Iterator[Row]:
        """The rows of those ids that have one."""
        for start in range(0, len(ids), BATCH):
            some = ids[start : start + BATCH]
            marks = ",".join("?" * len(some))
            yield from self._db.query(f"{_COLUMNS} WHERE o.id IN ({marks})", some)

    def rows_of_frames(self, first: int, last: int) -> list[Row]:
        """All objects in frames with these numbers."""
        return self._db.query(f"{_COLUMNS} WHERE o.frame BETWEEN ? AND ?", (first, last))

    def rows_of_pack(self, number: int) -> list[Row]:
        """All objects in a pack."""
        return self._db.query(f"{_COLUMNS} WHERE f.pack = ?", (number,))

    def find(self, id: bytes) -> Place:
        """Raises Damaged where the object is missing."""
        for row in self.rows([id]):
            return Place(row)
        raise Damaged("it is not in the store")

    def read(self, place: Place) -> bytes:
        """The object's verified bytes. Raises Damaged; OSError where the disk fails."""
        if place.codec == RAW:
            data = self._read(place.pack, place.length, place.offset + head_size(place.count) + place.start)
        else:
            payload = self._payload(place)
            data = payload[place.start : place.start + place.length]
        if sha256(data) != place.id:
            raise Damaged(f"its bytes in pack {place.pack} do not match its hash")
        return data

    def stored_payload(self, place: Place) -> bytes:
        """The payload of its frame as it is on disk. Raises Damaged; OSError where the disk fails."""
        head = head_size(place.count)
        return self._read(place.pack, place.size - head, place.offset + head)

    def later(self, place: Place) -> Callable[[], bytes]:
        """The same for another thread, which gets fewer bytes where something is wrong. Raises OSError."""
        head = head_size(place.count)
        return self._reader.later(place.pack, place.size - head, place.offset + head)

    def announce(self, place: Place) -> None:
        """Its frame will be read soon: what is not in memory comes from the disk at the same time as others."""
        self._reader.announce(place.pack, place.size, place.offset)

    def unsound_in_frame(self, place: Place) -> dict[bytes, str] | str:
        """Check the whole frame of place anew: reasons by object id (empty: sound), or one for all of it."""
        try:
            frame = self._read(place.pack, place.size, place.offset)
            head = parse_head(frame)
            if head.size != place.size or head.codec != place.codec:
                return f"its frame in pack {place.pack} is another one"
            payload: bytes | memoryview = memoryview(frame)[head_size(len(head.objects)) :]
            if head.codec == ZSTD:
                payload = decompress(payload, head.raw_size)
        except (BadFrame, BadContent) as exc:
            return f"its frame in pack {place.pack} is damaged ({exc})"
        except Damaged as exc:
            return str(exc)
        bad: dict[bytes, str] = {}
        start = 0
        view = memoryview(payload)
        for id, length in head.objects:
            if sha256(view[start : start + length]) != id:
                bad[id] = f"its bytes in pack {place.pack} do not match its hash"
            start += length
        return bad

    def read_frame(self, place: Place) -> bytes:
        """A frame as it is on disk, unchecked."""
        return self._read(place.pack, place.size, place.offset)

    def forget(self) -> None:
        """Close files and drop what was read: packs may have moved."""
        self._reader.forget()
        self._frames.clear()

    def _payload(self, place: Place) -> bytes:
        cached = self._frames.get(place.frame)
        if cached is not None:
            return cached
        try:
            payload = decompress(self.stored_payload(place), place.raw_size)
        except BadContent as exc:
            raise Damaged(f"its frame in pack {place.pack} is damaged ({exc})") from exc
        if len(payload) <= _CACHED_SIZE:
            if len(self._frames) >= _CACHED_FRAMES:
                del self._frames[next(iter(self._frames))]
            self._frames[place.frame] = payload
        return payload

    def _read(self, pack: int, length: int, offset: int) -> bytes:
        try:
            return self._reader.read(pack, length, offset)
        except LostPack as exc:
            raise Damaged(str(exc)) from exc
