"""Frozen values without the import cost of dataclasses.

`dataclasses` costs 20 ms to import (it pulls in inspect, ast, re), which is half of what a whole
`reprieve checkpoint` may take. `Value` reads the class's annotations and gives the same look: fields in
order, defaults, equality, hash, repr, no assignment. Type checkers see a frozen dataclass.

Underneath a value is a tuple: a third of the memory of an object with a dict and made in a third of the time, which
counts where there is one per file. That is nobody's business: values are not unpacked, indexed or sorted.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Self, dataclass_transform

    @dataclass_transform(frozen_default=True)
    class Value:
        """Base of all values: subclass, annotate the fields, done."""

        _fields: tuple[str, ...] = ()

        def replace(self, **changes: Any) -> Self:
            """The same value with some fields changed."""

        def as_dict(self) -> dict[str, Any]:
            """Field names and values, in order."""

        def given(self) -> dict[str, Any]:
            """Those of them that are not their field's default."""

else:
    try:
        from _collections import _tuplegetter as _field
    except ImportError:  # not CPython

        def _field(at, doc):
            return property(lambda self: tuple.__getitem__(self, at))

    class _Fields(type):
        def __new__(meta, name, bases, space):
            above = bases[0] if bases and bases[0] is not tuple else None
            fields = list(above._fields) if above else []
            defaults = dict(above._defaults) if above else {}
            for field in space.get("__annotations__", ()):
                if field.startswith("_"):
                    continue
                if field in space:
                    defaults[field] = space[field]
                space[field] = _field(len(fields), "")
                fields.append(field)
            needed = max((at for at, field in enumerate(fields, 1) if field not in defaults), default=0)
            last = tuple(defaults[field] for field in fields[needed:])
            space.update(_fields=tuple(fields), _defaults=defaults, _needed=needed, _last=last, __slots__=())
            return type.__new__(meta, name, bases, space)

    class Value(tuple, metaclass=_Fields):
        """Base of all values: subclass, annotate the fields, done."""

        def __new__(cls, /, *args, **kwargs):
            if kwargs or not cls._needed <= len(args) <= len(cls._fields):
                args = _complete(cls, args, kwargs)
            elif len(args) != len(cls._fields):
                args += cls._last[len(args) - cls._needed :]
            return tuple.__new__(cls, args)

        def __setattr__(self, name, value):
            raise AttributeError(f"{type(self).__name__} is frozen")

        def __eq__(self, other):
            return type(self) is type(other) and tuple.__eq__(self, other)

        def __ne__(self, other):
            return type(self) is not type(other) or tuple.__ne__(self, other)

        __hash__ = tuple.__hash__

        def __repr__(self):
            inner = ", ".join(f"{name}={value!r}" for name, value in self.as_dict().items())
            return f"{type(self).__name__}({inner})"

        def __getnewargs__(self):
            return tuple(self)

        def replace(self, **changes):
            """The same value with some fields changed."""
            fields, values = self._fields, list(self)
            for name, value in changes.items():
                if name not in fields:
                    raise TypeError(f"{type(self).__name__}: unexpected field {name!r}")
                values[fields.index(name)] = value
            return tuple.__new__(type(self), values)

        def as_dict(self):
            """Field names and values, in order."""
            return dict(zip(self._fields, self, strict=True))

        def given(self):
            """Those of them that are not their field's default."""
            defaults = self._defaults
            return {name: value for name, value in self.as_dict().items() if value != defaults.get(name)}

    def _complete(cls, args, kwargs):
        """All values in order, from what was given by place, by name and by default."""
        fields = cls._fields
        if len(args) > len(fields):
            raise TypeError(f"{cls.__name__} takes {len(fields)} values, got {len(args)}")
        values = dict(zip(fields, args, strict=False))
        for name, value in kwargs.items():
            if name not in fields or name in values:
                raise TypeError(f"{cls.__name__}: unexpected or repeated field {name!r}")
            values[name] = value
        try:
            return [values[name] if name in values else cls._defaults[name] for name in fields]
        except KeyError as missing:
            raise TypeError(f"{cls.__name__} needs {missing}") from None
