"""Reading, cutting and writing contents, in C and in Python."""

from __future__ import annotations

import errno
import hashlib
import itertools
import os
import random
import resource
import shutil
import signal
import stat
import threading
import time
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reprieve.files import _native, _twin
from support.natives import (
    FUTURE,
    NEEDS,
    RACY,
    Root,
    as_root,
    flags_of,
    read_all,
    rows_of,
    tree_of,
)

# -- read_rows


def test_content_is_read_and_hashed(n: ModuleType, root: Root) -> None:
    wanted = {b"f%d" % i: random.Random(i).randbytes(i * 997) for i in range(60)}
    for path, content in wanted.items():
        root.write(path, content)
    rows = n.scan(root.fd, None, *FUTURE)[0]
    assert read_all(n, root.fd, rows) == wanted
    for path, row in rows_of(n, rows).items():
        if path:
            assert (row[8], row[9]) == (hashlib.sha256(wanted[path]).digest(), 0)


def test_reading_goes_in_batches(n: ModuleType, root: Root) -> None:
    for i in range(10):
        root.write(b"%d" % i, b"x" * 100)
    root.write(b"big", b"x" * 1000)
    rows = n.scan(root.fd, None, *FUTURE)[0]
    seen, at = [], 0
    while at >= 0:
        _, parts, at, problems = n.read_rows(root.fd, rows, at, 350, 500)
        assert sum(part[2] for part in parts) <= 350
        assert problems == []
        seen += [n.get(rows, part[0])[0] for part in parts]
    assert seen == [b"%d" % i for i in range(10)]
    assert [path for path, flags in flags_of(rows).items() if flags & NEEDS] == [b"big"]
    assert n.read_rows(root.fd, rows, 0, 10, 5000)[1][0][2] == 1000  # one file, however large
    assert n.read_rows(root.fd, rows, 0, 10, 5000)[1:] == ([], -1, [])


def test_files_that_vanish_or_turn_into_something_else(n: ModuleType, root: Root) -> None:
    for path in (b"dir/f", b"fifo", b"gone", b"link", b"ok", b"sock", b"subdir"):
        root.write(path)
    rows = n.scan(root.fd, None, *FUTURE)[0]
    shutil.rmtree(root.at(b"dir"))
    os.symlink("/etc", root.at(b"dir"))
    for path in (b"fifo", b"gone", b"link", b"sock", b"subdir"):
        os.unlink(root.at(path))
    os.mkfifo(root.at(b"fifo"))
    os.symlink("ok", root.at(b"link"))
    os.mknod(root.at(b"sock"), 0o600 | stat.S_IFSOCK)
    os.mkdir(root.at(b"subdir"))
    signal.alarm(10)
    _, parts, _, problems = n.read_rows(root.fd, rows, 0, 1 << 20, 1 << 20)
    signal.alarm(0)
    by_path = {n.get(rows, row)[0]: code for row, code in problems}
    assert by_path == {
        b"dir/f": errno.ENOENT, b"fifo": errno.ESTALE, b"gone": errno.ENOENT, b"link": errno.ESTALE,
        b"sock": errno.ESTALE, b"subdir": errno.ESTALE,
    }  # fmt: skip
    assert [n.get(rows, part[0])[0] for part in parts] == [b"ok"]
    assert all(flags_of(rows)[path] & NEEDS for path in by_path)


def test_a_file_that_changed_since_the_scan_is_read_as_it_is_now(n: ModuleType, root: Root) -> None:
    for path in (b"grown", b"huge", b"shrunk"):
        root.write(path, b"x" * 1000)
    rows = n.scan(root.fd, None, *FUTURE)[0]
    root.write(b"grown", b"y" * 5000)
    root.write(b"shrunk", b"z")
    root.write(b"huge", b"h" * 9000)
    data, parts, _, problems = n.read_rows(root.fd, rows, 0, 1 << 20, 8000)
    assert problems == []
    read = {n.get(rows, row)[0]: data[off : off + length] for row, off, length, _, _ in parts}
    assert read == {b"grown": b"y" * 5000, b"shrunk": b"z"}
    found = rows_of(n, rows)
    assert (found[b"grown"][5], found[b"grown"][9]) == (5000, RACY)
    assert (found[b"huge"][5], found[b"huge"][9]) == (9000, RACY | NEEDS)


def test_a_file_under_a_busy_writer_is_unstable_or_what_was_hashed(n: ModuleType, root: Root) -> None:
    root.write(b"f", b"a" * 200_000)
    stop = threading.Event()

    def rewrite() -> None:
        fd = os.open(root.at(b"f"), os.O_WRONLY)
        for letter in itertools.cycle([b"a", b"b"]):
            if stop.is_set():
                break
            os.pwrite(fd, letter * 200_000, 0)
        os.close(fd)

    thread = threading.Thread(target=rewrite)
    thread.start()
    try:
        for _ in range(10):
            rows = n.scan(root.fd, None, *FUTURE)[0]
            data, parts, _, problems = n.read_rows(root.fd, rows, 0, 1 << 20, 1 << 20)
            assert len(parts) + len(problems) == 1
            assert all(code == errno.EAGAIN for _, code in problems)
            for row, off, length, _, _ in parts:
                assert n.get(rows, row)[8] == hashlib.sha256(data[off : off + length]).digest()
    finally:
        stop.set()
        thread.join()


def test_a_file_written_just_now_is_read_after_a_quiet_time(n: ModuleType, root: Root) -> None:
    """Reading in the middle of a write can see the same times before and after; reading later cannot."""
    root.write(b"f", b"x" * 400_000)
    rows = n.scan(root.fd, None, *FUTURE)[0]
    assert read_all(n, root.fd, rows) == {b"f": b"x" * 400_000}
    assert time.time_ns() - os.stat(root.at(b"f")).st_ctime_ns >= 4_000_000


def test_xattrs_and_ids_are_said(n: ModuleType, root: Root) -> None:
    root.write(b"a")
    os.link(root.at(b"a"), root.at(b"b"))
    root.write(b"c")
    try:
        os.setxattr(root.at(b"c"), "user.note", b"1")
    except OSError:
        pytest.skip("no user xattrs here")
    rows = n.scan(root.fd, None, *FUTURE)[0]
    parts = n.read_rows(root.fd, rows, 0, 1 << 20, 1 << 20)[1]
    data = n.read_rows(root.fd, n.scan(root.fd, None, *FUTURE)[0], 0, 1 << 20, 1 << 20)[0]
    assert [part[3] for part in parts] == [False, False, True]
    for _, off, length, _, id in parts:
        assert id == hashlib.sha256(data[off : off + length]).digest()
    assert not flags_of(rows)[b"c"] & NEEDS


def test_read_rows_wants_a_writable_tree(n: ModuleType, root: Root) -> None:
    with pytest.raises((TypeError, BufferError)):
        n.read_rows(root.fd, bytes(tree_of([])), 0, 1, 1)
    with pytest.raises(ValueError, match="no such row"):
        n.read_rows(root.fd, tree_of([]), 1, 1, 1)
    with pytest.raises(ValueError, match="malformed"):
        n.read_rows(root.fd, tree_of([{"path": b"../x", "flags": NEEDS}]), 0, 1, 1)


# -- content


def test_sha256_is_sha256(n: ModuleType) -> None:
    data = random.Random(1).randbytes(1 << 17)
    for size in [*range(300), 1000, 4095, 4096, 4097, 65535, 65536, 1 << 17]:
        assert n.sha256(memoryview(data)[:size]) == hashlib.sha256(data[:size]).digest()
    assert n.sha256(memoryview(data)[1:70_000]) == hashlib.sha256(data[1:70_000]).digest()


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), size=st.integers(0, 40_000), min=st.integers(64, 300), ratio=st.integers(1, 8))
def test_cuts_cover_the_data_and_keep_their_bounds(seed: int, size: int, min: int, ratio: int) -> None:
    data = random.Random(seed).randbytes(size)
    lengths = _native.cuts(data, min, min * ratio, min * ratio * 4)
    assert lengths == _twin.cuts(data, min, min * ratio, min * ratio * 4)
    assert sum(lengths) == size
    assert all(min <= length <= min * ratio * 4 for length in lengths[:-1])
    assert not lengths or 0 < lengths[-1] <= min * ratio * 4


def test_an_insertion_moves_few_cuts(n: ModuleType) -> None:
    data = random.Random(3).randbytes(400_000)
    sizes = (1024, 4096, 16384)

    def chunks(data: bytes) -> set[bytes]:
        ends = [0, *itertools.accumulate(n.cuts(data, *sizes))]
        return {data[a:b] for a, b in itertools.pairwise(ends)}

    before, after = chunks(data), chunks(data[:200_000] + b"inserted" + data[200_000:])
    assert len(after - before) <= 4
    assert 2500 < len(data) / len(before) < 8000
    assert n.cuts(bytes(100_000), *sizes)[:2] == [n.cuts(bytes(100_000), *sizes)[0]] * 2  # constant data too


@pytest.mark.parametrize("sizes", [(63, 64, 65), (100, 99, 200), (100, 200, 199), (64, 64, 2**30 + 1)])
def test_cuts_refuses_odd_sizes(n: ModuleType, sizes: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="64 <= min"):
        n.cuts(b"", *sizes)


# -- write_files


@pytest.mark.parametrize(
    "mtime", [(0, 0), (-1, 999_999_999), (-1_000_000_000, 1), (15_032_385_534, 5), (1_700_000_000, 123)]
)
@pytest.mark.parametrize("mode", [0, 0o400, 0o644, 0o755, 0o4755, 0o2755, 0o1777, 0o7777])
def test_files_are_written_exactly(n: ModuleType, root: Root, mode: int, mtime: tuple[int, int]) -> None:
    before = os.umask(0o077)
    try:
        errors = n.write_files(
            root.fd, [(b"f\xff", [b"ab", bytearray(b"c"), memoryview(b"xdef")[1:]], mode, -1, -1, *mtime)]
        )
    finally:
        os.umask(before)
    found = os.stat(root.at(b"f\xff"))
    assert errors == [0]
    assert stat.S_IMODE(found.st_mode) == mode
    assert divmod(found.st_mtime_ns, 10**9) == mtime
    assert found.st_size == 6
    os.chmod(root.at(b"f\xff"), 0o600)
    assert root.read(b"f\xff") == b"abcdef"


def test_many_files_are_written_at_once(n: ModuleType, root: Root) -> None:
    rng = random.Random(2)
    wanted = {b"%d" % i: rng.randbytes(rng.choice([0, 10, 5000, 300_000])) for i in range(100)}
    items = [(name, [content], 0o644, -1, -1, 1_000_000, 7) for name, content in wanted.items()]
    assert n.write_files(root.fd, items) == [0] * 100
    assert {name: root.read(name) for name in os.listdir(os.fsencode(root.path))} == wanted


def test_what_is_there_is_never_written_to(n: ModuleType, root: Root) -> None:
    root.write(b"there", b"mine")
    os.symlink("there", root.at(b"link"))
    os.symlink("nowhere", root.at(b"dangling"))
    names = [b"there", b"link", b"dangling", b"a/b", b"", b".", b"..", b"a\0b", b"n" * 300]
    errors = n.write_files(root.fd, [(name, [b"x"], 0o644, -1, -1, 0, 0) for name in names])
    assert errors == [errno.EEXIST] * 3 + [errno.ENOENT] + [errno.EINVAL] * 4 + [errno.ENAMETOOLONG]
    assert sorted(os.listdir(root.path)) == ["dangling", "link", "there"]
    assert root.read(b"there") == b"mine"
    assert n.write_files(root.fd, [(b"f", [b""], 0o644, -1, -1, 0, 10**9)]) == [errno.EINVAL]
    assert n.write_files(root.fd, [(b"f", [b""], 0o644, -2, -1, 0, 0)]) == [errno.EINVAL]
    with pytest.raises(TypeError):
        n.write_files(root.fd, [(b"f", ["text"], 0o644, -1, -1, 0, 0)])


@as_root
def test_owners_are_set_before_setuid(n: ModuleType, root: Root) -> None:
    assert n.write_files(root.fd, [(b"f", [b"x"], 0o6755, 1234, 4321, 0, 0), (b"g", [b"x"], 0o644, 77, -1, 0, 0)]) == [
        0,
        0,
    ]
    found = os.stat(root.at(b"f"))
    assert (found.st_uid, found.st_gid, found.st_mode & 0o7777) == (1234, 4321, 0o6755)
    assert (os.stat(root.at(b"g")).st_uid, os.stat(root.at(b"g")).st_gid) == (77, os.getegid())


def test_a_file_that_failed_is_removed(n: ModuleType, root: Root) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        errors = n.write_files(
            root.fd, [(b"big", [b"x" * 5000], 0o644, -1, -1, 0, 0), (b"ok", [b"x"], 0o644, -1, -1, 0, 0)]
        )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert errors == [errno.EFBIG, 0]
    assert os.listdir(root.path) == ["ok"]
