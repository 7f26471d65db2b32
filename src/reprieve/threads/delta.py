"""Where a value comes from that a state does not hold: the nearest ancestor that does, and the writes since.

The chain of a namespace is read once and then kept up to date, because looking at fifty states of a history would
otherwise read it fifty times.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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


class _Chain:
    """States and writes of one namespace, as far as they were read."""

    def __init__(self) -> None:
        self.seq = 0
        self.sweeps = -1
        self.nodes: dict[str, _Node] = {}
        self.writes: dict[str, list[Write]] = {}
        self.sorted: dict[str, Mapping[str, list[Write]]] = {}  # by state and channel, where nothing is void


class Deltas:
    """Finds histories of channels."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._chains: dict[tuple[str, str], _Chain] = {}

    def find(self, thread: str, ns: str, id: str, channels: Iterable[str]) -> dict[str, History]:
        """For each channel what leads to its value at a state. Writes on that state itself do not count yet."""
        chain = self._read(thread, ns)
        story = self._threads.story(thread)
        found: dict[str, list[tuple[str, Reference]]] = {channel: [] for channel in channels}
        seeds: dict[str, Reference] = {}
        left = set(found)
        node = chain.nodes.get(id)
        while node is not None and left:
            graft = story.grafts.get(f"{ns}\0{id}")
            if graft is not None:
                for channel in left:
                    if channel in graft:
                        found[channel] += [(task, value) for task, value in reversed(graft[channel]["writes"])]
                        if "seed" in graft[channel]:
                            seeds[channel] = graft[channel]["seed"]
                break
            id, at = node.parent, node.at
            node = chain.nodes.get(id)
            if node is None:
                break
            by_channel = self._by_channel(chain, ns, id, story, at)
            for channel in tuple(left):
                found[channel] += [(w.task, w.value) for w in reversed(by_channel.get(channel, ()))]
                if channel in node.values:
                    seeds[channel] = node.values[channel]
                    left.discard(channel)
        return {channel: History(seeds.get(channel), tuple(reversed(writes))) for channel, writes in found.items()}

    def _by_channel(self, chain: _Chain, ns: str, id: str, story: Story, at: int) -> Mapping[str, Sequence[Write]]:
        is_void = any(void.id == id and void.ns == ns for void in story.voids)
        known = chain.sorted.get(id)
        if known is not None and not is_void:
            return known
        made: dict[str, list[Write]] = {}
        for write in self._threads.visible(chain.writes.get(id, ()), ns, id, story, at):
            made.setdefault(write.channel, []).append(write)
        if not is_void:
            chain.sorted[id] = made
        return made

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
                chain.nodes[entry.id] = _Node(entry.parent, body.get("as_of", entry.seq), body["values"])
            else:
                chain.writes.setdefault(entry.id, []).extend(writes_of([entry]))
                chain.sorted.pop(entry.id, None)
            chain.seq = max(chain.seq, entry.seq)
        return chain
