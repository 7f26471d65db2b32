"""Both kinds of watchers: what they must tell, what they must not."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reprieve.files import native
from reprieve.files.ignore import Excludes
from reprieve.files.inotify import InotifyWatcher
from reprieve.files.snapshot import Limits
from reprieve.files.watch import PollingWatcher, ignores, is_passing
from reprieve.model.reporter import Reporter
from support import age

Watcher = InotifyWatcher | PollingWatcher
LIMITS = Limits(Excludes(("junk/", "*.log")), skip=frozenset({b"store"}))


class Pipe:
    """What wakes a watcher."""

    def __init__(self) -> None:
        self.read, self.write = os.pipe()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    for folder in ("a/b/c", "junk/deep", "store/deep"):
        (root / folder).mkdir(parents=True)
    (root / "a" / "b" / "c" / "file").write_text("x")
    (root / "link").symlink_to(tmp_path)
    age(root)
    return root


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    os.close(pipe.read)
    os.close(pipe.write)


@pytest.fixture(params=["inotify", "polling"])
def watcher(request: pytest.FixtureRequest, tree: Path, pipe: Pipe) -> Iterator[Watcher]:
    fd = os.open(tree, os.O_RDONLY | os.O_DIRECTORY)
    made: Watcher
    if request.param == "inotify":
        made = InotifyWatcher(fd, ignores=ignores(LIMITS), cross_mounts=False, wake_fd=pipe.read, reporter=Reporter())
    else:
        made = PollingWatcher(fd, LIMITS, wake_fd=pipe.read, at_least_s=0.05)
    yield made
    made.close()
    os.close(fd)


def tells(watcher: Watcher) -> bool:
    """Whether it tells of a change before the next look of either kind is over."""
    return any(watcher.wait(watcher.settle_s) for _ in range(2))


CHANGES: list[tuple[str, Callable[[Path], object]]] = [
    ("write", lambda root: (root / "a/b/c/file").write_text("y")),
    ("create", lambda root: (root / "a/new").touch()),
    ("delete", lambda root: (root / "a/b/c/file").unlink()),
    ("rename", lambda root: (root / "a/b/c/file").rename(root / "file")),
    ("replace", lambda root: ((root / "n").touch(), (root / "n").rename(root / "a/b/c/file"))),
    ("mode", lambda root: (root / "a/b/c/file").chmod(0o600)),
    ("mode of a folder", lambda root: (root / "a/b").chmod(0o700)),
    ("folder", lambda root: (root / "a/b/new").mkdir()),
    ("link", lambda root: ((root / "link").unlink(), (root / "link").symlink_to("a"))),
    ("hard link", lambda root: os.link(root / "a/b/c/file", root / "again")),
]


@pytest.mark.parametrize(("name", "change"), CHANGES, ids=[name for name, _ in CHANGES])
def test_it_tells_of_every_kind_of_change(
    watcher: Watcher, tree: Path, name: str, change: Callable[[Path], object]
) -> None:
    change(tree)
    assert tells(watcher)


def test_it_goes_quiet_again_and_tells_of_the_next_change(watcher: Watcher, tree: Path) -> None:
    (tree / "one").touch()
    assert tells(watcher)
    while watcher.wait(watcher.settle_s):
        pass
    (tree / "a" / "b" / "two").touch()
    assert tells(watcher)


def test_folders_that_change_places_are_watched_where_they_are(watcher: Watcher, tree: Path) -> None:
    (tree / "z").mkdir()
    assert tells(watcher)
    fd = os.open(tree, os.O_RDONLY | os.O_DIRECTORY)
    native.rename2(fd, b"a", fd, b"z", 2)
    os.close(fd)
    assert tells(watcher)
    for changed in ("a/new", "z/b/c/file", "z/new"):
        while tells(watcher):
            pass
        (tree / changed).write_text("work")
        assert tells(watcher), changed


def test_what_is_not_part_of_the_tree_is_not_told(watcher: Watcher, tree: Path, tmp_path: Path) -> None:
    """Excluded names, a store, what a link leads to."""
    while watcher.wait(watcher.settle_s):
        pass  # the tree is so young that polling looks twice
    for path in (tree / "junk" / "deep" / "x", tree / "store" / "deep" / "x", tmp_path / "outside"):
        path.touch()
    assert not tells(watcher)


def test_a_staging_directory_is_none_of_its_business(tree: Path, pipe: Pipe) -> None:
    fd = os.open(tree, os.O_RDONLY | os.O_DIRECTORY)
    watcher = InotifyWatcher(fd, ignores=ignores(LIMITS), cross_mounts=False, wake_fd=pipe.read, reporter=Reporter())
    (tree / ".reprieve-k7m2x4q9wd").mkdir()
    (tree / ".reprieve-k7m2x4q9wd" / "n0").touch()
    assert not tells(watcher)
    os.rename(tree / ".reprieve-k7m2x4q9wd" / "n0", tree / "restored")
    assert tells(watcher)
    watcher.close()
    os.close(fd)


def test_it_can_be_woken(watcher: Watcher, pipe: Pipe) -> None:
    os.write(pipe.write, b"x")
    assert watcher.wait(600) is False


@pytest.mark.parametrize("name", [b".main.py.swp", b".main.py.swo", b".#main.py", b"#main.py#", b"4913"])
def test_editors_own_files_pass(name: bytes) -> None:
    assert is_passing(name)


@pytest.mark.parametrize("name", [b"main.py", b".env", b"swp", b"a.swp", b"#notes", b"main.py~", b".sw", b""])
def test_people_s_files_do_not(name: bytes) -> None:
    assert not is_passing(name)
