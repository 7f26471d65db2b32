"""Python values as JSON and back, for a closed list of types. No pickle; nothing that was stored names what to call.

JSON's own types stand for themselves; everything else is an object with the key "$" (docs/format.md, Threads). A type
that is not on the list is refused when it is stored, with its place, and not found out when it is needed again.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network
from math import isfinite
from pathlib import PosixPath, PurePosixPath, PureWindowsPath
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from reprieve.errors import StoreCorrupted, Usage

TAG = "$"
Plain = Any  # what json can write: None, bool, int, float, str, list, dict with text keys


@dataclasses.dataclass(frozen=True)
class Kind:
    """How values of one type are written. `dump` gives what `load` takes; both get the function for what is inside."""

    tag: str
    type: type
    dump: Callable[[Any, Callable[[Any], Plain]], Plain]
    load: Callable[[Plain, Callable[[Plain], Any]], Any]
    is_model: bool = False  # a pydantic model whose fields are nearly always text: worth remembering (parts.py)


@dataclasses.dataclass(frozen=True)
class Wrapper:
    """A type around one value, which is cut into parts as if it stood alone."""

    tag: str
    type: type
    unwrap: Callable[[Any], Any]
    wrap: Callable[[Any], Any]


class Types:
    """The types that can be kept. `allow`: classes of the caller's own (pydantic, dataclass, enum, named tuple)."""

    def __init__(
        self, kinds: Iterable[Kind] = (), *, wrappers: Iterable[Wrapper] = (), allow: Iterable[type] = ()
    ) -> None:
        self.wrappers = {wrapper.tag: wrapper for wrapper in wrappers}
        self.wrapped = {wrapper.type: wrapper for wrapper in wrappers}
        self._kinds = {kind.tag: kind for kind in (*BUILT_IN, *kinds)}
        self._by_type = {kind.type: kind for kind in self._kinds.values()}
        self.models = {kind.type for kind in self._kinds.values() if kind.is_model}
        self.allowed: dict[str, type] = {_name(cls): cls for cls in allow}

    def allowing(self, more: Iterable[type]) -> Types:
        """The same, and these classes too."""
        other = Types(allow=(*self.allowed.values(), *more))
        other.wrappers, other.wrapped = self.wrappers, self.wrapped
        other._kinds, other._by_type, other.models = self._kinds, self._by_type, self.models
        return other

    def plain(self, value: Any) -> Plain:
        """The value as JSON can write it. Raises Usage for a type that is not on the list."""
        try:
            return self._plain(value)
        except RecursionError:
            raise Usage("the state is nested too deeply to be kept, or holds itself") from None

    def _plain(self, value: Any) -> Plain:
        cls = type(value)
        if cls is str or cls is int or cls is bool or value is None:
            return value
        if cls is list:
            return [self._plain(item) for item in value]
        if cls is dict:
            for key in value:
                if type(key) is not str or key == TAG:
                    return {TAG: "dict", "v": [[self._plain(key), self._plain(item)] for key, item in value.items()]}
            return {key: self._plain(item) for key, item in value.items()}
        if cls is float:
            return value if isfinite(value) else {TAG: "float", "v": repr(value)}
        kind = self._by_type.get(cls)
        if kind is not None:
            return {TAG: kind.tag, "v": kind.dump(value, self._plain)}
        name = _name(cls)
        if self.allowed.get(name) is cls:
            return {TAG: "object", "c": name, "v": _dump_object(value, self._plain)}
        raise Usage(
            f"a value of type '{name}' is not kept in threads",
            hints=[
                f"allow the class where the store is opened: allow=[{cls.__name__}]; pydantic models, dataclasses,"
                " enums and named tuples can be allowed",
                "or keep plain data (text, numbers, lists, dicts, messages) in the state",
            ],
            data={"type": name},
        )

    def revive(self, plain: Plain) -> Any:
        """The value that was stored. Raises StoreCorrupted, or Usage if its class is not allowed here."""
        cls = type(plain)
        if cls is dict:
            if TAG in plain:
                return self._tagged(plain)
            return {key: self.revive(item) for key, item in plain.items()}
        if cls is list:
            return [self.revive(item) for item in plain]
        return plain

    def _tagged(self, plain: Mapping[str, Plain]) -> Any:
        tag = plain[TAG]
        value: Plain = plain.get("v")
        try:
            if tag == "dict":
                return {self.revive(key): self.revive(item) for key, item in value}
            if tag == "float":
                return float(value)
            if tag == "object":
                return self._object(plain["c"], value)
            kind = self._kinds.get(tag)
            if kind is None:
                raise Usage(
                    f"the thread holds a value of kind {tag!r}, which is not known here",
                    hints=["open it with what wrote it, for example ReprieveSaver for a LangGraph thread"],
                )
            return kind.load(value, self.revive)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, re.error) as exc:
            raise StoreCorrupted(f"a stored value of kind {tag!r} cannot be read: {exc}") from exc

    def _object(self, name: str, fields: Plain) -> Any:
        cls = self.allowed.get(name)
        if cls is None:
            raise Usage(
                f"the thread holds a '{name}', a class that is not allowed here",
                hints=[f"allow it where the store is opened: allow=[{name.rpartition('.')[2]}]"],
                data={"type": name},
            )
        return _load_object(cls, fields, self.revive)


def dumps(plain: Plain) -> bytes:
    """JSON as UTF-8, as short as it gets; lone surrogates are kept."""
    return json.dumps(plain, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode(
        "utf-8", "surrogatepass"
    )


def loads(data: bytes) -> Plain:
    """What `dumps` wrote. Raises StoreCorrupted."""
    try:
        return json.loads(data.decode("utf-8", "surrogatepass"))
    except ValueError as exc:
        raise StoreCorrupted(f"a stored value is not JSON: {exc}") from exc


def _name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _dump_object(value: Any, plain: Callable[[Any], Plain]) -> Plain:
    if isinstance(value, Enum):
        return value.name
    if hasattr(value, "__pydantic_fields_set__"):
        extra = getattr(value, "__pydantic_extra__", None)
        fields = {name: plain(item) for name, item in value.__dict__.items()}
        more = {name: plain(item) for name, item in extra.items()} if extra else {}
        return [fields, more, sorted(value.__pydantic_fields_set__)]
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return [plain(item) for item in value]
    raise Usage(
        f"a value of type '{_name(type(value))}' cannot be kept: it is no model, dataclass, enum or named tuple"
    )


def _load_object(cls: Any, fields: Plain, revive: Callable[[Plain], Any]) -> Any:
    if issubclass(cls, Enum):
        return cls[fields]
    if hasattr(cls, "model_fields"):
        return raw_model(cls, revive(fields[0]), revive(fields[1]), set(fields[2]))
    if dataclasses.is_dataclass(cls):
        # without its __init__: the object was whole when it was stored
        made = object.__new__(cls)  # type: ignore[arg-type]
        for field in dataclasses.fields(cls):
            if field.name in fields:
                value = revive(fields[field.name])
            elif field.default is not dataclasses.MISSING:
                value = field.default
            elif field.default_factory is not dataclasses.MISSING:
                value = field.default_factory()
            else:
                raise ValueError(f"{field.name!r} is missing")
            object.__setattr__(made, field.name, value)
        return made
    return cls._make(revive(fields))


def raw_model(cls: Any, fields: dict[str, Any], extra: dict[str, Any], fields_set: set[str]) -> Any:
    """A pydantic model with these fields, as it was: nothing is validated or called, new fields get their default."""
    for name, field in cls.model_fields.items():
        if name not in fields:
            if field.is_required():
                raise ValueError(f"{name!r} is missing")
            fields[name] = field.get_default(call_default_factory=True, validated_data=fields)
    made = cls.__new__(cls)
    object.__setattr__(made, "__dict__", fields)
    object.__setattr__(made, "__pydantic_fields_set__", fields_set)
    object.__setattr__(made, "__pydantic_extra__", extra if cls.model_config.get("extra") == "allow" else None)
    if cls.__pydantic_post_init__:
        made.model_post_init(None)  # gives private attributes their defaults
    else:
        object.__setattr__(made, "__pydantic_private__", None)
    return made


def _in_order(items: Iterable[Any], plain: Callable[[Any], Plain]) -> list[Plain]:
    """A set has no order; equal sets must be stored alike."""
    return sorted((plain(item) for item in items), key=dumps)


def _zone(zone: tzinfo | None, at: datetime | time) -> Plain:
    """A time zone's name, or "" where the offset in the text says all. Raises Usage for one that is neither."""
    if zone is None or isinstance(zone, timezone):
        return ""
    if isinstance(zone, ZoneInfo) and zone.key:
        return zone.key
    raise Usage(f"a time with the zone {zone!r} is not kept in threads", hints=["use datetime.timezone or ZoneInfo"])


def _load_moment(cls: Any) -> Callable[[Plain, Callable[[Plain], Any]], Any]:
    def load(value: Plain, revive: Callable[[Plain], Any]) -> Any:
        text, zone, fold = value
        made = cls.fromisoformat(text)
        return made.replace(tzinfo=ZoneInfo(zone) if zone else made.tzinfo, fold=fold)

    return load


def _dump_timezone(value: timezone, plain: Callable[[Any], Plain]) -> Plain:
    offset = value.utcoffset(None)
    name = value.tzname(None)
    seconds = [offset.days, offset.seconds, offset.microseconds]
    return seconds if timezone(offset).tzname(None) == name else [*seconds, name]


def _as_text(tag: str, cls: type) -> Kind:
    return Kind(tag, cls, lambda value, plain: str(value), lambda value, revive: cls(value))


def _base64(tag: str, cls: Any) -> Kind:
    return Kind(
        tag,
        cls,
        lambda value, plain: base64.b64encode(value).decode("ascii"),
        lambda value, revive: cls(base64.b64decode(value, validate=True)),
    )


BUILT_IN: tuple[Kind, ...] = (
    Kind(
        "tuple", tuple, lambda value, plain: [plain(x) for x in value], lambda value, revive: tuple(map(revive, value))
    ),
    Kind("set", set, _in_order, lambda value, revive: set(map(revive, value))),
    Kind("frozenset", frozenset, _in_order, lambda value, revive: frozenset(map(revive, value))),
    Kind(
        "deque",
        deque,
        lambda value, plain: [[plain(x) for x in value], value.maxlen],
        lambda value, revive: deque(map(revive, value[0]), value[1]),
    ),
    _base64("bytes", bytes),
    _base64("bytearray", bytearray),
    Kind(
        "datetime",
        datetime,
        lambda value, plain: [value.isoformat(), _zone(value.tzinfo, value), value.fold],
        _load_moment(datetime),
    ),
    Kind("date", date, lambda value, plain: value.isoformat(), lambda value, revive: date.fromisoformat(value)),
    Kind(
        "time",
        time,
        lambda value, plain: [value.isoformat(), _zone(value.tzinfo, value), value.fold],
        _load_moment(time),
    ),
    Kind(
        "timedelta",
        timedelta,
        lambda value, plain: [value.days, value.seconds, value.microseconds],
        lambda value, revive: timedelta(*value),
    ),
    Kind("timezone", timezone, _dump_timezone, lambda value, revive: timezone(timedelta(*value[:3]), *value[3:])),
    Kind("zone", ZoneInfo, lambda value, plain: value.key, lambda value, revive: ZoneInfo(value)),
    Kind("uuid", UUID, lambda value, plain: str(value), lambda value, revive: UUID(value)),
    _as_text("decimal", Decimal),
    _as_text("path", PosixPath),
    _as_text("posixpath", PurePosixPath),
    _as_text("windowspath", PureWindowsPath),
    *(
        _as_text(cls.__name__.lower(), cls)
        for cls in (IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network)
    ),
    Kind(
        "pattern",
        re.Pattern,
        lambda value, plain: [plain(value.pattern), value.flags],
        lambda value, revive: re.compile(revive(value[0]), value[1]),
    ),
)
