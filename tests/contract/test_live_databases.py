"""Databases that are in use come back as databases (F25, F26), and as one thing."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from reprieve.app.finding import open_workspace
from reprieve.files import native
from reprieve.files.restore import Restore
from reprieve.model.reporter import Reporter
from support import Cli
from support.acts import assert_tree, checkpoint, paths, rollback, script, wait_until
from support.tree import fingerprint

# Moves money between two accounts, in transactions of many pages, until it is killed. The sum never changes.
WRITER = """
import sqlite3, sys
path, mode = sys.argv[1:3]
db = sqlite3.connect(path, isolation_level=None, timeout=60)
db.execute(f"pragma journal_mode={mode}")
db.execute("pragma synchronous=off")
db.execute("pragma cache_size=50")
db.execute("create table if not exists account (id integer primary key, amount integer, filler blob)")
db.execute("begin immediate")
for i in range(2000):
    db.execute("insert or ignore into account values (?, 100, randomblob(1500))", (i,))
db.execute("commit")
print("ready", flush=True)
n = 0
while True:
    n += 1
    db.execute("begin immediate")
    for k in range(40):
        a, b = (n * 7 + k * 13) % 2000, (n * 11 + k * 17 + 1) % 2000
        db.execute("update account set amount = amount - 1, filler = randomblob(1500) where id = ?", (a,))
        db.execute("update account set amount = amount + 1, filler = randomblob(1500) where id = ?", (b,))
    db.execute("commit")
"""


def total(path: Path) -> int:
    """The sum over all accounts, from a database that must be in order."""
    db = sqlite3.connect(path)
    try:
        assert db.execute("pragma integrity_check").fetchall() == [("ok",)]
        count, amount = db.execute("select count(*), sum(amount) from account").fetchone()
        assert count == 2000
        return int(amount)
    finally:
        db.close()


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["delete", "wal", "truncate"])
def test_F25_a_database_under_load_comes_back_in_order(cli: Cli, project: Path, mode: str) -> None:
    """Captured while another process writes, each checkpoint holds a database that passes integrity_check."""
    path = project / "live.db"
    taken = []
    with script(WRITER, path, mode):
        for _ in range(5):
            made = cli("checkpoint", "--json", check=False, timeout=60)
            assert made.code in (0, 1), made
            assert not {p for p in paths(made.json["checkpoint"]["gaps"]) if not p.startswith("live.db-")}
            taken.append(made.json["checkpoint"]["id"])
    for id in taken:
        answer = cli("rollback", id, check=False)
        assert answer.code in (0, 1), answer
        assert total(path) == 200_000


def test_F25_the_writer_is_not_disturbed(cli: Cli, project: Path) -> None:
    """A checkpoint takes no lock away from the program that has the database open, and makes it wait for nothing."""
    path = project / "mine.db"
    db = sqlite3.connect(path, isolation_level=None, timeout=0)
    db.execute("create table account (id integer primary key, amount integer, filler blob)")
    db.execute("begin")
    db.executemany("insert into account values (?, 100, zeroblob(1000))", [(i,) for i in range(2000)])
    db.execute("commit")
    db.execute("begin immediate")
    db.execute("update account set amount = 0")
    try:
        made = cli("checkpoint", "--json", check=False, timeout=60)
        assert made.code in (0, 1), made
        other = sqlite3.connect(path, isolation_level=None, timeout=0)
        with pytest.raises(sqlite3.OperationalError):
            other.execute("begin immediate")  # the lock is still held
        other.close()
        db.execute("commit")
    finally:
        db.close()
    if "mine.db" not in paths(made.json["checkpoint"]["gaps"]):
        cli("rollback", made.json["checkpoint"]["id"])
        assert total(path) == 200_000


def fill(path: Path, mode: str, value: str) -> None:
    """A small database with one row of that value, closed in good order."""
    db = sqlite3.connect(path)
    db.execute(f"pragma journal_mode={mode}")
    db.execute("create table if not exists t (v text)")
    db.execute("delete from t")
    db.execute("insert into t values (?)", (value,))
    db.commit()
    db.close()


def read(path: Path) -> str:
    """That value."""
    db = sqlite3.connect(path)
    try:
        assert db.execute("pragma integrity_check").fetchall() == [("ok",)]
        return str(db.execute("select v from t").fetchone()[0])
    finally:
        db.close()


# Leaves the sidecar file behind, as a program that is killed does.
KILLED = """
import sqlite3, sys
path, mode = sys.argv[1:3]
db = sqlite3.connect(path, isolation_level=None)
db.execute(f"pragma journal_mode={mode}")
db.execute("pragma wal_autocheckpoint=0")
db.execute("begin immediate")
db.execute("update t set v = 'the agent'")
db.execute("create table more (x)")
for i in range(300): db.execute("insert into more values (randomblob(900))")
if mode == "wal":
    db.execute("commit")
else:
    db.execute("pragma cache_spill=1")
    db.execute("pragma cache_size=5")
    for i in range(300): db.execute("insert into more values (randomblob(900))")
print("ready", flush=True)
import time
time.sleep(60)
"""


@pytest.mark.parametrize(("mode", "sidecar"), [("wal", "-wal"), ("delete", "-journal")])
def test_F26_a_later_sidecar_does_not_spoil_the_restored_database(
    cli: Cli, project: Path, mode: str, sidecar: str
) -> None:
    """The -wal or -journal that lies beside it after the wreck goes with the wreck."""
    path = project / "app.db"
    fill(path, mode, "the person")
    before = fingerprint(project)
    checkpoint(cli)
    with script(KILLED, path, mode):
        assert Path(f"{path}{sidecar}").stat().st_size > 0
    assert Path(f"{path}{sidecar}").exists()
    rollback(cli)
    assert not Path(f"{path}{sidecar}").exists()
    assert_tree(project, before)
    assert read(path) == "the person"


@pytest.mark.parametrize(("mode", "sidecar"), [("wal", "-wal"), ("delete", "-journal")])
def test_F26_a_database_captured_with_its_sidecar_comes_back_as_one(
    cli: Cli, project: Path, mode: str, sidecar: str
) -> None:
    """What was committed at the checkpoint is there after the rollback, also if it was still in the -wal."""
    path = project / "app.db"
    fill(path, mode, "the person")
    with script(KILLED, path, mode):
        pass
    assert Path(f"{path}{sidecar}").exists()
    cli("checkpoint", check=False)
    for name in (path, Path(f"{path}{sidecar}"), Path(f"{path}-shm")):
        name.unlink(missing_ok=True)
    fill(path, "delete", "somebody else")
    answer = cli("rollback", check=False)
    assert answer.code in (0, 1), answer
    assert read(path) == ("the agent" if mode == "wal" else "the person")


def test_F26_only_the_sidecars_of_a_restored_database_go(cli: Cli, project: Path) -> None:
    """A file that merely has such a name is a file like any other."""
    (project / "notes-wal").write_text("not a database\n")
    (project / "notes").write_text("text\n")
    before = fingerprint(project)
    checkpoint(cli)
    (project / "notes").write_text("wrecked\n")
    rollback(cli)
    assert_tree(project, before)
    (project / "notes-wal").unlink()
    rollback(cli)
    assert_tree(project, before)


def test_F25_a_file_that_only_begins_like_a_database(cli: Cli, project: Path) -> None:
    """The magic bytes at the beginning of something else are kept exactly as they are."""
    (project / "fake.db").write_bytes(b"SQLite format 3\x00" + os.urandom(5_000))
    (project / "short.db").write_bytes(b"SQLite format 3\x00")
    before = fingerprint(project)
    made = cli("checkpoint", "--json", check=False)
    assert made.code in (0, 1), made
    (project / "fake.db").unlink()
    (project / "short.db").write_bytes(b"")
    rollback(cli)
    assert_tree(project, before)


def test_F25_a_database_at_rest_is_kept_byte_by_byte(cli: Cli, project: Path) -> None:
    """Nobody has it open: no backup of it is made, its bytes are taken as they are."""
    path = project / "rest.db"
    fill(path, "delete", "at rest")
    before = fingerprint(project)
    checkpoint(cli)
    assert_tree(project, before)
    path.write_bytes(b"wrecked")
    rollback(cli)
    assert_tree(project, before)
    wait_until(lambda: read(path) == "at rest", what="the database")


# An application that has its database open in WAL mode, and ends in good order when it is told to.
APP = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute("pragma journal_mode=wal")
db.execute("create table if not exists t (id integer primary key, who text)")
db.executemany("insert into t (who) values (?)", [("old" * 50,)] * 300)
db.commit()
db.execute("pragma wal_checkpoint(passive)")
print("ready", flush=True)
sys.stdin.readline()
db.close()
"""
AGENT = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute("update t set who = 'agent' || hex(zeroblob(60)) where id % 2")
db.executemany("insert into t (who) values (?)", [("agent" + "x" * 200,)] * 300)
db.commit()
"""


@contextmanager
def app(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The application, running; at the end it is told to end."""
    with subprocess.Popen([sys.executable, "-c", APP, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdin is not None and program.stdout is not None
        assert program.stdout.readline() == b"ready\n"
        try:
            yield program
        finally:
            program.communicate(b"\n")


def work(path: Path, *statements: str) -> None:
    """What a person does with the database in a program of their own."""
    db = sqlite3.connect(path)
    for statement in statements:
        db.execute(statement)
        db.commit()
    db.close()


def rows(path: Path) -> dict[str, int]:
    """How many rows are whose, in a database that must be in order."""
    db = sqlite3.connect(path)
    try:
        assert db.execute("pragma integrity_check").fetchall() == [("ok",)]
        found = db.execute("select substr(who, 1, 3), count(*) from t group by 1").fetchall()
        return {str(who): int(count) for who, count in found}
    finally:
        db.close()


PERSON = "insert into t (who) values ('you')"


def agent(cli: Cli, path: Path) -> None:
    """An agent's step: half of the rows are changed, 300 are new."""
    cli("run", "--", sys.executable, "-c", AGENT, path)


def test_a_program_that_ends_after_a_rollback_does_not_write_its_log_into_the_database(cli: Cli, project: Path) -> None:
    """It goes on with the old files, all of them: what a person did since the rollback stays, the agent's does not."""
    path = project / "app.db"
    with app(path) as program:
        before = checkpoint(cli)
        agent(cli, path)
        report = rollback(cli, before)
        assert rows(path) == {"old": 300}
        assert [(held["path"], str(program.pid) in held["reason"]) for held in report["held_open"]] == [
            ("app.db", True)
        ]
        work(path, PERSON, "pragma wal_checkpoint(truncate)")
    assert rows(path) == {"old": 300, "you": 1}


def test_reading_a_database_is_no_change_of_it(cli: Cli, project: Path) -> None:
    """SQLite writes -shm for every reader: that is no conflict, nobody's work, and does not bind an approval."""
    path = project / "app.db"
    with app(path):
        before = checkpoint(cli)
        agent(cli, path)
        plan = cli("rollback", before, "--dry-run", "--json").json["plan"]
        assert rows(path) == {"old": 150, "age": 450}
        assert cli("rollback", before, "--dry-run", "--json").json["plan"]["id"] == plan["id"]
        assert rollback(cli, before)["kept"] == []
        with closing(sqlite3.connect(path)) as reader:
            assert reader.execute("select count(*) from t where who like 'old%'").fetchone() == (300,)
            assert cli("redo", "--json").json["report"]["conflicts"] == []
        rollback(cli, before)
        assert rows(path) == {"old": 300}  # by the last one who has it open: SQLite empties the log into the file
        assert not Path(f"{path}-wal").exists()
        assert cli("redo", "--json").json["report"]["conflicts"] == []
        assert rows(path) == {"old": 150, "age": 450}
    assert rows(path) == {"old": 150, "age": 450}


def test_a_program_that_a_person_ends_changes_no_row(cli: Cli, project: Path) -> None:
    """It empties its log into the file, the agent's rows among others: they are still the agent's, and go."""
    path = project / "app.db"
    with app(path):
        before = checkpoint(cli)
        agent(cli, path)
        cli("checkpoint", "after")
    assert not Path(f"{path}-wal").exists()
    rollback(cli, before)
    assert rows(path) == {"old": 300}


def test_a_program_that_a_person_starts_changes_no_row(cli: Cli, project: Path) -> None:
    """It makes an empty log beside the database that the agent has changed."""
    path = project / "app.db"
    with app(path):
        pass
    before = checkpoint(cli)
    agent(cli, path)
    with closing(sqlite3.connect(path)) as program:
        assert program.execute("select count(*) from t").fetchone() == (600,)
        assert Path(f"{path}-wal").exists()
        rollback(cli, before)
        assert rows(path) == {"old": 300}
    assert rows(path) == {"old": 300}


def test_a_row_that_a_person_wrote_since_is_a_conflict_also_when_the_log_is_gone(cli: Cli, project: Path) -> None:
    path = project / "app.db"
    with app(path):
        before = checkpoint(cli)
        agent(cli, path)
        work(path, PERSON)
    assert not Path(f"{path}-wal").exists()
    assert cli("rollback", before, check=False).code == 4
    assert rows(path) == {"old": 150, "age": 450, "you": 1}


def test_a_database_that_both_changed_is_one_conflict(cli: Cli, project: Path) -> None:
    """Its parts are kept together, taken back together, or put beside together; never a mix of two states."""
    path = project / "app.db"
    with app(path):
        before = checkpoint(cli)
        agent(cli, path)
        work(path, PERSON)
        refused = cli("rollback", before, "--json", check=False)
        assert refused.code == 4
        assert {"app.db", "app.db-wal"} == set(refused.json["error"]["conflicts"])
        rollback(cli, before, "--on-conflict", "keep")
        assert rows(path) == {"old": 150, "age": 450, "you": 1}
        rollback(cli, before, "--on-conflict", "both")
        beside = project / f"app.db.checkpoint-{before}"
        assert rows(beside) == {"old": 300}
        assert rows(path) == {"old": 150, "age": 450, "you": 1}
        rollback(cli, before, "--on-conflict", "theirs")
        assert rows(path) == {"old": 300}
    assert rows(path) == {"old": 300}


def test_what_a_person_did_to_a_database_before_the_agent_stays(cli: Cli, project: Path) -> None:
    """The agent's change is the last one: all parts go back to just before it."""
    path = project / "app.db"
    with app(path):
        before = checkpoint(cli)
        work(path, PERSON)
        agent(cli, path)
        rollback(cli, before)
        assert rows(path) == {"old": 300, "you": 1}
    assert rows(path) == {"old": 300, "you": 1}


def test_a_tracked_database_is_tracked_with_its_logs(cli: Cli, project: Path, tmp_path: Path) -> None:
    """Rows that are still in the log go back with the file, also where nothing else of the folder is ours."""
    path = tmp_path / "elsewhere" / "app.db"
    path.parent.mkdir()
    with app(path):
        assert set(cli("track", path, "--json").json["tracked"]) == {
            f"{path}{suffix}" for suffix in ("", "-wal", "-shm", "-journal")
        }
        before = checkpoint(cli)
        agent(cli, path)
        rollback(cli, before)
        assert rows(path) == {"old": 300}
    assert rows(path) == {"old": 300}
    assert cli("track", "--remove", path, "--json").json["tracked"] == []


@pytest.mark.parametrize("named", ["app.db", "app.db-wal"])
def test_one_part_of_a_database_means_all_of_it(cli: Cli, project: Path, named: str) -> None:
    """Reverting the log alone would give a database that never was."""
    path = project / "app.db"
    with app(path):
        before = checkpoint(cli)
        agent(cli, path)
        cli("revert", named, "--to", before)
        assert rows(path) == {"old": 300}
    assert rows(path) == {"old": 300}


def test_a_database_that_is_written_during_a_rollback_is_left_or_moved_whole(cli: Cli, project: Path) -> None:
    """Whichever way it goes, what is there afterwards is one database."""
    path = project / "live.db"
    with script(WRITER, path, "wal"):
        before = cli("checkpoint", "--json", check=False, timeout=60).json["checkpoint"]["id"]
        for _ in range(3):
            answer = cli("rollback", before, "--json", check=False, timeout=60)
            assert answer.code in (0, 1, 4, 6), answer
            assert total(path) == 200_000
    assert total(path) == 200_000


def test_what_is_only_named_like_an_index_comes_back(cli: Cli, project: Path) -> None:
    """A file that is not beside a database is a file like any other."""
    for name in ("notes", "notes-shm", "alone-shm"):
        (project / name).write_text("text\n")
    before = fingerprint(project)
    checkpoint(cli)
    (project / "notes").write_text("wrecked\n")
    (project / "notes-shm").write_text("wrecked\n")
    (project / "alone-shm").unlink()
    rollback(cli)
    assert_tree(project, before)


@contextmanager
def broken(project: Path) -> Iterator[sqlite3.Connection]:
    """A database in WAL mode that this process has open; its second row came after the checkpoint."""
    db = sqlite3.connect(project / "app.db")
    db.execute("pragma journal_mode=wal")
    db.execute("create table t (id integer primary key, who text)")
    db.execute("insert into t (who) values ('old')")
    db.commit()
    db.execute("pragma wal_checkpoint(passive)")
    ws = open_workspace(str(project), create=True, reporter=Reporter())
    ws.checkpoint("all")
    ws.close()
    db.execute("insert into t (who) values ('age')")
    db.commit()
    with closing(db):
        yield db


def test_a_database_that_is_written_late_goes_back_whole(
    cli: Cli, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its log alone would be beside a database that it is not the log of."""
    honest = Restore.apply
    with broken(project) as db:
        ino = (project / "app.db").stat().st_ino

        def apply(self: Restore) -> None:
            honest(self)
            assert (project / "app.db").stat().st_ino != ino
            db.execute("insert into t (who) values ('you')")
            db.commit()

        monkeypatch.setattr(Restore, "apply", apply)
        ws = open_workspace(str(project), create=False, reporter=Reporter())
        _, report = ws.rollback()
        ws.close()
        assert report is not None
        assert {conflict.path for conflict in report.conflicts} == {b"app.db", b"app.db-wal"}
        assert (project / "app.db").stat().st_ino == ino
        assert rows(project / "app.db") == {"old": 1, "age": 1, "you": 1}
    assert rows(project / "app.db") == {"old": 1, "age": 1, "you": 1}
    assert not list(project.glob("reprieve-rescued-*"))


def test_who_opens_the_new_database_before_the_recovery_keeps_it(
    cli: Cli, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed when all was in its place: a program that started since has written to it, and goes on to."""
    path = project / "app.db"
    told: list[str] = []
    with broken(project):
        reporter = Reporter()
        monkeypatch.setattr(reporter, "warn", told.append)
        ws = open_workspace(str(project), create=False, reporter=reporter)
        with monkeypatch.context() as patch:
            honest = Restore.apply

            def interrupt(self: Restore) -> None:
                honest(self)
                raise KeyboardInterrupt

            patch.setattr(Restore, "apply", interrupt)
            with pytest.raises(KeyboardInterrupt):
                ws.rollback()
        with closing(sqlite3.connect(path)) as program:
            program.execute(PERSON)
            program.commit()
            files = {name: os.stat(f"{path}{name}").st_ino for name in ("", "-wal", "-shm")}
            ws.recover()
            ws.close()
            assert {name: os.stat(f"{path}{name}").st_ino for name in files} == files
            assert [text for text in told if "'app.db-wal' was not moved" in text]
            program.execute(PERSON)
            program.commit()
    assert rows(path) == {"old": 1, "you": 2}


@pytest.mark.parametrize("moved", [1, 2, 3])
def test_a_database_gets_new_files_also_after_a_crash(
    cli: Cli, project: Path, monkeypatch: pytest.MonkeyPatch, moved: int
) -> None:
    """The recovery makes the same moves: the program that has the old files open can't write into the new ones."""
    with broken(project) as db:
        ino = (project / "app.db").stat().st_ino
        ws = open_workspace(str(project), create=False, reporter=Reporter())
        with monkeypatch.context() as patch:
            honest, left = native.rename2, [moved]

            def rename(*args: object) -> None:
                honest(*args)  # type: ignore[arg-type]
                left[0] -= 1
                if not left[0]:
                    raise KeyboardInterrupt

            patch.setattr(Restore, "_plain_steps", lambda self: {"trash": [], "swap": [], "new": []})
            patch.setattr(native, "rename2", rename)
            with pytest.raises(KeyboardInterrupt):
                ws.rollback()
        ws.recover()
        ws.close()
        assert (project / "app.db").stat().st_ino != ino
        assert rows(project / "app.db") == {"old": 1}
        db.execute("insert into t (who) values ('late')")
        db.commit()
    assert rows(project / "app.db") == {"old": 1}


def test_a_file_that_only_has_the_name_of_an_index_stays(cli: Cli, project: Path) -> None:
    """A person's notes beside a database without a log: nothing makes them again."""
    database, notes = project / "a.db", project / "a.db-shm"
    code = "import sqlite3; c = sqlite3.connect('a.db'); c.execute('{}'); c.commit(); c.close()"
    subprocess.run([sys.executable, "-c", code.format("CREATE TABLE t (x)")], cwd=project, check=True)
    notes.write_text("my notes")
    cli("checkpoint", "c")
    before = database.read_bytes()
    cli("run", "--", sys.executable, "-c", code.format("INSERT INTO t VALUES (1)"))
    after = database.read_bytes()
    cli("rollback", "c")
    assert (database.read_bytes(), notes.read_text()) == (before, "my notes")
    cli("redo")
    assert (database.read_bytes(), notes.read_text()) == (after, "my notes")
    notes.write_text("an agent's? no, mine")
    cli("rollback", "c")
    assert (database.read_bytes(), notes.read_text()) == (before, "an agent's? no, mine")
    cli("run", "--", "rm", "a.db-shm")
    cli("undo")
    assert notes.read_text() == "an agent's? no, mine"
