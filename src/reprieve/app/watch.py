"""Protect a tree against whatever changes it: wait for a change, let it settle, take a checkpoint, until asked to stop.

    asleep ──change──▶ restless ──nothing new for settle_s, or LONGEST_S since the first──▶ checkpoint ──▶ asleep

The workspace is opened for each step and closed after it: while nothing happens no lock and no database is held, and
what others did meanwhile (another configuration, a pruned store) is seen. A look that finds nothing new records
nothing, so a rollback by someone else stays the last word and can be redone.
"""

from __future__ import annotations

import os
import time

from reprieve.app.checking import Checks, changed_paths
from reprieve.app.finding import open_workspace
from reprieve.errors import Misconfigured, StoreFailed, StoreLocked, StoreUnavailable
from reprieve.files.watch import OutOfWatches, open_watcher
from reprieve.model.reporter import Reporter
from reprieve.model.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from reprieve.app.checking import Verdict
    from reprieve.app.stopping import Stop
    from reprieve.app.weaker import Weaker
    from reprieve.app.workspace import Made, Workspace
    from reprieve.files.snapshot import Limits
    from reprieve.files.watch import Watcher
    from reprieve.model.change import Change, Gap
    from reprieve.model.timeline import TimelineEntry

LONGEST_S = 5.0  # a storm that never ends gets a checkpoint this often
ANYWAY_S = 60.0  # a look without an event: writes through mmap, on network drives and to tracked paths are not told
RETRY_S = 5.0
STEP = "watch"


class Step(Value):
    """What one checkpoint of the watch caught."""

    entry: TimelineEntry
    before: TimelineEntry
    changes: tuple[Change, ...]
    gaps: tuple[Gap, ...]


class Watching:
    """Told what happens. This one shows nothing."""

    def begins(self, root: str, first: TimelineEntry) -> None:
        """Everything that changes from now on is seen."""

    def stepped(self, step: Step) -> None:
        """A checkpoint was taken."""

    def checked(self, verdict: Verdict) -> None:
        """The check was run."""


class Watch:
    """One watch over the tree that `start` is in."""

    def __init__(
        self, start: str, *, stop: Stop, watching: Watching, reporter: Reporter, checks: Checks | None = None
    ) -> None:
        self.stop, self.watching, self.reporter, self.checks = stop, watching, _Once(reporter), checks
        self.start = os.path.realpath(start)
        self._root_fd = -1
        self._root = b""
        self._limits: Limits | None = None  # those that the watcher was made with
        self._limits_now: Limits | None = None
        self._last: TimelineEntry | None = None
        self.weaker: tuple[Weaker, ...] = ()  # what reprieve.toml asked for last, and nobody accepted

    def run(self, *, once: bool = False, allow_anywhere: bool = False) -> None:
        """Until asked to stop, or with `once` until the first change was caught. Raises Misconfigured if it is gone."""
        with open_workspace(self.start, create=True, reporter=self.reporter, allow_anywhere=allow_anywhere) as ws:
            self._root, self._root_fd, self._limits_now = ws.root, os.dup(ws.root_fd), ws.capture.limits
        self._where = os.path.relpath(self.start, os.fsdecode(self._root))
        watcher = self._open()
        try:
            # after the watches: what changes while this looks is an event
            with self._workspace() as ws:
                self._last = ws.checkpoint("watch began", only_changes=True).entry
            self.watching.begins(os.fsdecode(self._root), self._last)
            self._check()
            while True:
                watcher, is_settled = self._until_rest(watcher)
                is_last = self.stop.is_asked  # asked during the step below, it may have looked too early
                step = self._step()
                if step is not None and self.checks is not None:
                    self.checks.add(step.before, step.entry)
                if is_settled:
                    self._check()
                if is_last or (once and is_settled and step is not None):
                    return
        finally:
            watcher.close()
            os.close(self._root_fd)

    # -- waiting

    def _until_rest(self, watcher: Watcher) -> tuple[Watcher, bool]:
        """Wait for a change and for the end of it; whether it came to an end by itself."""
        if _essence(self._limits_now) != _essence(self._limits):
            # with other excludes, other folders are to be watched
            watcher.close()
            watcher = self._open()
            first = latest = time.monotonic()  # what changed in them before this was not told
        else:
            first = latest = 0.0
        while not self.stop.is_asked:
            now = time.monotonic()
            if not first:
                timeout = ANYWAY_S
            else:
                timeout = min(latest + watcher.settle_s, first + max(LONGEST_S, watcher.settle_s)) - now
                if timeout <= 0:
                    return watcher, now - latest >= watcher.settle_s
            try:
                is_change = watcher.wait(timeout)
            except OutOfWatches:
                watcher.close()
                watcher, is_change = self._open(), True
            if is_change:
                latest = time.monotonic()
                first = first or latest
            elif not first and time.monotonic() - now >= ANYWAY_S:
                return watcher, True
        return watcher, False

    def _open(self) -> Watcher:
        assert self._limits_now is not None
        self._limits = self._limits_now
        return open_watcher(self._root_fd, self._limits, wake_fd=self.stop.wake_fd, reporter=self.reporter)

    # -- acting

    def _step(self, label: str = "") -> Step | None:
        """Take a checkpoint of what changed; None if nothing did. Keeps trying while the store is out of reach."""
        while True:
            try:
                with self._workspace() as ws:
                    return self._take(ws, label)
            except (StoreLocked, StoreUnavailable, StoreFailed) as e:
                if self.stop.is_asked:
                    raise
                self.reporter.warn(f"what changed is not protected yet: {e.message}; trying again")
                self.stop.wait(RETRY_S)

    def _take(self, ws: Workspace, label: str) -> Step | None:
        self.weaker = ws.config.weaker
        before = ws.timeline.head()
        made: Made = ws.checkpoint(label, step=STEP, only_changes=True, label_of=None if label else title)
        self._last, self._limits_now = made.entry, ws.capture.limits
        for gap in made.gaps:
            self.reporter.warn(f"not protected: '{os.fsdecode(gap.path)}' ({gap.reason})")
        if not made.is_new or before is None:
            return None
        # not `before` itself if someone else came first
        before = ws.timeline.at(made.entry.seq - 1) or before
        step = Step(made.entry, before, ws.diff(before.id, made.entry.id).changes, made.gaps)
        self.watching.stepped(step)
        return step

    def _check(self) -> None:
        while self.checks is not None and self.checks.is_due and not self.stop.is_asked:
            code = self.checks.run(self._folder(), self.stop)
            own = self._step("changed while the check ran")
            if code is None:
                if not self.stop.is_asked:
                    self.reporter.warn("the check was ended by a signal; it says nothing about the last step")
                return
            verdict = self.checks.judge(code)
            if own is not None:
                self.checks.add_own(own.before, own.entry, changed_paths(own.changes))
            with self._workspace() as ws:
                verdict = self.checks.take_back(ws, verdict)
            self.watching.checked(verdict)

    # -- where

    def _workspace(self) -> Workspace:
        return open_workspace(self._path(), exactly=True, reporter=self.reporter)

    def _folder(self) -> str:
        folder = os.path.normpath(os.path.join(self._path(), self._where))
        return folder if os.path.isdir(folder) else self._path()

    def _path(self) -> str:
        """Where the folder is now: it may have been moved. Raises Misconfigured if it is gone."""
        if os.fstat(self._root_fd).st_nlink > 0:
            for path in (self._root, _path_of(self._root_fd)):
                if path and _is_same(path, self._root_fd):
                    self._root = path
                    return os.fsdecode(path)
        last = f"; its last checkpoint is {self._last.id}" if self._last is not None else ""
        raise Misconfigured(
            f"'{os.fsdecode(self._root)}' is gone{last}",
            hints=["make the folder again and, in it: reprieve rollback REF"] if last else [],
        )


def title(changes: Sequence[tuple[bytes, object, object]]) -> str:
    """A label that says what changed: src/app.py and 2 more."""
    paths = [os.fsdecode(path) or "." for path, _, _ in changes]
    return paths[0] + (f" and {len(paths) - 1} more" if len(paths) > 1 else "") if paths else "tracked paths"


class _Once(Reporter):
    """Passes everything on, but a warning only once: a watch opens the workspace again and again."""

    def __init__(self, inner: Reporter) -> None:
        self._inner = inner
        self._said: set[str] = set()

    def progress(self, stage: str, *, done: int, total: int = 0, unit: str = "files", extra: int = 0) -> None:
        self._inner.progress(stage, done=done, total=total, unit=unit, extra=extra)

    def finished(self, stage: str) -> None:
        self._inner.finished(stage)

    def note(self, text: str) -> None:
        self._inner.note(text)

    def warn(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._inner.warn(text)


def _essence(limits: Limits | None) -> tuple[object, ...]:
    assert limits is not None
    return limits.excludes.digest if limits.excludes is not None else b"", limits.cross_mounts, limits.skip


def _path_of(fd: int) -> bytes:
    try:
        return os.readlink(b"/proc/self/fd/%d" % fd)
    except OSError:
        return b""  # not Linux


def _is_same(path: bytes, fd: int) -> bool:
    try:
        there, here = os.lstat(path), os.fstat(fd)
    except OSError:
        return False
    return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)
