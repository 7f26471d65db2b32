"""Open threads: in memory, in a folder of their own, or beside a workspace's timeline, linked with its checkpoints."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, cast

from reprieve.store.thread_db import SqliteThreads
from reprieve.store.thread_memory import MemoryThreads
from reprieve.threads.threads import Threads
from reprieve.threads.values import Types

if TYPE_CHECKING:
    from reprieve.app.public import Workspace as Public
    from reprieve.app.workspace import Workspace
    from reprieve.model.plan import Plan, Report

FILE = "threads.db"


class Files:
    """The files that belong to threads: a workspace's checkpoints."""

    def __init__(self, ws: Workspace) -> None:
        self._ws = ws

    def position(self, label: str) -> str:
        """The checkpoint of this moment: the newest one if nothing changed since, else a new one."""
        return self._ws.checkpoint(label, only_changes=True).entry.id

    def rollback(self, checkpoint: str, *, dry_run: bool = False) -> tuple[Plan, Report | None]:
        """Move the files to a checkpoint. Raises Conflict or Refused, nothing touched."""
        return self._ws.rollback(checkpoint, dry_run=dry_run)


def open_threads(
    where: str | os.PathLike[str] | Public | Workspace | None, types: Types, *, create: bool = True
) -> tuple[Threads, Files | None]:
    """Threads, and the files that they are linked with, if they are. None: in memory."""
    if where is None:
        return Threads(MemoryThreads(), types), None
    if isinstance(where, (str, os.PathLike)):
        return Threads(SqliteThreads.open(os.path.join(os.fspath(where), FILE), create=create), types), None
    ws = cast("Workspace", getattr(where, "_inner", where))  # the public Workspace is a thin cover
    return Threads(SqliteThreads.open(path_of(ws), create=create), types, clock=ws.clock), Files(ws)


def path_of(ws: Workspace) -> str:
    """Where a workspace's threads are."""
    return os.path.join(ws.home, "threads", f"{ws.id}.db")
