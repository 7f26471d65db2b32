"""Messages in runs: 32 neighbours of a list are known again, and handed out again, in one go.

A turn of a conversation reads all its messages once and stores them twice, nearly all of them as they were. One at a
time that was 4 µs for each message to read and 2 to store, most of it the interpreter's own; a run asks the same of all
its messages in a few calls.

What a message is stored as follows from its class, its fields and its extra fields, and from nothing else. So a run is
the same if these are the same objects: every message, every class, every name and value. A text or number cannot
change. A dict or list can: what is inside is written out and compared (marshal, which tells 1 from 1.0 and True). A
message with anything else in it is never in a run.

Messages may be changed by another thread at any moment. What a run took down of them is therefore compared with what
was stored after it was taken down, and what is handed out is compared after it was copied.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from operator import attrgetter, is_
from threading import Lock
from typing import Any

from reprieve.threads.models import COUNTS_TELL, SIMPLE, copied, fields_of, getrefcount

SIZE = 32
_MOST = 512  # runs kept: 16,384 messages
_SPARE = 2  # copies of each: a caller often still has the last state when it asks for the next
_CONTAINERS = frozenset((dict, list))
_fields_of: Callable[[Any], dict[str, Any]] = attrgetter("__dict__")
_extra_of: Callable[[Any], dict[str, Any] | None] = attrgetter("__pydantic_extra__")


class Run:
    """Neighbours in a list, with what is needed to tell that they did not change. Raises ValueError if that can't be.

    `models` is the run's own list.
    """

    def __init__(self, hashes: list[bytes], models: list[Any]) -> None:
        self.hashes = hashes
        self.models = models
        self._types = [*map(type, models)]
        self._fields = [*map(_fields_of, models)]
        self._lengths = [*map(len, self._fields)]
        self._names = [*chain.from_iterable(self._fields)]
        self._values = [*_values_of(self._fields)]
        self._extras = [*map(_extra_of, models)]
        if any(self._extras) or not (SIMPLE | _CONTAINERS).issuperset(map(type, self._values)):
            raise ValueError("a message holds what may change unseen")
        self._containers = [value for value in self._values if type(value) in _CONTAINERS]
        self._said = marshal.dumps(self._containers, 2)  # 2: later ones depend on who else has a value

    def is_same(self) -> bool:
        """Nothing about the messages has changed."""
        return (
            [*map(type, self.models)] == self._types
            and all(map(is_, map(_fields_of, self.models), self._fields))
            and all(map(is_, map(_extra_of, self.models), self._extras))
            and not any(self._extras)
            and [*map(len, self._fields)] == self._lengths
            and [*chain.from_iterable(self._fields)] == self._names
            and all(map(is_, _values_of(self._fields), self._values))
            and self._is_said()
        )

    def _is_said(self) -> bool:
        try:
            return marshal.dumps(self._containers, 2) == self._said
        except ValueError:
            return False  # something was put in that cannot be written


class Loan(Run):
    """A run of copies that were made here, to be handed out whenever nobody has one of them, nor anything in it."""

    def __init__(self, hashes: list[bytes], models: list[Any]) -> None:
        super().__init__(hashes, models)
        places = [(which, name) for which, fields in enumerate(self._fields) for name in fields]
        held = [at for at, value in enumerate(self._values) if type(value) in _CONTAINERS]
        # What is in a container may be somebody's although the container is nobody's: these are made anew each time.
        self._filled = [(at, among, *places[at]) for among, at in enumerate(held) if self._values[at]]
        self._empty = [container for container in self._containers if not container]
        self._own_extras = [extra for extra in self._extras if extra is not None]

    def holders(self) -> tuple[set[int], set[int], set[int], set[int]]:
        """How often the messages, their fields, empty containers and extra fields are held, counting this run."""
        return (
            {*map(getrefcount, self.models)},
            {*map(getrefcount, self._fields)},
            {*map(getrefcount, self._empty)},
            {*map(getrefcount, self._own_extras)},
        )

    def is_free(self) -> bool:
        """Nobody has one of the messages or a part of one, and all are as they were."""
        return all(map(set.issubset, self.holders(), _ALONE)) and self.is_same()

    def lend(self) -> list[Any] | None:
        """The messages, the caller's own, if the run is free."""
        if not self.is_free():
            return None
        for at, among, which, name in self._filled:
            fields = self._fields[which]
            self._values[at] = self._containers[among] = fields[name] = copied(fields[name])
        if self._filled and not self._is_said():
            return None  # somebody who has what was copied changed it meanwhile
        return self.models.copy()


class Runs:
    """The runs of one store. May be used from several threads at once."""

    def __init__(self) -> None:
        self._stored: dict[int, Run] = {}  # by id() of the first message, which its run holds
        self._loans: dict[tuple[bytes, bytes], list[Loan]] = {}  # by the first and last hash
        self._lock = Lock()  # two threads must not both find a loan free

    def same(self, items: list[Any], at: int) -> list[bytes] | None:
        """The hashes of the next SIZE items, if they are a run that has not changed."""
        run = self._stored.get(id(items[at]))
        if run is None or len(items) - at < SIZE:
            return None
        return run.hashes if all(map(is_, items[at : at + SIZE], run.models)) and run.is_same() else None

    def remember(self, hashes: list[bytes], models: list[Any], fields: list[tuple[object, ...]]) -> None:
        """Know SIZE messages again that were stored under these hashes, with these fields; they stay their owner's."""
        try:
            run = Run(hashes, models)
        except ValueError:
            return
        # Not before the run is made: a change between the two would be taken for what was stored.
        if [*map(fields_of, models)] != fields:
            return
        with self._lock:
            self._keep(run)

    def lend(self, hashes: list[bytes], at: int) -> list[Any] | None:
        """The next SIZE messages, the caller's own, if there are copies that nobody has."""
        if len(hashes) - at < SIZE:
            return None
        loans = self._loans.get((hashes[at], hashes[at + SIZE - 1]))
        if loans is None:
            return None
        wanted = hashes[at : at + SIZE]
        with self._lock:
            for loan in loans:
                lent = loan.lend() if loan.hashes == wanted else None
                if lent is not None:
                    self._keep(loan)
                    return lent
        return None

    def add(self, hashes: list[bytes], copies: list[Any]) -> list[Any]:
        """Hand out SIZE fresh copies, and again when nobody has them any more."""
        try:
            loan = Loan(hashes, copies.copy())
        except ValueError:
            return copies
        with self._lock:
            loans = self._loans.setdefault((hashes[0], hashes[-1]), [])
            loans.append(loan)
            if len(loans) > _SPARE:
                del loans[0]
            if len(self._loans) > _MOST:
                del self._loans[next(iter(self._loans))]
            self._keep(loan)
        return copies

    def _keep(self, run: Run) -> None:
        self._stored[id(run.models[0])] = run
        if len(self._stored) > _SPARE * _MOST:
            del self._stored[next(iter(self._stored))]


def _values_of(fields: Iterable[dict[str, Any]]) -> Iterator[Any]:
    return chain.from_iterable(map(dict.values, fields))


class _Probe:
    """Laid out as a model."""

    __slots__ = ("__dict__", "__pydantic_extra__")

    def __init__(self) -> None:
        object.__setattr__(self, "__dict__", {"text": "some", "empty": {}})
        self.__pydantic_extra__: dict[str, Any] = {}


# What `holders` says if there are none but the run.
_ALONE = Loan([b""], [_Probe()]).holders() if COUNTS_TELL else ({-1},) * 4
