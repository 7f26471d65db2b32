"""scan, in C and in Python: what is new, changed, gone or out of reach."""

from __future__ import annotations

import errno
import hashlib
import os
import random
import shutil
import signal
import socket
import stat
import struct
import subprocess
import threading
import time
import zlib
from pathlib import Path
from types import ModuleType

import pytest

from reprieve.files import _native, _twin
from support.natives import (
    CHUNKED,
    FUTURE,
    GAP,
    HEADER,
    NEEDS,
    RACY,
    ROW,
    TAG,
    Root,
    as_root,
    descriptors_limited_to,
    extra,
    flags_of,
    grow_nasty_tree,
    index_of,
    paths_of,
    rows_of,
    tree_of,
    without_root,
)

# -- scan


def test_a_first_scan_has_everything_in_order(n: ModuleType, root: Root) -> None:
    for path in (b"a/b/c", b"a/b!", b"a!", b"z", b"a/\xff\xfe", b"a/ b"):
        root.write(path)
    os.symlink(b"../no\xffwhere", root.at(b"a/link"))
    rows, gone, problems = n.scan(root.fd, None, *FUTURE)
    n.check(rows)
    assert (gone, problems) == ([], [])
    wanted = [b"", b"a", b"a/ b", b"a/b", b"a/b/c", b"a/b!", b"a/link", b"a/\xff\xfe", b"a!", b"z"]
    assert paths_of(rows) == wanted
    by_path = rows_of(n, rows)
    assert by_path[b"a/link"][1] == b"l"
    assert by_path[b"a/link"][12] == extra(b"../no\xffwhere")
    assert by_path[b"z"][9] == NEEDS
    assert by_path[b"a"][9] == 0
    assert by_path[b"a"][5] == 0  # a directory's size is not kept
    found = os.stat(root.at(b"z"))
    assert by_path[b"z"][2:8] == (
        found.st_mode & 0o7777,
        found.st_uid,
        found.st_gid,
        1,
        *divmod(found.st_mtime_ns, 10**9),
    )
    assert by_path[b"z"][13:] == (found.st_ino, *divmod(found.st_ctime_ns, 10**9), 1, found.st_dev)


def test_an_unchanged_tree_gives_nothing(n: ModuleType, root: Root) -> None:
    root.write(b"a/b/c")
    os.symlink("x", root.at(b"l"))
    os.mkfifo(root.at(b"p"))
    rows, gone, problems = n.scan(root.fd, index_of(n, root.fd), *FUTURE)
    assert (paths_of(rows), gone, problems) == ([], [], [])


def test_only_what_changed_is_reported(n: ModuleType, root: Root) -> None:
    for i in range(20):
        root.write(b"d%d/f" % i)
    index = index_of(n, root.fd)
    root.write(b"d3/f", b"other")
    root.write(b"d4/new/deep")
    os.unlink(root.at(b"d5/f"))
    shutil.rmtree(root.at(b"d6"))
    os.chmod(root.at(b"d7"), 0o700)
    rows, gone, problems = n.scan(root.fd, index, *FUTURE)
    assert paths_of(rows) == [b"", b"d3/f", b"d4", b"d4/new", b"d4/new/deep", b"d5", b"d7"]
    assert gone == [b"d5/f", b"d6", b"d6/f"]
    assert problems == []


def test_a_same_size_rewrite_with_mtime_put_back_is_seen(n: ModuleType, root: Root) -> None:
    root.write(b"f", b"one")
    before = os.stat(root.at(b"f"))
    index = index_of(n, root.fd)
    root.write(b"f", b"two")
    os.utime(root.at(b"f"), ns=(before.st_atime_ns, before.st_mtime_ns))
    assert paths_of(n.scan(root.fd, index, *FUTURE)[0]) == [b"f"]


def test_a_changed_row_keeps_the_old_content_as_a_hint(n: ModuleType, root: Root) -> None:
    content = hashlib.sha256(b"chunks").digest()
    root.write(b"f", b"one")
    base = rows_of(n, index_of(n, root.fd))
    index = tree_of([
        {"path": b"", "kind": b"d"},
        {"path": b"f", "flags": CHUNKED, "content": content, "link": 77, "size": base[b"f"][5]},
    ])  # fmt: skip
    rows = rows_of(n, n.scan(root.fd, index, *FUTURE)[0])
    assert rows[b"f"][8:11] == (content, CHUNKED | NEEDS, 77)


@pytest.mark.parametrize("flag", [RACY, NEEDS])
def test_racy_and_needy_rows_are_looked_at_again(n: ModuleType, root: Root, flag: int) -> None:
    root.write(b"d/f")
    index = index_of(n, root.fd)
    for row in range(3):
        index[HEADER.size + row * ROW.size + 7] |= flag
    root.write(b"d/new")
    os.utime(root.at(b"d"), ns=(0, rows_of(n, index)[b"d"][6] * 10**9 + rows_of(n, index)[b"d"][7]))
    rows = n.scan(root.fd, index, *FUTURE)[0]
    assert paths_of(rows) == [b"", b"d", b"d/f", b"d/new"]
    assert all(not flags & RACY for flags in flags_of(rows).values())


def test_young_timestamps_are_racy(n: ModuleType, root: Root) -> None:
    for name in (b"old", b"young", b"edge", b"whole", b"earlier"):
        root.write(name)
    now = os.stat(root.at(b"earlier")).st_ctime_ns
    floor = now + 60 * 10**9
    floor_s = floor // 10**9
    for name, ns in (
        (b"old", (floor_s - 50) * 10**9 + 5),
        (b"young", floor + 1),
        (b"edge", floor),
        (b"whole", (floor_s - 2) * 10**9),
        (b"earlier", (floor_s - 3) * 10**9),
    ):
        os.utime(root.at(name), ns=(0, ns))
    flags = flags_of(n.scan(root.fd, None, floor_s, floor % 10**9)[0])
    racy = {name for name, value in flags.items() if value & RACY}
    assert racy == {b"young", b"edge", b"whole"}
    assert all(value & RACY for value in flags_of(n.scan(root.fd, None, 0, 0)[0]).values())  # every ctime is too young


def test_things_that_change_their_kind(n: ModuleType, root: Root) -> None:
    root.write(b"file")
    root.write(b"dir/deep/f")
    root.write(b"linked/f")
    index = index_of(n, root.fd)
    os.unlink(root.at(b"file"))
    root.write(b"file/inside/f")
    shutil.rmtree(root.at(b"dir"))
    root.write(b"dir")
    os.rename(root.at(b"linked"), root.at(b"away"))
    os.symlink("away", root.at(b"linked"))
    rows, gone, problems = n.scan(root.fd, index, *FUTURE)
    assert gone == [b"dir/deep", b"dir/deep/f", b"linked/f"]
    assert problems == []
    kinds = {path: row[1] for path, row in rows_of(n, rows).items()}
    assert kinds == {
        b"": b"d", b"away": b"d", b"away/f": b"f", b"dir": b"f", b"file": b"d", b"file/inside": b"d",
        b"file/inside/f": b"f", b"linked": b"l",
    }  # fmt: skip
    assert rows_of(n, rows)[b"dir"][8] == b""
    settled = n.merge(index, rows, gone, {}, TAG)
    n.check(settled)
    assert paths_of(settled) == paths_of(n.scan(root.fd, None, *FUTURE)[0])


def test_accept_is_asked_for_unknown_names_only(n: ModuleType, root: Root) -> None:
    root.write(b"known/f")
    root.write(b"away/f")
    index = index_of(n, root.fd)
    for path in (b"known/g", b"new/a", b"no/b/c", b"known/no"):
        root.write(path)
    asked: list[tuple[bytes, bool]] = []

    def accept(path: bytes, is_dir: bool) -> bool:
        asked.append((path, is_dir))
        return not path.endswith(b"no")

    rows, gone, problems = n.scan(root.fd, index, *FUTURE, False, accept, frozenset())
    assert paths_of(rows) == [b"", b"known", b"known/g", b"new", b"new/a"]
    assert (gone, problems) == ([], [])
    assert sorted(asked) == [
        (b"known/g", False),
        (b"known/no", False),
        (b"new", True),
        (b"new/a", False),
        (b"no", True),
    ]


def test_an_error_in_accept_comes_out(n: ModuleType, root: Root) -> None:
    root.write(b"a/b/c")
    before = len(os.listdir("/dev/fd"))

    def accept(path: bytes, is_dir: bool) -> bool:
        if path == b"a/b/c":
            raise LookupError(path)
        return True

    with pytest.raises(LookupError):
        n.scan(root.fd, None, *FUTURE, False, accept, frozenset())
    assert len(os.listdir("/dev/fd")) == before


def test_skipped_paths_are_never_looked_at(n: ModuleType, root: Root) -> None:
    for path in (b"a/f", b"skip/f", b"b/skip"):
        root.write(path)
    index = index_of(n, root.fd)
    skip = frozenset({b"skip", b"b/skip", b"fresh"})
    shutil.rmtree(root.at(b"skip"))
    os.unlink(root.at(b"b/skip"))
    root.write(b"fresh/f")
    rows, gone, problems = n.scan(root.fd, index, *FUTURE, False, None, skip)
    assert paths_of(rows) == [b"", b"b"]
    assert (gone, problems) == ([], [])
    assert b"fresh" not in paths_of(n.scan(root.fd, None, *FUTURE, skip=skip)[0])


def test_gap_rows_are_left_alone_until_something_else_is_there(n: ModuleType, root: Root) -> None:
    for path in (b"big", b"was_file", b"excluded/f", b"was_dir/f"):
        root.write(path)
    gap = {"flags": GAP, "extra": extra(gap=b"excluded")}
    index = tree_of([
        {"path": b"", "kind": b"d"},
        {"path": b"big", **gap},
        {"path": b"excluded", "kind": b"d", **gap},
        {"path": b"lost", **gap},
        {"path": b"was_dir", "kind": b"d", **gap},
        {"path": b"was_dir/f"},
        {"path": b"was_file", **gap},
    ])  # fmt: skip
    shutil.rmtree(root.at(b"was_dir"))
    root.write(b"was_dir")
    os.unlink(root.at(b"was_file"))
    root.write(b"was_file/f")
    asked: list[bytes] = []

    def accept(path: bytes, is_dir: bool) -> bool:
        asked.append(path)
        return path != b"was_dir"

    rows, gone, problems = n.scan(root.fd, index, *FUTURE, False, accept, frozenset())
    assert paths_of(rows) == [b"", b"was_file", b"was_file/f"]
    assert gone == [b"lost", b"was_dir/f"]
    assert problems == []
    assert sorted(asked) == [b"was_dir", b"was_file", b"was_file/f"]


def test_special_files_are_described_and_never_opened(n: ModuleType, root: Root) -> None:
    os.mkfifo(root.at(b"fifo"))
    with socket.socket(socket.AF_UNIX) as s:
        cwd = os.open(".", os.O_RDONLY)
        os.fchdir(root.fd)
        s.bind("sock")
        os.fchdir(cwd)
        os.close(cwd)
        signal.alarm(10)
        rows = n.scan(root.fd, None, *FUTURE)[0]
        assert n.read_rows(root.fd, rows, 0, 1 << 20, 1 << 20)[1:] == ([], -1, [])
        signal.alarm(0)
    assert [row[1] for row in rows_of(n, rows).values()] == [b"d", b"p", b"s"]


@as_root
def test_devices_keep_their_number(n: ModuleType, root: Root) -> None:
    os.mknod(root.at(b"null"), 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    index = index_of(n, root.fd)
    row = n.get(index, 1)
    assert (row[1], row[11]) == (b"c", os.makedev(1, 3))
    assert paths_of(n.scan(root.fd, index, *FUTURE)[0]) == []


def test_a_deep_tree_needs_few_descriptors(n: ModuleType, root: Root) -> None:
    depth = 3000
    fd = os.dup(root.fd)
    for level in range(depth):
        for name in (b"d", b"e") if level in (100, 2000) else (b"d",):
            os.mkdir(name, dir_fd=fd)
        os.close(os.open(b"f", os.O_CREAT | os.O_WRONLY, dir_fd=fd)) if level % 500 == 0 else None
        below = os.open(b"d", os.O_RDONLY | os.O_DIRECTORY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)
    wanted = 1 + depth + 2 + 6
    with descriptors_limited_to(32):
        index = index_of(n, root.fd)
        assert HEADER.unpack_from(index)[1] == wanted
        assert [HEADER.unpack_from(n.scan(root.fd, index, *FUTURE)[0])[1], n.scan(root.fd, index, *FUTURE)[1:]] == [
            0,
            ([], []),
        ]
        deep = b"/".join([b"d"] * depth)
        os.close(n.open_beneath(root.fd, deep, os.O_RDONLY | os.O_DIRECTORY))
        fd = n.open_beneath(root.fd, deep + b"/new", os.O_CREAT | os.O_WRONLY, 0o600)
        os.close(fd)
        rows, gone, problems = n.scan(root.fd, index, *FUTURE)
    assert (paths_of(rows), gone, problems) == ([deep, deep + b"/new"], [], [])
    assert n.stat_many(root.fd, [deep + b"/new"])[0][7] == 0


def test_a_path_that_is_too_long_is_named(n: ModuleType, root: Root) -> None:
    name = b"n" * 255
    fd = os.dup(root.fd)
    for _ in range(257):
        os.mkdir(name, dir_fd=fd)
        below = os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)
    rows, _, problems = n.scan(root.fd, None, *FUTURE)
    assert len(paths_of(rows)[-1]) == 255 * 256 + 255 == 65535
    assert problems == [(b"/".join([name] * 257), errno.ENAMETOOLONG, True)]


def test_a_huge_flat_directory(n: ModuleType, root: Root) -> None:
    count = 20_000
    for i in range(count):
        os.close(os.open(b"%d" % i, os.O_CREAT | os.O_WRONLY, dir_fd=root.fd))
    index = index_of(n, root.fd, read=False)
    assert paths_of(index)[1:] == sorted(b"%d" % i for i in range(count))
    os.unlink(root.at(b"777"))
    root.write(b"x")
    assert n.scan(root.fd, index, *FUTURE)[1] == [b"777"]


def test_what_cannot_be_read_is_a_problem_and_not_gone(n: ModuleType, place: Path) -> None:
    def in_child() -> None:
        with Root(place) as root:
            for path in (b"closed/f", b"blind/f", b"blind/d/f", b"fine/f"):
                root.write(path)
            index = index_of(n, root.fd)
            root.write(b"closed/new")
            os.chmod(root.at(b"closed"), 0)
            os.chmod(root.at(b"blind"), 0o400)
            try:
                rows, gone, problems = n.scan(root.fd, index, *FUTURE)
                fresh, _, fresh_problems = n.scan(root.fd, None, *FUTURE)
            finally:
                os.chmod(root.at(b"closed"), 0o700)
                os.chmod(root.at(b"blind"), 0o700)
            assert gone == []
            assert paths_of(rows) == [b"blind", b"closed"], paths_of(rows)
            blind = [(b"blind/d", errno.EACCES, True), (b"blind/f", errno.EACCES, False)]
            assert problems == fresh_problems == [*blind, (b"closed", errno.EACCES, True)], problems
            assert paths_of(fresh) == [b"", b"blind", b"closed", b"fine", b"fine/f"]

    os.chmod(place, 0o777)
    without_root(in_child)


@as_root
def test_another_device_is_named_and_not_entered(n: ModuleType, root: Root) -> None:
    root.write(b"mnt/below")
    root.write(b"one")
    root.write(b"two")
    index = index_of(n, root.fd)
    if subprocess.run(["mount", "-t", "tmpfs", "none", root.at(b"mnt")], check=False).returncode:
        pytest.skip("cannot mount here")
    try:
        root.write(b"mnt/inside")
        subprocess.run(["mount", "--bind", "/proc/version", root.at(b"two")], check=True)
        try:
            wanted = [(b"mnt", errno.EXDEV, True), (b"two", errno.EXDEV, False)]
            rows, gone, problems = n.scan(root.fd, index, *FUTURE)
            assert (paths_of(rows), gone, problems) == ([], [], wanted)
            rows, _, problems = n.scan(root.fd, None, *FUTURE)
            assert (paths_of(rows), problems) == ([b"", b"one"], wanted)
            rows, gone, problems = n.scan(root.fd, index, *FUTURE, True)
            assert (paths_of(rows), gone, problems) == ([b"mnt", b"mnt/inside", b"two"], [b"mnt/below"], [])
        finally:
            subprocess.run(["umount", root.at(b"two")], check=True)
    finally:
        subprocess.run(["umount", root.at(b"mnt")], check=True)


def test_a_new_device_number_after_a_reboot_is_no_change(n: ModuleType, root: Root) -> None:
    root.write(b"d/f")
    index = index_of(n, root.fd)
    for row in range(3):
        struct.pack_into("<Q", index, HEADER.size + row * ROW.size + 64, 123456)
    assert paths_of(n.scan(root.fd, index, *FUTURE)[0]) == []
    struct.pack_into("<Q", index, HEADER.size + 2 * ROW.size + 64, 1)
    assert paths_of(n.scan(root.fd, index, *FUTURE)[0]) == [b"d/f"]


@pytest.mark.parametrize(
    "paths", [[b"a/b"], [b"", b"a/b"], [b"", b"a", b"b/c"]], ids=["no root", "no parent", "parent elsewhere"]
)
def test_an_index_without_its_directories_is_refused(n: ModuleType, root: Root, paths: list[bytes]) -> None:
    index = tree_of([{"path": path, "kind": b"f" if path else b"d"} for path in paths])
    n.check(index)
    with pytest.raises(ValueError, match="without its directory"):
        n.scan(root.fd, index, *FUTURE)


def test_a_tree_that_changes_under_the_scan_gives_a_valid_answer(n: ModuleType, root: Root) -> None:
    """Directories come, go and turn into files meanwhile; the index that comes out can be scanned again."""
    for i in range(60):
        root.write(b"d%d/e/f%d" % (i % 12, i))
    index = index_of(n, root.fd)
    stop = threading.Event()

    def churn() -> None:
        rng = random.Random(5)
        while not stop.is_set():
            path = root.at(b"d%d" % rng.randrange(12))
            try:
                shutil.rmtree(path)
                if rng.random() < 0.5:
                    os.makedirs(path + b"/e/new")
                else:
                    open(path, "wb").close()
            except OSError:
                try:
                    os.unlink(path)
                except OSError:
                    pass

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            rows, gone, _ = n.scan(root.fd, index, *FUTURE)
            n.check(rows)
            index = n.merge(index, rows, gone, {}, TAG)
            for row in range(HEADER.unpack_from(index)[1]):
                index[HEADER.size + row * ROW.size + 7] = 0
    finally:
        stop.set()
        thread.join()
    rows, gone, problems = n.scan(root.fd, index, *FUTURE)
    assert problems == []
    assert paths_of(n.merge(index, rows, gone, {}, TAG)) == paths_of(n.scan(root.fd, None, *FUTURE)[0])


@pytest.mark.parametrize("seed", range(12))
def test_both_agree_on_nasty_trees(root: Root, seed: int) -> None:
    rng = random.Random(seed)
    index: bytearray | None = None
    for _ in range(6):
        grow_nasty_tree(root, rng, 60)
        floor = time.time_ns() if rng.random() < 0.5 else FUTURE[0] * 10**9
        skip = frozenset(rng.sample([b"a", b"b", b"\xff"], 2))
        accept = rng.choice([None, lambda path, is_dir: zlib.crc32(path) % 5 != 0])
        args = (root.fd, index, floor // 10**9, floor % 10**9, False, accept, skip)
        answer = _native.scan(*args)
        assert answer == _twin.scan(*args)
        rows, gone, _ = answer
        copy = bytearray(rows)
        data, parts, next, problems = _native.read_rows(root.fd, rows, 0, 1 << 30, 1 << 16)
        data2, parts2, *rest = _twin.read_rows(root.fd, copy, 0, 1 << 30, 1 << 16)
        assert ([next, problems], rows) == (rest, copy)
        assert [data[p[1] : p[1] + p[2]] for p in parts] == [data2[p[1] : p[1] + p[2]] for p in parts2]
        extras = {i: extra(gap=b"why") for i in range(0, HEADER.unpack_from(rows)[1], 7)}
        merged = _native.merge(index, rows, gone, extras, TAG)
        assert merged == _twin.merge(index, rows, gone, extras, TAG)
        for module in (_native, _twin):
            module.check(merged)
        assert _native.diff(index, merged) == _twin.diff(index, merged)
        assert rows_of(_native, merged) == rows_of(_twin, merged)
        probes = [*paths_of(merged), b"nothing", b"a\0b", b"zz/z"]
        assert [_native.find(merged, p) for p in probes] == [_twin.find(merged, p) for p in probes]
        assert _native.stat_many(root.fd, paths_of(merged)) == _twin.stat_many(root.fd, paths_of(merged))
        index = merged


def test_both_agree_on_trees_that_need_two_threads(root: Root) -> None:
    """Walkers start in the middle of directories that have changed, vanished or been left out."""
    rng = random.Random(99)
    grow_nasty_tree(root, rng, 2500, destroy=False)
    index = index_of(_native, root.fd)
    assert HEADER.unpack_from(index)[1] > 1000
    for _ in range(4):
        grow_nasty_tree(root, rng, 60)
        answer = _native.scan(root.fd, index, *FUTURE)
        assert answer == _twin.scan(root.fd, index, *FUTURE)
        index = _native.merge(index, *answer[:2], {}, TAG)


@pytest.mark.parametrize("fate", ["gone", "replaced", "left out", "skipped", "linked"])
def test_a_large_directory_has_one_fate(n: ModuleType, root: Root, fate: str) -> None:
    inside = [b"big"]
    for i in range(40):
        inside += [b"big/%02d" % i, *(b"big/%02d/%02d" % (i, k) for k in range(50))]
        for k in range(50):
            root.write(b"big/%02d/%02d" % (i, k))
    root.write(b"other")
    index = index_of(n, root.fd, read=False)
    for row in range(HEADER.unpack_from(index)[1]):
        index[HEADER.size + row * ROW.size + 7] = GAP if fate == "left out" and row == 1 else 0
    if fate == "left out":
        shutil.rmtree(root.at(b"big/07"))
        root.write(b"big/08/new")
    else:
        os.rename(root.at(b"big"), os.path.dirname(root.at(b"")[:-1]) + b"/away")
    if fate == "replaced":
        root.write(b"big")
    if fate == "linked":
        os.symlink("../away", root.at(b"big"))
    skip = frozenset({b"big"} if fate == "skipped" else ())
    rows, gone, problems = n.scan(root.fd, index, *FUTURE, False, None, skip)
    assert problems == []
    if fate == "gone":
        assert (paths_of(rows), gone) == ([b""], inside)
    elif fate in ("replaced", "linked"):
        assert (paths_of(rows), gone) == ([b"", b"big"], inside[1:])
    else:
        assert (paths_of(rows), gone) == ([b""] if fate == "skipped" else [], [])


def test_directories_that_move_away_meanwhile_are_named(n: ModuleType, root: Root, tmp_path: Path) -> None:
    """A directory that is no longer open, at its path or above its children cannot be gone on with."""
    deep = b"/".join([b"d"] * 30)
    for depth in range(31):
        root.write(b"/".join([b"d"] * depth + [b"z"]))

    def accept(path: bytes, is_dir: bool) -> bool:
        if path == deep + b"/z":
            os.rename(root.at(b"d/d/d/d"), tmp_path / "out1")
            os.rename(root.at(b"d/d/d"), tmp_path / "out2")
        return True

    rows, _, problems = n.scan(root.fd, None, *FUTURE, False, accept, frozenset())
    assert problems == [(b"d/d/d", errno.ENOENT, True)]
    found = paths_of(rows)
    assert [depth for depth in range(31) if b"/".join([b"d"] * depth + [b"z"]) not in found] == [3]


# -- a part of the rows


def _numbers(n: ModuleType, index: bytearray, *paths: bytes) -> bytes:
    return struct.pack(f"={len(paths)}I", *sorted(n.find(index, path) for path in paths))


def test_only_the_rows_to_look_at_are_looked_at(n: ModuleType, root: Root) -> None:
    for path in (b"a/x", b"a/y", b"b/x", b"b/d/z"):
        root.write(path)
    index = index_of(n, root.fd)
    for path in (b"a/x", b"a/y", b"b/x", b"b/d/z"):
        root.write(path, b"longer than it was")
    os.unlink(root.at(b"b/x"))
    root.write(b"b/new/deep")
    rows, gone, problems = n.scan(root.fd, index, *FUTURE, look=_numbers(n, index, b"a/y", b"b"))
    assert (paths_of(rows), gone, problems) == ([b"a/y", b"b", b"b/new", b"b/new/deep"], [], [])
    rows, gone, problems = n.scan(root.fd, index, *FUTURE, look=_numbers(n, index, b"b/x", b"b/d/z"))
    assert (paths_of(rows), gone, problems) == ([b"b/d/z"], [b"b/x"], [])
    assert n.scan(root.fd, index, *FUTURE, look=b"") == n.scan(root.fd, index_of(n, root.fd), *FUTURE)


@pytest.mark.parametrize("what", ["gone", "a file", "a link"])
def test_what_was_below_a_directory_that_went_is_gone_though_nobody_looked_at_it(
    n: ModuleType, root: Root, what: str
) -> None:
    root.write(b"d/e/f")
    root.write(b"d/g")
    index = index_of(n, root.fd)
    shutil.rmtree(root.at(b"d"))
    if what == "a file":
        root.write(b"d")
    elif what == "a link":
        os.symlink("elsewhere", root.at(b"d"))
    below = [b"d/e", b"d/e/f", b"d/g"]
    for more in ([], [b"d/e/f"], below):
        rows, gone, problems = n.scan(root.fd, index, *FUTURE, look=_numbers(n, index, b"", b"d", *more))
        expected = [b""] if what == "gone" else [b"", b"d"]
        assert (paths_of(rows), gone, problems) == (expected, below if what != "gone" else [b"d", *below], [])


def test_a_directory_on_the_way_that_is_not_there_is_an_error(n: ModuleType, root: Root) -> None:
    root.write(b"d/e/f")
    index = index_of(n, root.fd)
    shutil.rmtree(root.at(b"d"))
    for planted in (lambda: None, lambda: os.symlink("/", root.at(b"d"))):
        planted()
        with pytest.raises(LookupError):
            n.scan(root.fd, index, *FUTURE, look=_numbers(n, index, b"d/e/f"))


@pytest.mark.parametrize("look", [b"\0", struct.pack("=2I", 1, 1), struct.pack("=2I", 2, 1), struct.pack("=I", 9)])
def test_numbers_that_do_not_rise_or_are_of_no_row_are_refused(n: ModuleType, root: Root, look: bytes) -> None:
    root.write(b"a")
    root.write(b"b")
    with pytest.raises(ValueError, match="rising"):
        n.scan(root.fd, index_of(n, root.fd), *FUTURE, look=look)
