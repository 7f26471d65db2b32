"""A scan that begins before its process is ready for it: when it is used, and when it must not be."""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from reprieve.app.finding import open_workspace
from reprieve.app.workspace import Workspace
from reprieve.files import _native, ahead, native, tree
from reprieve.files.ignore import Excludes
from reprieve.files.snapshot import Limits
from reprieve.rollback import execute
from support import age
from support.natives import FUTURE, HEADER, ROW, grow_nasty_tree

pytestmark = pytest.mark.skipif(
    native.IMPLEMENTATION == "python" or not sys.platform.startswith("linux") or len(os.sched_getaffinity(0)) < 2,
    reason="needs C, Linux and two processors",
)


@pytest.fixture
def ws(project: Path, home: Path) -> Iterator[Workspace]:
    """A workspace that is large enough, with an index that can be relied on."""
    for number in range(700):
        (project / f"d{number % 7}").mkdir(exist_ok=True)
        (project / f"d{number % 7}" / str(number)).write_text(str(number))
    age(project)
    time.sleep(0.03)  # times of directories can't be trusted while they are younger than a tick of the clock
    with open_workspace(str(project), create=True) as workspace:
        workspace.checkpoint("first")
        yield workspace
    ahead.forget()


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Grows by one for each ordinary scan."""
    seen: list[Any] = []
    scan = native.scan

    def counted(*args: Any) -> Any:
        seen.append(args)
        return scan(*args)

    monkeypatch.setattr(native, "scan", counted)
    return seen


def begin(home: Path, folder: Path) -> None:
    ahead.begin(str(home), str(folder))
    assert ahead._begun is not None


def test_what_was_begun_is_what_is_recorded(ws: Workspace, project: Path, home: Path, scans: list[Any]) -> None:
    (project / "d3" / "3").write_text("changed")
    (project / "d4" / "4").unlink()
    (project / "new").mkdir()
    (project / "new" / "file").write_text("new")
    begin(home, project / "d5")
    made = ws.checkpoint("second")
    assert not scans
    assert [c.path for c in ws.diff("first", made.id).changes] == [b"d3/3", b"d4/4", b"new", b"new/file"]
    assert ws.content(tree.lookup(ws.capture.tree_at(made.entry.seq), b"d3/3")) == b"changed"
    assert not ws.status().changes


def test_it_is_used_once(ws: Workspace, project: Path, home: Path, scans: list[Any]) -> None:
    begin(home, project)
    ws.checkpoint()
    (project / "d1" / "1").write_text("changed")
    assert ws.checkpoint().entry.changed == 1
    assert len(scans) == 1


def test_a_file_that_is_written_after_it_was_looked_at_is_found_the_next_time(
    ws: Workspace, project: Path, home: Path
) -> None:
    (project / "d1" / "1").write_text("one")
    begin(home, project)
    time.sleep(0.1)  # it is over
    (project / "d1" / "1").write_text("two")
    (project / "d2" / "2").write_text("two")
    made = ws.checkpoint()
    assert made.entry.changed == 1
    assert ws.content(tree.lookup(ws.capture.tree_at(made.entry.seq), b"d1/1")) == b"two"
    assert [c.path for c in ws.status().changes] == [b"d2/2"]
    assert ws.checkpoint().entry.changed == 1


def _other_checkpoint(ws: Workspace, project: Path) -> None:
    with open_workspace(str(project)) as other:
        other.checkpoint()


def _other_lock(ws: Workspace, project: Path) -> None:
    """Somebody who moved the tree, failed and put it back leaves nothing but this."""
    with ws.store.lock(ws.id):
        pass


def _older_version(ws: Workspace, project: Path) -> None:
    """It took the lock, and counts nothing."""
    with open(os.path.join(ws.home, "locks", ws.id), "r+b") as lock:
        lock.write(b"%-10d\n" % 1)


def _excludes(ws: Workspace, project: Path) -> None:
    ws.capture.limits = Limits(excludes=Excludes(("*.o",)))


def _only(ws: Workspace, project: Path) -> None:
    ws.capture.limits = Limits(only=frozenset([b"d1"]))


def _skip(ws: Workspace, project: Path) -> None:
    ws.capture.limits = Limits(skip=frozenset([b"d1"]))


def _cross(ws: Workspace, project: Path) -> None:
    ws.capture.limits = Limits(cross_mounts=True)


def _other_root(ws: Workspace, project: Path) -> None:
    project.rename(project.with_name("moved"))
    project.mkdir()
    os.close(ws.root_fd)
    ws.root_fd = ws.capture.root_fd = os.open(project, os.O_RDONLY)


def _no_index(ws: Workspace, project: Path) -> None:
    os.unlink(ws.capture.index_path)


def _late(ws: Workspace, project: Path) -> None:
    assert ahead._begun is not None
    ahead._begun._began_ns -= 2_000_000_000


@pytest.mark.parametrize(
    "change",
    [
        _other_checkpoint, _other_lock, _older_version, _excludes, _only, _skip, _cross, _other_root, _no_index, _late,
    ],
)  # fmt: skip
def test_it_is_not_used_if_anything_differs(
    ws: Workspace,
    project: Path,
    home: Path,
    scans: list[Any],
    change: Callable[[Workspace, Path], None],
) -> None:
    begin(home, project)
    change(ws, project)
    del scans[:]
    ws.checkpoint()
    assert scans


def test_it_is_not_begun_while_somebody_works_there(ws: Workspace, project: Path, home: Path) -> None:
    with ws.store.lock(ws.id):
        ahead.begin(str(home), str(project))
        assert ahead._begun is None


def test_it_is_not_begun_after_a_version_that_does_not_count(
    ws: Workspace, project: Path, home: Path, scans: list[Any]
) -> None:
    _older_version(ws, project)
    ahead.begin(str(home), str(project))
    ws.checkpoint()
    assert scans
    begin(home, project)
    del scans[:]
    ws.checkpoint()
    assert not scans


def test_what_is_no_file_keeps_nobody_waiting(ws: Workspace, project: Path, home: Path) -> None:
    for path in (home / "locks" / ws.id, Path(ws.capture.index_path)):
        kept = path.with_name("kept")
        path.rename(kept)
        os.mkfifo(path)
        ahead.begin(str(home), str(project))
        assert ahead._begun is None
        kept.replace(path)


@pytest.mark.parametrize("damage", [b"", b"short", b"RPTREE01" + bytes(500)])
def test_a_damaged_index_is_left_to_who_needs_it(ws: Workspace, project: Path, home: Path, damage: bytes) -> None:
    Path(ws.capture.index_path).write_bytes(damage)
    ahead.begin(str(home), str(project))
    assert ahead._begun is None
    assert ws.checkpoint().entry.changed == 0


def test_folders_that_are_no_workspace_are_no_matter(home: Path, tmp_path: Path) -> None:
    for folder in (str(tmp_path), "/nowhere", "a\0b", "\ud800"):
        ahead.begin(str(home), folder)
        assert ahead._begun is None


def test_finishing_an_interrupted_rollback_gives_up_what_was_begun(
    ws: Workspace, project: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scan saw the tree before that; the lock says nothing, because it is our own."""
    (project / "d1" / "1").write_text("changed")

    def fail(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(execute, "_record", fail)
        with pytest.raises(KeyboardInterrupt):
            ws.rollback("first")
    assert ws.timeline.intent()
    begin(home, project)
    made = ws.checkpoint()
    assert ahead._begun is None
    assert made.entry.changed == 0
    assert not ws.status("first").changes


# -- the native functions


def test_begun_and_ended_is_the_same_as_done(root: Any) -> None:
    grow_nasty_tree(root, random.Random(7), 200)
    for number in range(600):
        root.write(b"many/%d" % number)
    first, _, _ = _native.scan(root.fd, None, *FUTURE)
    os.unlink(root.at(b"many/1"))
    root.write(b"many/2", b"longer than before")
    root.write(b"more/of/it")
    wanted = _native.scan(root.fd, first, *FUTURE)
    begun = _native.scan_begin(root.fd, first, *FUTURE)
    assert begun is not None
    assert _native.scan_end(begun) == wanted
    with pytest.raises(ValueError, match="over"):
        _native.scan_end(begun)
    del begun
    skipped = _native.scan_begin(root.fd, first, *FUTURE, skip=[b"many"])
    assert skipped is not None
    assert _native.scan_end(skipped) == _native.scan(root.fd, first, *FUTURE, skip=[b"many"])


def test_one_that_nobody_ends_is_given_up(root: Any) -> None:
    for number in range(600):
        root.write(b"many/%d" % number)
    first, _, _ = _native.scan(root.fd, None, *FUTURE)
    for _ in range(50):
        assert _native.scan_begin(root.fd, first, *FUTURE) is not None


def test_a_fork_has_no_part_in_it(root: Any) -> None:
    for number in range(600):
        root.write(b"many/%d" % number)
    first, _, _ = _native.scan(root.fd, None, *FUTURE)
    begun = _native.scan_begin(root.fd, first, *FUTURE)
    pid = os.fork()
    if not pid:
        try:
            _native.scan_end(begun)
        except ValueError:
            del begun  # must not wait for a thread that is not here
            os._exit(0)
        os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    assert begun is not None
    _native.scan_end(begun)


def test_small_trees_and_other_rules_are_not_worth_it(root: Any) -> None:
    root.write(b"one")
    first, _, _ = _native.scan(root.fd, None, *FUTURE)
    assert _native.scan_begin(root.fd, first, *FUTURE) is None
    with pytest.raises(ValueError, match="packed tree"):
        _native.scan_begin(root.fd, b"damaged", *FUTURE)
    with pytest.raises(ValueError):
        _native.scan_end(object())


def test_a_damaged_index_is_no_answer(root: Any) -> None:
    for number in range(600):
        root.write(b"many/%d" % number)
    index, _, _ = _native.scan(root.fd, None, *FUTURE)
    index[HEADER.size + 300 * ROW.size + 6] = ord("?")  # the kind of one row
    begun = _native.scan_begin(root.fd, index, *FUTURE)
    assert begun is not None
    with pytest.raises(ValueError, match="packed tree"):
        _native.scan_end(begun)
