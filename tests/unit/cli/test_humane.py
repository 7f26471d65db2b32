"""What people read: names, sizes, ages."""

from __future__ import annotations

import pytest

from reprieve.cli import humane

MINUTE, HOUR, DAY = 60, 3600, 86400


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b"plain.txt", "plain.txt"),
        ("ünï→☃.txt".encode(), "ünï→☃.txt"),
        (b"", "."),
        (b"a\x1b[31mred", "a\\x1b[31mred"),
        (b"two\nlines\tand\r", "two\\nlines\\tand\\r"),
        (b"\xff\xfe", "\\xff\\xfe"),
        ("evil\u202etxt.exe".encode(), "evil\\u202etxt.exe"),
        ("zero\u200bwidth".encode(), "zero\\u200bwidth"),
        ("c1\u009bcontrol".encode(), "c1\\u009bcontrol"),
        ("line\u2028end".encode(), "line\\u2028end"),
        ("👩\u200d💻".encode(), "👩\u200d💻"),
    ],
)
def test_a_name_cannot_do_anything_to_the_terminal(raw: bytes, shown: str) -> None:
    assert humane.path(raw) == shown


def test_tabs_stay_in_content() -> None:
    assert humane.safe("\tx\x07", keep="\t") == "\tx\\x07"


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (999, "999 bytes"),
        (1500, "1.5 kB"),
        (20_000_000, "20 MB"),
        (999_999, "1.0 MB"),
        (3_200_000_000_000, "3.2 TB"),
    ],
)
def test_sizes(number: int, text: str) -> None:
    assert humane.size(number) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (3, "just now"),
        (MINUTE, "1 minute ago"),
        (12 * MINUTE, "12 minutes ago"),
        (3 * HOUR, "3 hours ago"),
        (2 * DAY, "2 days ago"),
        (-5, "just now"),
    ],
)
def test_ages(seconds: int, text: str) -> None:
    now = 1_790_000_000 * 10**9
    assert humane.age(now - seconds * 10**9, now) == text


def test_long_ago_is_a_date_and_the_future_a_moment() -> None:
    now = 1_790_000_000 * 10**9
    assert humane.age(now - 100 * DAY * 10**9, now).startswith("on 2026-")
    assert humane.age(now + DAY * 10**9, now).startswith("at 2026-")


def test_counts() -> None:
    assert humane.count(1, "file") == "1 file"
    assert humane.count(2000, "file") == "2,000 files"
    assert humane.count(2, "entry", "entries") == "2 entries"
