"""Packed trees, in C and in Python: against a model, and damaged."""

from __future__ import annotations

import os
import random
import struct
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
    Model,
    Root,
    extra,
    index_of,
    outcome,
    pack_model,
    read_first,
    resealed,
    rows_of,
    sort_key,
    tree_of,
    unpack_model,
)

# -- packed trees against a model

PATHS = st.lists(st.sampled_from([b"a", b"b", b"a!", b"\xff", b"a\x01"]), min_size=1, max_size=4).map(b"/".join)
MODELS = st.dictionaries(
    PATHS,
    st.tuples(st.sampled_from([b"f", b"d", b"l"]), st.integers(0, 3), st.sampled_from([0, NEEDS, GAP, CHUNKED, RACY])),
    max_size=12,
)


@settings(max_examples=150, deadline=None)
@given(old=MODELS, new=MODELS, gone=st.lists(PATHS, max_size=4))
@pytest.mark.parametrize("n", [_native, _twin], ids=["c", "python"])
def test_merge_is_a_dict_update(n: ModuleType, old: Model, new: Model, gone: list[bytes]) -> None:
    dead = {p for p in gone if p in old} | {p for p, (kind, _, _) in new.items() if kind != b"d" and p in old}
    kept = {p: v for p, v in old.items() if p not in gone and not any(p.startswith(d + b"/") for d in dead)}
    merged = n.merge(pack_model(old), pack_model(new), gone, {}, TAG)
    n.check(merged)
    assert unpack_model(n, merged) == {**kept, **new}
    assert list(rows_of(n, merged)) == sorted({**kept, **new}, key=sort_key)
    assert HEADER.unpack_from(merged)[6] == TAG
    assert unpack_model(n, n.merge(None, pack_model(new), [], None, TAG)) == new


@settings(max_examples=150, deadline=None)
@given(old=MODELS, new=MODELS)
@pytest.mark.parametrize("n", [_native, _twin], ids=["c", "python"])
def test_diff_names_each_path_that_differs(n: ModuleType, old: Model, new: Model) -> None:
    a, b = pack_model(old), pack_model(new)
    wanted = {
        path
        for path in {**old, **new}
        if path not in old or path not in new or old[path][:2] != new[path][:2]
        or (old[path][2] | new[path][2]) & NEEDS or (old[path][2] ^ new[path][2]) & (CHUNKED | GAP)
    }  # fmt: skip
    found = n.diff(a, b)
    paths = [n.get(a, i)[0] if i >= 0 else n.get(b, j)[0] for i, j in found]
    assert paths == sorted(wanted, key=sort_key)
    for i, j in found:
        assert (i >= 0, j >= 0) == (i >= 0 and n.get(a, i)[0] in old, j >= 0 and n.get(b, j)[0] in new)


@settings(max_examples=100, deadline=None)
@given(model=MODELS, other=PATHS)
@pytest.mark.parametrize("n", [_native, _twin], ids=["c", "python"])
def test_find_and_get_are_inverse(n: ModuleType, model: Model, other: bytes) -> None:
    tree = pack_model(model)
    for row in range(len(model)):
        assert n.find(tree, n.get(tree, row)[0]) == row
    assert (n.find(tree, other) >= 0) == (other in model)
    assert n.find(tree, other.replace(b"/", b"\0") + b"\0") == -1
    with pytest.raises(IndexError):
        n.get(tree, len(model))
    with pytest.raises(IndexError):
        n.get(tree, -1)


@settings(max_examples=100, deadline=None)
@given(model=MODELS, other=MODELS)
@pytest.mark.parametrize("n", [_native, _twin], ids=["c", "python"])
def test_orphans_are_the_rows_whose_directory_is_none_in_the_tree(n: ModuleType, model: Model, other: Model) -> None:
    tree, rows = pack_model(model), pack_model(other)
    folders = {path for path in model if n.get(tree, n.find(tree, path))[1] == b"d"}
    assert sorted(n.orphans(tree, rows)) == sorted(path for path in other if path.rpartition(b"/")[0] not in folders)
    with pytest.raises(ValueError, match="packed tree"):
        n.orphans(tree, rows[:-1])


@settings(max_examples=100, deadline=None)
@given(model=MODELS)
@pytest.mark.parametrize("n", [_native, _twin], ids=["c", "python"])
def test_totals_count_names_that_are_no_directories_and_the_bytes_of_files(n: ModuleType, model: Model) -> None:
    tree = pack_model(model)
    rows = [n.get(tree, row) for row in range(len(model))]
    assert n.totals(tree) == (sum(r[1] != b"d" for r in rows), sum(r[5] for r in rows if r[1] == b"f"))


@pytest.mark.parametrize(
    "column", ["mode", "uid", "gid", "size", "mtime_s", "mtime_ns", "content", "link", "rdev", "extra"]
)
def test_diff_sees_every_restorable_column(n: ModuleType, column: str) -> None:
    value = {"content": b"c" * 32, "extra": extra(gap=b"g")}.get(column, 7)
    assert n.diff(tree_of([{"path": b"f"}]), tree_of([{"path": b"f", column: value}])) == [(0, 0)]


@pytest.mark.parametrize("column", ["ino", "dev", "nlink", "ctime_s", "ctime_ns"])
def test_diff_ignores_what_no_restore_can_set(n: ModuleType, column: str) -> None:
    assert n.diff(tree_of([{"path": b"f"}]), tree_of([{"path": b"f", column: 7}])) == []
    assert n.diff(tree_of([{"path": b"f"}]), tree_of([{"path": b"f", "flags": RACY}])) == []


def test_merge_replaces_extras(n: ModuleType) -> None:
    rows = tree_of([{"path": b"a", "extra": extra(gap=b"old")}, {"path": b"b"}, {"path": b"c", "extra": extra(b"t")}])
    new = {0: b"", 1: extra(xattrs=((b"user.a", b"1"), (b"user.b", b"")))}
    merged = n.merge(None, rows, [], new, TAG)
    assert [n.get(merged, i)[12] for i in range(3)] == [b"", new[1], extra(b"t")]
    for bad in ({3: b""}, {-1: b""}, {0: b"xx"}):
        with pytest.raises(ValueError):
            n.merge(None, rows, [], bad, TAG)
    with pytest.raises(ValueError, match="16 bytes"):
        n.merge(None, rows, [], {}, b"short")


def test_get_gives_every_column(n: ModuleType) -> None:
    item = {
        "path": b"p", "kind": b"f", "mode": 0o4755, "uid": 2**32 - 2, "gid": 5, "size": 2**63, "mtime_s": -5,
        "mtime_ns": 999_999_999, "content": b"c" * 32, "flags": 15, "link": 2**64 - 1, "rdev": 3,
        "extra": extra(gap=b"g"), "ino": 2**64 - 2, "ctime_s": -(2**63), "ctime_ns": 1, "nlink": 2**32 - 1, "dev": 9,
    }  # fmt: skip
    names = ("path", "kind", "mode", "uid", "gid", "size", "mtime_s", "mtime_ns", "content", "flags", "link", "rdev")
    wanted = tuple(item[k] for k in (*names, "extra", "ino", "ctime_s", "ctime_ns", "nlink", "dev"))
    assert n.get(tree_of([item]), 0) == wanted


# -- damaged buffers

SOUND = tree_of([
    {"path": b"", "kind": b"d", "mode": 0o755},
    {"path": b"a", "kind": b"d"},
    {"path": b"a/b", "content": b"x" * 32, "size": 3},
    {"path": b"a/l", "kind": b"l", "extra": extra(b"target", ((b"user.x", b"v"),), b"why")},
    {"path": b"b", "flags": NEEDS},
])  # fmt: skip


@pytest.mark.parametrize(
    "items",
    [
        [{"path": b"b"}, {"path": b"a"}],
        [{"path": b"a"}, {"path": b"a"}],
        [{"path": b"a!"}, {"path": b"a/b"}],
        [{"path": b"/a"}],
        [{"path": b"a/"}],
        [{"path": b"a//b"}],
        [{"path": b"a/./b"}],
        [{"path": b".."}],
        [{"path": b"a/../b"}],
        [{"path": b"a"}, {"path": b"a/.."}],
        [{"path": b"a\0b"}],
        [{"path": b"", "kind": b"f"}],
        [{"path": b"a", "kind": b"x"}],
        [{"path": b"a", "kind": b"\0"}],
        [{"path": b"a", "flags": 16}],
        [{"path": b"a", "mode": 0o10000}],
        [{"path": b"a", "mtime_ns": 10**9}],
        [{"path": b"a", "ctime_ns": 10**9}],
        [{"path": b"a", "extra": b"x"}],
        [{"path": b"a", "extra": extra(b"t") + b"x"}],
        [{"path": b"a", "extra": extra(b"t")[:-1]}],
        [{"path": b"a", "extra": struct.pack("<I", 2**32 - 1)}],
        [{"path": b"a", "extra": struct.pack("<IHHI", 0, 1, 0, 2**32 - 1)}],
    ],
    ids=repr,
)
def test_check_refuses_impossible_rows(n: ModuleType, items: list[dict[str, Any]]) -> None:
    tree = tree_of(items)
    with pytest.raises(ValueError):
        n.check(tree)
    with pytest.raises(ValueError):
        n.merge(None, tree, [], {}, TAG)
    with pytest.raises(ValueError):
        n.diff(tree, None)


@pytest.mark.parametrize("cut", [0, 1, 63, 64, 65, len(SOUND) - 1])
def test_check_refuses_truncated_buffers(n: ModuleType, cut: int) -> None:
    for bad in (SOUND[:cut], SOUND + b"x"):
        with pytest.raises(ValueError):
            n.check(bad)
        with pytest.raises(ValueError):
            n.find(bad, b"a")


@pytest.mark.parametrize(
    ("at", "value"), [(8, 2**64 - 1), (8, 2**57), (16, 2**64 - 1), (24, 2**64 - 64), (8, 4), (56, 1)]
)
def test_lengths_in_the_header_are_not_believed(n: ModuleType, root: Root, at: int, value: int) -> None:
    bad = bytearray(SOUND)
    struct.pack_into("<Q", bad, at, value)
    assert outcome(n.check, bad) == "ValueError"
    assert outcome(n.get, bad, 0) == "ValueError"
    assert outcome(n.find, bad, b"a") == "ValueError"
    assert outcome(n.scan, root.fd, bad, *FUTURE) == "ValueError"
    assert outcome(n.read_rows, root.fd, bad, 0, 10, 10) == "ValueError"


def test_five_thousand_mutations_are_refused_and_harm_nobody(root: Root) -> None:
    """Each is refused by check (the tag is the caller's), and no function crashes or disagrees on it."""
    root.write(b"a/b", b"abc")
    rng = random.Random(20)
    _native.check(SOUND)
    for round in range(5000):
        bad = bytearray(SOUND)
        for _ in range(rng.choice([1, 1, 2, 5])):
            at = rng.choice([rng.randrange(len(bad)), rng.randrange(64, 64 + 5 * 128)])
            bad[at] = rng.choice([bad[at] ^ 1 << rng.randrange(8), rng.randrange(256), 0, 255])
        changed = bad[:40] + bad[56:] != SOUND[:40] + SOUND[56:]
        if round % 2:
            resealed(bad)
        answers = []
        for n in (_native, _twin) if round % 5 == 0 else (_native,):
            answers.append([
                outcome(n.check, bad),
                outcome(n.scan, root.fd, bad, *FUTURE),
                outcome(n.merge, bad, SOUND, [b"a/b"], {}, TAG),
                outcome(n.merge, SOUND, bad, [b"a/b"], {}, TAG),
                outcome(n.diff, bad, SOUND),
                outcome(n.find, bad, b"a/l"),
                *(outcome(n.get, bad, row) for row in range(5)),
                outcome(read_first, n, root.fd, bytearray(bad)),
            ])  # fmt: skip
        assert answers[0] == answers[-1]
        if changed and round % 2 == 0:
            assert answers[0][0] == "ValueError"


def test_names_are_found_by_how_they_end(n: ModuleType, root: Root) -> None:
    for path in (b"a", b"d/app.db-wal", b"d/wal-x"):
        root.write(path)
    index = index_of(n, root.fd)
    assert n.has_end(index, (b"-journal", b"-wal"))
    assert n.has_end(memoryview(bytes(index)), (b"d/app.db-wal",))
    assert n.has_end(index, (b"",))
    for ends in ((), (b"-wa",), (b"-wal-x",), (b"x/app.db-wal",), (b"very/long/d/app.db-wal",)):
        assert not n.has_end(index, ends)
    with pytest.raises(ValueError):
        n.has_end(b"damaged", (b"-wal",))
    index[HEADER.size : HEADER.size + 4] = b"\xff" * 4  # where the first path begins
    with pytest.raises(ValueError):
        n.has_end(index, (b"-wal",))


def test_rows_are_found_by_flag_kind_and_links(n: ModuleType, root: Root) -> None:
    for path in (b"a", b"b", b"d/c"):
        root.write(path)
    os.link(root.at(b"a"), root.at(b"d/other"))
    os.mkfifo(root.at(b"pipe"))
    index = index_of(n, root.fd)
    index[HEADER.size + n.find(index, b"b") * ROW.size + 7] |= GAP

    def found(*what: object) -> list[bytes]:
        numbers = struct.unpack(f"={len(n.rows_with(index, *what)) // 4}I", n.rows_with(index, *what))
        return [n.get(index, number)[0] for number in numbers]

    assert found(0) == []
    assert found(GAP) == [b"b"]
    assert found(GAP, b"p") == [b"b", b"pipe"]
    assert found(0, b"", True) == [b"a", b"d/other"]
    assert found(0, b"d") == [b"", b"d"]
    with pytest.raises(ValueError, match="tree"):
        n.rows_with(b"damaged", 0)
