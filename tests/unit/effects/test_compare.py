"""Which fields of an image are the server's own: seen at the call, never guessed from a name alone."""

from __future__ import annotations

from typing import Any

import pytest

from reprieve.effects.compare import MASK, blinded, contains, left_of, same, settled


@pytest.mark.parametrize(
    ("after", "before", "sent", "is_masked"),
    [
        (4, 3, {}, True),  # counted up by the server
        (4, 3, {"version": 3}, True),  # sent as it was got, and counted up all the same
        (7, 6, {"version": 5}, True),  # the same, with a look between that counted too
        (3, 3, {}, False),  # the call left it as it was: whoever changes it now is somebody
        (5, 3, {"version": 5}, False),
        ("v5", "v3", {"version": "5"}, False),  # written in the server's own way, and still what was sent
        ("3.0", "3.0", {"version": "3.0"}, False),
    ],
)
def test_of_a_change_before_and_after_tell(
    after: object, before: object, sent: dict[str, Any], is_masked: bool
) -> None:
    found = settled({"version": after}, before={"version": before}, sent=sent)
    assert found == {"version": MASK if is_masked else after}


@pytest.mark.parametrize(
    ("value", "is_masked"), [(1, True), ("2026-11-17T10:00:00Z", True), ("1.0", False), ([], False), (True, False)]
)
def test_of_what_was_made_counters_and_times_that_were_not_sent_are_the_servers(value: object, is_masked: bool) -> None:
    assert settled({"revision": value}) == {"revision": MASK if is_masked else value}
    assert settled({"revision": value}, sent={"revision": value}) == {"revision": value}
    assert settled({"in": {"revision": value}, "all": [{"revision": value}]}) == {
        "in": {"revision": value},
        "all": [{"revision": value}],
    }


def test_when_a_thing_was_touched_says_nothing_unless_the_call_itself_changed_it() -> None:
    assert settled({"updated_at": 2, "a": {"etag": "x"}}, before={"updated_at": 1}) == {
        "updated_at": MASK,
        "a": {"etag": MASK},
    }
    assert settled({"updated_at": 2}, before={"updated_at": 1}, sent={"updated_at": 2}) == {"updated_at": 2}
    assert same({"a": 1}, {"a": 1, "updated_at": 2}) and not same({"a": 1}, {"a": 1, "version": 2})


def test_an_image_is_blind_where_another_is_and_not_for_secrets() -> None:
    seen = blinded({"version": 1, "token": "x", "etag": 1}, {"version": MASK, "token": MASK})
    assert seen == {"version": MASK, "token": "x", "etag": MASK}


def test_null_is_as_good_as_not_there() -> None:
    assert contains({"a": {}}, {"a": {"b": None}, "c": {"d": None}})
    assert not contains({"a": {}}, {"a": {"b": 1}}) and not contains({}, {"a": {}}) and not contains({}, {"a": MASK})


def test_what_came_with_a_change_and_is_still_there_is_named_with_its_place() -> None:
    before, after = {"a": {"x": 1}, "b": 1}, {"a": {"x": 2, "y": 1}, "b": 1, "c": 1, "d": None, "etag": MASK}
    assert left_of(after, before, {**after, "etag": 1}) == ["a.y", "c"]
    assert left_of(after, before, {**before, "somebody": 1}) == []
