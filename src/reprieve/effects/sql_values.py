"""Values of statements as the journal keeps them: exactly, with their type where JSON has none. Pure.

1, "x", null, true, 0.1, [1, null]           as they are; a list is an array of PostgreSQL
{"type": "decimal", "value": "1.10"}         likewise datetime, date, time, interval, uuid, bytes, float, tuple
{"credential": "env:NAME"}                   read when the statement runs
"""

from __future__ import annotations

import base64
import datetime as dt
import math
import uuid
from decimal import Decimal

from reprieve.effects.credentials import is_reference, resolve
from reprieve.errors import Usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_WORD = "credential"
_NO_ADAPTER = "give it as it is in the table: text, a number or bytes"


def encoded(value: object, module: str) -> object:
    """What is kept. Raises Usage for what can't be kept exactly, or what that database can't take."""
    if isinstance(value, dict):
        if set(value) != {_WORD} or not is_reference(str(value[_WORD])):
            raise Usage(
                "a value is plain, or names a credential: {'credential': 'env:VARIABLE'}",
                hints=["JSON is given as text: %s::jsonb in the statement"],
            )
        return value
    return _for_sqlite(value) if module == "sqlite3" else _for_postgres(value)


def decoded(kept: object) -> object:
    """The value again, with what a reference stands for. Raises Refused if that is not there."""
    if isinstance(kept, dict) and _WORD in kept:
        return resolve(str(kept[_WORD]))
    return shown(kept)


def shown(kept: object) -> object:
    """The value for people: a reference stays one."""
    if isinstance(kept, list):
        return [shown(each) for each in kept]
    if isinstance(kept, dict) and "type" in kept:
        return _READ[str(kept["type"])](kept["value"])
    return kept


def _for_sqlite(value: object) -> object:
    if isinstance(value, str):
        return _text(str(value))
    if isinstance(value, dt.datetime):
        return value.isoformat(" ")  # as Python's own adapters write it
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        raise _unfit(value, "SQLite's integers have 64 bits")
    if isinstance(value, float) and math.isnan(value):
        raise _unfit(value, "SQLite keeps it as NULL: give None")
    if value is None or isinstance(value, (bool, int, float, bytes, bytearray, memoryview)):
        return _for_postgres(value)
    raise _unfit(value, _NO_ADAPTER)


def _for_postgres(value: object) -> object:
    if value is None or type(value) in (bool, int):
        return value
    if isinstance(value, str):
        if "\0" in value:
            raise _unfit(value, "PostgreSQL's texts have no NUL in them")
        return _text(str(value))
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else _typed("float", repr(float(value)))
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _typed("bytes", base64.b64encode(value).decode())
    if isinstance(value, list):
        return [_for_postgres(each) for each in value]
    if isinstance(value, tuple):
        return _typed("tuple", [_for_postgres(each) for each in value])
    for kind, name, write in _WRITTEN:
        if type(value) is kind:
            return _typed(name, write(value))
    raise _unfit(value, "give it as text, and cast it in the statement: %s::type")


def _typed(name: str, value: object) -> object:
    return {"type": name, "value": value}


def _text(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _unfit(value, "it is no Unicode; give it as bytes") from None
    return value


def _unfit(value: object, hint: str) -> Usage:
    return Usage(f"a value of the type '{type(value).__name__}' can't be kept exactly", hints=[hint])


def _interval(kept: object) -> dt.timedelta:
    assert isinstance(kept, list)
    days, seconds, microseconds = (int(each) for each in kept)
    return dt.timedelta(days, seconds, microseconds)


def _tuple(kept: object) -> tuple[object, ...]:
    assert isinstance(kept, list)
    return tuple(shown(each) for each in kept)


# exactly these: what a type derived from one of them adds would be lost
_WRITTEN: tuple[tuple[type, str, Callable[[Any], object]], ...] = (
    (Decimal, "decimal", str),
    (dt.datetime, "datetime", dt.datetime.isoformat),
    (dt.date, "date", dt.date.isoformat),
    (dt.time, "time", dt.time.isoformat),
    (dt.timedelta, "interval", lambda value: [value.days, value.seconds, value.microseconds]),
    (uuid.UUID, "uuid", str),
)
_READ = {
    "decimal": lambda kept: Decimal(str(kept)),
    "datetime": lambda kept: dt.datetime.fromisoformat(str(kept)),
    "date": lambda kept: dt.date.fromisoformat(str(kept)),
    "time": lambda kept: dt.time.fromisoformat(str(kept)),
    "interval": _interval,
    "uuid": lambda kept: uuid.UUID(str(kept)),
    "bytes": lambda kept: base64.b64decode(str(kept)),
    "float": lambda kept: float(str(kept)),
    "tuple": _tuple,
}
