"""Pydantic models that were stored: whether one is still what it was, and copies of it, quickly.

Nearly all of a conversation is messages, and a turn reads them all: what is done here is done for each of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from json import dumps as json_dumps
from marshal import dumps as marshal_dumps
from typing import Any
from weakref import ref as weak

SIMPLE = frozenset((str, int, bool, float, type(None)))
_set = object.__setattr__  # a model's own __setattr__ would validate
getrefcount: Callable[[object], int] = getattr(sys, "getrefcount", lambda thing: -2)
# Where threads run at once, or nobody counts, a count of references says nothing.
COUNTS_TELL = hasattr(sys, "getrefcount") and getattr(sys, "_is_gil_enabled", lambda: True)()


def fields_of(model: Any) -> tuple[object, ...] | None:
    """What a model is stored as follows from this: later, if equal, it did not change. None if that cannot be told."""
    if model.__pydantic_extra__:
        return None
    fields: dict[str, object] = model.__dict__
    try:
        # with the types: 0, False and 0.0 are equal
        return (type(model), *fields, *map(type, fields.values()), *map(_written, fields.values()))
    except (TypeError, ValueError):
        return None


def _written(value: Any) -> object:
    """A value that cannot change, and is equal only to one that is stored alike."""
    cls = type(value)
    if cls is float:
        return repr(value)  # 0.0 and -0.0 are equal
    if cls in SIMPLE:
        return value
    if cls is not dict and cls is not list:
        raise TypeError
    json_dumps(value)  # only JSON's types: of others equal bytes would not say that they are the same
    return marshal_dumps(value, 2)  # JSON does not tell a tuple from a list, nor 1 from "1" as a key


class Original:
    """A model as it was read, from which copies are made: the way to a state is mostly making copies of messages."""

    def __init__(self, model: Any, fields: tuple[object, ...]) -> None:
        self.cls: Any = type(model)
        self.values = dict(model.__dict__)
        held = [(name, value) for name, value in self.values.items() if type(value) in (dict, list)]
        self.dicts = [name for name, value in held if value == {}]
        self.lists = [name for name, value in held if value == []]
        self.containers = [(name, value) for name, value in held if value]
        # Shared by all copies: it names all fields, so that setting one adds nothing to it.
        self.fields_set = model.__pydantic_fields_set__
        self.has_extra = model.__pydantic_extra__ is not None
        self.fields = fields
        self.spare: Any = None  # the newest copy
        self.weak: Callable[[], object] = lambda: None  # leads to it

    def lend(self) -> Any:
        """A model of the caller's own: the newest copy if nobody has it any more, nor its fields, else another."""
        one = self.spare
        if one is not None and getrefcount(one) == _ALONE:
            values = one.__dict__
            if getrefcount(values) == _ALONE_FIELDS and values.keys() == self.values.keys():
                values.update(self.values)
                for name in self.dicts:
                    values[name] = {}
                for name in self.lists:
                    values[name] = []
                if self.containers:
                    self._fill(values)
                if self.has_extra:
                    _set(one, "__pydantic_extra__", {})
                return one
        one = self.spare = self.copy()
        self.weak = weak(one)
        return one

    def copy(self) -> Any:
        """A model of the caller's own."""
        made = self.cls.__new__(self.cls)
        values = self.values.copy()
        self._fill(values)
        _set(made, "__dict__", values)
        _set(made, "__pydantic_fields_set__", self.fields_set)
        _set(made, "__pydantic_extra__", {} if self.has_extra else None)
        _set(made, "__pydantic_private__", None)
        return made

    def _fill(self, values: dict[str, Any]) -> None:
        for name in self.dicts:
            values[name] = {}
        for name in self.lists:
            values[name] = []
        for name, value in self.containers:
            values[name] = copied(value)


class _Probe:
    spare: Any = None


def _held(probe: Any) -> tuple[int, int]:
    """How many references there are to an object, and to its fields, when only its `Original` has it."""
    one = probe.spare
    values = one.__dict__
    return getrefcount(one), getrefcount(values)


def _calibrated() -> tuple[int, int]:
    """What `_held` says here: interpreters count differently."""
    if not COUNTS_TELL:
        return -1, -1
    probe = _Probe()
    probe.spare = _Probe()
    _set(probe.spare, "__dict__", {"some": "field"})
    return _held(probe)


_ALONE, _ALONE_FIELDS = _calibrated()


def copied(value: Any) -> Any:
    """A value of JSON that shares nothing that can change."""
    cls = type(value)
    if cls is dict:
        return {key: copied(item) for key, item in value.items()} if value else {}
    if cls is list:
        return [copied(item) for item in value] if value else []
    if cls is tuple:
        return tuple(map(copied, value))
    return value
