"""What `import reprieve` offers: a workspace for Python programs, on the same use cases as the command line."""

from __future__ import annotations

import os

from reprieve.app.finding import open_workspace
from reprieve.app.workspace import Made, Status
from reprieve.errors import Usage
from reprieve.model.reporter import Reporter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType
    from typing import Self

    from reprieve.model.plan import Plan, Report
    from reprieve.model.timeline import TimelineEntry

    Ref = Made | TimelineEntry | str


class Workspace:
    """A protected directory tree; a context manager. Made by `reprieve.open`."""

    def __init__(self, path: str | os.PathLike[str] = ".", *, reporter: Reporter | None = None) -> None:
        self._inner = open_workspace(os.fspath(path), create=True, reporter=reporter)
        self.id, self.root = self._inner.id, os.fsdecode(self._inner.root)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the store and the tree."""
        self._inner.close()

    def checkpoint(self, label: str = "", *, pin: bool = False, note: str = "") -> Made:
        """Take a checkpoint; durable when this returns. It names its gaps."""
        return self._inner.checkpoint(label, pin=pin, note=note)

    def status(self, since: Ref | None = None) -> Status:
        """What changed since a checkpoint (default: the latest)."""
        return self._inner.status(_ref(since))

    def log(self, limit: int = 0) -> Iterator[TimelineEntry]:
        """The timeline, newest first."""
        return self._inner.log(limit)

    def plan(self, to: Ref | None = None, *, only: Sequence[str] = ()) -> Plan:
        """What `rollback` would do."""
        return self._inner.rollback(_ref(to), only=_paths(only), dry_run=True)[0]

    def rollback(self, to: Ref | None = None, *, only: Sequence[str] = ()) -> Report:
        """Move the tree back to a checkpoint (default: the latest). Raises Conflict or Refused untouched."""
        report = self._inner.rollback(_ref(to), only=_paths(only))[1]
        assert report is not None
        return report

    def revert(self, *paths: str, to: Ref | None = None) -> Report:
        """Bring back single files, folders or globs, named relative to the root."""
        if not paths:
            raise Usage("revert needs at least one path")
        report = self._inner.revert(_paths(paths), _ref(to))[1]
        assert report is not None
        return report

    def redo(self) -> Report:
        """Undo the last rollback or revert."""
        report = self._inner.redo()[1]
        assert report is not None
        return report


def _ref(ref: Ref | None) -> str | None:
    if ref is None or isinstance(ref, str):
        return ref
    return ref.entry.id if isinstance(ref, Made) else ref.id


def _paths(paths: Sequence[str]) -> tuple[bytes, ...]:
    return tuple(os.fsencode(path) for path in paths)
