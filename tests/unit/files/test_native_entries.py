"""Entries out of packed trees and back, and directories made in bulk: both implementations, the same answers."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve.files import _native, _twin
from reprieve.files.tree import NO_STAT, Stat
from reprieve.model.entry import Entry

TAG = b"0123456789abcdef"
U64 = st.integers(0, (1 << 64) - 1)
NAMES = st.binary(min_size=1, max_size=8).filter(lambda name: not set(name) & set(b"/\0") and name not in (b".", b".."))
XATTRS = st.lists(st.tuples(st.binary(max_size=9), st.binary(max_size=9)), max_size=3).map(tuple)
ENTRIES = st.builds(
    Entry,
    kind=st.just(b"f"),
    mode=st.integers(0, 0o7777),
    uid=st.integers(0, (1 << 32) - 1),
    gid=st.integers(0, (1 << 32) - 1),
    size=U64,
    mtime_s=st.integers(-(1 << 63), (1 << 63) - 1),
    mtime_ns=st.integers(0, 999_999_999),
    content=st.one_of(st.just(b""), st.binary(min_size=32, max_size=32).filter(any)),
    is_chunked=st.booleans(),
    target=st.binary(max_size=20),
    xattrs=XATTRS,
    link=U64,
    rdev=U64,
    gap=st.text(max_size=12),
)
STATS = st.builds(
    Stat,
    ino=U64,
    dev=U64,
    nlink=st.integers(0, (1 << 32) - 1),
    ctime_s=st.integers(-(1 << 63), (1 << 63) - 1),
    ctime_ns=st.integers(0, 999_999_999),
    is_racy=st.booleans(),
)


@pytest.fixture(params=[_native, _twin], ids=["c", "python"])
def n(request: pytest.FixtureRequest) -> ModuleType:
    """The implementation under test."""
    module: ModuleType = request.param
    return module


@given(model=st.dictionaries(NAMES, st.tuples(ENTRIES, STATS, st.sampled_from([0, 4])), max_size=12))
def test_pack_and_entries_are_inverse_and_both_agree(model: dict[bytes, tuple[Entry, Stat, int]]) -> None:
    items = [(path, entry, stat, flags) for path, (entry, stat, flags) in model.items()]
    packed = _native.pack(items, TAG)
    assert packed == _twin.pack(items, TAG)
    _native.check(packed)
    found = _native.entries(packed, Entry)
    assert found == _twin.entries(packed, Entry)
    assert dict(found) == {path: entry for path, (entry, _, _) in model.items()}
    assert all(type(entry) is Entry for _, entry in found)


def test_rows_can_be_asked_for_one_by_one(n: ModuleType) -> None:
    packed = n.pack([(name, Entry(b"d", 0o755, 0, 0), NO_STAT, 0) for name in (b"c", b"a", b"b")], TAG)
    assert [path for path, _ in n.entries(packed, Entry, 1, 3)] == [b"b", b"c"]
    assert n.entries(None, Entry) == []
    for first, last in ((0, 4), (2, 1), (-1, 2)):
        with pytest.raises(IndexError):
            n.entries(packed, Entry, first, last)


def test_what_is_no_entry_is_refused(n: ModuleType) -> None:
    entry = Entry(b"f", 0o644, 0, 0)
    with pytest.raises(ValueError, match="two entries"):
        n.pack([(b"a", entry, NO_STAT, 0), (b"a", entry, NO_STAT, 0)], TAG)
    with pytest.raises(ValueError, match="too long"):
        n.pack([(b"a" * 70_000, entry, NO_STAT, 0)], TAG)
    with pytest.raises(ValueError, match="16 bytes"):
        n.pack([], b"short")
    with pytest.raises(TypeError):
        n.entries(n.pack([], TAG), dict)


def test_files_are_written_into_directories_that_were_made(n: ModuleType, tmp_path: Path) -> None:
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        assert n.make_dirs(fd, [b"a", b"a/b", b"a", b"x/y", b"../z"]) == [
            0,
            0,
            errno.EEXIST,
            errno.ENOENT,
            errno.EINVAL,
        ]
        items = [(b"a/b/%d" % i, [b"text"], 0o640, -1, -1, 5, 6) for i in range(100)]
        assert set(n.write_files(fd, items)) == {0}
        assert n.finish_dirs(
            fd, [(b"a/b", 0o550, -1, -1, 7, 8), (b"a", 0o750, -1, -1, 9, 10), (b"no", 0, -1, -1, 0, 0)]
        ) == [
            0,
            0,
            errno.ENOENT,
        ]
    finally:
        os.close(fd)
    for name, mode, mtime in ((b"a/b", 0o550, 7_000_000_008), (b"a", 0o750, 9_000_000_010)):
        found = os.stat(os.fsencode(tmp_path) + b"/" + name)
        assert (stat.S_IMODE(found.st_mode), found.st_mtime_ns) == (mode, mtime)
    assert len(os.listdir(tmp_path / "a" / "b")) == 100
    (tmp_path / "a" / "b").chmod(0o700)


def test_nothing_is_made_or_written_through_a_link(n: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "link").symlink_to("../out")
    fd = os.open(tmp_path / "tree", os.O_RDONLY)
    try:
        assert n.make_dirs(fd, [b"link/a"])[0] in (errno.ELOOP, errno.ENOTDIR)
        assert n.write_files(fd, [(b"link/a", [b""], 0o600, -1, -1, 0, 0)])[0] in (errno.ELOOP, errno.ENOTDIR)
        assert n.finish_dirs(fd, [(b"link", 0o700, -1, -1, 0, 0)])[0] in (errno.ELOOP, errno.ENOTDIR)
    finally:
        os.close(fd)
    assert os.listdir(tmp_path / "out") == []


def test_attributes_of_a_directory_are_for_the_caller(n: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    try:
        os.setxattr(tmp_path / "a", "user.test", b"1")
    except OSError:
        pytest.skip("no extended attributes here")
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        assert n.finish_dirs(fd, [(b"a", 0o700, -1, -1, 0, 0)]) == [-1]
    finally:
        os.close(fd)
    assert (tmp_path / "a").stat().st_mtime_ns != 0


@pytest.mark.parametrize("begin", [[], [-1], [-1, -1]])
def test_rooms_change_nothing_but_the_place(n: ModuleType, tmp_path: Path, begin: list[int]) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "room").mkdir()
    fd, room = os.open(tmp_path / "tree", os.O_RDONLY), os.open(tmp_path / "room", os.O_RDONLY)
    rooms = [*begin, room]
    files = [(b"a/f%d" % i, [b"x"], 0o4750, -1, -1, 0, 0) for i in range(40)]
    try:
        assert n.make_dirs(fd, [b"a", b"a"], rooms) == [0, errno.EEXIST]
        assert n.write_files(fd, files, rooms) == [0] * 40
        assert n.write_files(fd, files[:1], rooms) == [errno.EEXIST]
    finally:
        os.close(fd)
        os.close(room)
    assert {(tmp_path / "tree" / "a" / f"f{i}").stat().st_mode for i in range(40)} == {0o104750}
    assert (tmp_path / "tree" / "a" / "f7").read_bytes() == b"x"
    assert os.listdir(tmp_path / "room") == []
    assert set(rooms) <= {-1, room}  # at most fewer of them: those that were slow


@pytest.mark.parametrize("count", [1, 300])
def test_many_names_are_removed_and_nothing_else(n: ModuleType, tmp_path: Path, count: int) -> None:
    (tmp_path / "stage" / "folder").mkdir(parents=True)
    (tmp_path / "kept").write_text("kept")
    (tmp_path / "stage" / "link").symlink_to(tmp_path / "kept")
    for i in range(count):
        (tmp_path / "stage" / f"t{i}").write_text("x")
    names = [b"t%d" % i for i in range(count)]
    fd = os.open(tmp_path / "stage", os.O_RDONLY)
    try:
        assert n.unlink_many(fd, [*names, b"link"]) == [0] * (count + 1)
        odd = [b"folder", b"t0", b"../kept", b"folder/../../kept", b"..", b"", b"a\0b"]
        codes = n.unlink_many(fd, odd)
        assert codes[0] in (errno.EISDIR, errno.EPERM)
        assert codes[1:] == [errno.ENOENT] + [errno.EINVAL] * 5
        with pytest.raises(TypeError):
            n.unlink_many(fd, ["text"])
    finally:
        os.close(fd)
    assert os.listdir(tmp_path / "stage") == ["folder"]
    assert (tmp_path / "kept").read_text() == "kept"


def test_stat_columns_are_filled_from_the_disk(n: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "f").write_bytes(b"x")
    entry = Entry(b"f", 0o644, 0, 0)
    rows = n.pack(
        [(b"", Entry(b"d", 0o755, 0, 0), NO_STAT, 0), (b"a/f", entry, NO_STAT, 0), (b"no", entry, NO_STAT, 0)], TAG
    )
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        assert n.fill_stats(fd, rows) == [2]
    finally:
        os.close(fd)
    found, there = n.get(rows, 1), (tmp_path / "a" / "f").stat()
    assert (found[13], found[16], found[17]) == (there.st_ino, there.st_nlink, there.st_dev)
    assert found[14] * 1_000_000_000 + found[15] == there.st_ctime_ns
    assert (found[9], n.get(rows, 2)[9]) == (1, 0)
