"""Open threads: in memory, in a folder of their own, or beside a workspace's timeline, linked with its checkpoints."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple, cast

from reprieve.errors import Conflict, Misconfigured, Partial, Refused, Usage
from reprieve.model.plan import CANCEL_EFFECT, LEAVE_EFFECT, UNDO_EFFECT
from reprieve.store.thread_db import SqliteThreads
from reprieve.store.thread_memory import MemoryThreads
from reprieve.store.thread_sealed import covered, raw_of, readable
from reprieve.threads.moves import Moved, rollback
from reprieve.threads.threads import Threads
from reprieve.threads.values import Types

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from reprieve.app.public import Workspace as Public
    from reprieve.app.workspace import Workspace
    from reprieve.model.plan import Plan, Report
    from reprieve.model.thread import ThreadEntry
    from reprieve.store.thread_protocol import ThreadStore

FILE = "threads.db"


class Rolled(NamedTuple):
    """What going back does to a thread and, if they go along, to the files. A dry run has no report."""

    moved: Moved
    plan: Plan | None = None
    report: Report | None = None


class Files:
    """The files that belong to threads: a workspace's checkpoints."""

    def __init__(self, ws: Workspace) -> None:
        self.ws = ws

    def position(self, label: str) -> str:
        """The checkpoint of this moment: the newest one if nothing changed since, else a new one."""
        return self.ws.checkpoint(label, only_changes=True).entry.id

    def newest(self, label: str) -> str:
        """The newest checkpoint, without looking at the files; a new one only if there is none."""
        found = self.ws.timeline.head()
        return found.id if found is not None else self.position(label)

    def rollback(self, checkpoint: str, *, dry_run: bool = False, expect: str = "") -> tuple[Plan, Report | None]:
        """Move the files to a checkpoint; effects since then stand and are named. Raises Conflict, nothing touched."""
        plan, report = self.ws.rollback(checkpoint, effects="list", dry_run=dry_run, expect=expect)
        why = f"it stands; undo it with: reprieve compensate {checkpoint} --execute"
        left = tuple(
            action.replace(verb=LEAVE_EFFECT, reason=why) if action.verb in (UNDO_EFFECT, CANCEL_EFFECT) else action
            for action in plan.effects
        )
        if report is not None:
            reasons = {action.effect: action.reason for action in left}
            said = (effect.replace(detail=reasons.get(effect.id, effect.detail)) for effect in report.effects)
            report = report.replace(effects=tuple(said))
        return plan.replace(effects=left), report


def open_threads(
    where: str | os.PathLike[str] | Public | Workspace | None,
    types: Types,
    *,
    create: bool = True,
    key: str | bytes | None = None,
) -> tuple[Threads, Files | None]:
    """Threads, and the files that they are linked with, if they are. None: in memory.

    `key`: of encrypted threads, itself or where it is (`env:`, `file:`, `keyring:`). Raises Misconfigured, Refused.
    """
    secret = None if key is None else secret_of(key)
    if where is None:
        return Threads(covered(MemoryThreads(), secret), types), None
    if isinstance(where, (str, os.PathLike)):
        path = os.path.join(os.fspath(where), FILE)
        return Threads(_covered(SqliteThreads.open(path, create=create), secret), types), None
    ws = cast("Workspace", getattr(where, "_inner", where))  # the public Workspace is a thin cover
    return Threads(_covered(SqliteThreads.open(path_of(ws), create=create), secret), types, clock=ws.clock), Files(ws)


def secret_of(key: str | bytes) -> bytes:
    """The key that was meant. Raises Refused if it is not there, Misconfigured if others can read it."""
    if isinstance(key, bytes):
        return key
    if not key.startswith("file:"):
        from reprieve.effects.credentials import resolve

        return resolve(key).encode()
    path = key[5:]
    try:
        with open(path, "rb") as file:
            mode, secret = os.fstat(file.fileno()).st_mode, file.read().strip()
    except OSError as exc:
        raise Refused(f"the key '{key}' cannot be read: {exc.strerror}") from exc
    if mode & 0o077:
        raise Misconfigured(f"the key '{key}' can be read by others", hints=[f"chmod 600 {path}"])
    return secret


def _covered(store: SqliteThreads, secret: bytes | None) -> ThreadStore:
    try:
        return covered(store, secret)
    except BaseException:
        store.close()
        raise


def save_state(threads: Threads, files: Files | None, thread: str, values: Mapping[str, Any], *, label: str) -> str:
    """Append a state behind the head of a thread, with the checkpoint of the files if they go with it; its id."""
    from reprieve.threads.ids import new_id

    at = files.position(label) if files is not None else ""
    last = threads.get(thread)
    step = last.meta.get("step") if last is not None else -1
    id = new_id(last.id if last is not None else "", clock=threads.clock)
    meta = {"source": "save", "step": step + 1 if isinstance(step, int) else 0}
    threads.put(thread, id, values, parent=last.id if last is not None else "", meta=meta, files=at)
    return id


def roll_back(
    threads: Threads,
    files: Files | None,
    thread: str,
    id: str,
    *,
    with_files: bool,
    expect: str = "",
    expect_plan: str = "",
    dry_run: bool = False,
) -> Rolled:
    """Roll a thread back, and the files of that moment with it. Files go first: they may be in conflict.

    `expect`: the head of the thread, `expect_plan`: the id of the plan of the files, that were agreed to.
    Raises BadRef, Usage, Conflict, Refused with nothing moved; Partial if the thread moved on after the files had gone.
    """
    if not with_files:
        return Rolled(rollback(threads, thread, id, expect=expect, dry_run=dry_run))
    planned = rollback(threads, thread, id, expect=expect, dry_run=True)
    if files is None or not planned.files:
        raise Usage(f"no file checkpoint is known for {id}", hints=["roll back the state alone, without the files"])
    plan, report = files.rollback(planned.files, dry_run=dry_run, expect=expect_plan)
    if dry_run:
        return Rolled(planned, plan)
    try:
        return Rolled(rollback(threads, thread, id, expect=planned.before), plan, report)
    except Conflict as exc:
        raise Partial(
            f"the files are as at {planned.files}, but the thread '{thread}' moved on meanwhile and was left alone",
            hints=["take the files forward again: reprieve redo", "or roll back the thread alone"],
            data={"files": planned.files, "head": exc.data.get("head")},
        ) from exc


def states_at(ws: Workspace, checkpoint: str) -> list[tuple[str, str]]:
    """(thread, state): where each thread was at that checkpoint, if it is somewhere else now."""
    found = []
    target = ws.timeline.get(checkpoint)
    if target is None:
        return []
    threads, _ = open_threads(ws, Types(), create=False)
    places: dict[str, int] = {"": 1 << 62}  # on the timeline, by checkpoint

    def is_then(entry: ThreadEntry) -> bool:
        files = readable(entry.body).get("files", "")
        if files not in places:
            linked = ws.timeline.get(files)
            places[files] = linked.seq if linked is not None else 1 << 62
        return places[files] <= target.seq

    try:
        for record in threads.store.threads():
            states = raw_of(threads.store).states(record.id, "")
            at = next((entry.id for entry in states if is_then(entry)), "")
            if at and at != threads.store.heads(record.id).get(""):
                found.append((record.id, at))
    finally:
        threads.store.close()
    return found


def path_of(ws: Workspace) -> str:
    """Where a workspace's threads are."""
    return os.path.join(ws.home, "threads", f"{ws.id}.db")
