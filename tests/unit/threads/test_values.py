"""Values come back as they were, types included; what is not on the list is refused when it is stored."""

from __future__ import annotations

import math
import re
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from ipaddress import ip_address, ip_interface, ip_network
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, NamedTuple
from uuid import uuid4
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from reprieve.errors import StoreCorrupted, Usage
from reprieve.threads.values import Types, dumps, loads


class Colour(Enum):
    RED = "r"


class Point(NamedTuple):
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class Job:
    name: str
    tags: list[str] = field(default_factory=list)


class Task(BaseModel):
    title: str = Field(alias="Title")
    job: Job | None = None
    when: datetime = datetime(2026, 1, 1, tzinfo=UTC)


MINE = (Colour, Point, Job, Task)


def there_and_back(value: Any, types: Types | None = None) -> Any:
    types = types or Types(allow=MINE)
    return types.revive(loads(dumps(types.plain(value))))


@pytest.mark.parametrize(
    "value",
    [
        None, True, 1, 2**200, -0.0, 1.5, "", "ü\0\ud800", [], {}, [1, [2, {}]], {"a": {"b": None}},
        {"$": 1}, {"$": "bytes", "v": "no"}, {1: 2, (3, 4): [5]}, {None: 1, True: 2},
        (), (1, (2,)), {1, 2}, frozenset("ab"), deque([1, 2], maxlen=3), b"\0\xff", bytearray(b"x"),
        date(2026, 11, 16), time(1, 2, 3, 4), timedelta(days=-1, microseconds=5), UTC,
        timezone(timedelta(hours=2), "X"),
        datetime(2026, 11, 16, 1, 2, 3, 4), datetime(2026, 11, 16, tzinfo=UTC),
        datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1), ZoneInfo("Asia/Tokyo"),
        uuid4(), Decimal("1.10"), Path("/a/b"), PurePosixPath("x"), PureWindowsPath("c:/x"),
        ip_address("10.0.0.1"), ip_network("::/8"), ip_interface("10.0.0.1/8"), re.compile("a+", re.I),
        Colour.RED, Point(1, 2), Job("j", ["t"]), Task(Title="t", job=Job("j")),
    ],
    ids=lambda value: type(value).__name__,  # the same in every process: a repr holds random ids and orders
)  # fmt: skip
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    made = there_and_back(value)
    assert made == value and type(made) is type(value) and repr(made) == repr(value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_that_json_does_not_know_come_back(value: float) -> None:
    assert repr(there_and_back([value])) == repr([value])


plain_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3) | st.just("$"), inner, max_size=4)
    | st.tuples(inner, inner),
    max_leaves=12,
)  # fmt: skip


@given(plain_values)
def test_any_plain_value_comes_back(value: Any) -> None:
    assert repr(there_and_back(value)) == repr(value)


class Foreign:
    pass


@pytest.mark.parametrize("value", [Foreign(), lambda: 0, object, open, [Foreign()], {"a": Foreign()}, 1j, range(3)])
def test_what_is_not_on_the_list_is_refused_when_it_is_stored(value: Any) -> None:
    with pytest.raises(Usage, match="is not kept in threads"):
        Types().plain(value)


def test_a_class_of_the_callers_own_is_refused_unless_it_is_allowed() -> None:
    with pytest.raises(Usage, match="Job"):
        Types().plain(Job("j"))
    stored = Types(allow=[Job]).plain(Job("j"))
    with pytest.raises(Usage, match="not allowed here"):
        Types().revive(stored)
    assert Types().allowing([Job]).revive(stored) == Job("j")


def test_a_class_that_only_has_the_name_of_an_allowed_one_is_refused() -> None:
    other = type("Job", (), {"__module__": Job.__module__, "__qualname__": Job.__qualname__})
    with pytest.raises(Usage):
        Types(allow=[Job]).plain(other())


@pytest.mark.parametrize(
    "stored",
    [
        {"$": "object", "c": "os.system", "v": "true"},
        {"$": "object", "c": "builtins.eval", "v": ["1"]},
        {"$": "message.AIMessage", "v": {}},
        {"$": "pickle", "v": ""},
        {"$": 5, "v": None},
    ],
)
def test_stored_data_cannot_name_what_is_called(stored: Any) -> None:
    with pytest.raises(Usage):
        Types(allow=MINE).revive(stored)


@pytest.mark.parametrize(
    "stored", [{"$": "uuid", "v": "x"}, {"$": "bytes", "v": "!"}, {"$": "tuple"}, {"$": "datetime", "v": []}]
)
def test_a_damaged_value_is_named_as_such(stored: Any) -> None:
    with pytest.raises(StoreCorrupted):
        Types().revive(stored)


def test_a_field_that_was_added_since_gets_its_default() -> None:
    old = {"$": "object", "c": f"{Job.__module__}.Job", "v": {"name": "j"}}
    assert Types(allow=[Job]).revive(old) == Job("j", [])
    with pytest.raises(StoreCorrupted, match="missing"):
        Types(allow=[Job]).revive({**old, "v": {}})


def test_a_value_that_holds_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(Usage, match="nested too deeply"):
        Types().plain(loop)
