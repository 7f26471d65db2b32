"""Copies made under `held` are whole databases with whole transactions, whatever writers do meanwhile."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from reprieve.files.live_sqlite import descriptor_here, held, is_database, owner_of, sidecars

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="open-file-description locks as on Linux")

COPIES = 40
ROWS = 600

# One transaction sets every row to one number, so a copy with two numbers holds half a transaction. Rows are wide
# enough for some 100 pages. Prints what went wrong other than a writer waiting its turn.
WRITER = """
import sqlite3, sys, time
path, mode, who = sys.argv[1:4]
def connect():
    con = sqlite3.connect(path, timeout=20, isolation_level=None)
    con.execute(f"PRAGMA journal_mode={mode}")
    con.execute("PRAGMA wal_autocheckpoint=60")
    con.execute("PRAGMA journal_size_limit=100000")
    con.execute("PRAGMA synchronous=OFF")
    return con
con = connect()
n = int(who)
print("ready", flush=True)
done = 0
try:
    while True:
        n += 2
        con.execute("BEGIN IMMEDIATE")
        con.execute("UPDATE t SET v = ?, pad = ?", (n, str(n % 10) * (700 + n % 7)))
        con.execute("INSERT INTO log VALUES (?)", (n,))
        con.execute("COMMIT")
        done += 1
        time.sleep(0.02)  # or -wal grows faster than anyone copies it
        if done % 20 == 0:
            con.close()  # last closes and first opens have locks of their own
            con = connect()
except sqlite3.Error as error:
    print("failed", type(error).__name__, error, flush=True)
    raise SystemExit(1)
"""


def make_database(path: Path, mode: str) -> None:
    with closing(sqlite3.connect(path)) as con:
        con.execute(f"PRAGMA journal_mode={mode}")
        con.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v INTEGER, pad TEXT)")
        con.execute("CREATE INDEX by_pad ON t (pad)")
        con.execute("CREATE TABLE log (n INTEGER)")
        con.executemany("INSERT INTO t (v, pad) VALUES (0, ?)", [("x" * 700,)] * ROWS)
        con.commit()


@contextmanager
def writers(path: Path, mode: str, *, count: int = 2) -> Iterator[list[subprocess.Popen[str]]]:
    """Writer processes under way; they must still be running, without an error, at the end."""
    running = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), mode, str(i)], stdout=subprocess.PIPE, text=True, bufsize=1
        )
        for i in range(count)
    ]
    try:
        for process in running:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
        yield running
        for process in running:
            assert process.poll() is None, process.communicate()[0]
    finally:
        for process in running:
            process.kill()
            process.communicate()


def copy_slowly(source: Path, target: Path) -> None:
    """As a reader would who is as slow as the writers are fast, 64 KB at a time, up to the length at the beginning."""
    with source.open("rb", buffering=0) as reading, target.open("wb") as writing:
        left = os.fstat(reading.fileno()).st_size
        while left > 0 and (block := reading.read(min(65536, left))):
            left -= writing.write(block)
            time.sleep(0.0005)


def copy_all(database: Path, target: Path) -> Path:
    """Database first, then what belongs to it, as the snapshot does."""
    target.mkdir()
    copy_slowly(database, target / "copy.db")
    for suffix in ("-wal", "-journal"):
        try:
            copy_slowly(Path(f"{database}{suffix}"), target / f"copy.db{suffix}")
        except FileNotFoundError:
            pass
    return target / "copy.db"


def fault_of(copy: Path) -> str:
    """What is wrong with a copy, "" if it is sound and holds whole transactions only."""
    try:
        with closing(sqlite3.connect(copy)) as con:
            verdict = con.execute("PRAGMA integrity_check(1)").fetchone()[0]
            if verdict != "ok":
                return str(verdict)
            values = [row[0] for row in con.execute("SELECT DISTINCT v FROM t")]
            count = con.execute("SELECT count(*) FROM t").fetchone()[0]
            last = con.execute("SELECT n FROM log ORDER BY rowid DESC LIMIT 1").fetchone()
    except sqlite3.DatabaseError as error:
        return str(error)
    if count != ROWS or len(values) != 1 or (last is not None and last[0] != values[0]):
        return f"half a transaction: {count} rows, values {values}, log {last}"
    return ""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    place = tmp_path / "place"
    place.mkdir()
    fd = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    yield place, fd
    os.close(fd)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("mode", ["DELETE", "TRUNCATE", "PERSIST", "WAL"])
def test_f25_copies_of_a_live_database_are_sound(folder: tuple[Path, int], tmp_path: Path, mode: str) -> None:
    """Every copy passes integrity_check and holds whole transactions; no writer fails or waits out its 20 s."""
    place, fd = folder
    make_database(place / "app.db", mode)
    seen = set()
    with writers(place / "app.db", mode):
        made = 0
        for attempt in range(COPIES * 4):
            with held(fd, b"app.db", wait_s=10) as hold:
                assert hold and hold.is_locked, hold.reason
                copy = copy_all(place / "app.db", tmp_path / f"copy{attempt}")
                if not hold.is_intact():
                    continue
            assert fault_of(copy) == "", f"copy {attempt}"
            with closing(sqlite3.connect(copy)) as con:
                seen.add(con.execute("SELECT v FROM t LIMIT 1").fetchone()[0])
            made += 1
            if made == COPIES:
                break
            time.sleep(0.03)  # let checkpoints through: they are what tears a copy
        assert made == COPIES
    assert len(seen) > COPIES // 4, "the writers stood still, so nothing was tested"


@pytest.mark.timeout(120)
@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
def test_without_the_hold_the_same_copies_are_torn(folder: tuple[Path, int], tmp_path: Path, mode: str) -> None:
    """The planted fault: without locks, the test above does find broken copies."""
    place, _ = folder
    make_database(place / "app.db", mode)
    with writers(place / "app.db", mode):
        faults = [fault_of(copy_all(place / "app.db", tmp_path / f"copy{i}")) for i in range(COPIES)]
    assert any(faults)


def other(place: Path, code: str) -> subprocess.Popen[str]:
    """Another process with a connection `con` to the database; waits for a line on stdin after `code`."""
    script = (
        "import sqlite3, sys\n"
        "con = sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None)\n"
        "def attempt(sql):\n"
        "    try:\n        return str(con.execute(sql).fetchall())\n"
        "    except sqlite3.OperationalError as error:\n        return str(error)\n"
        f"{code}\nprint('ready', flush=True)\nsys.stdin.readline()\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", script, str(place / "app.db")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def lines_of(process: subprocess.Popen[str]) -> list[str]:
    assert process.stdout is not None
    lines = []
    while (line := process.stdout.readline().strip()) != "ready":
        assert line, "the other process failed"
        lines.append(line)
    return lines


@pytest.fixture
def beside(folder: tuple[Path, int]) -> Iterator[Callable[[str], list[str]]]:
    """Runs code in another process that then stays; gives the lines that it printed."""
    processes = []

    def start(code: str) -> list[str]:
        processes.append(other(folder[0], code))
        return lines_of(processes[-1])

    yield start
    for process in processes:
        process.communicate("\n")


def test_a_writer_waits_only_while_the_hold_lasts(folder: tuple[Path, int], beside: Callable[[str], list[str]]) -> None:
    place, fd = folder
    make_database(place / "app.db", "DELETE")
    with held(fd, b"app.db") as hold:
        assert hold and hold.is_intact()
        assert beside("print(attempt('UPDATE t SET v = 1'))") == ["database is locked"]
        assert beside("print(attempt('SELECT DISTINCT v FROM t'))") == ["[(0,)]"]
    assert beside("print(attempt('UPDATE t SET v = 1'))") == ["[]"]


def test_in_wal_mode_writers_go_on_and_checkpoints_wait(
    folder: tuple[Path, int], beside: Callable[[str], list[str]]
) -> None:
    place, fd = folder
    make_database(place / "app.db", "WAL")
    beside("attempt('UPDATE t SET v = 1')")
    with held(fd, b"app.db") as hold:
        assert hold and hold.is_locked
        before = (place / "app.db").read_bytes()
        assert beside("print(attempt('UPDATE t SET v = 2'))") == ["[]"]
        busy = beside("print(attempt('PRAGMA wal_checkpoint(TRUNCATE)'))")
        assert busy[0].startswith("[(1,")
        assert (place / "app.db").read_bytes() == before
        assert hold.is_intact()
    assert beside("print(attempt('PRAGMA wal_checkpoint(TRUNCATE)'))") == ["[(0, 0, 0)]"]


def test_the_log_is_not_started_over_under_a_hold(folder: tuple[Path, int], beside: Callable[[str], list[str]]) -> None:
    """After a full checkpoint the next writer would begin -wal again from its start; a copier would read a mix."""
    place, fd = folder
    make_database(place / "app.db", "WAL")
    beside("attempt('UPDATE t SET v = 1'); attempt('PRAGMA wal_checkpoint(PASSIVE)')")
    header = (place / "app.db-wal").read_bytes()[:32]
    with held(fd, b"app.db"):
        beside("print(attempt('UPDATE t SET v = 2'))")
        assert (place / "app.db-wal").read_bytes()[:32] == header
    beside("attempt('PRAGMA wal_checkpoint(PASSIVE)'); attempt('UPDATE t SET v = 3')")
    assert (place / "app.db-wal").read_bytes()[:32] != header


def test_new_readers_find_a_place_in_the_log(folder: tuple[Path, int], beside: Callable[[str], list[str]]) -> None:
    """A database whose log was empty when its users came has no read mark yet; a hold must leave them some."""
    place, fd = folder
    make_database(place / "app.db", "WAL")
    beside("attempt('SELECT 1 FROM t')")
    with held(fd, b"app.db"):
        assert beside("print(attempt('UPDATE t SET v = 5')); print(attempt('SELECT DISTINCT v FROM t'))")[1] == "[(5,)]"
        assert beside("print(attempt('SELECT DISTINCT v FROM t'))") == ["[(5,)]"]


def test_a_database_that_stays_busy_is_named_not_copied(
    folder: tuple[Path, int], beside: Callable[[str], list[str]]
) -> None:
    place, fd = folder
    make_database(place / "app.db", "DELETE")
    beside("con.execute('PRAGMA locking_mode=EXCLUSIVE'); con.execute('UPDATE t SET v = 1')")
    started = time.monotonic()
    with held(fd, b"app.db", wait_s=0.1) as hold:
        assert not hold
        assert "being written" in hold.reason
        assert not hold.is_intact()
    assert time.monotonic() - started < 20


def test_a_wal_database_in_exclusive_mode_is_busy_though_it_has_no_shm(
    folder: tuple[Path, int], beside: Callable[[str], list[str]]
) -> None:
    place, fd = folder
    make_database(place / "app.db", "WAL")
    beside("con.execute('PRAGMA locking_mode=EXCLUSIVE'); con.execute('UPDATE t SET v = 1')")
    assert not (place / "app.db-shm").exists()
    with held(fd, b"app.db", wait_s=0.05) as hold:
        assert not hold


def test_an_idle_wal_database_is_held_until_someone_comes(
    folder: tuple[Path, int], beside: Callable[[str], list[str]]
) -> None:
    """No -shm: nothing to lock. A user who comes during the copy is noticed, even one that leaves again."""
    place, fd = folder
    make_database(place / "app.db", "WAL")
    assert os.listdir(place) == ["app.db"]
    with held(fd, b"app.db") as hold:
        assert hold and hold.is_intact()
        assert os.listdir(place) == ["app.db"]
        beside("attempt('UPDATE t SET v = 1'); attempt('PRAGMA wal_checkpoint'); con.close()")
        assert not hold.is_intact()


def test_nothing_is_written(folder: tuple[Path, int], beside: Callable[[str], list[str]]) -> None:
    place, fd = folder
    make_database(place / "app.db", "WAL")
    beside("attempt('UPDATE t SET v = 1')")

    def look() -> dict[str, tuple[int, int, int]]:
        states = {name: os.stat(place / name) for name in os.listdir(place)}
        return {name: (s.st_size, s.st_mtime_ns, s.st_ctime_ns) for name, s in states.items()}

    before = look()
    with held(fd, b"app.db") as hold:
        assert hold
    assert look() == before


def test_a_crashed_writers_hot_journal_recovers_the_copy(folder: tuple[Path, int], tmp_path: Path) -> None:
    place, fd = folder
    make_database(place / "app.db", "DELETE")
    process = other(place, "con.execute('PRAGMA cache_size=5'); attempt('BEGIN'); attempt('UPDATE t SET v = 9')")
    lines_of(process)  # pages have spilled into the file, the transaction is open
    with held(fd, b"app.db", wait_s=0.05) as hold:
        assert not hold
    process.kill()
    process.communicate()
    assert (place / "app.db-journal").stat().st_size > 0
    with held(fd, b"app.db") as hold:
        assert hold
        copy = copy_all(place / "app.db", tmp_path / "copy")
    assert fault_of(copy) == ""


def test_locks_of_a_connection_in_this_process_survive(
    folder: tuple[Path, int], beside: Callable[[str], list[str]]
) -> None:
    """D6: closing any descriptor of a database drops the locks of this process's own connections."""
    place, fd = folder
    make_database(place / "app.db", "DELETE")
    with closing(sqlite3.connect(place / "app.db", isolation_level=None)) as con:
        con.execute("BEGIN IMMEDIATE")
        con.execute("UPDATE t SET v = 1 WHERE id = 1")
        with held(fd, b"app.db") as hold:
            assert hold and hold.is_intact()
            info = os.stat(place / "app.db")
            assert os.pread(descriptor_here(info.st_dev, info.st_ino), 16, 0) == b"SQLite format 3\0"
        assert beside("print(attempt('BEGIN IMMEDIATE'))") == ["database is locked"]
        con.execute("COMMIT")
    assert descriptor_here(info.st_dev, info.st_ino) == -1


def test_locks_of_a_wal_connection_in_this_process_survive(
    folder: tuple[Path, int], beside: Callable[[str], list[str]]
) -> None:
    place, fd = folder
    make_database(place / "app.db", "WAL")
    with closing(sqlite3.connect(place / "app.db", isolation_level=None)) as con:
        con.execute("BEGIN IMMEDIATE")
        con.execute("UPDATE t SET v = 1 WHERE id = 1")
        with held(fd, b"app.db") as hold:
            assert hold and hold.is_intact()
        assert beside("print(attempt('BEGIN IMMEDIATE'))") == ["database is locked"]
        con.execute("COMMIT")
        assert con.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0, "the hold left a lock behind"


def test_a_read_only_database_is_held(folder: tuple[Path, int]) -> None:
    place, fd = folder
    make_database(place / "app.db", "DELETE")
    (place / "app.db").chmod(0o400)
    with held(fd, b"app.db") as hold:
        assert hold and hold.is_locked


def test_links_and_missing_files_are_errors(folder: tuple[Path, int]) -> None:
    place, fd = folder
    (place / "link.db").symlink_to("elsewhere.db")
    os.mkfifo(place / "fifo.db")
    for name in (b"link.db", b"missing.db", b"fifo.db"):
        with pytest.raises(OSError), held(fd, name):
            pass
    assert len([n for n in os.listdir("/proc/self/fd") if n.isdigit()]) < 100


def test_names_and_magic() -> None:
    assert is_database(b"SQLite format 3\x00\x10\x00")
    assert not is_database(b"SQLite format 3")
    assert sidecars(b"a/x.db") == (b"a/x.db-wal", b"a/x.db-shm", b"a/x.db-journal")
    assert [owner_of(name) for name in sidecars(b"a/x.db")] == [b"a/x.db"] * 3
    assert owner_of(b"a/x.db") == b"" and owner_of(b"a/-wal") == b""
