"""Run a check in the tree after each step that has settled, and say which step turned it red.

    green ──step──▶ red      that step is named, and taken back if so wished
    red   ──step──▶ red      nobody is blamed
    step ──▶ (storm) ──▶ step ──▶ settled: the check is for all of them

A check writes files itself (caches, reports). What changes while it runs is recorded as a step of its own; it is
checked once more only if paths are among it that no check wrote before, since they may be someone's work.
"""

from __future__ import annotations

import os
import subprocess

from reprieve.app.probe import end_group
from reprieve.errors import Conflict, ReprieveError
from reprieve.model.change import CREATED
from reprieve.model.entry import DIR
from reprieve.model.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from reprieve.app.stopping import Stop
    from reprieve.app.workspace import Workspace
    from reprieve.model.change import Change
    from reprieve.model.plan import Report
    from reprieve.model.timeline import TimelineEntry

KEEP, ROLLBACK = "keep", "rollback"
_AGAIN = 3  # checks in a row for what changed while the check ran


class Verdict(Value):
    """What a check said. `steps` turned it red: one, unless more came before it could be asked."""

    exit_code: int
    is_red: bool
    was_red: bool
    steps: tuple[TimelineEntry, ...] = ()  # only when it turned red
    since: TimelineEntry | None = None  # the point before them
    report: Report | None = None  # of taking them back
    problem: str = ""  # why they were not taken back


class Checks:
    """One check's memory between steps."""

    def __init__(self, command: str, *, on_failure: str) -> None:
        self.command, self.on_failure = command, on_failure
        self.is_red: bool | None = None  # None: not asked yet
        self._since: TimelineEntry | None = None  # the point before the first step that was not checked
        self._steps: list[TimelineEntry] = []
        self._written: set[bytes] = set()  # paths that changed while it ran
        self._again = 0

    @property
    def is_due(self) -> bool:
        return self.is_red is None or bool(self._steps)

    def add(self, before: TimelineEntry, step: TimelineEntry) -> None:
        """A step that is to be checked."""
        if not self._steps:
            self._since = before
        self._steps.append(step)
        self._again = 0

    def add_own(self, before: TimelineEntry, step: TimelineEntry, paths: set[bytes]) -> None:
        """What changed while the check ran."""
        is_new = not paths <= self._written
        self._written |= paths
        if is_new and self._again < _AGAIN:
            again = self._again
            self.add(before, step)
            self._again = again + 1

    def run(self, folder: str, stop: Stop) -> int | None:
        """The exit code; None if there is no verdict because it was stopped or ended by a signal."""
        child = subprocess.Popen(
            ["/bin/sh", "-c", self.command],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=2,
            start_new_session=True,
        )
        while child.poll() is None:
            if stop.wait(0.02):
                end_group(child)
                return None
        return child.returncode if 0 <= child.returncode < 128 else None

    def judge(self, code: int) -> Verdict:
        """What that exit code means for the steps since it was last asked."""
        was_red, self.is_red = self.is_red, code != 0
        steps, self._steps = tuple(self._steps), []
        has_turned = self.is_red and was_red is False
        return Verdict(code, self.is_red, bool(was_red), steps if has_turned else (), self._since)

    def take_back(self, ws: Workspace, verdict: Verdict) -> Verdict:
        """Take back the steps that turned it red, if so wished."""
        if not verdict.steps or self.on_failure != ROLLBACK or verdict.since is None:
            return verdict
        try:
            report = take_back(ws, verdict.since, verdict.steps[-1])
        except ReprieveError as e:
            return verdict.replace(problem=e.message)  # said; the watch goes on
        self.is_red = False
        return verdict.replace(report=report)


def take_back(ws: Workspace, before: TimelineEntry, step: TimelineEntry) -> Report:
    """Bring what changed from `before` to `step` back, and nothing else. Raises Conflict, Refused: nothing touched.

    Whatever changed after the step stays: only what was made since inside a folder that the step made goes with it.
    """
    theirs = {change.path: change for change in ws.diff(before.id, step.id).changes}
    made = {path for path, change in theirs.items() if change.change == CREATED and _is_dir(change)}
    later = {change.path: change for change in ws.status(step.id).changes}
    only = tuple(sorted(theirs)) if later else ()  # the whole point brings back the times of folders too
    plan, _ = ws.rollback(before.id, only=only, everything=True, dry_run=True)
    mine = [a.path for a in plan.actions if a.path in later and not _goes_along(later[a.path], made)]
    mine += [a.path for a in plan.actions if a.path not in theirs and a.path not in later and a.verb != "set times"]
    if mine:
        shown = ", ".join(os.fsdecode(path) for path in mine[:3]) + (" …" if len(mine) > 3 else "")
        raise Conflict(f"changed again since the step: {shown}; nothing was taken back")
    report = ws.rollback(before.id, only=only, everything=True, expect=plan.id)[1]
    assert report is not None
    return report


def _is_dir(change: Change) -> bool:
    return change.after is not None and change.after.kind == DIR


def _goes_along(change: Change, made: set[bytes]) -> bool:
    return change.change == CREATED and any(change.path.startswith(path + b"/") for path in made)


def changed_paths(changes: Sequence[Change]) -> set[bytes]:
    """The paths of changes."""
    return {change.path for change in changes}
