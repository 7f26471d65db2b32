"""Hard-link groups and gaps over several snapshots: what was left out once finds its place again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reprieve.files import native, tree
from reprieve.files.snapshot import Limits, Snapshot, take_snapshot
from reprieve.model.entry import FILE, Entry
from reprieve.model.reporter import Reporter


def snapshot(root: Path, last: Snapshot | bytes | bytearray | None = None) -> Snapshot:
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        base = last.index if isinstance(last, Snapshot) else last
        return take_snapshot(fd, last=base, put=None, limits=Limits(), reporter=Reporter())
    finally:
        os.close(fd)


def with_gap(seen: Snapshot, *paths: bytes) -> bytearray:
    """The same tree, as if these had not been readable."""
    kinds = {path: entry.kind for path, entry in tree.entries(seen.index)}
    rows = tree.pack((path, Entry(kinds[path], 0, 0, 0, gap="unreadable"), tree.NO_STAT, 0) for path in paths)
    return native.merge(seen.index, rows, [], {}, bytes(16))


def entry(seen: Snapshot, path: bytes) -> Entry:
    found = tree.lookup(seen.index, path)
    assert found is not None
    return found


@pytest.fixture
def linked(tmp_path: Path) -> Path:
    """a, b/one and c/two are one file."""
    for name in ("b", "c"):
        (tmp_path / name).mkdir()
    (tmp_path / "a").write_bytes(b"one file")
    os.link(tmp_path / "a", tmp_path / "b" / "one")
    os.link(tmp_path / "a", tmp_path / "c" / "two")
    return tmp_path


def test_a_name_that_can_be_read_again_finds_its_group(linked: Path) -> None:
    first = snapshot(linked)
    healed = snapshot(linked, with_gap(first, b"b/one"))
    assert healed.gaps == ()
    number = entry(first, b"a").link
    assert number and {entry(healed, path).link for path in (b"a", b"b/one", b"c/two")} == {number}
    assert [path for path, _, _ in healed.changes or []] == [b"b/one"]


def test_a_directory_that_can_be_listed_again_finds_the_groups_outside(linked: Path) -> None:
    first = snapshot(linked)
    base = native.merge(with_gap(first, b"c"), tree.pack([]), [b"c/two"], {}, bytes(16))
    healed = snapshot(linked, base)
    assert {entry(healed, path).link for path in (b"a", b"b/one", b"c/two")} == {entry(first, b"a").link}


def test_a_name_that_was_alone_takes_the_number_as_well(linked: Path) -> None:
    """Nothing else of the group was known, so what has not changed on the disk changes in the tree."""
    first = snapshot(linked)
    rows = tree.pack(
        [(b"a", entry(first, b"a").replace(link=0), tree.stat_at(first.index, native.find(first.index, b"a")), 0)]
    )
    healed = snapshot(linked, native.merge(with_gap(first, b"b/one", b"c/two"), rows, [], {}, bytes(16)))
    numbers = {entry(healed, path).link for path in (b"a", b"b/one", b"c/two")}
    assert len(numbers) == 1 and 0 not in numbers
    assert entry(healed, b"a").content == entry(first, b"a").content
    assert {path for path, _, _ in healed.changes or []} == {b"a", b"b/one", b"c/two"}


def test_two_files_never_share_a_number(linked: Path) -> None:
    """Half of a group becomes another file with as many names: that one is a group of its own."""
    os.link(linked / "a", linked / "d")
    first = snapshot(linked)
    for name in ("a", "d"):
        (linked / name).unlink()
    (linked / "a").write_bytes(b"other")
    os.link(linked / "a", linked / "d")
    second = snapshot(linked, first)
    new = {entry(second, path).link for path in (b"a", b"d")}
    old = {entry(second, path).link for path in (b"b/one", b"c/two")}
    assert len(new) == len(old) == 1 and new != old and 0 not in new | old


@pytest.mark.parametrize("what", ("symlink", "fifo", "file", "directory"))
def test_whatever_could_not_be_looked_at_is_taken_in_again(tmp_path: Path, what: str) -> None:
    thing = tmp_path / "thing"
    {
        "symlink": lambda: thing.symlink_to("some/where"),
        "fifo": lambda: os.mkfifo(thing),
        "file": lambda: thing.write_bytes(b"x"),
        "directory": thing.mkdir,
    }[what]()
    first = snapshot(tmp_path)
    healed = snapshot(tmp_path, with_gap(first, b"thing"))
    assert healed.gaps == ()
    assert entry(healed, b"thing") == entry(first, b"thing")


def test_a_rebuilt_index_keeps_the_numbers(linked: Path) -> None:
    """The timeline's tree has no inodes; that nothing changed must still be seen."""
    first = snapshot(linked)
    again = snapshot(linked, tree.without_stat(first.index))
    assert again.changes == []


def test_a_file_linked_from_outside_is_no_group(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "outside").write_bytes(b"x")
    os.link(tmp_path / "outside", root / "inside")
    first = snapshot(root)
    assert entry(first, b"inside").kind == FILE and entry(first, b"inside").link == 0
    os.utime(root / "inside", ns=(1, 1))
    assert entry(snapshot(root, first), b"inside").link == 0
