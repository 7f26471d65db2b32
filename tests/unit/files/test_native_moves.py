"""Many names at once between a tree and a stage: each promise of _native.pyi, in C and in Python."""

from __future__ import annotations

import os
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from support.natives import Root, index_of

SWAP, OUT, IN = 0, 1, 2
NOTHING = (0, 0, -1, 0, 0, 0, -1)


def as_it_is(path: Path, *, by_mtime: bool = False) -> tuple[int, ...]:
    st = path.lstat()
    ctime = (0, -1) if by_mtime else divmod(st.st_ctime_ns, 10**9)
    size = st.st_size if stat.S_ISREG(st.st_mode) else -1
    return (stat.S_IFMT(st.st_mode), st.st_ino, size, *divmod(st.st_mtime_ns, 10**9), *ctime)


@pytest.fixture
def stage(root: Root) -> Iterator[int]:
    (root.path / ".stage").mkdir(0o700)
    fd = os.open(root.path / ".stage", os.O_RDONLY | os.O_DIRECTORY)
    yield fd
    os.close(fd)


def test_names_change_places_leave_and_come(n: ModuleType, root: Root, stage: int) -> None:
    """The three kinds of move, for files, links and pipes, in two directories."""
    a, b = root.path / "a", root.path / "b"
    a.mkdir()
    b.mkdir()
    (a / "file").write_text("old")
    (root.path / ".stage" / "n0").write_text("new")
    (a / "link").symlink_to("nowhere")
    (root.path / ".stage" / "n1").symlink_to("elsewhere")
    os.mkfifo(b / "pipe")
    (root.path / ".stage" / "n2").write_text("comes")
    moves = [
        (SWAP, b"a/file", b"n0", *as_it_is(a / "file")),
        (SWAP, b"a/link", b"n1", *as_it_is(a / "link")),
        (OUT, b"b/pipe", b"t0", *as_it_is(b / "pipe")),
        (IN, b"b/file", b"n2", *NOTHING),
    ]
    assert n.move_many(root.fd, stage, moves) == [0, 0, 0, 0]
    assert (a / "file").read_text() == "new" and (root.path / ".stage" / "n0").read_text() == "old"
    assert os.readlink(a / "link") == "elsewhere" and os.readlink(root.path / ".stage" / "n1") == "nowhere"
    assert stat.S_ISFIFO((root.path / ".stage" / "t0").lstat().st_mode) and not (b / "pipe").exists()
    assert (b / "file").read_text() == "comes" and not (root.path / ".stage" / "n2").exists()


def test_what_is_not_as_expected_stays_where_it_is(n: ModuleType, root: Root, stage: int) -> None:
    """Each column counts, and the others are moved all the same."""
    for name in ("ino", "size", "ctime", "type", "mtime", "gone", "right"):
        (root.path / name).write_text("old")
        (root.path / ".stage" / name).write_text("new")
    known = {name: list(as_it_is(root.path / name, by_mtime=name == "mtime")) for name in os.listdir(root.path)}
    known["ino"][1] += 1
    known["size"][2] += 1
    known["ctime"][6] ^= 1
    known["type"][0] = stat.S_IFLNK
    known["mtime"][4] ^= 1
    (root.path / "gone").unlink()
    names = [name for name in known if name != ".stage"]
    moves = [(what, name.encode(), name.encode(), *known[name]) for what in (SWAP,) for name in names]
    moves += [(OUT, name.encode(), b"t" + name.encode(), *known[name]) for name in names if name != "right"]
    moves += [(IN, b"right", b"ino", *NOTHING)]  # something is there
    codes = n.move_many(root.fd, stage, moves)
    assert [move[1] for move, code in zip(moves, codes, strict=True) if code == 0] == [b"right"]
    assert set(codes) == {0, -1}
    assert {name: (root.path / name).read_text() for name in names if name != "gone"} == {
        name: "new" if name == "right" else "old" for name in names if name != "gone"
    }


def test_a_file_with_several_names_is_known_by_its_mtime(n: ModuleType, root: Root, stage: int) -> None:
    """Moving one of its names changes its ctime."""
    for name in ("one", "two"):
        (root.path / ".stage" / name).write_text("new")
    (root.path / "one").write_text("old")
    os.link(root.path / "one", root.path / "two")
    moves = [(SWAP, p.encode(), p.encode(), *as_it_is(root.path / p, by_mtime=True)) for p in ("one", "two")]
    time.sleep(0.02)
    assert n.move_many(root.fd, stage, moves) == [0, 0]
    by_ctime = [(SWAP, p.encode(), p.encode(), *as_it_is(root.path / ".stage" / p)) for p in ("one", "two")]
    assert n.move_many(root.fd, stage, by_ctime) == [-1, -1]


def test_no_link_is_followed_and_nothing_outside_is_moved(
    n: ModuleType, root: Root, stage: int, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("theirs")
    (root.path / "link").symlink_to(outside)
    (root.path / ".stage" / "n0").write_text("new")
    known = as_it_is(outside / "file")
    paths = [b"link/file", b"../outside/file", b"", b"./x", b"a//b", b"missing/file"]
    moves = [(what, path, b"n0", *known) for what in (SWAP, OUT, IN) for path in paths]
    assert n.move_many(root.fd, stage, moves) == [-1] * len(moves)
    assert (outside / "file").read_text() == "theirs" and os.listdir(outside) == ["file"]
    for bad in ((3, b"x", b"n0", *known), (SWAP, b"x", b"../n0", *known), (SWAP, b"x", b"", *known)):
        with pytest.raises(ValueError):
            n.move_many(root.fd, stage, [bad])
    with pytest.raises(TypeError):
        n.move_many(root.fd, stage, [(SWAP, "x", b"n0", *known)])


def test_a_directory_that_we_may_not_write_is_left_to_a_closer_look(n: ModuleType, root: Root, stage: int) -> None:
    """Root could, but then its mode would have to be set back."""
    (root.path / "closed").mkdir()
    (root.path / "closed" / "file").write_text("old")
    (root.path / ".stage" / "n0").write_text("new")
    (root.path / "closed").chmod(0o500)
    known = as_it_is(root.path / "closed" / "file")
    assert n.move_many(root.fd, stage, [(SWAP, b"closed/file", b"n0", *known)]) == [-1]
    (root.path / "closed").chmod(0o700)
    assert n.move_many(root.fd, stage, [(SWAP, b"closed/file", b"n0", *known)]) == [0]


def test_a_look_tells_what_stands_in_the_way(n: ModuleType, root: Root) -> None:
    (root.path / "d").mkdir(0o750)
    (root.path / "d" / "file").write_text("x")
    (root.path / "d" / "fixed").write_text("x")
    (root.path / "d" / "grows").write_text("x")
    (root.path / "link").symlink_to("d")
    flags = {}
    for name, flag in (("fixed", "i"), ("grows", "a")):
        done = subprocess.run(["chattr", f"+{flag}", root.path / "d" / name], capture_output=True, check=False)
        flags[name] = done.returncode == 0
    try:
        paths = [b"", b"d", b"d/file", b"d/missing", b"link/file", b"nowhere/file", b"../x", b"d/fixed", b"d/grows"]
        looks = n.look_at(root.fd, paths)
    finally:
        subprocess.run(
            ["chattr", "-ia", root.path / "d/fixed", root.path / "d/grows"], capture_output=True, check=False
        )
    me = os.geteuid()
    assert [look and look[1:] for look in looks[1:4]] == [
        (stat.S_IFDIR | 0o750, me, False), (stat.S_IFREG | 0o644, me, False), (0, 0, False)
    ]  # fmt: skip
    assert looks[0][1] == root.path.stat().st_mode and looks[3][0] == -1
    assert looks[4:7] == [None, None, None]
    if all(flags.values()):  # only root may, and only where the file system has such flags
        assert [look[0] for look in (looks[0], looks[1], looks[2], looks[7], looks[8])] == [0, 0, 0, 1, 2]
    with pytest.raises(TypeError):
        n.look_at(root.fd, ["text"])


def test_directories_with_attributes_are_found(n: ModuleType, root: Root) -> None:
    for name in ("plain", "tagged", "vanished", "deep"):
        (root.path / name).mkdir()
    for number in range(100):
        (root.path / "deep" / str(number)).mkdir()
    (root.path / "file").write_text("x")
    try:
        os.setxattr(root.path / "tagged", "user.colour", b"blue")
        os.setxattr(root.path / "deep" / "77", "user.colour", b"red")
        os.setxattr(root.path / "file", "user.colour", b"green")
    except OSError:
        pytest.skip("this file system has no extended attributes")
    index = index_of(n, root.fd)
    (root.path / "vanished").rmdir()
    found = n.with_xattrs(root.fd, index)
    assert {n.get(index, row)[0] for row in found} == {b"tagged", b"deep/77", b"vanished"}
    with pytest.raises(ValueError):
        n.with_xattrs(root.fd, b"no tree")
