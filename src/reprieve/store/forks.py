"""Keep a forked child from touching what its parent has open.

A child that closes an inherited SQLite connection may roll back its parent's transaction; a child that keeps an
inherited lock's file descriptor keeps the lock alive after its parent's death. Objects that hold such things register
here and are told in the child.
"""

from __future__ import annotations

import os
from _weakref import ref

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class Forkable(Protocol):
        def _forked(self) -> None: ...


# Process-wide because a fork is: the interpreter's hooks cannot be taken back, so there is one for all objects.
_alive: dict[int, ref[Forkable]] = {}


def tell_on_fork(thing: Forkable) -> None:
    """Call thing._forked() in every child forked while thing is alive."""
    if not _alive:
        _alive[0] = ref(_Nobody())
        os.register_at_fork(after_in_child=_in_child)
    key = id(thing)
    _alive[key] = ref(thing, lambda _: _alive.pop(key, None) and None)


def make_immortal(thing: object) -> None:
    """Never run thing's destructor, not even when the interpreter ends."""
    import ctypes

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


class _Nobody:
    def _forked(self) -> None:
        return None


def _in_child() -> None:
    for one in list(_alive.values()):
        thing = one()
        if thing is not None:
            thing._forked()
