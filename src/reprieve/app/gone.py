"""A workspace whose folder is gone: what was in it is kept, and can be told and taken back like any other step."""

from __future__ import annotations

import os
import shlex
import stat
import tempfile
from contextlib import contextmanager

from reprieve.app import places
from reprieve.app.finding import is_annex, open_record
from reprieve.errors import Refused, ReprieveError
from reprieve.files import native, tree
from reprieve.store.local import LocalStore

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from reprieve.app.workspace import Workspace
    from reprieve.model.reporter import Reporter
    from reprieve.model.timeline import WorkspaceRecord
    from reprieve.store.protocols import Timeline

_OPEN_DIR = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def is_gone(root: bytes) -> bool:
    """Whether there is no folder at a path. One that we may not look at is not gone."""
    try:
        return not stat.S_ISDIR(os.stat(root).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False


def renamed_to(record: WorkspaceRecord) -> bytes | None:
    """Where a folder is that was merely renamed, None if it is not beside its old name."""
    try:
        with os.scandir(os.path.dirname(record.root)) as beside:
            found = [entry.path for entry in beside if entry.inode() == record.ino]
        for path in found:
            fd = os.open(path, _OPEN_DIR)
            try:
                if (os.fstat(fd).st_dev, native.birth(fd)) == (record.dev, record.born_at):
                    return path
            finally:
                os.close(fd)
    except OSError:
        return None  # its folder is gone too, or what is there cannot be looked at
    return None


@contextmanager
def open_gone(record: WorkspaceRecord, *, reporter: Reporter, clock: Callable[[], int]) -> Iterator[Workspace]:
    """The workspace with an empty folder in place of its own, so that a checkpoint says that all was deleted.

    Only for checkpoints: what is restored there, nobody would find. Raises Refused where one would restore.
    """
    home = places.home()
    store = LocalStore.open(home, reporter=reporter)
    stand_in = tempfile.mkdtemp(dir=os.path.join(home, "tmp"))
    try:
        fd = os.open(stand_in, _OPEN_DIR)
        try:
            ws = open_record(record, fd, store=store, home=home, reporter=reporter, clock=clock)
        except BaseException:
            os.close(fd)
            store.close()
            raise
        with ws:
            if any(timeline.intent() for timeline in (ws.timeline, *(annex.ws.timeline for annex in ws.annexes))):
                text, hints = said_gone(ws)
                raise Refused(f"{text}, but a rollback was interrupted there", hints=hints)
            head = ws.timeline.head()
            root = tree.lookup(ws.capture.tree_at(head.seq), b"") if head is not None else None
            if root is not None:
                os.fchmod(fd, root.mode & 0o777 | 0o700)  # it was not its rights that changed
            yield ws
    finally:
        os.rmdir(stand_in)


def said_gone(ws: Workspace) -> tuple[str, list[str]]:
    """What a person has to know, and the commands that bring everything back."""
    return f"'{os.fsdecode(ws.root)}' is gone; what was in it is kept", _commands(ws, ws.timeline)


def way_back(path: str) -> list[str]:
    """Hints for who names a folder that is gone, none if it was never protected."""
    home = places.home()
    if not os.path.lexists(home):
        return []
    wanted = os.path.realpath(os.fsencode(path))
    try:
        store = LocalStore.open(home)
    except ReprieveError:
        return []  # what is wrong with the store is told by the commands that need it
    try:
        for record in store.workspaces():
            is_in = wanted == record.root or wanted.startswith(record.root.rstrip(b"/") + b"/")
            if is_in and not is_annex(record) and is_gone(record.root):
                return _commands(record, store.timeline(record.id))
    except ReprieveError:
        return []
    finally:
        store.close()
    return []


def _commands(of: WorkspaceRecord | Workspace, timeline: Timeline) -> list[str]:
    """What brings it back: to the newest entry at which there was something."""
    last = next((entry for entry in timeline.newest_first() if entry.files), None)
    if last is None:
        return []
    root = shlex.quote(os.fsdecode(of.root))
    # a folder that was just made holds nothing of a person's; that they deleted it themselves is no reason to keep that
    return [f"bring it back: mkdir -p {root} && reprieve -C {root} rollback {last.id} --everything"]
