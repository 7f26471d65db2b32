"""Wait until something in a tree may have changed, without looking at all of it: the kernel tells, where it can.

A watcher only says "look now"; what changed is found by a scan, so an event that is missed, merged or invented costs a
look and never a change. Two kinds: `files.inotify` (Linux), and looking at every stat in turns, for other systems and
for when the kernel's watches run out.
"""

from __future__ import annotations

import select
import sys
import time

from reprieve.files import native, tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from reprieve.files.snapshot import Limits
    from reprieve.model.reporter import Reporter
    from reprieve.store.protocols import Buffer

    Ignores = Callable[[bytes, bool], bool]  # (path, is a directory)

    class Watcher(Protocol):
        """Made for one root; not for two threads."""

        settle_s: float  # nothing new for this long means that the tree has come to rest

        def wait(self, timeout_s: float) -> bool:
            """True when something may have changed; False when the time is over or `wake_fd` became readable.

            Raises OutOfWatches when this kind can no longer follow the tree; then open another.
            """

        def close(self) -> None: ...


_SHARE = 20  # looking takes at most one part in so many of the time
_RACY_NS = 20_000_000  # as for snapshots: a tick of the kernel's clock, and some


class OutOfWatches(Exception):
    """The kernel gives no more watches; the message says which limit was met."""


def open_watcher(root_fd: int, limits: Limits, *, wake_fd: int, reporter: Reporter) -> Watcher:
    """The best watcher there is for this tree. From when this returns, no change goes unnoticed."""
    if sys.platform == "linux":
        from reprieve.files.inotify import InotifyWatcher

        try:
            return InotifyWatcher(
                root_fd,
                ignores=ignores(limits),
                cross_mounts=limits.cross_mounts,
                wake_fd=wake_fd,
                reporter=reporter,
            )
        except OutOfWatches as limit:
            reporter.warn(f"{limit}; looking at the whole folder every now and then instead")
    return PollingWatcher(root_fd, limits, wake_fd=wake_fd)


def ignores(limits: Limits) -> Ignores:
    """What is not part of the tree: staging directories, a store inside it, what the configuration excludes."""
    excludes = limits.excludes if limits.excludes is not None and not limits.excludes.is_empty else None

    def ignored(path: bytes, is_dir: bool) -> bool:
        if path.rpartition(b"/")[2].startswith(tree.STAGES) or path in limits.skip:
            return True
        return excludes is not None and not excludes.accepts(path, is_dir)

    return ignored


def is_passing(name: bytes) -> bool:
    """Whether a file is an editor's own, there for as long as another one is open: not worth a step by itself.

    It is in the next checkpoint like everything else.
    """
    if name.startswith(b".") and name[-4:-1] == b".sw":
        return True  # vim's swap file
    is_emacs = name.startswith(b".#") or (name.startswith(b"#") and name.endswith(b"#"))
    return is_emacs or name == b"4913"  # what vim makes to see whether it may


class PollingWatcher:
    """Compares every stat with the last look; the pauses grow with what a look costs."""

    def __init__(self, root_fd: int, limits: Limits, *, wake_fd: int, at_least_s: float = 1.0) -> None:
        self._root_fd, self._limits, self._at_least_s = root_fd, limits, at_least_s
        ignored = ignores(limits)
        self._accepts: Callable[[bytes, bool], bool] = lambda path, is_dir: not ignored(path, is_dir)
        self._poll = select.poll()
        self._poll.register(wake_fd, select.POLLIN)
        self._index: Buffer | None = None
        self.settle_s = at_least_s
        self._look()

    def wait(self, timeout_s: float) -> bool:
        pause = min(timeout_s, self.settle_s)
        return not self._poll.poll(max(0.0, pause) * 1000) and self._look()

    def close(self) -> None:
        self._index = None

    def _look(self) -> bool:
        begun = time.monotonic()
        floor = time.time_ns() - _RACY_NS
        try:
            rows, gone, _ = native.scan(
                self._root_fd,
                self._index,
                floor // 1_000_000_000,
                floor % 1_000_000_000,
                self._limits.cross_mounts,
                self._accepts,
                self._limits.skip,
            )
            index = native.merge(self._index, rows, gone, {}, bytes(16))
        except ValueError:
            self._index = None  # directories changed places while we looked: from the beginning next time
            return True
        _mark_as_read(index)
        self._index = index
        self.settle_s = max(self._at_least_s, (time.monotonic() - begun) * _SHARE)
        return bool(tree.count(rows) or gone)


def _mark_as_read(index: bytearray) -> None:
    """Only stats are compared: content that nobody read is no reason to report a file again."""
    first, end = tree.HEADER.size, tree.HEADER.size + tree.count(index) * tree.ROW.size
    flags = bytes(index[first + 7 : end : tree.ROW.size])
    index[first + 7 : end : tree.ROW.size] = flags.translate(bytes(b & ~tree.NEEDS for b in range(256)))
