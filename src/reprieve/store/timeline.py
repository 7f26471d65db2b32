"""A workspace's timeline in the database.

Rows of `entries` are only ever added. What people say about an entry (pins, names, pruned trees) is in `marks`, beside
the chain. After each commit the newest entry's number and hash are also written to witness/<workspace>: a database
that was cut or replaced by an older copy no longer agrees with it.

Whatever is used to move a tree is proven first: a row must fit its hash, and a walk must not leave an entry out. A bit
that flips in an index page makes SQLite find another row, or none, without any error.
"""

from __future__ import annotations

import os

from reprieve.errors import StoreCorrupted, StoreFailed
from reprieve.model.timeline import TimelineEntry
from reprieve.store.chain import NOT_POINTS, breaks, contains, damaged, next_entry, proven
from reprieve.store.chain import new_id as new_id  # part of what a timeline offers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from reprieve.model.timeline import Draft
    from reprieve.store.db import Database, Row
    from reprieve.store.home import Home

_PAGE = 256  # rows at a time: a cursor left open would hold off every writer
_FEW = 4  # rows at first, for those who only look at the newest ones
_SELECT = (
    "SELECT e.id, e.seq, e.kind, e.created_at, e.actor, e.label, e.note, e.step, e.delta, e.files, e.size, e.changed,"
    " e.data, e.prev, e.hash, coalesce(m.is_pinned, 0), coalesce(m.is_pruned, 0), coalesce(m.name, '')"
    " FROM entries e LEFT JOIN marks m ON m.workspace = e.workspace AND m.seq = e.seq WHERE e.workspace = ?"
)
_SCAN = _SELECT.replace("entries e", "entries e NOT INDEXED")
_INSERT = (
    "INSERT INTO entries (workspace, seq, id, kind, created_at, actor, label, note, step, delta, files, size, changed,"
    " data, prev, hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


class SqliteTimeline:
    """The append-only, hash-chained log of one workspace."""

    def __init__(self, workspace_id: str, *, db: Database, home: Home) -> None:
        self._workspace = workspace_id
        self._db = db
        self._home = home

    def append(self, draft: Draft) -> TimelineEntry:
        """Put the draft at the end; durable with the outermost transaction."""
        with self._db.transaction():
            last = self.tip()
            id = self._free_id(draft.id)
            entry = next_entry(self._workspace, draft, (last.seq, last.hash) if last else None, id=id)
            e = entry
            self._db.execute(
                _INSERT,
                (
                    self._workspace, e.seq, e.id, e.kind, e.created_at, e.actor, e.label, e.note, e.step, e.delta,
                    e.files, e.size, e.changed, e.data, e.prev, e.hash,
                ),
            )  # fmt: skip
            self._db.when_done(committed=lambda: self._write_witness(entry))
        return entry

    def head(self) -> TimelineEntry | None:
        """The newest entry. Raises StoreCorrupted, as all that follow, if what is found is not what was written."""
        newest = self.tip()
        return newest and proven(self._workspace, newest)

    def tip(self) -> TimelineEntry | None:
        """The newest entry as its row says: enough to go on from, so that a damaged label does not end the timeline."""
        newest = self._newest()
        if self._is_doubtful(newest):
            # An older copy of the database, or an index that hides the newest rows?
            ((seq,),) = self._db.query(
                "SELECT max(seq) FROM entries NOT INDEXED WHERE workspace = ?", (self._workspace,)
            )
            newest = self._newest()  # after the scan: another process may have appended
            if seq is not None and (newest is None or newest.seq < seq):
                raise damaged(f"entry {seq} is there, but its index does not lead to it")
        return newest

    def get(self, id: str) -> TimelineEntry | None:
        """The entry with exactly this id."""
        return self._one("id", id)

    def at(self, seq: int) -> TimelineEntry | None:
        """The entry with this number."""
        return self._one("seq", seq)

    def newest_first(
        self, *, limit: int = 0, before_seq: int = 0, kinds: Sequence[str] = (), search: str = ""
    ) -> Iterator[TimelineEntry]:
        """Entries from the newest on, for people: as they are read. limit 0: all, before_seq 0: from the head."""
        needle = search.casefold()
        where = " AND e.seq < ?"
        if kinds:
            where += f" AND e.kind IN ({','.join('?' * len(kinds))})"
        before = before_seq or 1 << 62
        page = min(_PAGE, limit) if limit and not needle else _PAGE
        left = limit
        while rows := self._db.query(
            f"{_SELECT}{where} ORDER BY e.seq DESC LIMIT {page}", (self._workspace, before, *kinds)
        ):
            for row in rows:
                entry = _entry(row)
                if type(entry.seq) is not int or entry.seq >= before:
                    raise damaged(f"entry {entry.seq} is out of order")
                before = entry.seq
                # In Python: SQLite's own lower() knows ASCII only.
                if needle and not contains(entry, needle):
                    continue
                yield entry
                left -= 1
                if left == 0:
                    return

    def backwards(self) -> Iterator[TimelineEntry]:
        """Entries from the newest on, each proven and none left out."""
        newest = self.head()
        expected, hash = (newest.seq, newest.hash) if newest else (0, b"")
        page = _FEW
        while expected > 0:
            rows = self._query(f" AND e.seq <= ? ORDER BY e.seq DESC LIMIT {page}", expected)
            page = min(page * 8, _PAGE)
            for row in rows:
                entry = self._next(row, expected)
                if entry.hash != hash:
                    raise damaged(f"entry {entry.seq + 1} does not follow the entry before it")
                yield entry
                expected, hash = entry.seq - 1, entry.prev
            if not rows:
                raise damaged(f"entry {expected} is missing")

    def after(self, seq: int) -> Iterator[TimelineEntry]:
        """Entries with a larger seq, oldest first, each proven and none left out."""
        last, prev = max(seq, 0), b""
        is_end = False
        while True:
            rows = self._query(f" AND e.seq > ? ORDER BY e.seq LIMIT {_PAGE}", last)
            for row in rows:
                entry = self._next(row, last + 1)
                if prev and entry.prev != prev:
                    raise damaged(f"entry {entry.seq} does not follow the entry before it")
                yield entry
                last, prev, is_end = entry.seq, entry.hash, False
            if not rows:
                newest = self.tip()
                if newest is None or newest.seq <= last:
                    return
                if is_end:
                    raise damaged(f"entry {last + 1} is missing")
                is_end = True  # or it was just appended: look once more

    def readable(self) -> Iterator[TimelineEntry]:
        """All entries that can be read at all, oldest first: for finding out what is damaged."""
        return self._readable([])

    def matching(self, text: str) -> list[TimelineEntry]:
        """The entry with this id, else those whose id begins so, or that are called so; newest first."""
        exact = self.get(text) if text else None
        if exact is not None or not text:
            return [exact] if exact is not None else []
        found: dict[int, TimelineEntry] = {}
        for where, values in (
            (" AND e.id >= ? AND e.id < ?", (text, text + "\x7f")),
            (" AND e.label = ? AND e.label <> '' AND coalesce(m.name, '') = ''", (text,)),
            (" AND m.name = ? AND m.name <> ''", (text,)),
        ):
            # With the index and without: a damaged one may hide an entry, and then another would be the only match.
            for row in self._query(where, *values) + self._query(where, *values, select=_SCAN):
                entry = proven(self._workspace, _entry(row))
                if not entry.id.startswith(text) and text != entry.title:
                    raise damaged(f"the way to {text!r} leads to entry {entry.seq}")
                found[entry.seq] = entry
        return [found[seq] for seq in sorted(found, reverse=True)]

    def before_time(self, ns: int) -> TimelineEntry | None:
        """The newest checkpoint, or other entry that one can return to, made at or before that time."""
        return next((e for e in self.backwards() if e.created_at <= ns and e.kind not in NOT_POINTS), None)

    # full trees

    def set_full(self, seq: int, object_id: bytes) -> None:
        """Keep the whole tree at an entry as an object."""
        with self._db.transaction():
            self._db.execute("INSERT OR REPLACE INTO fulls VALUES (?, ?, ?)", (self._workspace, seq, object_id))

    def fulls(self) -> list[tuple[int, bytes]]:
        """(seq, object id) of all full trees, oldest first."""
        rows = self._db.query("SELECT seq, object FROM fulls WHERE workspace = ? ORDER BY seq", (self._workspace,))
        return [(seq, _object_id(value)) for seq, value in rows]

    def full_at_or_before(self, seq: int) -> tuple[int, bytes] | None:
        """The nearest full tree from which an entry's tree can be reached by deltas."""
        rows = self._db.query(
            "SELECT seq, object FROM fulls WHERE workspace = ? AND seq <= ? ORDER BY seq DESC LIMIT 1",
            (self._workspace, seq),
        )
        return (rows[0][0], _object_id(rows[0][1])) if rows else None

    def drop_trees(self, seqs: Sequence[int]) -> None:
        """Mark entries as pruned: their delta and full tree are no longer kept."""
        with self._db.transaction():
            keys = [(self._workspace, seq) for seq in seqs]
            self._db.execute_many("DELETE FROM fulls WHERE workspace = ? AND seq = ?", keys)
            self._db.execute_many(
                "INSERT INTO marks (workspace, seq, is_pruned) VALUES (?, ?, 1)"
                " ON CONFLICT (workspace, seq) DO UPDATE SET is_pruned = 1",
                keys,
            )

    # marks

    def pin(self, id: str, *, pinned: bool = True) -> None:
        """Keep an entry from being pruned, or no longer."""
        self._mark(id, "is_pinned", int(pinned))

    def rename(self, id: str, name: str | None) -> None:
        """Give an entry a name; "": it has its label again, None: nor that."""
        self._mark(id, "name", b"" if name is None else name)

    def verify(self) -> Iterator[tuple[int, str]]:
        """Problems (seq, reason): changed, missing, reordered or cut entries."""
        unreadable: list[tuple[int, str]] = []
        hashes: dict[int, bytes] = {}
        witness = self._read_witness()

        def all_entries() -> Iterator[TimelineEntry]:
            for entry in self._readable(unreadable):
                if witness is not None and entry.seq == witness[0]:
                    hashes[entry.seq] = entry.hash
                yield entry

        found = list(breaks(self._workspace, all_entries()))
        reasons = dict(unreadable)
        yield from sorted({**dict(found), **reasons}.items())
        if witness is None:
            return
        seq, hash = witness
        if seq not in hashes and seq not in reasons:
            yield (
                seq,
                "missing: the timeline was cut, or the database is an older copy (its witness knows more entries)",
            )
        elif hashes.get(seq, hash) != hash:
            yield seq, "differs from its witness: the timeline was rewritten, or the database is another one's copy"

    # the write-ahead intent

    def intent(self) -> bytes:
        """Of the operation under way, b"" if none."""
        rows = self._db.query("SELECT intent FROM intents WHERE workspace = ?", (self._workspace,))
        return rows[0][0] if rows else b""

    def set_intent(self, intent: bytes) -> None:
        """Write it down before anything is moved; b"" when all is done."""
        with self._db.transaction():
            if intent:
                self._db.execute("INSERT OR REPLACE INTO intents VALUES (?, ?)", (self._workspace, intent))
            else:
                self._db.execute("DELETE FROM intents WHERE workspace = ?", (self._workspace,))

    def _newest(self) -> TimelineEntry | None:
        rows = self._query(" ORDER BY e.seq DESC LIMIT 1")  # O(1), by the index on (workspace, seq)
        if rows and type(rows[0][1]) is not int:
            raise damaged("the newest entry has no number")
        return _entry(rows[0]) if rows else None

    def _is_doubtful(self, newest: TimelineEntry | None) -> bool:
        """Whether the witness knows a newer entry, or another one. One that lags behind says nothing."""
        witness = self._read_witness()
        if witness is None:
            return False
        seq, hash = witness
        return newest is None or newest.seq < seq or (newest.seq == seq and newest.hash != hash)

    def _query(self, where: str, *values: object, select: str = "") -> list[Row]:
        return self._db.query((select or _SELECT) + where, (self._workspace, *values))

    def _one(self, column: str, value: object) -> TimelineEntry | None:
        where = f" AND e.{column} = ?"
        rows = self._query(where, value) or self._query(where, value, select=_SCAN)
        entry = proven(self._workspace, _entry(rows[0])) if rows else None
        if entry is not None and getattr(entry, column) != value:
            raise damaged(f"the way to {value!r} leads to entry {entry.seq}")
        return entry

    def _next(self, row: Row, expected: int) -> TimelineEntry:
        entry = proven(self._workspace, _entry(row))
        if entry.seq != expected:
            raise damaged(f"entry {expected} is missing")
        return entry

    def _free_id(self, wanted: str) -> str:
        id = wanted or new_id()
        while self._db.query("SELECT 1 FROM entries WHERE id = ?", (id,)):
            if wanted:
                raise StoreFailed(f"an entry with the id {wanted!r} exists already")
            id = new_id()
        return id

    def _mark(self, id: str, column: str, value: object) -> None:
        with self._db.transaction():
            rows = self._db.query("SELECT seq FROM entries WHERE workspace = ? AND id = ?", (self._workspace, id))
            if not rows:
                raise StoreFailed(f"no entry {id!r} on this timeline")
            self._db.execute(
                f"INSERT INTO marks (workspace, seq, {column}) VALUES (?, ?, ?)"
                f" ON CONFLICT (workspace, seq) DO UPDATE SET {column} = excluded.{column}",
                (self._workspace, rows[0][0], value),
            )

    def _readable(self, unreadable: list[tuple[int, str]]) -> Iterator[TimelineEntry]:
        """All entries that can be read, oldest first; the others are added to unreadable."""
        seqs = [row[0] for row in self._db.query(
            "SELECT seq FROM entries WHERE workspace = ? ORDER BY seq", (self._workspace,)
        )]  # fmt: skip
        for start in range(0, len(seqs), _PAGE):
            some = seqs[start : start + _PAGE]
            try:
                rows = self._rows(some)
            except StoreCorrupted:
                rows = self._rows_one_by_one(some, unreadable)
            yield from map(_entry, rows)

    def _rows_one_by_one(self, seqs: list[int], unreadable: list[tuple[int, str]]) -> list[Row]:
        rows: list[Row] = []
        for seq in seqs:
            try:
                rows += self._rows([seq])
            except StoreCorrupted as exc:
                unreadable.append((seq, f"unreadable ({exc.message})"))
        return rows

    def _rows(self, seqs: list[int]) -> list[Row]:
        marks = ",".join("?" * len(seqs))
        return self._db.query(f"{_SELECT} AND e.seq IN ({marks}) ORDER BY e.seq", (self._workspace, *seqs))

    def _write_witness(self, entry: TimelineEntry) -> None:
        try:
            self._home.write(
                f"witness/{self._workspace}", b"%d %s\n" % (entry.seq, entry.hash.hex().encode()), durable=False
            )
        except OSError:
            return  # the entry is durable; a witness that lags behind proves less, and claims nothing wrong

    def _read_witness(self) -> tuple[int, bytes] | None:
        try:
            fd = os.open(self._home.file("witness", self._workspace), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            words = os.read(fd, 200).split()
            return int(words[0]), bytes.fromhex(words[1].decode())
        except (OSError, ValueError, IndexError):
            return None  # a power cut may leave it empty: it is not synced
        finally:
            os.close(fd)


def _object_id(value: object) -> bytes:
    """What is damaged beyond being an id leads to no object; whoever asks for that says so."""
    return value if type(value) is bytes else b""


def _entry(row: Row) -> TimelineEntry:
    values: Row = (*row[:15], bool(row[15]), bool(row[16]), None if row[17] == b"" else row[17])
    return TimelineEntry(*values)
