"""Find the workspace that a folder is in, or make one: by the folder itself, wherever it was moved to."""

from __future__ import annotations

import os
import time

from reprieve.app import config as settings
from reprieve.app import places
from reprieve.app.identity import recognise
from reprieve.app.weaker import sentence
from reprieve.app.workspace import Workspace
from reprieve.errors import Misconfigured, Refused
from reprieve.files import native, promised
from reprieve.files.snapshot import Limits
from reprieve.model.change import how_to_open
from reprieve.model.reporter import Reporter
from reprieve.model.timeline import WorkspaceRecord
from reprieve.store.chain import new_id
from reprieve.store.local import LocalStore

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from reprieve.app.config import Config
    from reprieve.store.kept import Kept
    from reprieve.store.protocols import Store

_OPEN_ROOT = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def open_workspace(
    start: str,
    *,
    create: bool = False,
    exactly: bool = False,
    reporter: Reporter | None = None,
    allow_anywhere: bool = False,
    clock: Callable[[], int] = time.time_ns,
    kept: Kept | None = None,
) -> Workspace:
    """The workspace that start is in; with `create` one is made at start if need be. `exactly`: start itself.

    `kept`: for a thread that does this often; the store's database stays open in it.
    """
    reporter = reporter or Reporter()
    home = places.home()
    try:
        top = os.path.realpath(os.fsencode(start), strict=True)
    except OSError as e:
        raise Misconfigured(f"'{start}' cannot be opened: {e.strerror}") from e
    if not create and not os.path.lexists(home):
        raise _no_workspace(start)  # looking must not create a store
    store = LocalStore.open(home, reporter=reporter, kept=kept)
    try:
        every = store.workspaces()
        records = [record for record in every if not is_annex(record)]
        at = top
        while True:
            found = _at(store, records, at, reporter, is_new=exactly and create)
            if found is not None:
                break
            if exactly or at == os.path.dirname(at):
                if not create:
                    raise _no_workspace(start)
                at = top
                found = _create(store, at, home, allow_anywhere=allow_anywhere, now_ns=clock())
                break
            at = os.path.dirname(at)
        record, root_fd = found
        some = every if len(records) < len(every) else ()
        return open_record(record, root_fd, store=store, home=home, reporter=reporter, clock=clock, every=some)
    except BaseException:
        store.close()
        raise


def open_record(
    record: WorkspaceRecord,
    root_fd: int,
    *,
    store: Store,
    home: str,
    reporter: Reporter,
    clock: Callable[[], int],
    every: Sequence[WorkspaceRecord] | None = None,
) -> Workspace:
    """A workspace whose folder is open. `every`: the store's workspaces, if there are tracked paths among them."""
    config = settings.load(record.root, record.settings)
    for problem in config.problems:
        reporter.warn(problem)
    if config.weaker:
        reporter.warn(sentence(config.weaker))
    if '"accepted":' in record.settings and dict(config.accepted) != settings.accepted_in(record.settings):
        from reprieve.app.accepting import withdraw

        withdraw(store, record, config.accepted)
    ws = Workspace(
        record,
        store=store,
        home=home,
        root_fd=root_fd,
        config=config,
        limits=limits_of(config, record.root, home),
        reporter=reporter,
        clock=clock,
    )
    if every is None:
        every = store.workspaces()
    if every:
        from reprieve.app.annexes import open_annexes

        ws.annexes, ws.lost = open_annexes(ws, every)
        ws.former = ()
    if promised.is_waiting(home, record.id):
        ws.recover()  # the timeline is read, too, by who takes no lock
    return ws


def _no_workspace(start: str) -> Misconfigured:
    return Misconfigured(f"'{start}' is not in a workspace", hints=["protect this folder: reprieve init"])


def is_annex(record: WorkspaceRecord) -> bool:
    """A tracked path has a timeline of its own, and no folder is ever found to be in it."""
    return '"annex":' in record.settings


def _at(
    store: Store, records: Sequence[WorkspaceRecord], path: bytes, reporter: Reporter, *, is_new: bool
) -> tuple[WorkspaceRecord, int] | None:
    if not records:
        return None
    try:
        fd = os.open(path, _OPEN_ROOT)
    except OSError as e:
        if isinstance(e, PermissionError) and any(record.root == path for record in records):
            message = f"'{os.fsdecode(path)}' is protected and cannot be read: {e.strerror}"
            raise Misconfigured(message, hints=[f"give yourself the right to it: {how_to_open(path)}"]) from e
        return None
    st = os.fstat(fd)
    candidates = [r for r in records if r.root == path or r.ino == st.st_ino]
    record, news = recognise(candidates, path, st, native.birth(fd)) if candidates else (None, "")
    if record is None:
        os.close(fd)
        return None
    if news == "mounted over":
        os.close(fd)
        if is_new:
            return None
        raise Refused(
            f"'{os.fsdecode(path)}' is on another file system than the folder that was protected here",
            hints=["mount it again", "or begin a history of its own here: reprieve init"],
        )
    if news:
        store.save_workspace(record)
        reporter.note(f"this folder was {news}; its history goes on")
    return record, fd


def _create(store: Store, path: bytes, home: str, *, allow_anywhere: bool, now_ns: int) -> tuple[WorkspaceRecord, int]:
    user_home = os.fsencode(os.path.realpath(os.path.expanduser("~")))
    if not allow_anywhere and path in (b"/", user_home):
        what = "the root of the file system" if path == b"/" else "your home directory"
        raise Refused(
            f"'{os.fsdecode(path)}' is {what}; protecting all of it is rarely what one wants",
            hints=["go to the project's folder first", "if you mean it: reprieve init --anywhere"],
        )
    inside = os.path.realpath(os.fsencode(home))
    if path == inside or path.startswith(inside + b"/"):
        raise Refused("the store cannot protect itself", hints=["choose a folder outside REPRIEVE_HOME"])
    fd = os.open(path, _OPEN_ROOT)
    st = os.fstat(fd)
    record = WorkspaceRecord(new_id(), path, st.st_dev, st.st_ino, native.birth(fd), now_ns)
    with store.transaction():
        # two first checkpoints at once must not make two histories: whoever comes second takes the first's
        for other in store.workspaces():
            if not is_annex(other) and (other.root, other.dev, other.ino) == (path, st.st_dev, st.st_ino):
                return other, fd
        store.save_workspace(record)
    return record, fd


def limits_of(config: Config, root: bytes, home: str) -> Limits:
    """What of a tree is not captured under these settings."""
    excludes = None
    if config.exclude:
        from reprieve.files.ignore import Excludes

        # what says what is excluded is not: an agent that wrote it would be out of reach of a rollback
        excludes = Excludes((*config.exclude, f"!/{settings.WORKSPACE_FILE}"))
    skip = set()
    inside = os.path.realpath(os.fsencode(home))
    if inside.startswith(root.rstrip(b"/") + b"/"):
        skip.add(inside[len(root.rstrip(b"/")) + 1 :])
    return Limits(excludes, config.max_file_size, config.cross_mounts, frozenset(skip))
