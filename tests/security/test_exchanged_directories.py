"""A directory that somebody exchanges under our eyes: what is recorded is a whole tree, and nothing stays unseen.

The exchange is made at the one moment that matters, from inside the call that is under way.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reprieve.files import _native, _twin, native, tree
from reprieve.files.restore import Restore
from reprieve.files.snapshot import Limits, Snapshot, take_snapshot
from reprieve.model.entry import DIR, SYMLINK
from reprieve.model.reporter import Reporter
from reprieve.rollback.outcome import judge
from reprieve.store.memory import MemoryStore
from support import Cli
from support.acts import checkpoint, rollback, wait_until
from support.natives import NAMES
from support.tree import fingerprint


class Scene:
    """A tree whose directory `d` can be exchanged with a link to elsewhere, and back."""

    def __init__(self, place: Path) -> None:
        self.root, self.link = place / "tree", place / "link"
        (self.root / "d" / "deep").mkdir(parents=True)
        for name in ("d/f", "d/g", "d/deep/h"):
            (self.root / name).write_text(name)
        (place / "elsewhere").mkdir()
        self.link.symlink_to(place / "elsewhere")
        self.fd = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)

    def rest(self) -> None:
        """Until no timestamp is young enough to be in doubt."""
        begun = time.monotonic()
        wait_until(lambda: time.monotonic() - begun > 0.05, what="the clock")

    def exchange(self) -> None:
        root, link = os.fsencode(self.root), os.fsencode(self.link)
        above = [os.open(os.path.dirname(path), os.O_RDONLY) for path in (root + b"/d", link)]
        native.rename2(above[0], b"d", above[1], b"link", 2)
        for fd in above:
            os.close(fd)

    def look(
        self, last: Snapshot | None = None, put: Callable[..., object] | None = None, **limits: object
    ) -> Snapshot:
        base = last.index if last is not None else None
        return take_snapshot(self.fd, last=base, put=put, limits=Limits(**limits), reporter=Reporter())

    def exchanging(self, times: int = 1) -> Callable[..., bool]:
        """A callback that makes the exchange each of the first times that it is called."""
        left = [self.exchange] * times

        def called(*_: object) -> bool:
            if left:
                left.pop()()
            return True

        return called


@pytest.fixture(params=[_native, _twin], ids=["c", "python"])
def scene(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    for name in NAMES:
        monkeypatch.setattr(native, name, getattr(request.param, name))
    made = Scene(tmp_path)
    made.rest()
    yield made
    os.close(made.fd)


def assert_step(old: tree.Buffer, delta: tree.Delta | None, new: tree.Buffer) -> None:
    """The delta leads exactly from one tree to the other, and the new one has a directory for every row."""
    state = dict(tree.entries(old))
    for path, before, after in delta or ():
        assert state.pop(path, None) == before, path
        if after is not None:
            state[path] = after
    assert state == dict(tree.entries(new))
    folders = {path for path, entry in state.items() if entry.kind == DIR}
    assert [path for path in state if path and tree.parent(path) not in folders] == []


def test_F02_what_was_in_it_is_named_as_gone_with_it(scene: Scene) -> None:
    """A directory becomes a link after it was scanned: the step to the link names everything that was in it."""
    first = scene.look()
    scene.exchange()
    scene.exchange()  # so that it is looked at again: its change time moved
    second = scene.look(first, put=scene.exchanging())
    there = tree.lookup(second.index, b"d")
    assert there is not None and there.kind == SYMLINK and there.gap
    assert_step(first.index, second.changes, second.index)
    assert second.delta == tree.pack_delta(second.changes or [])


def test_F02_a_file_that_was_away_while_it_was_read_is_seen_again(scene: Scene) -> None:
    """The file's own directory never changed, so only a mark makes the next look list it."""
    big = scene.root / "d" / "deep" / "big"
    big.write_bytes(bytes(1 << 20))
    scene.rest()
    first = scene.look()
    with big.open("ab") as file:
        file.write(b"more")
    second = scene.look(first, put=scene.exchanging())
    assert [path for path, _, _ in second.changes or ()] == [b"d/deep/big"]
    assert_step(first.index, second.changes, second.index)
    scene.exchange()
    third = scene.look(second)
    assert tree.lookup(third.index, b"d/deep/big") is not None
    assert_step(second.index, third.changes, third.index)


def test_F02_a_file_that_was_away_for_a_moment_is_seen_again(scene: Scene) -> None:
    """The same in a directory that did change, and is back when it is looked at itself."""
    big, other = scene.root / "d" / "deep" / "big", scene.root / "other"
    big.write_bytes(bytes(1 << 20))
    first = scene.look()
    (scene.root / "d" / "deep" / "h").unlink()
    for path in (big, other):
        path.write_bytes(b"x" * (1 << 21))
    scene.rest()
    second = scene.look(first, put=scene.exchanging(2))  # when small files were read, and when `other` is
    assert tree.lookup(second.index, b"d/deep") and not tree.lookup(second.index, b"d/deep/big")
    assert_step(first.index, second.changes, second.index)
    third = scene.look(second)
    assert tree.lookup(third.index, b"d/deep/big")


def test_F02_a_new_directory_that_was_away_while_it_was_entered_is_seen_again(scene: Scene) -> None:
    """It was listed, not there any more when its turn came, and there again when its parent was looked at."""
    first = scene.look()
    (scene.root / "d" / "deep" / "new").mkdir()
    (scene.root / "d" / "deep" / "new" / "file").touch()
    called = scene.exchanging()

    class Excludes:
        is_empty = False

        def accepts(self, path: bytes, is_dir: bool) -> bool:
            return path != b"d/deep/new" or called()

    scene.rest()
    second = scene.look(first, put=scene.exchanging(), excludes=Excludes())
    assert [gap.path for gap in second.gaps] == [b"d/deep/new"]
    assert_step(first.index, second.changes, second.index)
    third = scene.look(second)
    assert tree.lookup(third.index, b"d/deep/new/file") is not None
    assert_step(second.index, third.changes, third.index)


def test_F02_what_was_not_there_to_be_removed_is_not_called_removed(scene: Scene) -> None:
    """A restore that finds nothing, because the directory is away, does not say that it is done when it is back."""
    first = scene.look()
    moves: tree.Delta = [(b"d/g", tree.lookup(first.index, b"d/g"), None)]
    restore = Restore(
        scene.fd,
        moves,
        index=first.index,
        blobs=MemoryStore(reporter=Reporter()).blobs,
        stage_name=b".reprieve-x",
        reporter=Reporter(),
    )
    restore.prepare()
    scene.exchange()
    restore.apply()
    scene.exchange()
    restore.settle(lambda: None)
    outcome = judge(scene.fd, [move for move in moves if move[0] in restore.done], first.index)
    assert [conflict.path for conflict in outcome.conflicts] == [b"d/g"]
    assert outcome.done == []
    assert (scene.root / "d" / "g").exists()
    assert_step(first.index, outcome.done, outcome.index)


def test_F02_removed_while_it_was_away_and_back_later_is_seen(scene: Scene) -> None:
    """Even if it is still away at the end, so that it counts as removed, the next look finds it."""
    first = scene.look()
    scene.exchange()
    outcome = judge(scene.fd, [(b"d/deep/h", tree.lookup(first.index, b"d/deep/h"), None)], first.index)
    assert_step(first.index, outcome.done, outcome.index)
    scene.exchange()
    second = scene.look(first.replace(index=outcome.index))
    assert tree.lookup(second.index, b"d/deep/h") is not None


def test_F02_what_vanished_is_neither_in_the_tree_nor_in_the_step(scene: Scene) -> None:
    first = scene.look()
    f = tree.lookup(first.index, b"d/f")
    assert f is not None
    new = f.replace(mode=0o600)
    (scene.root / "d" / "f").unlink()
    for path, before in ((b"d/f", f), (b"new", None)):
        outcome = judge(scene.fd, [(path, before, new)], first.index)
        assert [conflict.path for conflict in outcome.conflicts] == [path]
        assert_step(first.index, outcome.done, outcome.index)


def test_F02_files_made_in_what_the_tree_knows_as_a_link_are_conflicts(scene: Scene) -> None:
    """The plan was made while the link was there; the files went into the directory that came back meanwhile."""
    f = tree.lookup(scene.look().index, b"d/f")
    scene.exchange()
    first = scene.look()
    scene.exchange()
    outcome = judge(scene.fd, [(b"d/deep", None, tree.lookup(first.index, b"")), (b"d/f", None, f)], first.index)
    assert {conflict.path for conflict in outcome.conflicts} == {b"d/deep", b"d/f"}
    assert_step(first.index, outcome.done, outcome.index)


def test_F02_what_goes_along_with_its_directory_is_in_the_step(scene: Scene) -> None:
    """Somebody emptied the directory that a rollback removes: what he removed is on the record too."""
    first = scene.look()
    shutil.rmtree(scene.root / "d" / "deep")
    outcome = judge(scene.fd, [(b"d/deep", tree.lookup(first.index, b"d/deep"), None)], first.index)
    assert [path for path, _, _ in outcome.done] == [b"d/deep", b"d/deep/h"]
    assert_step(first.index, outcome.done, outcome.index)


def test_F02_redo_into_a_directory_that_became_a_link_is_refused(cli: Cli, project: Path, tmp_path: Path) -> None:
    """What comes back has no place any more: a conflict that names it, before anything is touched."""
    checkpoint(cli)
    (project / "src" / "new.py").write_text("made\n")
    rollback(cli)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    shutil.rmtree(project / "src")
    (project / "src").symlink_to(elsewhere)
    before = fingerprint(project)
    answer = cli("redo", "--json", check=False)
    assert answer.code == 4, answer
    assert "src/new.py" in answer.json["error"]["conflicts"]
    assert fingerprint(project) == before
    assert os.listdir(elsewhere) == []
