"""Settings of a reprieve.toml: what holds is never weaker than what the user set or a person accepted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reprieve.app.config import KEYS, find_key
from reprieve.app.weaker import settle
from reprieve.files.ignore import Excludes

NAMES = ("a", "b", "a/b", "b/a", "a/a")
PATTERNS = st.lists(st.sampled_from(("a", "b", "/a", "a/", "*", "!a", "!b", "!*", "a/*", "!/a/b", "")), max_size=5)


def excluded(patterns: tuple[str, ...]) -> set[tuple[str, bool]]:
    rules = Excludes(patterns)
    return {(name, is_dir) for name in NAMES for is_dir in (False, True) if not rules.accepts(name.encode(), is_dir)}


@given(PATTERNS, PATTERNS, PATTERNS)
def test_no_list_excludes_more_than_was_accepted(own: list[str], wanted: list[str], accepted: list[str]) -> None:
    """And what is kept as accepted afterwards gives the same again."""
    key = find_key("exclude")
    settled = settle(key, tuple(own), tuple(wanted), tuple(accepted))
    assert isinstance(settled.value, tuple)
    assert excluded(settled.value) <= excluded((*own, *accepted))
    if settled.weaker is None:
        assert excluded(settled.value) == excluded((*own, *wanted))
    again = settle(key, tuple(own), tuple(wanted), settled.accepted)
    assert isinstance(again.value, tuple) and excluded(again.value) == excluded(settled.value)


@given(PATTERNS, PATTERNS)
def test_the_whole_list_holds_once_it_is_accepted(own: list[str], wanted: list[str]) -> None:
    key = find_key("exclude")
    settled = settle(key, tuple(own), tuple(wanted), tuple(wanted))
    assert isinstance(settled.value, tuple)
    assert settled.weaker is None and excluded(settled.value) == excluded((*own, *wanted))


def test_an_exclude_of_the_users_own_is_nothing_new() -> None:
    assert settle(find_key("exclude"), ("a", "b"), ("b",), None).weaker is None


def test_a_limit_between_the_users_and_the_accepted_one_holds() -> None:
    key = find_key("max_file_size")
    assert settle(key, 0, 500, 100).value == 500
    lower = settle(key, 0, 50, 100)
    assert lower.value == lower.accepted == 100 and lower.weaker is not None
    assert settle(key, 100, 0, None) == settle(key, 100, 1000, None) == settle(key, 100, 100, None)


def test_every_key_says_what_reprieve_toml_may_do() -> None:
    """A new key that says nothing is out of its reach."""
    assert {key.workspace for key in KEYS} == {"", "accept", "lower", "raise", "last"}
    assert all(key.choices for key in KEYS if key.workspace == "last")
