"""A checkpoint that looks only at what the helper heard of records the tree that a look at everything records."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from reprieve.files import ahead, follow, native, told, tree
from reprieve.files.snapshot import Limits, Snapshot, take_snapshot
from reprieve.model.entry import Entry
from reprieve.model.reporter import Reporter
from support.mischief import Mischief

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")


class Desk:
    """A helper that answers at once, in this process, and does its other work when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, note: Path) -> None:
        from reprieve.cli.helper import watches

        monkeypatch.setattr(watches, "_QUIET_S", 0.0)
        monkeypatch.setattr(watches, "_REST_S", 0.0)
        monkeypatch.setattr(watches, "_AGAIN_S", 0.0)
        # Young files are looked at again whatever was heard; here that would hide what was not.
        monkeypatch.setattr(ahead, "RACY_NS", 0)
        self.note = os.open(note, os.O_RDWR | os.O_CREAT)
        self.watches = watches.Watches(self.note)
        self.answer = b""
        self.partial = 0
        told.listen(self)  # type: ignore[arg-type]

    def settimeout(self, _: float) -> None:
        return

    def sendall(self, data: bytes) -> None:
        kind, _, device, inode, id, seq = told.QUESTION.unpack_from(data)
        text = data[told.QUESTION.size :]
        if kind == told.LIED:
            self.watches._distrust(text, (device, inode))
            return
        self.answer = self.watches._ask(text, (device, inode), id, seq)
        self.partial += self.answer[:1] == told.ALL

    def recv(self, size: int) -> bytes:
        part, self.answer = self.answer[:size], self.answer[size:]
        return part

    def work(self, meanwhile: Callable[[], object] | None = None) -> None:
        """`meanwhile` is done when it has read what happened, and has not looked at what is new."""
        real = follow.Follower.drain

        def drain(follower: follow.Follower) -> None:
            real(follower)
            if meanwhile is not None:
                meanwhile()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(follow.Follower, "drain", drain)
            self.watches.work(set(self.watches.fds()))

    def work_until_it_follows(self) -> None:
        for tree_ in self.watches._trees.values():
            while tree_.follower is not None and (not tree_.follower.id or tree_.follower.has_work):
                self.work()

    def close(self) -> None:
        told.listen(None)
        self.watches.close()
        os.close(self.note)


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Desk]:
    made = Desk(monkeypatch, tmp_path / "note")
    yield made
    made.close()


def _take(fd: int, last: Snapshot | None, *, is_partial: bool) -> Snapshot:
    since = last.mark if last is not None and is_partial else None
    index = last.index if last is not None else None
    return take_snapshot(fd, last=index, put=None, limits=Limits(), reporter=Reporter(), since=since)


def _whole(fd: int, last: Snapshot | None) -> Snapshot:
    """By somebody who has no helper."""
    helper, told._helper = told._helper, None
    try:
        return _take(fd, last, is_partial=False)
    finally:
        told.listen(helper)


def _plain(index: object) -> dict[bytes, Entry]:
    """Numbers of hard links are drawn by lot: the first name of the group instead."""
    first: dict[int, int] = {}
    rows = tree.entries(index)  # type: ignore[arg-type]
    return {path: e.replace(link=first.setdefault(e.link, len(first)) if e.link else -1) for path, e in rows}


def _differences(seen: Snapshot, whole: Snapshot) -> list[object]:
    a, b = _plain(seen.index), _plain(whole.index)
    return [(path, a.get(path), b.get(path)) for path in sorted(a.keys() | b.keys()) if a.get(path) != b.get(path)]


def _play(desk: Desk, folder: Path, *, seed: int, rounds: int) -> tuple[list[object], list[str]]:
    """Random mischief between checkpoints: what the first wrong one got wrong, and what was done before it."""
    (folder / "tree").mkdir(parents=True)
    (folder / "outside").mkdir()
    world = Mischief(folder / "tree", folder / "outside", seed)
    fd = os.open(folder / "tree", os.O_RDONLY | os.O_DIRECTORY)
    try:
        last = _take(fd, None, is_partial=True)
        desk.work_until_it_follows()
        last = _take(fd, last, is_partial=True)
        for _ in range(rounds):
            for _ in range(world.random.choice((0, 1, 1, 2, 4))):
                world.act()
                if world.random.random() < 0.3:
                    desk.work(world.act if world.random.random() < 0.5 else None)
            if world.random.random() < 0.5:
                desk.work_until_it_follows()
            world.done.append("--")
            seen = _take(fd, last, is_partial=True)
            wrong = _differences(seen, _whole(fd, last))
            if wrong:
                return wrong, world.done
            last = seen
            if world.random.random() < 0.5:
                desk.work_until_it_follows()
        return [], world.done
    finally:
        os.close(fd)
        world.close()


def _without_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on older systems: inotify alone."""
    from reprieve.cli.helper import watches

    monkeypatch.setattr(watches.marks, "allowed", lambda: 0)


@pytest.mark.parametrize("has_marks", [True, False], ids=["marks", "watches"])
@pytest.mark.parametrize("seed", range(6))
def test_what_was_heard_gives_the_tree_that_a_look_at_everything_gives(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seed: int, has_marks: bool
) -> None:
    if not has_marks:
        _without_marks(monkeypatch)
    wrong, done = _play(desk, tmp_path, seed=seed, rounds=150)
    assert not wrong, done[-60:]
    assert desk.partial > 100, "hardly a checkpoint believed the helper"


def _ignore(mask: int) -> Callable[[pytest.MonkeyPatch], None]:
    def plant(monkeypatch: pytest.MonkeyPatch) -> None:
        real = follow.Follower._one

        def one(self: follow.Follower, watch: int, got: int, name: bytes) -> None:
            if not got & mask:
                real(self, watch, got, name)

        monkeypatch.setattr(follow.Follower, "_one", one)

    return plant


def _no_own_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow.Follower, "_of_file", lambda self, watch, mask: None)


def _no_links(monkeypatch: pytest.MonkeyPatch) -> None:
    real = told.native.rows_with
    monkeypatch.setattr(
        told.native, "rows_with", lambda index, flags, kinds=b"", linked=False: real(index, flags, kinds)
    )


def _no_writers(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(root_fd: int, paths: Sequence[bytes], between: Callable[[], object]) -> list[bool]:
        return [False for _ in native.writers(root_fd, paths, between)]

    monkeypatch.setattr(follow, "native", SimpleNamespace(**{**vars(native), "writers": nobody}))


def _only_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    real = follow.Follower._touch
    monkeypatch.setattr(follow.Follower, "_touch", lambda self, path, is_whole=False: real(self, path))


PLANTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "attributes": _ignore(follow.ATTRIB),
    "writes": _ignore(follow.MODIFY | follow.CLOSE_WRITE),
    "opening": _ignore(follow.OPEN),
    "moves in": _ignore(follow.MOVED_TO),
    "deletions": _ignore(follow.DELETE),
    "own watches": _no_own_watches,
    "links": _no_links,
    "writers": _no_writers,
    "what is below": _only_the_name,
}


@pytest.mark.parametrize("plant", PLANTS)
def test_a_helper_that_ignores_something_is_found_out(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, plant: str
) -> None:
    """The test above would see it."""
    if plant != "own watches":
        _without_marks(monkeypatch)  # they tell of a file's attributes once more
    PLANTS[plant](monkeypatch)
    assert any(_play(desk, tmp_path / str(seed), seed=seed, rounds=150)[0] for seed in range(30))


@pytest.mark.parametrize("is_planted", [False, True])
def test_a_change_that_was_not_heard_of_is_found_afterwards(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_planted: bool
) -> None:
    """Now and then somebody looks at everything; a helper that missed something is not believed again."""
    from reprieve.files.disbelief import Check
    from reprieve.files.index import save_index

    if is_planted:
        _without_marks(monkeypatch)
        PLANTS["attributes"](monkeypatch)
    (tmp_path / "tree" / "d").mkdir(parents=True)
    (tmp_path / "tree" / "d" / "f").write_bytes(b"x")
    (tmp_path / "tree" / "g").write_bytes(b"y")
    root = os.open(tmp_path / "tree", os.O_RDONLY | os.O_DIRECTORY)
    last = _take(root, None, is_partial=True)
    desk.work_until_it_follows()
    last = _take(root, last, is_partial=True)
    save_index(str(tmp_path / "index"), last.index, last.mark)
    check = Check(bytes(tmp_path / "tree"), str(tmp_path / "index"), Limits())
    assert check.untold(root) is None
    (tmp_path / "tree" / "new" / "deep").mkdir(parents=True)
    (tmp_path / "tree" / "g").unlink()
    assert check.untold(root) is None
    os.chmod(tmp_path / "tree" / "d" / "f", 0o600)
    assert check.untold(root) == (b"d/f" if is_planted else None)
    check()
    (tree_,) = desk.watches._trees.values()
    assert (tree_.follower is None and tree_.is_final) == is_planted
    if is_planted:
        assert told.ask(root, last.mark) is None
        assert b"was not noticed" in os.pread(desk.note, 1000, 0)
    os.close(root)


@pytest.mark.parametrize("is_planted", [False, True])
def test_more_than_the_queue_holds_is_not_missed(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_planted: bool
) -> None:
    """And a helper that ignores that its queue ran over would be found out."""
    queue = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if queue > 100_000:
        pytest.skip("the queue is too long to fill here")
    if is_planted:
        _ignore(follow.OVERFLOW)(monkeypatch)
    root = tmp_path / "tree"
    root.mkdir()
    for name in "abc":
        (root / name).write_bytes(b"x")
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    last = _take(fd, None, is_partial=True)
    desk.work_until_it_follows()
    last = _take(fd, last, is_partial=True)
    for _ in range(queue // 2 + 10):  # in turns, since equal ones are one
        os.utime(root / "a")
        os.utime(root / "b")
    (root / "c").write_bytes(b"other")
    seen = _take(fd, last, is_partial=True)
    assert bool(_differences(seen, _whole(fd, last))) == is_planted
    os.close(fd)
