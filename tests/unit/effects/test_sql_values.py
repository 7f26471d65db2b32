"""Values of statements as the journal keeps them."""

from __future__ import annotations

import datetime as dt
import json
import math
import uuid
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve.effects.sql_values import decoded, encoded
from reprieve.errors import Usage

_PLAIN = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text().map(lambda text: text.replace("\0", ""))
    | st.binary()
    | st.decimals(allow_nan=False)
    | st.datetimes(timezones=st.none() | st.just(dt.UTC) | st.just(dt.timezone(dt.timedelta(hours=5, minutes=30))))
    | st.dates()
    | st.times()
    | st.timedeltas()
    | st.uuids()
)


@given(_PLAIN | st.lists(_PLAIN) | st.lists(_PLAIN).map(tuple))
def test_a_value_comes_back_exactly_with_its_type(value: object) -> None:
    again = decoded(json.loads(json.dumps(encoded(value, "psycopg"), allow_nan=False)))
    assert type(again) is type(value) and again == value
    assert repr(again) == repr(value).replace(", fold=1", "")  # which no database knows of


def test_numbers_that_are_none_come_back() -> None:
    assert math.isnan(float(str(decoded(encoded(float("nan"), "psycopg")))))
    assert Decimal(str(decoded(encoded(Decimal("NaN"), "psycopg")))).is_nan()


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (dt.datetime(2026, 1, 2, 3, 4, 5), "2026-01-02 03:04:05"),
        (dt.date(2026, 1, 2), "2026-01-02"),
        (memoryview(b"\x00\xff"), b"\x00\xff"),
        (bytearray(b"x"), b"x"),
        (math.inf, math.inf),
        ((1 << 63) - 1, (1 << 63) - 1),
    ],
)
def test_what_sqlite_takes_is_kept_as_python_writes_it_there(value: object, kept: object) -> None:
    assert decoded(encoded(value, "sqlite3")) == kept


@pytest.mark.parametrize(
    ("value", "module"),
    [
        ({"a": 1}, "psycopg"),
        ({"type": "decimal", "value": "1"}, "psycopg"),
        ({"credential": "x"}, "psycopg"),
        ("\udc80", "psycopg"),
        ([object()], "psycopg"),
        ({1, 2}, "psycopg"),
        (Decimal(1), "sqlite3"),
        (uuid.UUID(int=1), "sqlite3"),
        ([1], "sqlite3"),
        (1 << 63, "sqlite3"),
        (math.nan, "sqlite3"),
    ],
)
def test_what_can_not_be_kept_or_sent_is_refused_when_it_is_recorded(value: object, module: str) -> None:
    with pytest.raises(Usage) as error:
        encoded(value, module)
    assert error.value.hints
