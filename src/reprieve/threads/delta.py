"""Where a value comes from that a state does not hold: the nearest ancestor that does, and the writes since.

The chain of a namespace is read once and then kept up to date, because looking at fifty states of a history would
otherwise read it fifty times.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from reprieve.model.thread import STATE, WRITES
from reprieve.threads.parts import Reference
from reprieve.threads.threads import Story, Threads, Write, writes_of
from reprieve.threads.values import loads

_CHAINS = 8  # kept at a time


class History(NamedTuple):
    """Of one channel: the value to begin with, if any, and what was written since, oldest first."""

    seed: Reference | None
    writes: tuple[tuple[str, Reference], ...]  # task, value


class _Node:
    def __init__(self, parent: str, at: int, values: Mapping[str, Reference]) -> None:
        self.parent, self.at, self.values = parent, at, values


class _Path(NamedTuple):
    """A history with what it says of the states on its way: each has the beginning of it."""

    history: History
    lengths: dict[str, int]  # by state: how many of the writes are its own history
    used: set[str]  # states whose writes are in it


class _Chain:
    """States and writes of one namespace, as far as they were read."""

    def __init__(self) -> None:
        self.seq = 0
        self.sweeps = -1
        self.nodes: dict[str, _Node] = {}
        self.writes: dict[str, list[Write]] = {}
        self.paths: dict[str, _Path] = {}  # by channel: the last one that was walked


class Deltas:
    """Finds histories of channels."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._chains: dict[tuple[str, str], _Chain] = {}

    def find(self, thread: str, ns: str, id: str, channels: Iterable[str]) -> dict[str, History]:
        """For each channel what leads to its value at a state. Writes on that state itself do not count yet."""
        chain = self._read(thread, ns)
        story = self._threads.story(thread)
        return {channel: self._walk(chain, story, ns, id, channel) for channel in channels}

    def _walk(self, chain: _Chain, story: Story, ns: str, id: str, channel: str) -> History:
        """Up the parents, until one holds the value or the last path is met: the rest is known from there."""
        is_simple = not any(void.ns == ns for void in story.voids)
        path = chain.paths.get(channel) if is_simple else None
        steps: list[tuple[str, list[tuple[str, Reference]]]] = []  # newest first: a state, and the writes on its parent
        seed: Reference | None = None
        start: tuple[tuple[str, Reference], ...] = ()
        at, node = id, chain.nodes.get(id)
        while node is not None:
            if path is not None and at in path.lengths:
                seed, start = path.history.seed, path.history.writes[: path.lengths[at]]
                break
            graft = story.grafts.get(f"{ns}\0{at}")
            if graft is not None:
                if channel in graft:
                    start = tuple((task, value) for task, value in graft[channel]["writes"])
                    seed = graft[channel].get("seed")
                break
            above = chain.nodes.get(node.parent)
            if above is None:
                break
            seen = self._threads.visible(chain.writes.get(node.parent, ()), ns, node.parent, story, node.at)
            steps.append((at, [(w.task, w.value) for w in seen if w.channel == channel]))
            if channel in above.values:
                seed = above.values[channel]
                break
            at, node = node.parent, above
        writes = list(start)
        lengths: dict[str, int] = {}
        used = {chain.nodes[state].parent for state, _ in steps}
        if path is not None and at in path.lengths:
            lengths = {state: n for state, n in path.lengths.items() if n <= len(start)}
            used |= path.used
        for state, said in reversed(steps):
            writes += said
            lengths[state] = len(writes)
        history = History(seed, tuple(writes))
        if is_simple and (path is None or len(writes) >= len(path.history.writes)):
            chain.paths[channel] = _Path(history, lengths, used)
        return history

    def _read(self, thread: str, ns: str) -> _Chain:
        sweeps = self._threads.store.sweeps
        chain = self._chains.get((thread, ns))
        if chain is None or chain.sweeps != sweeps:
            chain = _Chain()
            chain.sweeps = sweeps
            self._chains[thread, ns] = chain
            if len(self._chains) > _CHAINS:
                self._chains.pop(next(iter(self._chains)), None)
        for entry in self._threads.store.entries(thread, kinds=(STATE, WRITES), ns=ns, after=chain.seq):
            if entry.kind == STATE:
                body: Mapping[str, Any] = loads(entry.body)
                if entry.id in chain.nodes:
                    chain.paths.clear()  # stored again
                chain.nodes[entry.id] = _Node(entry.parent, body.get("as_of", entry.seq), body["values"])
            else:
                chain.writes.setdefault(entry.id, []).extend(writes_of([entry]))
                if any(entry.id in path.used for path in chain.paths.values()):
                    chain.paths.clear()  # it came late: its children are there already
            chain.seq = max(chain.seq, entry.seq)
        return chain
