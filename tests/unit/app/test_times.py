"""What a time means that somebody names: the last nanosecond of it."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve.app.render import time_text
from reprieve.app.times import last_of, number

SECOND = 1_000_000_000
DAY = 86400 * SECOND
NOON = 1_794_744_000 * SECOND  # 2026-11-15T12:00:00Z


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An hour before Greenwich in winter, two in summer."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "last"),
    [
        ("2026-11-15T12:00:00Z", NOON + SECOND - 1),
        ("2026-11-15T12:00:00+00:00", NOON + SECOND - 1),
        ("2026-11-15T07:00:00-05:00", NOON + SECOND - 1),
        ("2026-11-15 12:00Z", NOON + 60 * SECOND - 1),
        ("2026-11-15T12Z", NOON + 3600 * SECOND - 1),
        ("2026-11-15T12:00:00.5Z", NOON + 6 * SECOND // 10 - 1),
        ("2026-11-15T12:00:00,50Z", NOON + 51 * SECOND // 100 - 1),
        ("2026-11-15T12:00:00.366732Z", NOON + 366_732_999),
        ("2026-11-15T12:00:00.3667321Z", NOON + 366_732_199),
        ("2026-11-15T12:00:00.366732123Z", NOON + 366_732_123),
        ("2026-11-15T12:00:00.366732123456Z", NOON + 366_732_123),
        ("10m ago", NOON - 600 * SECOND),
        ("99999999999w ago", 0),
        ("1969-12-31T23:59Z", 0),
        ("2999-01-01T00:00Z", (1 << 63) - 1),
        ("9999-12-31", (1 << 63) - 1),
    ],
)
def test_it_is_meant_to_the_end_of_its_last_part(text: str, last: int) -> None:
    assert last_of(text, NOON) == last


@pytest.mark.parametrize(
    "text",
    [
        *("", "ago", "10 ago", "m ago", "10m", "-1m ago", "9" * 5000 + "m ago", "before 2026-11-15", "2026", "2026-11"),
        *("2026-W47", "2026-W47T10:00", "2026-13-01", "2026-11-15T25:00", "2026-11-15T12:00:00."),
    ],
)
def test_other_words_are_no_time(text: str) -> None:
    assert last_of(text, NOON) is None


@pytest.mark.usefixtures("berlin")
def test_without_a_zone_it_is_local_and_a_day_is_as_long_as_it_is() -> None:
    noon = NOON - 3600 * SECOND
    assert last_of("2026-11-15T12:00", NOON) == noon + 60 * SECOND - 1
    for day, hours in (("2026-11-15", 24), ("2026-03-29", 23), ("2026-10-25", 25)):
        before = last_of(f"{day}T00:00:00.000000000", NOON)
        assert before is not None and last_of(day, NOON) == before + hours * 3600 * SECOND - 1


@given(st.integers(0, 4_000_000_000 * SECOND))
def test_the_time_that_is_printed_of_a_moment_is_not_before_it(at: int) -> None:
    last = last_of(time_text(at), NOON)
    assert last is not None and 0 <= last - at < 1000


@pytest.mark.parametrize(
    ("text", "meant"), [("7", 7), ("007", 7), ("", None), ("-1", None), ("²", None), ("9" * 99, None)]
)
def test_a_number(text: str, meant: int | None) -> None:
    assert number(text) == meant
