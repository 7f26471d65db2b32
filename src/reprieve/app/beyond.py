"""What an agent's calls did beyond a workspace: a rollback or undo there leaves it, and names it.

A call has a window in every workspace that it may touch, and each of them is moved back by itself.
"""

from __future__ import annotations

import os

from reprieve.app.authorship import story, window_of, windows
from reprieve.app.finding import open_workspace
from reprieve.app.moves import is_as_left
from reprieve.app.outside import is_as_it_was, outside_of
from reprieve.app.steps import find_step
from reprieve.errors import ReprieveError
from reprieve.files.capture import Capture
from reprieve.files.snapshot import Limits
from reprieve.model.change import Gap
from reprieve.model.timeline import CHECKPOINT, UNDO
from reprieve.model.window import closes, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from reprieve.app.workspace import Workspace
    from reprieve.files.snapshot import Snapshot
    from reprieve.model.plan import Plan
    from reprieve.model.timeline import TimelineEntry, WorkspaceRecord
    from reprieve.model.window import Window

    Opened = tuple[TimelineEntry, Window]


def with_beyond(ws: Workspace, plan: Plan, is_meant: Callable[[Window], bool]) -> Plan:
    """The plan, naming what the calls that are meant changed elsewhere since its target and is still there."""
    target = ws.timeline.get(plan.target)
    if target is None:
        return plan
    calls: dict[str, list[Opened]] = {}  # by the id of the other workspace, oldest first
    files: dict[str, tuple[str, str]] = {}  # in no workspace: what it was, and the first step that named it
    moved: dict[str, tuple[str, str]] = {}  # by window: git's state before a step in a linked worktree, and its name
    for entry in (target, *ws.timeline.after(target.seq)):
        others, outside, git = also_of(entry), outside_of(entry.data), field(entry.data, "worktree")
        if git and moved.get(closes(entry.data), ("", ""))[0] == git:
            del moved[closes(entry.data)]  # the step left git alone
        window = window_of(entry) if others or outside or git else None
        if window is None or not is_meant(window):
            continue
        if git:
            moved[window.id] = git, window.step
        for id in others:
            calls.setdefault(id, []).append((entry, window))
        for path, state in outside.items():
            files.setdefault(path, (state, window.step))
    records = [record for record in ws.store.workspaces() if record.id in calls] if calls else []
    found = [_Elsewhere(ws, record, calls[record.id]).gap(plan.kind) for record in records]
    found += [_gap_of(path, step) for path, (state, step) in files.items() if not is_as_it_was(path, state)]
    if moved:
        found.append(_gap_of_git(ws.root, *next(iter(moved.values()))))
    return plan.replace(not_undone=(*plan.not_undone, *(gap for gap in found if gap is not None)))


def _gap_of_git(root: bytes, state: str, step: str) -> Gap | None:
    from reprieve.files.worktree import state_of

    if state_of(root) == state:
        return None
    return Gap(
        b".git", f"git's HEAD, branch, index or stash moved since '{step}'; they are outside, so they stay as they are"
    )


def _gap_of(path: str, step: str) -> Gap:
    return Gap(os.fsencode(path), f"changed since '{step}' named it; no workspace holds it, so nothing of it was kept")


def also_of(opened: TimelineEntry) -> tuple[str, ...]:
    """Ids of the other workspaces that a call has a window in, by the checkpoint before it."""
    if opened.kind != CHECKPOINT:
        return ()
    return tuple(filter(None, field(opened.data, "also").split(",")))


class _Elsewhere:
    """Some calls in another workspace than the one that is moved."""

    def __init__(self, ws: Workspace, record: WorkspaceRecord, mine: Sequence[Opened]) -> None:
        self.ws, self.record = ws, record
        self.timeline = ws.store.timeline(record.id)
        self.opened = list(self._counterparts(mine))
        self.ids = {window.id for _, window in self.opened}

    def gap(self, kind: str) -> Gap | None:
        """What they left there, None if nothing."""
        if not self.opened or _is_in(self.record.root, self.ws.root):
            return None  # a workspace inside of this one: its files are this one's too, and moved with them
        left = self._paths_now()
        if not left:
            return None
        paths = "1 path" if len(left) == 1 else f"{len(left):,} paths"
        return Gap(self.record.root, f"{paths} changed there by the same calls; take that back: {self._command(kind)}")

    def _counterparts(self, mine: Sequence[Opened]) -> Iterator[Opened]:
        """The windows of the same calls there, newest first.

        Calls without an id may be alike. Each was opened in both, so they are paired in their order.
        """
        wanted = {window.id for _, window in mine}
        calls = {_call(window) for _, window in mine}
        here: dict[tuple[str, str], list[bool]] = {}  # of each call, newest first: whether it is meant
        for entry, window in windows(self.ws.timeline):
            if entry.seq < mine[0][0].seq:
                break
            if _call(window) in calls and self.record.id in also_of(entry):
                here.setdefault(_call(window), []).append(window.id in wanted)
        for entry, window in windows(self.timeline):
            if not any(here.values()):
                return
            if here.get(_call(window)) and self.ws.id in also_of(entry) and here[_call(window)].pop(0):
                yield entry, window

    def _paths_now(self) -> list[bytes]:
        ws, record = self.ws, self.record
        index = os.path.join(ws.home, "index", record.id)
        known = Capture(
            -1, ws.store, record.id, root=record.root, index_path=index, limits=Limits(), reporter=ws.reporter
        )
        left = self._paths(known, None)
        if not left or not os.path.isdir(record.root):
            return left
        try:
            with open_workspace(os.fsdecode(record.root), exactly=True, reporter=ws.reporter) as other:
                return self._paths(other.capture, other.capture.look(keep=False))  # it may have been put right by hand
        except ReprieveError:
            return left  # why it can't be looked at is said by the command that is named for it

    def _paths(self, capture: Capture, seen: Snapshot | None) -> list[bytes]:
        """Those that the calls changed and that are not as they were; without those of the workspace that is moved."""
        since = min(entry.seq for entry, _ in self.opened)
        return [
            path
            for path, chain in story(capture, since, seen).chains().items()
            if not is_as_left(chain.then, chain.now)
            and any(not self.ids.isdisjoint(line) for link in chain.links for line in link.span.windows)
            and not _is_in(os.path.join(self.record.root, path), self.ws.root)
        ]

    def _command(self, kind: str) -> str:
        from shlex import quote

        root = quote(os.fsdecode(self.record.root))
        words = [f"rollback {self.opened[-1][0].id}"]
        if kind == UNDO:
            words = [f"undo {quote(step)}" for step in self._steps()]
        said = " && ".join(f"reprieve -C {root} {word}" for word in words)
        return said if os.path.isdir(self.record.root) else f"mkdir -p {root} && {said}"

    def _steps(self) -> list[str]:
        """The turn that the calls are, as it is counted there; else each by itself."""
        turn = f"turn:{self.opened[0][1].turn}"
        if find_step(self.timeline, turn, now_ns=0).keys == self.ids:
            return [turn]
        return [window.step for _, window in self.opened]


def _call(window: Window) -> tuple[str, str]:
    return window.actor, window.key or window.step


def _is_in(path: bytes, root: bytes) -> bool:
    return path == root or path.startswith(root.rstrip(b"/") + b"/")
