"""Following a tree: what is told of it, when it is lost, and that nobody is disturbed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from reprieve.cli.helper import watches
from reprieve.files import follow, native, told, tree
from reprieve.files.follow import Follower, Lost
from reprieve.files.snapshot import Limits, take_snapshot
from reprieve.files.told import ALONE, DEAF, WHOLE
from reprieve.model.reporter import Reporter

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")
ALL_TIME = 1e12


class Followed:
    """A tree that is followed, and what is told about it since it was asked last."""

    def __init__(self, root: Path, *, most: int = 10_000, most_marks: int = 0) -> None:
        st = root.stat()
        self.follower = Follower(bytes(root), (st.st_dev, st.st_ino), most=most, most_marks=most_marks)
        while not self.follower.id or self.follower.has_work:
            self.follower.work(ALL_TIME)
        self.seen = self.follower.seq

    def told(self) -> dict[bytes, bool] | None:
        is_all, paths = self.follower.tell(self.follower.id, self.seen, ALL_TIME)
        self.seen = self.follower.seq
        return paths if is_all else None

    def settle(self) -> None:
        self.follower.drain()
        while self.follower.has_work:
            self.follower.work(ALL_TIME)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root" / "d").mkdir(parents=True)
    (tmp_path / "root" / "d" / "f").write_bytes(b"1")
    (tmp_path / "root" / "g").write_bytes(b"2")
    return tmp_path / "root"


@pytest.fixture(params=[0, 10_000], ids=["watches", "marks"])
def followed(root: Path, request: pytest.FixtureRequest) -> Iterator[Followed]:
    made = Followed(root, most_marks=request.param)
    yield made
    made.follower.close()


def test_nothing_is_told_of_a_tree_that_nobody_touches(followed: Followed) -> None:
    assert followed.told() == {}
    assert followed.told() == {}


def test_reading_is_told_only_until_it_is_known_that_nobody_writes(followed: Followed, root: Path) -> None:
    (root / "g").read_bytes()
    assert followed.told() == {b"g": False}
    followed.settle()
    assert followed.told() == {}


def test_a_file_that_is_open_for_writing_is_told_every_time(followed: Followed, root: Path) -> None:
    with (root / "g").open("r+b"):
        for _ in range(3):
            followed.settle()
            assert followed.told() == {b"g": False}
    followed.settle()
    assert followed.told() == {b"g": False}  # that it was closed
    assert followed.told() == {}


def test_a_file_that_was_open_before_is_told_every_time(root: Path) -> None:
    with (root / "d" / "f").open("ab"):
        made = Followed(root)
        assert made.told() == made.told() == {b"d/f": False}
    made.follower.close()


def test_a_second_name_elsewhere_is_told(followed: Followed, root: Path) -> None:
    os.link(root / "g", root.parent / "other")
    assert followed.told() == {b"g": False}


def test_who_asks_for_an_older_number_than_the_last_looks_at_everything(followed: Followed, root: Path) -> None:
    (root / "g").write_bytes(b"3")
    first = followed.seen
    assert followed.told() is not None
    assert followed.told() is not None
    followed.seen = first
    assert followed.told() is None


def test_who_comes_from_another_follower_looks_at_everything(followed: Followed) -> None:
    assert followed.follower.tell(bytes(16), followed.seen, ALL_TIME)[0] is False


def test_what_comes_in_a_new_directory_is_told_with_it(followed: Followed, root: Path) -> None:
    (root / "n" / "m").mkdir(parents=True)
    (root / "n" / "m" / "x").write_bytes(b"x")
    told = followed.told()
    assert told is not None and told[b"n"] == WHOLE
    followed.settle()
    followed.told()
    (root / "n" / "m" / "x").write_bytes(b"y")
    told = followed.told()
    assert told is not None and b"n/m/x" in told


def test_folders_that_change_places_are_followed_where_they_are(followed: Followed, root: Path) -> None:
    (root / "e").mkdir()
    (root / "e" / "g").write_bytes(b"3")
    followed.settle()
    followed.told()
    root_fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    native.rename2(root_fd, b"d", root_fd, b"e", 2)
    os.close(root_fd)
    assert (followed.told() or {}).items() >= {(b"d", WHOLE), (b"e", WHOLE)}
    followed.settle()
    followed.told()
    (root / "e" / "f").write_bytes(b"4")
    (root / "d" / "new").write_bytes(b"5")
    assert (followed.told() or {}).keys() >= {b"e/f", b"d/new"}


def test_a_folder_that_changes_places_with_one_outside_is_followed(followed: Followed, root: Path) -> None:
    (root.parent / "out").mkdir()
    above = os.open(root.parent, os.O_RDONLY | os.O_DIRECTORY)
    inside = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    native.rename2(above, b"out", inside, b"d", 2)
    os.close(above)
    os.close(inside)
    followed.settle()
    followed.told()
    (root / "d" / "new").write_bytes(b"5")
    assert b"new" in b" ".join(followed.told() or {})


def test_a_folder_that_is_found_in_its_new_place_first_stays_followed(
    followed: Followed, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is moved when the events have been read, and the folder that it is moved into has no watch yet."""
    (root / "d" / "deep").mkdir()
    (root / "d" / "deep" / "x").write_bytes(b"1")
    followed.settle()
    followed.told()
    drain = followed.follower.drain

    def late() -> None:
        drain()
        if (root / "d").is_dir():
            (root / "d").rename(root / "p" / "d")

    (root / "p").mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(followed.follower, "drain", late)
        followed.follower.work(ALL_TIME)
    followed.settle()
    followed.told()
    for name in ("p/d/f", "p/d/new", "p/d/deep/x"):
        (root / name).write_bytes(b"work")
    assert (followed.told() or {}).keys() >= {b"p/d/f", b"p/d/new", b"p/d/deep/x"}


def test_times_of_a_directory_say_nothing_of_what_is_below_it(followed: Followed, root: Path) -> None:
    """A restore sets those of the root: that alone is no reason to look at everything the next time."""
    os.utime(root)
    os.utime(root / "d")
    assert followed.told() == {b"": False, b"d": False}


def test_a_directory_that_is_closed_and_opened_again_is_told_with_all_below() -> None:
    """Nobody can see below it in between. As another user, since root sees everything."""
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        folder = Path(place) / "root" / "d" / "e"
        folder.mkdir(parents=True)
        (folder / "f").write_bytes(b"1")
        me = os.geteuid()
        if me == 0:
            for path in (Path(place), *Path(place).rglob("*")):
                os.chown(path, 65534, -1)
            os.seteuid(65534)
        try:
            followed = Followed(Path(place) / "root")
            (folder.parent).chmod(0o600)
            for mode in (0o600, 0o755):
                folder.parent.chmod(mode)
                told = followed.told()
                assert told is not None and told[b"d"] and set(told) <= {b"d", b"d/e", b"d/e/f"}
            followed.settle()
            followed.told()
            folder.chmod(0o700)
            assert followed.told() == {b"d/e": False}
            followed.follower.close()
        finally:
            os.seteuid(me)


def test_the_stage_of_a_restore_is_not_followed_and_told_every_time(followed: Followed, root: Path) -> None:
    """What comes out of it is; nothing in it costs anything meanwhile."""
    before = followed.follower.watches
    stage = root / ".reprieve-x"
    (stage / "new").mkdir(parents=True)
    (stage / "new" / "f").write_bytes(b"1")
    assert followed.told() == {b".reprieve-x": True}
    followed.settle()
    assert followed.follower.watches == before
    assert followed.told() == {b".reprieve-x": True}
    (stage / "new").rename(root / "new")
    told = followed.told()
    assert told is not None and told[b"new"] and told[b".reprieve-x"]
    stage.rmdir()
    followed.settle()
    followed.told()
    assert followed.told() == {}
    (root / "new" / "f").write_bytes(b"2")
    assert b"new/f" in (followed.told() or {})


def test_more_than_the_queue_holds_is_a_loss(followed: Followed, root: Path) -> None:
    queue = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if queue > 100_000:
        pytest.skip("the queue is too long to fill here")
    for _ in range(queue // 2 + 10):  # in turns, since equal ones are one
        os.utime(root / "g")
        os.utime(root / "d" / "f")
    with pytest.raises(Lost, match="more changed at once"):
        followed.told()


def test_a_root_that_moves_is_a_loss(followed: Followed, root: Path) -> None:
    root.rename(root.parent / "elsewhere")
    with pytest.raises(Lost):
        followed.told()


def test_a_tree_whose_own_files_are_more_than_allowed_is_not_followed(root: Path) -> None:
    with pytest.raises(Lost, match="more names than the system allows") as lost:
        Followed(root, most=1)
    assert lost.value.is_final


@pytest.mark.parametrize("limits", [{"most": 4}, {"most": 100, "most_marks": 3}], ids=["watches", "marks"])
def test_what_there_are_no_watches_for_is_looked_at_every_time(root: Path, limits: dict[str, int]) -> None:
    """The rest is followed; a directory that is left out is told with all that is below it."""
    for number in range(3):
        (root / "d" / f"more{number}").mkdir()
        for other in range(4):
            (root / "d" / f"more{number}" / f"f{other}").write_bytes(b"")
    made = Followed(root, **limits)
    try:
        for _ in range(2):
            told = made.told()
            assert told is not None and set(told.values()) == {DEAF}
            assert made.follower.is_partial
        (root / "g").write_bytes(b"3")
        told = made.told()
        assert told is not None and told[b"g"] == ALONE
        top = next(path for path, how in told.items() if how == DEAF)
        (root / os.fsdecode(top)).rename(root / "elsewhere")
        with pytest.raises(Lost, match="got more names"):
            made.told()  # it begins anew, and chooses anew
    finally:
        made.follower.close()


def test_a_pipe_in_the_tree_is_never_opened(root: Path) -> None:
    os.mkfifo(root / "pipe")
    made = Followed(root)
    with pytest.raises(OSError, match="No such device or address"):
        os.open(root / "pipe", os.O_WRONLY | os.O_NONBLOCK)  # nobody reads it
    made.follower.close()


def test_who_opens_a_file_for_writing_never_waits_for_long(followed: Followed, root: Path) -> None:
    """The lease is held for an instant only."""
    script = "import sys\nfor _ in range(300): open(sys.argv[1], 'r+b').close()"
    begun = time.monotonic()
    with subprocess.Popen([sys.executable, "-c", script, str(root / "g")]) as writer:
        while writer.poll() is None:
            followed.follower.drain()
            followed.follower.work(time.monotonic() + 0.01)
    assert writer.returncode == 0 and time.monotonic() - begun < 10


@pytest.mark.parametrize(
    ("mounts", "why"),
    [
        ([(b"/", b"ext4", b"")], ""),
        ([(b"/", b"overlay", b""), (b"/home", b"xfs", b"")], ""),
        ([(b"/", b"ext4", b""), (b"/home/me/p/inner", b"tmpfs", b"")], "inside"),
        ([(b"/", b"ext4", b""), (b"/home/me", b"nfs4", b"")], "nfs4"),
        ([(b"/", b"ext4", b""), (b"/home", b"fuse.sshfs", b"")], "sshfs"),
        ([(b"/", b"ext4", b""), (b"/home", b"xfs", b""), (b"/home", b"9p", b"")], "9p"),
        ([(b"/", b"ext4", b""), (b"/x", b"overlay", b"rw,upperdir=/home/me/p/up,")], "container"),
        ([], "unknown"),
    ],
)
def test_only_trees_of_one_local_file_system_are_followed(mounts: list[tuple[bytes, bytes, bytes]], why: str) -> None:
    found = watches.unfit(mounts, b"/home/me/p")
    assert (why in found) if why else found == ""


def test_too_much_at_once_is_no_list_of_names(followed: Followed, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "MOST_TOLD", 1)
    (root / "g").write_bytes(b"3")
    (root / "d" / "f").write_bytes(b"3")
    assert followed.told() is None


def test_a_partial_look_at_a_tree_that_is_followed_in_part_finds_all(root: Path, tmp_path: Path) -> None:
    """With marks for half of it: written through a link elsewhere, in place, new, gone, followed or not."""
    for name in "ABCDEFGH":
        (root / name / "in").mkdir(parents=True)
        for number in range(5):
            (root / name / "in" / f"f{number}").write_bytes(b"before")
    for path in sorted(root.rglob("*"), reverse=True):
        os.utime(path, ns=(10**18, 10**18), follow_symlinks=False)
    time.sleep(0.03)  # so that no timestamp is too young to be trusted
    fd = os.open(root, os.O_RDONLY)
    made = Followed(root, most=1000, most_marks=25)
    try:
        base = take_snapshot(fd, last=None, put=None, limits=Limits(), reporter=Reporter()).index
        assert made.told() is not None and 8 < made.follower.marks < 42
        for name in "ABCDEFGH":
            inside = root / name / "in"
            os.link(inside / "f0", tmp_path / f"{name}-elsewhere")
            (tmp_path / f"{name}-elsewhere").write_bytes(b"after")
            (inside / "f1").write_bytes(b"after")
            (inside / "f2").unlink()
            (inside / "new").write_bytes(b"after")
        told_paths = made.told()
        assert told_paths is not None and DEAF in told_paths.values()
        look = told.rows_to_look_at(base, tuple(told_paths.items()))
        now = divmod(time.time_ns(), 1_000_000_000)
        whole = native.scan(fd, base, *now, False, None, frozenset())
        some = native.scan(fd, base, *now, False, None, frozenset(), look)
        assert tree.count(whole[0]) >= 8 * 3
        assert (some[0], sorted(some[1])) == (whole[0], sorted(whole[1]))
    finally:
        made.follower.close()
        os.close(fd)
