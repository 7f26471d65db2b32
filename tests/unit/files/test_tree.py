"""Packed trees as Python sees them: rows that are set in place."""

from __future__ import annotations

import random

from reprieve.files import native, tree
from reprieve.model.entry import DIR, FILE, SYMLINK, Entry

TAG = b"0123456789abcdef"


def sample(count: int) -> list[tuple[bytes, Entry, tree.Stat, int]]:
    items = [(b"", Entry(DIR, 0o755, 1, 1), tree.NO_STAT, 0), (b"d", Entry(DIR, 0o755, 1, 1), tree.NO_STAT, 0)]
    for n in range(count):
        items.append((b"d/f%d" % n, Entry(FILE, 0o644, 1, 1, n, content=b"%032d" % n), tree.NO_STAT, 0))
        items.append((b"d/l%d" % n, Entry(SYMLINK, 0o777, 1, 1, target=b"to %d" % n), tree.NO_STAT, 0))
    return items


def test_rows_set_in_place_give_the_tree_that_a_merge_gives() -> None:
    items = sample(50)
    index = native.merge(None, tree.pack(items), [], {}, TAG)
    rng = random.Random(7)
    for _ in range(20):
        new = []
        for path, entry, _, _ in rng.sample(items, 9):
            if entry.kind != SYMLINK:
                stat = tree.Stat(rng.randrange(1 << 60), 5, 1, rng.randrange(1 << 40), 17, True)
                new.append((path, entry.replace(mode=rng.randrange(0o7777), mtime_ns=rng.randrange(10**9)), stat, 0))
        rows = tree.pack(new)
        wanted = native.merge(index, rows, [], {}, TAG)
        places = tree.places(index, rows)
        assert len(places) == len(new)
        tree.put_rows(index, rows, places)
        assert index == wanted
        native.check(index)


def test_a_directory_that_loses_a_name_is_marked_and_nothing_else_differs() -> None:
    """Whether or not the directory itself is among the changed rows; the checksum holds."""
    folder = Entry(DIR, 0o755, 1, 1, xattrs=((b"user.a", b"b"),))
    items = [*sample(5), (b"e", folder, tree.NO_STAT, 0), (b"e/x", Entry(FILE, 0o600, 1, 1), tree.NO_STAT, 0)]
    index = native.merge(None, tree.pack(items), [], {}, TAG)
    gone = [b"d/f1", b"d/l2", b"e/x"]
    stat = tree.NO_STAT.replace(is_racy=True)
    marks = [(path, entry, stat, 0) for path, entry, _, _ in items if path in (b"d", b"e")]
    wanted = native.merge(index, tree.pack(marks), gone, {}, TAG)
    for changed in ([], [(b"d", Entry(DIR, 0o755, 1, 1), tree.NO_STAT, 0)]):
        after = tree.advance(index, tree.pack(changed), gone, tag=TAG)
        native.check(after)
        assert after == wanted


def test_rows_that_do_not_fit_have_no_places() -> None:
    """A new path, another kind, something with a part of variable length, there or here."""
    index = native.merge(None, tree.pack(sample(5)), [], {}, TAG)
    plain = Entry(FILE, 0o600, 1, 1, 3, content=bytes(range(32)))
    link = Entry(SYMLINK, 0o777, 1, 1, target=b"x")
    marked = plain.replace(xattrs=((b"user.a", b"1"),))
    for path, entry in ((b"d/new", plain), (b"d", plain), (b"d/l1", plain), (b"d/l1", link), (b"d/f1", marked)):
        good = (b"d/f2", plain, tree.NO_STAT, 0)
        assert tree.places(index, tree.pack([good, (path, entry, tree.NO_STAT, 0)])) == []
    assert tree.places(index, tree.pack([good])) == [native.find(index, b"d/f2")]


def test_a_tree_that_replaces_all_of_another_is_the_one_that_a_merge_gives() -> None:
    items = sample(200)
    for before in (None, tree.pack(items[:1]), tree.pack(items[:60])):
        rows = tree.pack(items)
        wanted = native.merge(before, rows, [], {}, TAG)
        after = tree.advance(before, rows, [], tag=TAG)
        assert after == wanted
        native.check(after)
    beside = tree.pack([*items[:1], (b"other", items[2][1], tree.NO_STAT, 0)])
    assert tree.count(tree.advance(beside, tree.pack(items), [], tag=TAG)) == len(items) + 1
