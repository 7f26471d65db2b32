"""What is different between two states, at every depth. Pure: works on JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from reprieve.threads.values import Plain, dumps

ADDED, REMOVED, CHANGED = "added", "removed", "changed"


class Difference(NamedTuple):
    """One place that is not the same. `path`: names and positions from the outside in."""

    path: tuple[str | int, ...]
    change: str
    before: Plain
    after: Plain


def diff(before: Plain, after: Plain, path: tuple[str | int, ...] = ()) -> Iterator[Difference]:
    """All differences, in the order in which the later state has them."""
    if type(before) is dict and type(after) is dict and before.get("$") == after.get("$"):
        for key in before:
            if key not in after:
                yield Difference((*path, key), REMOVED, before[key], None)
        for key, value in after.items():
            if key not in before:
                yield Difference((*path, key), ADDED, None, value)
            else:
                yield from diff(before[key], value, (*path, key))
    elif type(before) is list and type(after) is list:
        yield from _lists(before, after, path)
    elif type(before) is not type(after) or before != after:
        yield Difference(path, CHANGED, before, after)


def _lists(before: Sequence[Plain], after: Sequence[Plain], path: tuple[str | int, ...]) -> Iterator[Difference]:
    a, b = [dumps(item) for item in before], [dumps(item) for item in after]
    start = 0
    while start < min(len(a), len(b)) and a[start] == b[start]:
        start += 1  # conversations mostly grow at their end: no need to search there
    matcher = SequenceMatcher(None, a[start:], b[start:], autojunk=False)
    for word, i1, i2, j1, j2 in matcher.get_opcodes():
        i1, i2, j1, j2 = i1 + start, i2 + start, j1 + start, j2 + start
        if word == "equal":
            continue
        for at in range(max(i2 - i1, j2 - j1)):
            if i1 + at >= i2:
                yield Difference((*path, j1 + at), ADDED, None, after[j1 + at])
            elif j1 + at >= j2:
                yield Difference((*path, i1 + at), REMOVED, before[i1 + at], None)
            else:
                yield from diff(before[i1 + at], after[j1 + at], (*path, j1 + at))
