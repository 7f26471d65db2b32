"""The rows of the effect journal: append-only, in one order, each bound by a keyed hash to the one before.

    mac = HMAC-SHA-256( key, prev (32 bytes), then each as u64 length + bytes: workspace, seq, effect, kind, body )

The key lies beside the database, readable by its owner alone: whoever can write the database and not the key cannot
plant an inverse. `effects` beside the rows is an index that is made from them: what is acted upon is always read from
the rows and proven. docs/format.md outranks this code.

The journal has a database of its own: the hook, which runs before every tool call, never opens it.
"""

from __future__ import annotations

import os

from reprieve.errors import StoreCorrupted, StoreFailed
from reprieve.model.reporter import Reporter
from reprieve.model.value import Value
from reprieve.store.chain import as_stored
from reprieve.store.db import Database

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from reprieve.store.db import Transaction
    from reprieve.store.home import Home

NAME = "effects.db"
_KEY = "effects.key"
_FIRST = bytes(32)
_PAGE = 512
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        "PRAGMA application_id = 0x52505245",
        "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
        "CREATE TABLE rows (workspace TEXT NOT NULL, seq INTEGER NOT NULL, effect TEXT NOT NULL, kind TEXT NOT NULL,"
        " body TEXT NOT NULL, prev BLOB NOT NULL, mac BLOB NOT NULL, PRIMARY KEY (workspace, seq)) WITHOUT ROWID",
        "CREATE INDEX rows_effect ON rows (workspace, effect, seq)",
        "CREATE TABLE effects (workspace TEXT NOT NULL, seq INTEGER NOT NULL, id TEXT NOT NULL, at INTEGER NOT NULL,"
        " window TEXT NOT NULL, resource TEXT NOT NULL, fingerprint TEXT NOT NULL, call TEXT NOT NULL,"
        " state TEXT NOT NULL, undo_state TEXT NOT NULL, is_open INTEGER NOT NULL,"
        " PRIMARY KEY (workspace, seq)) WITHOUT ROWID",
        "CREATE UNIQUE INDEX effects_id ON effects (id)",
        "CREATE INDEX effects_open ON effects (workspace, seq) WHERE is_open",
        "CREATE INDEX effects_fingerprint ON effects (workspace, fingerprint) WHERE fingerprint <> ''",
        "CREATE INDEX effects_call ON effects (workspace, call) WHERE call <> ''",
        "CREATE TABLE spent (workspace TEXT NOT NULL, run TEXT NOT NULL, name TEXT NOT NULL, used REAL NOT NULL,"
        " PRIMARY KEY (workspace, run, name)) WITHOUT ROWID",
        "CREATE TABLE approvals (id TEXT PRIMARY KEY, workspace TEXT NOT NULL, hash TEXT NOT NULL,"
        " action TEXT NOT NULL, class TEXT NOT NULL, created_at INTEGER NOT NULL, expires_at INTEGER NOT NULL,"
        " state TEXT NOT NULL, mac BLOB NOT NULL) WITHOUT ROWID",
        "CREATE INDEX approvals_hash ON approvals (workspace, hash)",
    ),
)


class Record(Value):
    """One row: something that happened to an effect."""

    workspace: str
    seq: int
    effect: str
    kind: str
    body: str
    prev: bytes
    mac: bytes


def exists(home: str) -> bool:
    """Whether there is a journal at all; all that a rollback without effects pays for."""
    return os.path.exists(os.path.join(home, NAME))


class EffectLog:
    """The journal's database, for all workspaces of a home."""

    def __init__(self, home: Home, *, reporter: Reporter | None = None) -> None:
        self.home = home
        self._newest: dict[str, tuple[int, bytes]] = {}  # rows of the transaction under way
        is_new = not os.path.lexists(home.file(NAME))
        try:
            if is_new:
                _make_once(home, _KEY, os.urandom(32))
                _make_once(home, NAME, b"")
            with open(home.file(_KEY), "rb") as file:
                self._key = file.read()
        except OSError as exc:
            raise StoreFailed(f"the journal of effects cannot be opened ({exc.strerror}); nothing was sent") from exc
        if len(self._key) != 32:
            raise StoreCorrupted(f"the key of the journal of effects is damaged ({home.file(_KEY)!r})")
        self.db = Database(home.file(NAME), reporter=reporter, is_new=True, migrations=MIGRATIONS)

    def transaction(self) -> Transaction:
        """Everything inside becomes durable together at the outermost exit, or not at all."""
        return self.db.transaction()

    def close(self) -> None:
        self.db.close()

    def fingerprint(self, secret: bytes) -> str:
        """A keyed fingerprint: tells whether two secrets are the same, and nothing else."""
        return self._mac(b"credential", secret).hex()[:16]

    def sign(self, *parts: bytes) -> bytes:
        """A keyed hash for what lies outside of the rows."""
        return self._mac(*parts)

    # -- rows

    def append(self, workspace: str, effect: str, kind: str, body: str) -> Record:
        """Put a row at the end, inside `transaction`."""
        last = self.db.query("SELECT seq, mac FROM rows WHERE workspace = ? ORDER BY seq DESC LIMIT 1", (workspace,))
        seq, prev = (last[0][0] + 1, last[0][1]) if last else (1, _FIRST)
        if seq == 1 and self._witness(workspace) is not None:
            raise _damaged("its rows are gone")
        mac = self._row_mac(prev, workspace, seq, effect, kind, body)
        self.db.execute(
            "INSERT INTO rows VALUES (?, ?, ?, ?, ?, ?, ?)", (workspace, seq, effect, kind, body, prev, mac)
        )
        if workspace not in self._newest:  # once for a transaction, however many rows it has
            self.db.when_done(
                committed=lambda: self._write_witness(workspace, *self._newest.pop(workspace)),
                undone=lambda: self._newest.pop(workspace, None) and None,
            )
        self._newest[workspace] = (seq, mac)
        return Record(workspace, seq, effect, kind, body, prev, mac)

    def rows_of(self, workspace: str, effect: str) -> list[Record]:
        """What happened to an effect, oldest first, each row proven by itself. Raises StoreCorrupted."""
        found = [
            Record(*row)
            for row in self.db.query(
                "SELECT * FROM rows INDEXED BY rows_effect WHERE workspace = ? AND effect = ? ORDER BY seq",
                (workspace, as_stored(effect)),
            )
        ]
        for row in found:
            self._prove(row)
        return found

    def many_rows(self, workspace: str, effects: Sequence[str]) -> dict[str, list[Record]]:
        """The same for many effects at once."""
        found: dict[str, list[Record]] = {id: [] for id in effects}
        for start in range(0, len(effects), 500):
            some = effects[start : start + 500]
            marks = ",".join("?" * len(some))
            for row in self.db.query(
                f"SELECT * FROM rows INDEXED BY rows_effect WHERE workspace = ? AND effect IN ({marks}) ORDER BY seq",
                (workspace, *some),
            ):
                record = Record(*row)
                self._prove(record)
                found[record.effect].append(record)
        return found

    def verify(self, workspace: str) -> Iterator[tuple[int, str]]:
        """Problems (seq, reason) of the whole chain: changed, missing, reordered or cut off."""
        witness = self._witness(workspace)  # before the rows: it never runs ahead of them, while others write
        expected, prev, after = 1, _FIRST, 0
        while rows := self.db.query(
            f"SELECT * FROM rows WHERE workspace = ? AND seq > ? ORDER BY seq LIMIT {_PAGE}", (workspace, after)
        ):
            for row in rows:
                record = Record(*row)
                if record.seq != expected:
                    yield expected, "missing"
                elif record.prev != prev:
                    yield record.seq, "does not follow the row before it"
                elif not self._is_sound(record):
                    yield record.seq, "changed"
                elif witness is not None and record.seq == witness[0] and record.mac != witness[1]:
                    yield record.seq, "it is not the row that was written"
                expected, prev, after = record.seq + 1, record.mac, record.seq
        if witness is not None and witness[0] >= expected:
            yield witness[0], "the newest rows are missing"

    def must_be_whole(self, workspace: str) -> None:
        """Raises StoreCorrupted unless every row is what was written: only then may an inverse run."""
        for seq, reason in self.verify(workspace):
            raise _damaged(f"row {seq} is {reason}" if reason in ("missing", "changed") else f"row {seq}: {reason}")

    # -- the index of effects

    def put_index(self, workspace: str, seq: int, **columns: object) -> None:
        """Note an effect, or what became of it, inside `transaction`."""
        values = [as_stored(value) if isinstance(value, str) else value for value in columns.values()]
        if "id" in columns:
            names = ", ".join(("workspace", "seq", *columns))
            marks = ", ".join("?" * (len(columns) + 2))
            self.db.execute(f"INSERT INTO effects ({names}) VALUES ({marks})", (workspace, seq, *values))
            return
        sets = ", ".join(f"{name} = ?" for name in columns)
        self.db.execute(f"UPDATE effects SET {sets} WHERE workspace = ? AND seq = ?", (*values, workspace, seq))

    def ids(
        self,
        workspace: str,
        *,
        since: int = 0,
        is_open: bool = False,
        where: Mapping[str, Sequence[str]] | None = None,
        oldest_first: bool = False,
    ) -> Iterator[str]:
        """Ids of effects begun at or after a number of the timeline, newest first, read in pages."""
        sql, values = "SELECT seq, id FROM effects WHERE workspace = ? AND at >= ?", [workspace, since]
        if is_open:
            sql += " AND is_open"
        for column, wanted in (where or {}).items():
            sql += f" AND {column} IN ({','.join('?' * len(wanted))})"
            values += map(as_stored, wanted)
        order, compare = ("ASC", ">") if oldest_first else ("DESC", "<")
        last = 0 if oldest_first else 1 << 62
        while rows := self.db.query(f"{sql} AND seq {compare} ? ORDER BY seq {order} LIMIT {_PAGE}", (*values, last)):
            for last, id in rows:  # noqa: B007 - the page goes on after the last one
                yield id

    # -- inside

    def _prove(self, row: Record) -> None:
        if not self._is_sound(row):
            raise _damaged(f"row {row.seq} is not what was written")

    def _is_sound(self, row: Record) -> bool:
        from hmac import compare_digest

        types = (str, int, str, str, str, bytes, bytes)
        if tuple(map(type, tuple(row.as_dict().values()))) != types:
            return False
        return compare_digest(self._row_mac(row.prev, row.workspace, row.seq, row.effect, row.kind, row.body), row.mac)

    def _row_mac(self, prev: bytes, workspace: str, seq: int, effect: str, kind: str, body: str) -> bytes:
        return self._mac(
            prev, workspace.encode(), seq.to_bytes(8, "little"), effect.encode(), kind.encode(), body.encode()
        )

    def _mac(self, *parts: bytes) -> bytes:
        import hmac

        data = b"".join(len(part).to_bytes(8, "little") + part for part in parts)
        return hmac.digest(self._key, data, "sha256")

    def _write_witness(self, workspace: str, seq: int, mac: bytes) -> None:
        try:
            self.home.write(f"witness/{workspace}.effects", b"%d %s\n" % (seq, mac.hex().encode()), durable=False)
        except OSError:
            return  # the row is durable; a witness that lags behind proves less, and claims nothing wrong

    def _witness(self, workspace: str) -> tuple[int, bytes] | None:
        try:
            with open(self.home.file("witness", f"{workspace}.effects"), "rb") as file:
                words = file.read(200).split()
            return int(words[0]), bytes.fromhex(words[1].decode())
        except (OSError, ValueError, IndexError):
            return None  # a power cut may leave it empty: it is not synced


def _make_once(home: Home, name: str, data: bytes) -> None:
    """A file of this content unless there is one: of two processes that come first both go on with the same.

    Replaced by a rename, a key could be taken away from a process that signs with it already.
    """
    from reprieve.store.home import create_file, sync_directory, write_all

    temporary = home.file("tmp", f"{name}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        fd = create_file(temporary)
    except FileNotFoundError:
        home.make_directories()
        fd = create_file(temporary)
    try:
        write_all(fd, data, 0)
        os.fsync(fd)
    finally:
        os.close(fd)
    try:
        os.link(temporary, home.file(name))
    except FileExistsError:
        return
    finally:
        os.unlink(temporary)
    sync_directory(home.path)


def _damaged(fact: str) -> StoreCorrupted:
    return StoreCorrupted(
        f"the journal of effects is damaged: {fact}; no inverse of it is run",
        hints=["see all that is damaged: reprieve verify", "restore effects.db from a backup of REPRIEVE_HOME"],
    )
