"""What a restore takes out of the tree: it leaves at once, nothing that nobody captured leaves with it."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reprieve.app.care import gc
from reprieve.app.finding import open_workspace
from reprieve.app.workspace import Workspace
from reprieve.errors import Refused, StoreFailed
from reprieve.files import afterwards, restore, stage, steps
from reprieve.files.content import Unstable
from reprieve.files.restore import Restore
from reprieve.files.stage import Stage
from reprieve.files.steps import Steps
from reprieve.model.plan import Report
from reprieve.model.reporter import Reporter
from reprieve.rollback import execute
from reprieve.store.db import Database
from reprieve.store.memory import MemoryStore
from support.mounts import mounted

COUNT = 30


@pytest.fixture
def ws(project: Path, home: Path) -> Iterator[Workspace]:
    for number in range(COUNT):
        (project / f"f{number}").write_bytes(b"before %d" % number)
    ws = open_workspace(str(project), create=True, reporter=Reporter())
    ws.checkpoint("all")
    for number in range(COUNT):
        (project / f"f{number}").write_bytes(b"after, and longer %d" % number)
    yield ws
    ws.close()


@pytest.fixture(params=["fast", "slow"])
def disk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """One where creating is slow: then files are made in another part of it."""
    if request.param == "slow":
        monkeypatch.setattr(stage, "_SLOW_NS", 0)


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the helper's fork: there is a time after the answer."""
    monkeypatch.setattr(afterwards, "_works", [])


def rollback(ws: Workspace) -> Report:
    _, report = ws.rollback()
    assert report is not None
    return report


def contents(project: Path) -> set[bytes]:
    return {path.read_bytes() for path in project.glob("f*")}


BEFORE = {b"before %d" % number for number in range(COUNT)}


def is_ext4(folder: Path) -> bool:
    done = subprocess.run(["stat", "-f", "-c", "%T", folder], capture_output=True, text=True, check=True)
    return done.stdout.startswith("ext")


def stages(folder: Path) -> list[Path]:
    return list(folder.glob(".reprieve-*"))


@pytest.mark.usefixtures("disk")
def test_it_is_gone_when_the_rollback_returns(ws: Workspace, project: Path, home: Path) -> None:
    rollback(ws)
    assert contents(project) == BEFORE
    assert stages(project) == stages(home / "tmp") == []


@pytest.mark.usefixtures("disk", "later")
def test_where_there_is_a_later_it_is_out_of_the_tree_and_then_gone(ws: Workspace, project: Path, home: Path) -> None:
    rollback(ws)
    assert contents(project) == BEFORE
    assert stages(project) == [] and len(stages(home / "tmp")) == 1
    if stage._SLOW_NS == 0 and is_ext4(home):
        # each turned out slow as well, and the next files were made in another
        assert 1 < len(list((home / "tmp").glob(".reprieve-*/d.*"))) <= stage._TRIES
    afterwards.run()
    assert stages(home / "tmp") == []


@pytest.mark.usefixtures("disk", "later")
def test_what_a_killed_process_left_there_gc_removes_and_nothing_else(ws: Workspace, project: Path, home: Path) -> None:
    rollback(ws)
    kept = [home / "packs" / "mine", home / "tmp" / "mine"]
    for folder in kept:
        folder.mkdir()
        (folder / "file").write_text("not ours")
    gc(ws)
    assert stages(home / "tmp") == []
    assert all((folder / "file").exists() for folder in kept)


def test_a_store_on_another_file_system_is_no_attic(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not any(line.split()[1:3] == ["/dev/shm", "tmpfs"] for line in Path("/proc/mounts").read_text().splitlines()):
        pytest.skip("no file system in memory at /dev/shm")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as elsewhere:
        monkeypatch.setenv("REPRIEVE_HOME", f"{elsewhere}/home")
        monkeypatch.setattr(afterwards, "_works", [])
        for number in range(COUNT):
            (project / f"f{number}").write_bytes(b"before %d" % number)
        ws = open_workspace(str(project), create=True, reporter=Reporter())
        ws.checkpoint("all")
        for number in range(COUNT):
            (project / f"f{number}").write_bytes(b"after, and longer %d" % number)
        rollback(ws)
        assert contents(project) == BEFORE
        assert stages(project) == [] and os.listdir(f"{elsewhere}/home/tmp") == []
        ws.close()


@pytest.mark.parametrize("what", ["directory", "file"])
def test_what_somebody_puts_in_the_place_of_a_file_that_is_written_late_is_kept(
    ws: Workspace, project: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """A program holds f3 open and writes on; somebody makes something else where f3 was; all three survive."""
    honest = Restore.apply
    with open(project / "f3", "ab") as writer:

        def apply(self: Restore) -> None:
            honest(self)
            writer.write(b", written late")
            writer.flush()
            (project / "f3").unlink()
            if what == "directory":
                (project / "f3").mkdir()
                (project / "f3" / "note").write_text("mine")
            else:
                (project / "f3").write_text("mine")

        monkeypatch.setattr(Restore, "apply", apply)
        report = rollback(ws)
    assert [conflict.path for conflict in report.conflicts] == [b"f3"]
    assert (project / "f3").read_bytes() == b"after, and longer 3, written late"
    (saved,) = project.glob("reprieve-rescued-*")
    assert saved.name in report.conflicts[0].reason
    assert (saved / "note" if what == "directory" else saved).read_text() == "mine"
    assert stages(project) == []


@pytest.mark.parametrize("error", [OSError(errno.EIO, "no"), KeyboardInterrupt()])
def test_a_file_that_is_written_late_survives_an_error_while_it_is_looked_for(
    ws: Workspace, project: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    honest_apply, honest = Restore.apply, Steps.return_late_writes
    errors = [error]
    with open(project / "f3", "ab") as writer:

        def apply(self: Restore) -> None:
            honest_apply(self)
            writer.write(b", written late")
            writer.flush()

        def fail_once(self: Steps, *args: object) -> None:
            if errors:
                raise errors.pop()
            honest(self, *args)  # type: ignore[arg-type]

        monkeypatch.setattr(Restore, "apply", apply)
        monkeypatch.setattr(Steps, "return_late_writes", fail_once)
        try:
            rollback(ws)
        except KeyboardInterrupt:
            ws.recover()
    found = [path for path in project.rglob("*") if path.is_file() and b"written late" in path.read_bytes()]
    assert len(found) == 1
    assert stages(project) == []


@pytest.mark.usefixtures("later")
def test_on_a_nearly_full_disk_what_was_replaced_is_not_in_the_way_of_a_second_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tree is moved, its record fails; before all is staged once more there must be room."""
    with mounted("tmpfs", tmp_path / "disk", scratch=tmp_path, size_mb=64) as disk:
        monkeypatch.setenv("REPRIEVE_HOME", str(disk / "home"))
        root = disk / "tree"
        root.mkdir()
        data = [os.urandom(1 << 20) for _ in range(12)]
        for number, one in enumerate(data):
            (root / f"f{number}").write_bytes(one)
        ws = open_workspace(str(root), create=True, reporter=Reporter())
        ws.checkpoint("all")
        for number in range(12):
            (root / f"f{number}").write_bytes(bytes(1 << 20))
        honest, errors = execute.judge, [OSError(errno.ENOSPC, "full")]

        def judge(*args: object, **named: object) -> object:
            if errors:
                left = os.statvfs(disk)
                (disk / "filler").write_bytes(bytes(max(0, left.f_bavail * left.f_frsize - (6 << 20))))
                raise errors.pop()
            return honest(*args, **named)  # type: ignore[arg-type]

        monkeypatch.setattr(execute, "judge", judge)
        rollback(ws)
        afterwards.run()
        assert [(root / f"f{number}").read_bytes() for number in range(12)] == data
        assert stages(root) == stages(disk / "home" / "tmp") == []
        ws.close()


def test_a_refused_rollback_holds_nobody_up(
    ws: Workspace, project: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Restore) -> None:
        raise Refused("no")

    monkeypatch.setattr(Restore, "check", refuse)
    with pytest.raises(Refused):
        ws.rollback()
    other = open_workspace(str(project), create=False, reporter=Reporter())
    with other.store.gc_lock(wait_s=0):
        assert stages(project) == []
    other.close()


def test_a_file_that_is_written_all_the_time_survives_a_recovery(
    ws: Workspace, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It cannot even be read as a whole; that must not stop the recovery either."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    honest = restore.content_of

    def content_of(dir_fd: int, name: bytes) -> bytes:
        if b"after, and longer 3" in Path(f"/proc/self/fd/{dir_fd}/{os.fsdecode(name)}").read_bytes()[:19]:
            raise Unstable
        return honest(dir_fd, name)

    with monkeypatch.context() as patch:
        patch.setattr(Steps, "return_late_writes", interrupt)
        with pytest.raises(KeyboardInterrupt):
            rollback(ws)
    monkeypatch.setattr(restore, "content_of", content_of)
    ws.recover()
    assert contents(project) == BEFORE
    (saved,) = project.glob("reprieve-rescued-*")
    assert saved.read_bytes() == b"after, and longer 3"
    assert stages(project) == []


@pytest.mark.parametrize("what", ["directory", "link"])
def test_what_somebody_put_there_survives_an_interrupt_while_it_is_saved(
    ws: Workspace, project: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    honest, honest_rescue, interrupts = Restore.apply, steps.rescue, [KeyboardInterrupt()]
    with open(project / "f3", "ab") as writer:

        def apply(self: Restore) -> None:
            honest(self)
            writer.write(b", written late")
            writer.flush()
            (project / "f3").unlink()
            if what == "directory":
                (project / "f3").mkdir()
                (project / "f3" / "note").write_text("mine")
            else:
                (project / "f3").symlink_to("mine")

        def rescue(*args: object) -> str:
            if interrupts:
                raise interrupts.pop()
            return honest_rescue(*args)  # type: ignore[arg-type]

        with monkeypatch.context() as patch:
            patch.setattr(Restore, "apply", apply)
            patch.setattr(steps, "rescue", rescue)
            with pytest.raises(KeyboardInterrupt):
                rollback(ws)
    ws.recover()
    (saved,) = project.glob("reprieve-rescued-*")
    assert (saved / "note").read_text() == "mine" if what == "directory" else os.readlink(saved) == "mine"
    found = [path for path in project.iterdir() if path.is_file() and b"written late" in path.read_bytes()]
    assert len(found) == 1
    assert stages(project) == []


def test_two_things_to_be_saved_under_one_name_get_two(project: Path) -> None:
    stage = Stage(os.open(project, os.O_RDONLY), b".reprieve-x", MemoryStore(reporter=Reporter()).blobs, Reporter())
    stage.open()
    for number in range(3):
        fd = os.open(b"n1", os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=stage.fd)
        os.write(fd, b"%d" % number)
        os.close(fd)
        steps.rescue(stage, stage.fd, b"n1")
    stage.clear()
    assert sorted(path.read_text() for path in project.glob("reprieve-rescued-*")) == ["0", "1", "2"]


@pytest.mark.parametrize("is_one_gone", [False, True])
def test_a_record_that_cannot_be_committed_is_made_again(
    ws: Workspace, project: Path, monkeypatch: pytest.MonkeyPatch, is_one_gone: bool
) -> None:
    """The tree is moved already; what was going on beside the commit does not matter."""
    if is_one_gone:
        (project / "f0").unlink()
    honest_settle, honest, failures = Restore.settle, Database._patiently, [StoreFailed("no")]
    is_settled = False

    def settle(self: Restore, meanwhile: Callable[[], object]) -> object:
        nonlocal is_settled
        result = honest_settle(self, meanwhile)
        is_settled = True
        return result

    def patiently(self: Database, work: Callable[[], object]) -> object:
        if is_settled and failures and "COMMIT" in work.__code__.co_consts:
            raise failures.pop()
        return honest(self, work)  # type: ignore[arg-type]

    monkeypatch.setattr(Restore, "settle", settle)
    monkeypatch.setattr(Database, "_patiently", patiently)
    report = rollback(ws)
    assert not failures and not report.conflicts
    assert contents(project) == BEFORE
    ws.redo()
    assert contents(project) == {b"after, and longer %d" % n for n in range(1, COUNT)} | (
        set() if is_one_gone else {b"after, and longer 0"}
    )
    assert stages(project) == []


@pytest.mark.parametrize("where", ["src/mine", "src/main.py", "f3"])
def test_what_is_written_into_what_came_back_survives_when_that_is_taken_back(
    ws: Workspace, project: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """A step fails after a directory and files are in their place, and somebody was quick to write there."""
    shutil.rmtree(project / "src")

    def place(self: Steps, i: int, path: bytes) -> None:
        honest_place(self, i, path)
        (project / where).write_text("a person's")
        raise OSError(errno.EIO, "no")

    honest_place = Steps.place
    monkeypatch.setattr(Steps, "place", place)
    with pytest.raises(Refused, match="as it was before"):
        rollback(ws)
    found = [path for path in project.rglob("*") if path.is_file() and path.read_bytes() == b"a person's"]
    assert len(found) == 1 and "reprieve-rescued-" in str(found[0])
    assert stages(project) == []
