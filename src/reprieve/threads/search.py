"""Find text in states: in which threads, and with which state it came."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from reprieve.model.thread import STATE, WRITES
from reprieve.threads.threads import Threads
from reprieve.threads.values import Plain, loads

_AROUND = 60  # characters shown on each side


class Hit(NamedTuple):
    """A place where the text is."""

    thread: str
    id: str  # the state that it first came with
    ns: str
    created_at: int
    channel: str
    text: str  # with a little of what is around it


def search(threads: Threads, needle: str, *, thread: str = "", limit: int = 0) -> Iterator[Hit]:
    """Hits, newest thread first, oldest state first; letter case does not matter."""
    wanted = needle.casefold()
    records = [r for r in reversed(threads.store.threads()) if not r.is_deleted and thread in ("", r.id)]
    left = limit or -1
    cache: dict[str, str] = {}  # what a part says, by its reference
    for record in records:
        seen: set[str] = set()  # places of which we have told
        for entry in threads.store.entries(record.id, kinds=(STATE, WRITES), old=False):
            for channel, found in _said(threads, loads(entry.body), wanted, cache):
                key = f"{channel}\0{found}"
                if key in seen:
                    continue
                seen.add(key)
                yield Hit(record.id, entry.id, entry.ns, entry.created_at, channel, _excerpt(found, wanted))
                left -= 1
                if left == 0:
                    return


def _said(threads: Threads, body: dict[str, Any], wanted: str, cache: dict[str, str]) -> Iterator[tuple[str, str]]:
    """(channel, text that holds what is wanted) for every value of an entry."""
    named = body["values"].items() if "values" in body else [(channel, value) for _, channel, value in body["w"]]
    for channel, reference in named:
        todo = [reference]
        while todo:
            one = todo.pop(0)
            if type(one) is dict and "l" in one:
                todo += one["l"]
                continue
            if type(one) is dict and "w" in one:
                todo.append(one["r"])
                continue
            if type(one) is dict and "n" in one:
                todo += [hash.hex() for hash in threads.parts.elements(one)]
                continue
            key = one if type(one) is str else json.dumps(one)
            if key not in cache:
                cache[key] = "\n".join(t for t in _texts(threads.parts.plain(one)) if wanted in t.casefold())
            if cache[key]:
                yield channel, cache[key]


def _texts(plain: Plain) -> Iterator[str]:
    if type(plain) is str:
        yield plain
    elif type(plain) is list:
        for item in plain:
            yield from _texts(item)
    elif type(plain) is dict:
        for key, item in plain.items():
            if key != "$":
                yield from _texts(item)


def _excerpt(text: str, wanted: str) -> str:
    at = max(text.casefold().find(wanted), 0)
    start, end = max(at - _AROUND, 0), at + len(wanted) + _AROUND
    return ("…" if start else "") + text[start:end] + ("…" if end < len(text) else "")
