"""Comparing two contents line by line."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from reprieve.app.hunks import ADDED, KEPT, REMOVED, compare
from reprieve.files.linediff import split_lines

LINES = st.lists(st.sampled_from([b"a\n", b"b\n", b"c\n", b"\n", b"long line\r\n"]), max_size=40)
CONTENT = st.builds(lambda lines, end: b"".join(lines) + end, LINES, st.sampled_from([b"", b"no end"]))


@given(CONTENT, CONTENT, st.integers(0, 4))
def test_hunks_applied_to_the_old_content_give_the_new(before: bytes, after: bytes, context: int) -> None:
    old, made, position = split_lines(before), [], 0
    added = removed = 0
    comparison = compare(before, after)
    for hunk in comparison.hunks(context):
        start = hunk.old_start - 1 if hunk.old_count else hunk.old_start
        made += old[position:start]
        assert len(made) == (hunk.new_start - 1 if hunk.new_count else hunk.new_start)
        position = start
        for tag, line in hunk.lines:
            if tag in (KEPT, REMOVED):
                assert old[position] == line
                position += 1
            if tag in (KEPT, ADDED):
                made.append(line)
            added += tag == ADDED
            removed += tag == REMOVED
    assert b"".join(made + old[position:]) == after
    assert (added, removed) == (comparison.added, comparison.removed)


@given(CONTENT)
def test_equal_contents_have_no_hunks(content: bytes) -> None:
    assert list(compare(content, content).hunks()) == []


@given(st.binary())
def test_lines_joined_are_the_content(data: bytes) -> None:
    assert b"".join(split_lines(data)) == data


def test_only_a_line_feed_ends_a_line() -> None:
    assert split_lines(b"a\rb\x0cc\n") == [b"a\rb\x0cc\n"]


def test_a_nul_makes_it_binary() -> None:
    assert compare(b"a\0", b"b").is_binary
    assert compare(b"a", b"b\0").is_binary


def test_distant_changes_are_separate_hunks_and_near_ones_are_not() -> None:
    lines = [b"%d\n" % n for n in range(100)]
    changed = lines.copy()
    changed[10], changed[14], changed[60] = b"x\n", b"y\n", b"z\n"
    assert len(list(compare(b"".join(lines), b"".join(changed)).hunks())) == 2


def test_a_file_of_few_distinct_lines_does_not_take_forever() -> None:
    """20,000 lines on both sides that are much alike: an exact search would be quadratic."""
    one = b"".join(b"%d\n" % (n * 7919 % 150) for n in range(20_000))
    two = b"".join(b"%d\n" % (n * 104729 % 151) for n in range(20_000))
    began = time.monotonic()
    assert compare(one, two).added
    assert time.monotonic() - began < 20
