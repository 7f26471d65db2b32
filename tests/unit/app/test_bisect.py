"""The search itself: where to look next, without any command."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reprieve.app.bisect import BAD, GOOD, SKIPPED, narrow


@given(st.data())
def test_it_finds_the_first_bad_point_in_the_fewest_runs(data: st.DataObject) -> None:
    last = data.draw(st.integers(1, 5000))
    first = data.draw(st.integers(1, last))
    asked: list[int] = []

    def test(at: int) -> str:
        asked.append(at)
        return BAD if at >= first else GOOD

    assert narrow(last, test) == (first - 1, first)
    assert len(asked) <= (last - 1).bit_length()
    assert len(set(asked)) == len(asked)


@given(st.data())
def test_only_what_cannot_be_tested_stands_between_the_ends(data: st.DataObject) -> None:
    last = data.draw(st.integers(1, 60))
    first = data.draw(st.integers(1, last))
    holes = data.draw(st.sets(st.integers(1, last - 1))) if last > 1 else set()
    good, bad = narrow(last, lambda at: SKIPPED if at in holes else BAD if at >= first else GOOD)
    assert good < first <= bad
    assert set(range(good + 1, bad)) <= holes
