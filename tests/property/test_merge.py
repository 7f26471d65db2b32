"""Merging by lines: `git merge-file` is the oracle, and what was put in can be taken out."""

from __future__ import annotations

import random
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reprieve.files.linediff import changes, split_lines
from reprieve.files.merge import BOTH, CONFLICT, OURS, THEIRS, NotText, hunks, merge3, revert_hunks

Case = tuple[bytes, bytes, bytes]
Line = Callable[[random.Random], bytes]

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is the oracle")

# What a file may be made of: distinct lines; few letters, so that everything matches everything; code with its blank
# lines and braces; lines without a letter, which join conflicts.
ALPHABETS: list[Line] = [
    lambda rng: b"line %d" % rng.randrange(1000),
    lambda rng: b"%c" % rng.choice(b"abcdefgh"),
    lambda rng: rng.choice([b"", b"}", b"{", b"  ", b"-", b"x%d" % rng.randrange(30)]),
    lambda rng: rng.choice([b"a", b"b"]),
    lambda rng: rng.choice([b"", b"}", b"return", b"k = %d" % rng.randrange(300)]),
    lambda rng: rng.choice([b"", b"--", b"\xff\xfe", b"a%d" % rng.randrange(80)]),
]


def edited(rng: random.Random, lines: list[bytes], line: Line, times: int) -> list[bytes]:
    """Lines with some inserted, deleted, replaced, moved or repeated."""
    lines = list(lines)
    for _ in range(times):
        at, kind = rng.randrange(len(lines) + 1), rng.random()
        if kind < 0.35:
            lines[at:at] = [line(rng) for _ in range(rng.randint(1, 4))]
        elif kind < 0.65:
            del lines[at : at + rng.randint(1, 4)]
        elif kind < 0.85:
            lines[at : at + rng.randint(1, 3)] = [line(rng) for _ in range(rng.randint(1, 3))]
        else:
            source = rng.randrange(len(lines) + 1)
            lines[at:at] = lines[source : source + rng.randint(1, 5)]
    return lines


def text(rng: random.Random, lines: list[bytes]) -> bytes:
    end = b"\r\n" if rng.random() < 0.15 else b"\n"
    data = b"".join(line + end for line in lines)
    return data.removesuffix(end) if rng.random() < 0.2 else data


def generated(seed: int, *, lines: int | None = None, edits: int | None = None) -> Case:
    rng = random.Random(seed)
    line = ALPHABETS[seed % len(ALPHABETS)]
    base = [line(rng) for _ in range(rng.choice([0, 1, 3, 8, 20, 60, 200]) if lines is None else lines)]
    ours = edited(rng, base, line, rng.randint(0, 6) if edits is None else edits)
    theirs = edited(rng, base if rng.random() < 0.8 else ours, line, rng.randint(0, 6) if edits is None else edits)
    return text(rng, base), text(rng, ours), text(rng, theirs)


@pytest.fixture(scope="module")
def git_merge(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Case], tuple[int, bytes]]:
    folder: Path = tmp_path_factory.mktemp("oracle")

    def merge(case: Case) -> tuple[int, bytes]:
        for name, data in zip(("base", "ours", "theirs"), case, strict=True):
            (folder / name).write_bytes(data)
        command = ["git", "merge-file", "-p", "-L", "mine", "-L", "base", "-L", "the agent's", "ours", "base", "theirs"]
        done = subprocess.run(command, cwd=folder, capture_output=True)
        assert done.returncode <= 127, done.stderr
        return done.returncode, done.stdout

    return merge


CASES, PARTS = 960, 12


@needs_git
@pytest.mark.timeout(300)
@pytest.mark.parametrize("part", range(PARTS))
def test_generated_merges_equal_gits(part: int, git_merge: Callable[[Case], tuple[int, bytes]]) -> None:
    """960 cases: the same bytes, markers included, and the same number of conflicts."""
    conflicted = 0
    compared = set()
    for seed in range(part * CASES // PARTS, (part + 1) * CASES // PARTS):
        case = generated(seed)
        compared.add(case)
        merged = merge3(*case, labels=(b"mine", b"the agent's"))
        assert (min(merged.conflicts, 127), merged.data) == git_merge(case), f"seed {seed}"
        conflicted += merged.conflicts > 0
    assert 10 < conflicted < CASES // PARTS, "the cases are all alike"
    assert len(compared) * PARTS >= 500, "so many different ones are promised"


@needs_git
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("lines", "edits"), [(400, 150), (2000, 20), (2000, 600), (5000, 1500)])
@pytest.mark.parametrize("seed", [0, 1, 2, 4])
def test_long_merges_equal_gits(
    lines: int, edits: int, seed: int, git_merge: Callable[[Case], tuple[int, bytes]]
) -> None:
    """Long enough for the search to give up being exact, as git's does."""
    case = generated(seed + 6000, lines=lines, edits=edits)
    merged = merge3(*case, labels=(b"mine", b"the agent's"))
    assert (min(merged.conflicts, 127), merged.data) == git_merge(case)


lines_of = st.lists(st.sampled_from([b"a\n", b"b\n", b"c\n", b"\n", b"}\r\n"]), max_size=14)
texts = st.builds(lambda lines, tail: b"".join(lines) + tail, lines_of, st.sampled_from([b"", b"end", b"\r"]))


@given(texts, texts)
def test_a_side_that_did_nothing_leaves_the_other_as_it_is(base: bytes, other: bytes) -> None:
    for merged in (merge3(base, other, base), merge3(base, base, other), merge3(base, other, other)):
        assert merged.data == other
        assert merged.conflicts == 0


@given(texts, texts, texts)
def test_sides_may_be_exchanged(base: bytes, ours: bytes, theirs: bytes) -> None:
    """Whether there is a conflict does not depend on who is who; without one, neither does the text."""
    one, two = merge3(base, ours, theirs), merge3(base, theirs, ours)
    assert bool(one.conflicts) == bool(two.conflicts)
    if not one.conflicts:
        assert one.data == two.data


@given(texts, texts, texts)
def test_no_line_of_either_side_is_lost_in_a_conflict(base: bytes, ours: bytes, theirs: bytes) -> None:
    """Every line that a side added is in the result: as it is, or between markers."""
    merged = split_lines(merge3(base, ours, theirs).data)
    for side in (ours, theirs):
        for hunk in hunks(base, side):
            for line in hunk.b_lines:
                assert line in merged or line + b"\n" in merged or line + b"\r\n" in merged


@given(texts, texts, st.randoms(use_true_random=False))
def test_hunks_taken_back_all_give_the_first_text_and_none_the_second(a: bytes, b: bytes, rng: random.Random) -> None:
    for gap in (0, 3):
        found = hunks(a, b, gap=gap)
        assert revert_hunks(b, found, range(len(found))) == a
        assert revert_hunks(b, found, ()) == b
        picked = {i for i in range(len(found)) if rng.random() < 0.5}
        part = revert_hunks(b, found, picked)
        assert len(hunks(a, part)) <= len(hunks(a, b))


@given(texts, texts)
def test_changes_turn_the_one_into_the_other(a: bytes, b: bytes) -> None:
    old, new = split_lines(a), split_lines(b)
    assert b"".join(old) == a
    made: list[bytes] = []
    at = 0
    for a1, a2, b1, b2 in changes(old, new):
        assert (a1, b1) != (a2, b2)
        assert old[at:a1] == new[b1 - (a1 - at) : b1]
        made += old[at:a1] + new[b1:b2]
        at = a2
    assert made + old[at:] == new


@settings(max_examples=50)
@given(st.integers(0, 10**6))
def test_one_change_is_taken_out_and_the_later_ones_stay(seed: int) -> None:
    """Undo in the middle: base is what the step left, ours is now, theirs is before the step."""
    rng = random.Random(seed)
    before = [b"line %d\n" % i for i in range(60)]
    step, later = rng.randrange(0, 25), rng.randrange(30, 60)
    after = [*before[:step], b"agent\n", *before[step + 1 :]]
    now = [*after[:later], b"person\n", *after[later + 1 :]]
    merged = merge3(b"".join(after), b"".join(now), b"".join(before))
    assert merged.conflicts == 0
    assert merged.data == b"".join([*before[:later], b"person\n", *before[later + 1 :]])


def test_each_region_says_whose_it_is() -> None:
    base = b"".join(b"%d\n" % i for i in range(20))
    ours = base.replace(b"\n2\n", b"\nours\n").replace(b"\n9\n", b"\nsame\n").replace(b"\n15\n", b"\nx\n")
    theirs = base.replace(b"\n6\n", b"\ntheirs\n").replace(b"\n9\n", b"\nsame\n").replace(b"\n15\n", b"\ny\n")
    merged = merge3(base, ours, theirs)
    assert [region.side for region in merged.regions] == [OURS, THEIRS, CONFLICT]
    assert merged.conflicts == 1
    assert b"<<<<<<< ours\nx\n=======\ny\n>>>>>>> theirs\n" in merged.data
    assert merge3(b"1\n", b"1\n2\n3\n", b"1\n2\n3\n").data == b"1\n2\n3\n"


def test_sides_that_came_to_the_same_by_other_ways_agree() -> None:
    merged = merge3(b"a\nb\nc\n", b"x\ny\nc\n", b"x\ny\nc\n")
    assert (merged.conflicts, merged.regions) == (0, ())
    both = merge3(b"1\n2\n", b"x\n1\ny\n", b"x\n1\ny\n")
    assert both.data == b"x\n1\ny\n" and all(region.side == BOTH for region in both.regions)


@pytest.mark.parametrize("where", [0, 1, 2])
def test_binary_content_is_refused(where: int) -> None:
    """Also with the NUL beyond the 8,000 bytes that git looks at."""
    sides = [b"a\n", b"b\n", b"c\n"]
    sides[where] = b"x\n" * 9000 + b"\0"
    with pytest.raises(NotText):
        merge3(sides[0], sides[1], sides[2])


def test_hunks_of_another_text_are_refused() -> None:
    with pytest.raises(ValueError, match="another text"):
        revert_hunks(b"z\n", hunks(b"a\n", b"b\n"), [0])


@pytest.mark.timeout(120)
def test_time_grows_with_the_length_of_the_text() -> None:
    """20,000 lines take some tenths of a second; a quadratic merge would take 64 times what 2,500 take."""

    def seconds(lines: int) -> float:
        case = generated(6004, lines=lines, edits=lines // 100)
        best = 60.0
        for _ in range(3):
            started = time.process_time()
            merge3(*case)
            best = min(best, time.process_time() - started)
        return best

    assert seconds(20_000) < 30 * seconds(2_500) + 0.2
